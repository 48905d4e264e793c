"""One turn of another agent's program: run it, read its output within limits, and make the result."""

from __future__ import annotations

import asyncio
import os
import posixpath
import signal
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec import structs

from deputy.backends import program_errors
from deputy.backends.turn_recorder import TurnRecorder
from deputy.core import model_errors
from deputy.core.limits import TOOL_SECONDS, RunningTool, is_hung, time_is_up
from deputy.core.provider_errors import provider_error
from deputy.engine.loop import AWAITING
from deputy.engine.ports.backend import BackendResult, BackendSession
from deputy.processes.bounded_output import HeadAndTail, LineReader, SpillFile
from deputy.processes.supervise import ExitStatus, supervise

if TYPE_CHECKING:
    from asyncio import StreamReader
    from collections.abc import AsyncIterator

    from deputy.backends.cli.program import Invocation, Program
    from deputy.backends.turn_recorder import ReportedFailure
    from deputy.core.errors import Error
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import Emit
    from deputy.processes.supervise import Command, SupervisedChild

StopReasonOfProgram: TypeAlias = Literal["exited", "time is up", "silent", "done"]
"""Why waiting ended: `done` is a program that reported the end of its turn but did not exit."""

_CHUNK = 64 * 1024
_NOISE_BYTES = 8_000
_OUTPUT_LENGTH = 1500
_WATCH_SECONDS = 1.0
DRAIN_SECONDS = 1.0
"""Time for the last output after a program has exited."""
_PLAIN = (
    model_errors.ContextExhausted,
    model_errors.BadKey,
    model_errors.ModelNotFound,
    model_errors.ModelRefused,
    model_errors.RateLimited,
    model_errors.QuotaSpent,
    model_errors.Overloaded,
)
"""Errors that plain output can prove; any other failure counts as a crash."""
_UNKNOWN_FLAG = ("unknown option", "unexpected argument", "unknown argument", "unrecognized option", "invalid choice")


class OutputReader:
    """Reads the output of one program, and writes all of it to a spill file, if one is named."""

    def __init__(self, spill: str = "", redactor: Redactor | None = None) -> None:
        self.events = 0
        """The number of event lines."""
        self.noise = HeadAndTail(_NOISE_BYTES, _NOISE_BYTES)
        """Beginning and end of the other lines."""
        self.errors = HeadAndTail(_NOISE_BYTES, _NOISE_BYTES)
        """Beginning and end of standard error."""
        self.total_bytes = 0
        self.line_reader = LineReader()
        self._spill = SpillFile(spill, redactor) if spill else None

    async def lines(self, stdout: StreamReader) -> AsyncIterator[bytes]:
        """The lines as they arrive."""
        async for chunk in self._chunks(stdout):
            self.total_bytes += len(chunk)
            for line in self.line_reader.feed(chunk):
                yield line
        yield self.line_reader.rest()

    async def overhear(self, stderr: StreamReader) -> None:
        """Read standard error."""
        async for chunk in self._chunks(stderr):
            self.errors.feed(chunk)

    async def _chunks(self, stream: StreamReader) -> AsyncIterator[bytes]:
        while chunk := await stream.read(_CHUNK):
            if self._spill is not None:
                self._spill.feed(chunk)
            yield chunk

    def close(self) -> None:
        """Close the spill file."""
        if self._spill is not None:
            self._spill.close()


class ProgramTurn(ABC):
    """One turn of a running program."""

    linger_seconds = 0.0
    """Time for a program to exit after it has reported the end of the turn."""

    def __init__(self, invocation: Invocation, output: OutputReader, emit: Emit) -> None:
        self._clock = asyncio.get_running_loop().time
        self._order = invocation
        self._output = output
        self._recorder = TurnRecorder(invocation, emit, self._clock)

    @abstractmethod
    async def talk(self, child: SupervisedChild) -> None:
        """Give the program its prompt."""

    @abstractmethod
    async def receive(self, line: bytes) -> bool:
        """Handle a line of its output; False when it is not an event."""

    @abstractmethod
    async def finish(self, stopping: StopReasonOfProgram, child: SupervisedChild, tasks: TurnTasks) -> None:
        """Let the program end after the turn, or after a limit."""

    async def play(self, command: Command) -> BackendResult:
        """Run the turn until it is over, the program exits, or a limit is reached."""
        async with supervise(command) as child, asyncio.TaskGroup() as group:
            tasks = TurnTasks(group.create_task(self.talk(child)), group.create_task(child.exited()))
            reading = {group.create_task(self.listen(child)), group.create_task(self._output.overhear(child.stderr))}
            stopping = await self._watch(tasks)
            await self.finish(stopping, child, tasks)
            exiting = tasks.exiting
            await asyncio.wait(reading, timeout=DRAIN_SECONDS if exiting.done() else 0)
            exit_ = exiting.result() if exiting.done() else ExitStatus()
            for task in (*tasks, *reading):
                task.cancel()
        return end_of(self._recorder, stopping, exit_, self._output)

    async def listen(self, child: SupervisedChild) -> None:
        """Read the program's output to its end."""
        async for line in self._output.lines(child.stdout):
            if await self.receive(line):
                self._output.events += 1
            elif line.strip():
                self._output.noise.feed(line + b"\n")

    async def _watch(self, tasks: TurnTasks) -> StopReasonOfProgram:
        request, recorder, began = self._order.request, self._recorder, self._clock()
        while True:
            left = _WATCH_SECONDS if request.seconds is None else began + request.seconds - self._clock()
            pending = {task for task in tasks if not task.done()}
            seconds = max(0, min(left, _WATCH_SECONDS))
            await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            now = self._clock()
            if tasks.exiting.done():
                return "exited"
            if recorder.is_over and now - recorder.active_at >= self.linger_seconds:
                return "done"
            if request.seconds is not None and now - began >= request.seconds:
                return "time is up"
            if not recorder.is_over and (stuck := self.stuck(now)):
                return stuck

    def stuck(self, now: float) -> StopReasonOfProgram | None:
        """Why to stop a program that has made no progress for too long."""
        recorder = self._recorder
        running = () if recorder.tool_since is None else (RunningTool(recorder.tool_since, TOOL_SECONDS),)
        return "silent" if is_hung(now, recorder.active_at, running, self._order.request.idle_seconds) else None


class TurnTasks(NamedTuple):
    """The tasks that a turn waits for."""

    talking: asyncio.Task[None]
    exiting: asyncio.Task[ExitStatus]


def end_of(
    recorder: TurnRecorder, stopping: StopReasonOfProgram, exit_: ExitStatus, output: OutputReader
) -> BackendResult:
    """The result of a turn."""
    error, text, kind = _why(recorder, stopping, exit_, output), recorder.text, "answered"
    if error is not None:
        is_limit = error.type in ("timeout", "context_exhausted", "budget", "output_limit")
        kind = "limited" if is_limit else "failed"
    elif text.rstrip().endswith(AWAITING):
        kind, text = "asked", text.rstrip().removesuffix(AWAITING).rstrip()
    warnings = list(recorder.warnings)
    if output.line_reader.too_long:
        warnings.append(
            f"{output.line_reader.too_long:,} lines of the program's output were too long and were skipped."
        )
    invocation, program = recorder.invocation, recorder.invocation.program
    own = BackendSession(id=recorder.session, counted=recorder.counted) if recorder.session else None
    is_gone = error is not None and error.code == program_errors.SESSION_GONE
    return BackendResult(
        kind=kind,
        text=text,
        error=error,
        usage=recorder.usage,
        model=recorder.model,
        own_session=own,
        is_resumable=own is not None and recorder.can_resume and not is_gone,
        changed=tuple(dict.fromkeys(_in_workspace(invocation, path) for path in recorder.changed)),
        tools_used=tuple(recorder.tools.values()),
        is_uncertain=invocation.may_write and bool(recorder.session) and not (recorder.is_over and program.tells_all),
        context=recorder.context,
        warnings=tuple(warnings),
    )


def _in_workspace(invocation: Invocation, path: str) -> str:
    """A path relative to the workspace, if it is inside; programs report absolute paths."""
    whole = posixpath.normpath(posixpath.join(invocation.place, path))
    return whole.removeprefix(f"{posixpath.normpath(invocation.request.workspace)}/")


def _why(
    recorder: TurnRecorder, stopping: StopReasonOfProgram, exit_: ExitStatus, output: OutputReader
) -> Error | None:
    program, request = recorder.invocation.program, recorder.invocation.request
    if exit_.errno:
        return program_errors.cannot_run(program.name, os.strerror(exit_.errno), program.install)
    if stopping == "time is up":
        return time_is_up(request.seconds)
    if stopping == "silent":
        return model_errors.Silent(f"{program.name} made no progress for {request.idle_seconds:g} s").as_value()
    if recorder.error is not None:
        return recorder.error
    if recorder.failure is not None:
        return _reported_failure(program, recorder.failure, exit_, output)
    if recorder.is_over:
        return None if recorder.text.strip() else program_errors.no_output(program.name)
    return _unreported_failure(program, exit_, output)


def _reported_failure(program: Program, failure: ReportedFailure, exit_: ExitStatus, output: OutputReader) -> Error:
    """The error that the program reported; standard error may have a better reason."""
    known = _in_its_words(program, failure.message) or _in_its_words(program, output.errors.text)
    if known is not None:
        return known
    status = failure.status
    if status is None and exit_.code is not None:
        status = program.status_of_exit(exit_.code)
    return _as_error(program, provider_error(failure.message.encode("utf-8", "replace"), status=status))


def _unreported_failure(program: Program, exit_: ExitStatus, output: OutputReader) -> Error:
    """The error of a program that ended without a report, read from its other output."""
    noise = output.noise.text.strip()
    text = "\n".join(text for text in (output.errors.text.strip(), noise) if text)
    if exit_.code != 0:
        known = _in_its_words(program, text)
        if known is not None:
            return known
        status = None if exit_.code is None else program.status_of_exit(exit_.code)
        failure = provider_error(text.encode("utf-8", "replace"), status=status)
        if text and isinstance(failure, _PLAIN):
            return _as_error(program, failure)
        return program_errors.crashed(program.name, _how(exit_), _cut(text))
    if output.events:
        return program_errors.crashed(program.name, "ended", _cut(text))
    if noise or output.line_reader.too_long:
        return program_errors.not_json(program.name, _cut(noise, output.total_bytes))
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
        return model_errors.ModelRefused(f"{program.name}: {first}").as_value()
    if any(wording in words for wording in _UNKNOWN_FLAG):
        return program_errors.flag_unknown(program.name, _line_with(output, _UNKNOWN_FLAG), program.install)
    return None


def _as_error(program: Program, failure: model_errors.ModelError) -> Error:
    if isinstance(failure, model_errors.BadKey):
        return program_errors.not_logged_in(program.name, failure.message, program.login)
    if isinstance(failure, model_errors.ModelNotFound):
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
