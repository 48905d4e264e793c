"""Find a run by what people type: its id, the beginning of the id's random part, its label, or `last`."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from deputy.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries

LAST = "last"
_SHORTEST = 4
"""The least letters of a short id."""
_LISTED = 10


def find_run(queries: Queries, name: str) -> str:
    """The id of the run that a name means, or the name itself if it means none; several are a UsageError."""
    if not name or queries.state(name) is not None:
        return name
    ids = queries.ids()
    if name == LAST:
        return _last(queries, ids) or name
    by_id = [run for run in ids if random_part(run).startswith(name)]
    whole = [run for run in by_id if random_part(run) == name]
    found = whole or [state.run for state in queries.labelled(name)] or by_id
    if len(found) > 1:
        raise UsageError("ID", name, _candidates(queries, found))
    return found[0] if found else name


def short_ids(ids: Iterable[str], shown: Iterable[str]) -> dict[str, str]:
    """For each shown id the beginning of its random part that no other id shares; the whole id if there is none."""
    parts = sorted(map(random_part, ids))
    return {run: _short_id(run, parts) for run in shown}


def _short_id(run: str, parts: list[str]) -> str:
    part = random_part(run)
    at = bisect_left(parts, part)
    around = (*parts[max(0, at - 1) : at], *parts[at + 1 : at + 2])
    length = max((_shared_letters(part, other) for other in around), default=0) + 1
    return run if length > len(part) else part[: max(length, _SHORTEST)]


def _shared_letters(one: str, other: str) -> int:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), len(one))


def random_part(run: str) -> str:
    """The random letters at the end of an id."""
    return run.rpartition("_")[2]


def _last(queries: Queries, ids: Sequence[str]) -> str:
    """The run that a person or program started last; an id begins with the second of its start."""
    latest: State | None = None
    for run in sorted(ids, key=_second, reverse=True):
        if latest is not None and _second(run) < _second(latest.run):
            break
        state = queries.state(run)
        if state is not None and state.parent is None and (latest is None or state.requested_at > latest.requested_at):
            latest = state
    return "" if latest is None else latest.run


def _second(run: str) -> int:
    number = run.removeprefix("sess_").partition("_")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def _candidates(queries: Queries, found: Sequence[str]) -> str:
    lines = ["it means several runs; give more of the id:"]
    for run in found[:_LISTED]:
        state = queries.state(run)
        lines.append(f"  {run}" if state is None else f"  {run}  {state.status}  {state.label or state.command}")
    if len(found) > _LISTED:
        lines.append(f"  and {len(found) - _LISTED} more")
    return "\n".join(lines)
