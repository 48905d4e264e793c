"""How a program's turn ended: what it said, how it exited and what it printed beside, told apart."""

from __future__ import annotations

import os
import posixpath
import signal
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import structs

from deputy.backends import program_errors
from deputy.core.errors import (
    BadKey,
    ContextExhausted,
    Error,
    ModelError,
    ModelNotFound,
    ModelRefused,
    Overloaded,
    QuotaSpent,
    RateLimited,
    Silent,
)
from deputy.core.limit_errors import time_is_up
from deputy.core.provider_errors import provider_error
from deputy.engine.loop import AWAITING
from deputy.engine.ports.backend import BackendResult, BackendSession

if TYPE_CHECKING:
    from deputy.backends.cli.program import Invocation, Program
    from deputy.backends.output_reader import ProgramOutput
    from deputy.backends.turn_recorder import TurnRecorder
    from deputy.processes.supervise import ExitStatus

StopReasonOfProgram: TypeAlias = Literal["exited", "time is up", "silent", "done"]
"""Why nothing more was waited for: `done` is a program that said all and would not go."""

_SAID_LENGTH = 1500
_PLAIN = (ContextExhausted, BadKey, ModelNotFound, ModelRefused, RateLimited, QuotaSpent, Overloaded)
"""What may be read out of plain words; anything less sure is a crash."""
_UNKNOWN_FLAG = ("unknown option", "unexpected argument", "unknown argument", "unrecognized option", "invalid choice")


def end_of(
    program: Program,
    invocation: Invocation,
    recorder: TurnRecorder,
    stopping: StopReasonOfProgram,
    exit_: ExitStatus,
    printed: ProgramOutput,
) -> BackendResult:
    """The end of a turn in our words."""
    error = _why(program, invocation, recorder, stopping, exit_, printed)
    text = recorder.text
    if error is not None:
        is_limit = error.type in ("timeout", "context_exhausted", "budget", "output_limit")
        end = BackendResult(kind="limited" if is_limit else "failed", text=text, error=error)
        return _end(program, invocation, recorder, printed, end)
    words = text.rstrip()
    if words.endswith(AWAITING):
        end = BackendResult(kind="asked", text=words.removesuffix(AWAITING).rstrip())
        return _end(program, invocation, recorder, printed, end)
    return _end(program, invocation, recorder, printed, BackendResult(kind="answered", text=text))


def _end(
    program: Program, invocation: Invocation, recorder: TurnRecorder, printed: ProgramOutput, end: BackendResult
) -> BackendResult:
    warnings = list(recorder.warnings)
    if printed.too_long:
        warnings.append(f"{printed.too_long:,} lines of its output were too long and were left out.")
    own = BackendSession(id=recorder.session, counted=recorder.counted) if recorder.session else None
    is_gone = end.error is not None and end.error.code == program_errors.SESSION_GONE
    return structs.replace(
        end,
        usage=recorder.usage,
        model=recorder.model,
        own_session=own,
        is_resumable=own is not None and program.has_sessions and not is_gone,
        changed=tuple(dict.fromkeys(_in_workspace(invocation, path) for path in recorder.changed)),
        tools_used=recorder.tools_used,
        is_uncertain=invocation.may_write and bool(recorder.session) and not (recorder.is_over and program.tells_all),
        context=recorder.context,
        warnings=tuple(warnings),
    )


def _in_workspace(invocation: Invocation, path: str) -> str:
    """A path as the workspace has it, where it lies in there: programs name it from the root of the disk."""
    whole = posixpath.normpath(posixpath.join(invocation.place, path))
    return whole.removeprefix(f"{posixpath.normpath(invocation.request.workspace)}/")


def _why(
    program: Program,
    invocation: Invocation,
    recorder: TurnRecorder,
    stopping: StopReasonOfProgram,
    exit_: ExitStatus,
    printed: ProgramOutput,
) -> Error | None:
    """What kept it from answering; None when it did."""
    if exit_.errno:
        return program_errors.cannot_run(program.name, os.strerror(exit_.errno), program.install)
    if stopping == "time is up":
        return time_is_up(invocation.request.seconds)
    if stopping == "silent":
        message = f"{program.name} made no progress for {invocation.request.idle_seconds:g} s"
        return Silent(message).as_value()
    if recorder.error is not None:
        return recorder.error
    if recorder.failure is not None:
        return _reported_failure(program, recorder, exit_, printed)
    if recorder.is_over:
        return None if recorder.text.strip() else program_errors.no_output(program.name)
    return _unreported_failure(program, exit_, printed)


def _reported_failure(program: Program, recorder: TurnRecorder, exit_: ExitStatus, printed: ProgramOutput) -> Error:
    """It said what went wrong; what it printed beside may say more."""
    message, status = ("", None) if recorder.failure is None else (recorder.failure.message, recorder.failure.status)
    known = _in_its_words(program, message) or _in_its_words(program, printed.errors)
    if known is not None:
        return known
    if status is None and exit_.code is not None:
        status = program.status_of_exit(exit_.code)
    return _as_error(program, provider_error(message.encode("utf-8", "replace"), status=status))


def _unreported_failure(program: Program, exit_: ExitStatus, printed: ProgramOutput) -> Error:
    """It ended without a word of how; what it printed is all there is."""
    said = "\n".join(text for text in (printed.errors.strip(), printed.noise.strip()) if text)
    if exit_.code != 0:
        known = _in_its_words(program, said)
        if known is not None:
            return known
        status = None if exit_.code is None else program.status_of_exit(exit_.code)
        failure = provider_error(said.encode("utf-8", "replace"), status=status)
        if said and isinstance(failure, _PLAIN):
            return _as_error(program, failure)
        return program_errors.crashed(program.name, _how(exit_), _cut(said))
    if printed.lines:
        return program_errors.crashed(program.name, "ended", _cut(said))
    if printed.noise.strip() or printed.too_long:
        return program_errors.not_json(program.name, _cut(printed.noise.strip(), printed.total_bytes))
    return program_errors.no_output(program.name)


def _in_its_words(program: Program, said: str) -> Error | None:
    words, first = said.lower(), _line(said)
    if any(wording in words for wording in program.session_unknown):
        return program_errors.session_gone(program.name, first)
    if any(wording in words for wording in program.model_missing):
        return program_errors.model_unknown(program.name, _line_with(said, program.model_missing))
    if any(wording in words for wording in program.logged_out):
        return program_errors.not_logged_in(program.name, _line_with(said, program.logged_out), program.login)
    if any(wording in words for wording in program.refused):
        return ModelRefused(f"{program.name}: {first}").as_value()
    if any(wording in words for wording in _UNKNOWN_FLAG):
        return program_errors.flag_unknown(program.name, _line_with(said, _UNKNOWN_FLAG), program.install)
    return None


def _as_error(program: Program, failure: ModelError) -> Error:
    if isinstance(failure, BadKey):
        return program_errors.not_logged_in(program.name, failure.message, program.login)
    if isinstance(failure, ModelNotFound):
        return program_errors.model_unknown(program.name, failure.message)
    error = failure.as_value()
    return structs.replace(error, message=f"{program.name}: {error.message}")


def _how(exit_: ExitStatus) -> str:
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
