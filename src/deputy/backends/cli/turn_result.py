"""The result of a program's turn, from its events, its exit status and its other output."""

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
from deputy.core.limits import time_is_up
from deputy.core.provider_errors import provider_error
from deputy.engine.loop import AWAITING
from deputy.engine.ports.backend import BackendResult, BackendSession

if TYPE_CHECKING:
    from deputy.backends.cli.program import Invocation, Program
    from deputy.backends.output_reader import ProgramOutput
    from deputy.backends.turn_recorder import TurnRecorder
    from deputy.processes.supervise import ExitStatus

StopReasonOfProgram: TypeAlias = Literal["exited", "time is up", "silent", "done"]
"""Why waiting ended: `done` is a program that reported the end of its turn but did not exit."""

_OUTPUT_LENGTH = 1500
_PLAIN = (ContextExhausted, BadKey, ModelNotFound, ModelRefused, RateLimited, QuotaSpent, Overloaded)
"""Errors that plain output can prove; any other failure counts as a crash."""
_UNKNOWN_FLAG = ("unknown option", "unexpected argument", "unknown argument", "unrecognized option", "invalid choice")


def end_of(
    program: Program,
    invocation: Invocation,
    recorder: TurnRecorder,
    stopping: StopReasonOfProgram,
    exit_: ExitStatus,
    printed: ProgramOutput,
) -> BackendResult:
    """The result of a turn."""
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
        warnings.append(f"{printed.too_long:,} lines of the program's output were too long and were skipped.")
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
    """A path relative to the workspace, if it is inside; programs report absolute paths."""
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
    """The error of the turn; None when there is an answer."""
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
    """The error that the program reported; standard error may have a better reason."""
    message, status = ("", None) if recorder.failure is None else (recorder.failure.message, recorder.failure.status)
    known = _in_its_words(program, message) or _in_its_words(program, printed.errors)
    if known is not None:
        return known
    if status is None and exit_.code is not None:
        status = program.status_of_exit(exit_.code)
    return _as_error(program, provider_error(message.encode("utf-8", "replace"), status=status))


def _unreported_failure(program: Program, exit_: ExitStatus, printed: ProgramOutput) -> Error:
    """The error of a program that ended without a report, read from its other output."""
    output = "\n".join(text for text in (printed.errors.strip(), printed.noise.strip()) if text)
    if exit_.code != 0:
        known = _in_its_words(program, output)
        if known is not None:
            return known
        status = None if exit_.code is None else program.status_of_exit(exit_.code)
        failure = provider_error(output.encode("utf-8", "replace"), status=status)
        if output and isinstance(failure, _PLAIN):
            return _as_error(program, failure)
        return program_errors.crashed(program.name, _how(exit_), _cut(output))
    if printed.lines:
        return program_errors.crashed(program.name, "ended", _cut(output))
    if printed.noise.strip() or printed.too_long:
        return program_errors.not_json(program.name, _cut(printed.noise.strip(), printed.total_bytes))
    return program_errors.no_output(program.name)


def _in_its_words(program: Program, output: str) -> Error | None:
    words, first = output.lower(), _line(output)
    if any(wording in words for wording in program.session_unknown):
        return program_errors.session_gone(program.name, first)
    if any(wording in words for wording in program.model_missing):
        return program_errors.model_unknown(program.name, _line_with(output, program.model_missing))
    if any(wording in words for wording in program.logged_out):
        return program_errors.not_logged_in(program.name, _line_with(output, program.logged_out), program.login)
    if any(wording in words for wording in program.refused):
        return ModelRefused(f"{program.name}: {first}").as_value()
    if any(wording in words for wording in _UNKNOWN_FLAG):
        return program_errors.flag_unknown(program.name, _line_with(output, _UNKNOWN_FLAG), program.install)
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
        return "was killed together with its supervisor"
    if exit_.code < 0:
        number = -exit_.code
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return f"was ended by the signal {name}"
    return f"ended with exit code {exit_.code}"


def _line(output: str) -> str:
    return _cut(next((line.strip() for line in output.splitlines() if line.strip()), ""))


def _line_with(output: str, wordings: tuple[str, ...]) -> str:
    lines = (line.strip() for line in output.splitlines())
    return _cut(next((line for line in lines if any(wording in line.lower() for wording in wordings)), output.strip()))


def _cut(output: str, total_bytes: int = 0) -> str:
    """Beginning and end of long output and its size, without colours and control characters."""
    first, *rest = output.split("\x1b[")
    text = "".join((first, *(piece.lstrip("0123456789;?")[1:] for piece in rest)))
    text = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
    if len(text) <= _OUTPUT_LENGTH:
        return text
    half = _OUTPUT_LENGTH // 2
    size = f"{total_bytes:,} bytes in all" if total_bytes else f"{len(text):,} characters in all"
    return f"{text[:half]} […, {size}] {text[-half:]}"
