"""How a program's turn ended: what it said, how it exited and what it printed beside, told apart."""

from __future__ import annotations

import os
import posixpath
import signal
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import structs

from deputy.backends import problems
from deputy.core.errors import (
    BadKey,
    ContextExhausted,
    Error,
    ModelError,
    ModelNotFound,
    Overloaded,
    QuotaSpent,
    RateLimited,
    Refused,
    Silent,
)
from deputy.core.failures import failure_of
from deputy.engine.loop import AWAITING
from deputy.engine.ports.backend import BackendEnd, OwnSession
from deputy.engine.reached import time_is_up

if TYPE_CHECKING:
    from deputy.backends.cli.program import Order, Program
    from deputy.backends.hearing import Printed
    from deputy.backends.told import Told
    from deputy.processes.supervise import Exit

Stopping: TypeAlias = Literal["exited", "time is up", "silent", "done"]
"""Why nothing more was waited for: `done` is a program that said all and would not go."""

_SAID_LENGTH = 1500
_PLAIN = (ContextExhausted, BadKey, ModelNotFound, Refused, RateLimited, QuotaSpent, Overloaded)
"""What may be read out of plain words; anything less sure is a crash."""
_UNKNOWN_FLAG = ("unknown option", "unexpected argument", "unknown argument", "unrecognized option", "invalid choice")


def end_of(program: Program, order: Order, told: Told, stopping: Stopping, exit_: Exit, printed: Printed) -> BackendEnd:
    """The end of a turn in our words."""
    error = _why(program, order, told, stopping, exit_, printed)
    text = told.text
    if error is not None:
        is_limit = error.type in ("timeout", "context_exhausted", "budget", "output_limit")
        end = BackendEnd(kind="limited" if is_limit else "failed", text=text, error=error)
        return _end(program, order, told, printed, end)
    words = text.rstrip()
    if words.endswith(AWAITING):
        end = BackendEnd(kind="asked", text=words.removesuffix(AWAITING).rstrip())
        return _end(program, order, told, printed, end)
    return _end(program, order, told, printed, BackendEnd(kind="answered", text=text))


def _end(program: Program, order: Order, told: Told, printed: Printed, end: BackendEnd) -> BackendEnd:
    warnings = list(told.warnings)
    if printed.too_long:
        warnings.append(f"{printed.too_long:,} lines of its output were too long and were left out.")
    own = OwnSession(id=told.session, counted=told.counted) if told.session else None
    is_gone = end.error is not None and end.error.code == problems.SESSION_GONE
    return structs.replace(
        end,
        usage=told.usage,
        model=told.model,
        own_session=own,
        is_resumable=own is not None and program.has_sessions and not is_gone,
        changed=tuple(dict.fromkeys(_in_workspace(order, path) for path in told.changed)),
        tools_used=told.tools_used,
        is_uncertain=order.may_write and bool(told.session) and not (told.is_over and program.tells_all),
        context=told.context,
        warnings=tuple(warnings),
    )


def _in_workspace(order: Order, path: str) -> str:
    """A path as the workspace has it, where it lies in there: programs name it from the root of the disk."""
    whole = posixpath.normpath(posixpath.join(order.place, path))
    return whole.removeprefix(f"{posixpath.normpath(order.assignment.workspace)}/")


def _why(program: Program, order: Order, told: Told, stopping: Stopping, exit_: Exit, printed: Printed) -> Error | None:
    """What kept it from answering; None when it did."""
    if exit_.errno:
        return problems.cannot_run(program.name, os.strerror(exit_.errno), program.install)
    if stopping == "time is up":
        return time_is_up(order.assignment.seconds)
    if stopping == "silent":
        message = f"{program.name} made no progress for {order.assignment.idle_seconds:g} s"
        return Silent(message).as_value()
    if told.error is not None:
        return told.error
    if told.failure is not None:
        return _told_failure(program, told, exit_, printed)
    if told.is_over:
        return None if told.text.strip() else problems.said_nothing(program.name)
    return _untold_failure(program, exit_, printed)


def _told_failure(program: Program, told: Told, exit_: Exit, printed: Printed) -> Error:
    """It said what went wrong; what it printed beside may say more."""
    message, status = ("", None) if told.failure is None else (told.failure.message, told.failure.status)
    known = _in_its_words(program, message) or _in_its_words(program, printed.errors)
    if known is not None:
        return known
    if status is None and exit_.code is not None:
        status = program.status_of_exit(exit_.code)
    return _as_error(program, failure_of(message.encode("utf-8", "replace"), status=status))


def _untold_failure(program: Program, exit_: Exit, printed: Printed) -> Error:
    """It ended without a word of how; what it printed is all there is."""
    said = "\n".join(text for text in (printed.errors.strip(), printed.noise.strip()) if text)
    if exit_.code != 0:
        known = _in_its_words(program, said)
        if known is not None:
            return known
        status = None if exit_.code is None else program.status_of_exit(exit_.code)
        failure = failure_of(said.encode("utf-8", "replace"), status=status)
        if said and isinstance(failure, _PLAIN):
            return _as_error(program, failure)
        return problems.crashed(program.name, _how(exit_), _cut(said))
    if printed.lines:
        return problems.crashed(program.name, "ended", _cut(said))
    if printed.noise.strip() or printed.too_long:
        return problems.not_json(program.name, _cut(printed.noise.strip(), printed.total_bytes))
    return problems.said_nothing(program.name)


def _in_its_words(program: Program, said: str) -> Error | None:
    words, first = said.lower(), _line(said)
    if any(wording in words for wording in program.session_unknown):
        return problems.session_gone(program.name, first)
    if any(wording in words for wording in program.model_missing):
        return problems.model_unknown(program.name, _line_with(said, program.model_missing))
    if any(wording in words for wording in program.logged_out):
        return problems.not_logged_in(program.name, _line_with(said, program.logged_out), program.login)
    if any(wording in words for wording in program.refused):
        return Refused(f"{program.name}: {first}").as_value()
    if any(wording in words for wording in _UNKNOWN_FLAG):
        return problems.flag_unknown(program.name, _line_with(said, _UNKNOWN_FLAG), program.install)
    return None


def _as_error(program: Program, failure: ModelError) -> Error:
    if isinstance(failure, BadKey):
        return problems.not_logged_in(program.name, failure.message, program.login)
    if isinstance(failure, ModelNotFound):
        return problems.model_unknown(program.name, failure.message)
    error = failure.as_value()
    return structs.replace(error, message=f"{program.name}: {error.message}")


def _how(exit_: Exit) -> str:
    if exit_.code is None:
        return "was killed with what watched over it"
    if exit_.code < 0:
        number = -exit_.code
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return f"was ended by the signal {name}"
    return f"ended with exit code {exit_.code}"


def _line(said: str) -> str:
    return _cut(next((line.strip() for line in said.splitlines() if line.strip()), ""))


def _line_with(said: str, wordings: tuple[str, ...]) -> str:
    """The line that says it."""
    lines = (line.strip() for line in said.splitlines())
    return _cut(next((line for line in lines if any(wording in line.lower() for wording in wordings)), said.strip()))


def _cut(said: str, total_bytes: int = 0) -> str:
    """The beginning and the end of what was said, and how much it was; colours and other controls are left out."""
    first, *rest = said.split("\x1b[")
    said = "".join((first, *(piece.lstrip("0123456789;?")[1:] for piece in rest)))
    said = "".join(letter for letter in said if letter.isprintable() or letter in "\n\t")
    if len(said) <= _SAID_LENGTH:
        return said
    half = _SAID_LENGTH // 2
    size = f"{total_bytes:,} bytes in all" if total_bytes else f"{len(said):,} characters in all"
    return f"{said[:half]} […, {size}] {said[-half:]}"
