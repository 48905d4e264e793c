"""The error log: one row per kind of error, with its count and times."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, json, structs

from deputy.core.events import errors_of
from deputy.core.request import timestamp
from deputy.engine.ports.queries import DamagedRecord, ErrorContext, LoggedErrorRow, Severity
from deputy.journal.sql.rows import error_sum, is_whole_error, read_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.errors import Error
    from deputy.core.state import State
    from deputy.journal.sql.rows import Row
    from deputy.journal.sql.sql_store import SqlTables

_STEPS_WITH_ERRORS = (
    "SELECT run, seq, key, at, clock, kind, body, sum FROM events WHERE run = ?"
    " AND seq > (SELECT coalesce(max(seq), 0) FROM events WHERE run = ? AND kind = 'resumed')"
    " AND kind IN ('model_call_ended', 'tool_call_ended', 'step_ended') AND instr(body, ?)"
)
_PUT = (
    "INSERT INTO errors (id, first_at, last_at, count, body, sum) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
    " SET first_at = excluded.first_at, last_at = excluded.last_at, count = excluded.count, body = excluded.body,"
    " sum = excluded.sum"
)


class _Body(Struct, frozen=True, kw_only=True, omit_defaults=True):
    severity: Severity
    type: str
    code: str
    message: str
    recommendation: str
    context: ErrorContext
    trace: str = ""


def context_of(state: State) -> ErrorContext:
    """Where an error of this run happened."""
    return ErrorContext(
        command=state.command,
        subagent=state.agent,
        task_number=state.task_number,
        session_id=state.run,
        timeout=state.seconds,
    )


def write(tables: SqlTables, error: Error, at: float, context: ErrorContext, trace: str = "") -> None:
    """Log an error, or raise its count; the last stack trace is kept.

    An error that a child passed up is skipped: the child logged it. So is that of a fallback, which its step logged.
    """
    if error.session_id not in (UNSET, context.session_id) or error.candidate is not UNSET:
        return
    code = "" if error.code is UNSET else error.code
    identity = json.encode([error.type, code, error.message, context.command, context.subagent])
    name = f"err_{blake2b(identity, digest_size=6).hexdigest()}"
    known = tables.execute(
        "SELECT id, first_at, last_at, count, body, sum FROM errors WHERE id = ?", (name,)
    ).fetchone()
    before = None if known is None else read_row(known)
    body = _Body(
        severity="warning" if error.recoverable else "error",
        type=error.type,
        code=code,
        message=error.message,
        recommendation=error.recommendation,
        context=context,
        trace=trace or ("" if before is None else before.trace),
    )
    first_at, last_at, count = (float(at), float(at), 0) if known is None else known[1:4]
    row = (name, first_at, max(last_at, float(at)), count + 1, json.encode(body))
    tables.execute(_PUT, (*row, error_sum(*row)))


def not_met(tables: SqlTables, run: str, errors: Sequence[Error]) -> list[Error]:
    """The errors of an outcome that no step of this round has logged."""
    met: set[tuple[object, ...]] = set()
    for row in tables.execute(_STEPS_WITH_ERRORS, (run, run, b'"error":')).fetchall() if errors else ():
        record = read_event(row)
        met |= set() if isinstance(record, DamagedRecord) else {_kind(error) for error in errors_of(record.event)}
    return [error for error in errors if _kind(error) not in met]


def _kind(error: Error) -> tuple[object, ...]:
    return error.type, error.code, error.message


def form(logged: LoggedErrorRow) -> dict[str, Any]:
    """A row of the log as JSON data."""
    return {
        **{name: getattr(logged, name) for name in logged.__struct_fields__},
        "first_at": timestamp(logged.first_at),
        "last_at": timestamp(logged.last_at),
    }


def read_row(row: Row) -> LoggedErrorRow | None:
    """The error of a row; None when the row is damaged."""
    name, first_at, last_at, count, body, _ = row
    try:
        logged = json.decode(body, type=_Body) if is_whole_error(row) else None
    except ValueError:
        return None
    if logged is None:
        return None
    return LoggedErrorRow(id=name, first_at=first_at, last_at=last_at, count=count, **structs.asdict(logged))


# --- groups -----------------------------------------------------------------------------------------------------------


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Errors of one type and code: the total count, and their ids."""

    type: str
    code: str
    count: int
    ids: tuple[str, ...]


def grouped(errors: Iterable[LoggedErrorRow]) -> list[ErrorGroup]:
    """The errors by type and code; groups, and the errors in a group, are sorted by frequency."""
    groups: dict[tuple[str, str], list[LoggedErrorRow]] = {}
    for error in sorted(errors, key=lambda one: (-one.count, -one.last_at, one.id)):
        groups.setdefault((error.type, error.code), []).append(error)
    made = [
        ErrorGroup(type=type_, code=code, count=sum(one.count for one in members), ids=tuple(one.id for one in members))
        for (type_, code), members in groups.items()
    ]
    return sorted(made, key=lambda group: -group.count)


def alike(errors: Iterable[LoggedErrorRow], id_: str) -> list[LoggedErrorRow]:
    """The error with this id, then the rest of its group; empty if there is no such error."""
    known = list(errors)
    named = next((one for one in known if one.id == id_), None)
    if named is None:
        return []
    others = [one for one in known if (one.type, one.code) == (named.type, named.code) and one.id != id_]
    return [named, *sorted(others, key=lambda one: (-one.count, -one.last_at, one.id))]
