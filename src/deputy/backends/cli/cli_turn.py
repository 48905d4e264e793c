"""One turn of a command-line program: start it, write the prompt, read its events, end it with all its processes."""

from __future__ import annotations

import asyncio
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from deputy.backends.cli.installed import InstalledProgram, find, find_installed
from deputy.backends.cli.program import Invocation
from deputy.backends.cli.turn_result import StopReasonOfProgram, end_of
from deputy.backends.output_reader import read_output
from deputy.backends.program_errors import cannot_run, grant_not_held, model_unknown, session_gone
from deputy.backends.turn_recorder import TurnRecorder
from deputy.core.limits import TOOL_SECONDS, RunningTool, is_hung
from deputy.core.outcome import NO_USAGE
from deputy.engine.ports.backend import BackendResult, NotReady, Ready
from deputy.processes.environment import NETWORK, scrubbed
from deputy.processes.supervise import Command, ExitStatus, supervise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.cli.program import Program
    from deputy.backends.output_reader import OutputReader
    from deputy.core.errors import Error
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import BackendRequest, Emit
    from deputy.processes.supervise import SupervisedChild

_WATCH_SECONDS = 1.0
_LINGER_SECONDS = 3.0
"""Time for a program to exit after it has reported the end of the turn."""
_DRAIN_SECONDS = 1.0
_CONTINUE = "Go on."


class CliBackend:
    """A command-line program as a backend."""

    def __init__(self, program: Program, environ: Mapping[str, str], *, redactor: Redactor | None = None) -> None:
        self.program = program
        self._environ = environ
        self._redactor = redactor
        self._found: dict[InstalledProgram | None, Ready | NotReady] = {}

    @property
    def name(self) -> str:
        """`cli:<program>`."""
        return f"cli:{self.program.name}"

    async def check(self) -> Ready | NotReady:
        """Whether it is installed; cached until the program's file changes."""
        found = find(self.program, self._environ)
        if found not in self._found:
            self._found = {found: await find_installed(self.program, self._environ)}
        return self._found[found]

    async def run(self, request: BackendRequest, emit: Emit) -> BackendResult:
        """Run one turn."""
        ready = await self.check()
        if isinstance(ready, NotReady):
            return BackendResult(kind="failed", error=ready.error)
        invocation = invocation_of(self.program, request, self._environ)
        if not isinstance(invocation, Invocation):
            return BackendResult(kind="failed", error=invocation)
        try:
            with read_output(request.spill, self._redactor) as output:
                return await _Turn(self.program, invocation, output, emit).play(
                    command_of(self.program, ready, invocation)
                )
        except OSError as error:
            reason = error.strerror or str(error)
            return BackendResult(kind="failed", error=cannot_run(self.program.name, reason, self.program.install))


class _Turn:
    """One turn of a running program."""

    def __init__(self, program: Program, invocation: Invocation, output: OutputReader, emit: Emit) -> None:
        resume = invocation.request.resume
        self._clock = asyncio.get_running_loop().time
        self._program = program
        self._order = invocation
        self._output = output
        self._recorder = TurnRecorder(emit, self._clock, NO_USAGE if resume is None else resume.counted)

    async def play(self, command: Command) -> BackendResult:
        async with supervise(command) as child:
            stopping, exit_ = await self._attend(child, command)
        return end_of(self._program, self._order, self._recorder, stopping, exit_, self._output.printed)

    async def _attend(self, child: SupervisedChild, command: Command) -> tuple[StopReasonOfProgram, ExitStatus]:
        """Write the prompt and read events until the program exits or a limit is reached, then end it with grace."""
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(child.feed(words_of(self._order.request)))
            listening = {
                group.create_task(self._listen(child)),
                group.create_task(self._output.overhear(child.stderr)),
            }
            exiting = group.create_task(child.exited())
            stopping = await self._watch(exiting)
            if stopping != "exited":
                child.ask(command.polite)
                await asyncio.wait({exiting}, timeout=command.grace_seconds)
                child.kill()
            await asyncio.wait(listening, timeout=_DRAIN_SECONDS if exiting.done() else 0)
            exit_ = exiting.result() if exiting.done() else ExitStatus()
            for task in (feeding, exiting, *listening):
                task.cancel()
        return stopping, exit_

    async def _watch(self, exiting: asyncio.Task[ExitStatus]) -> StopReasonOfProgram:
        request, recorder, began = self._order.request, self._recorder, self._clock()
        while True:
            left = None if request.seconds is None else began + request.seconds - self._clock()
            await asyncio.wait({exiting}, timeout=_WATCH_SECONDS if left is None else max(0, min(left, _WATCH_SECONDS)))
            now = self._clock()
            if exiting.done():
                return "exited"
            if request.seconds is not None and now - began >= request.seconds:
                return "time is up"
            if recorder.is_over and now - recorder.active_at >= _LINGER_SECONDS:
                return "done"
            running = () if recorder.tool_since is None else (RunningTool(recorder.tool_since, TOOL_SECONDS),)
            if not recorder.is_over and is_hung(now, recorder.active_at, running, request.idle_seconds):
                return "silent"

    async def _listen(self, child: SupervisedChild) -> None:
        async for line in self._output.lines(child.stdout):
            fields = event_of(line)
            if fields is None:
                self._output.take_noise(line)
            else:
                self._output.count_event()
                self._program.read(fields, self._recorder, self._order)


def invocation_of(program: Program, request: BackendRequest, environ: Mapping[str, str]) -> Invocation | Error:
    """The invocation for a request, or the error why the program must not run."""
    model = own_name(program, request.model)
    if not isinstance(model, str):
        return model
    invocation = Invocation(request=request, model=model, environ=environ, place=_place(request))
    return _refusal(program, invocation) or invocation


def command_of(program: Program, ready: Ready, invocation: Invocation) -> Command:
    """The command to start a program, with only the environment variables that it needs."""
    provider = provider_of(program, invocation)
    also = [
        pattern
        for switch, patterns in program.variables_by.items()
        if invocation.environ.get(switch) or switch == provider
        for pattern in patterns
    ]
    environment = scrubbed(invocation.environ, (*NETWORK, *program.variables, *also))
    return Command(
        argv=(ready.path, *program.arguments(invocation)),
        cwd=invocation.place,
        environment={**program.settings(invocation), **environment},
        owner=invocation.request.session_id,
        polite=program.polite,
        grace_seconds=program.grace_seconds,
    )


def provider_of(program: Program, invocation: Invocation) -> str:
    """The provider of the requested model, also when the model is named by program."""
    own, _, name = invocation.model.partition(program.separator) if program.separator else ("", "", "")
    return own if name else invocation.request.model.partition(":")[0]


def own_name(program: Program, model: str) -> str | Error:
    """The program's own name of a model; an error when it cannot have the model."""
    if model in program.model_names:
        return program.model_names[model]
    provider, colon, name = model.partition(":")
    if not _is_word(provider) or not _is_word(name):
        return model_unknown(program.name, f"{model!r:.200} is not a valid name")
    if not colon:
        return model
    if provider == program.name and program.separator and program.separator in name:
        return name
    if program.providers and provider not in program.providers:
        return model_unknown(program.name, f"{model!r} is not a model of {' or '.join(program.providers)}")
    return f"{provider}{program.separator}{name}" if program.separator else name


def _refusal(program: Program, invocation: Invocation) -> Error | None:
    """The error why the program must not run, if any."""
    if not _is_word(invocation.session):
        return session_gone(program.name, f"{invocation.session!r:.200} is not a valid id")
    missing = sorted(program.always - invocation.tools)
    unheld = program.cannot_hold(invocation) or (f"working without {', '.join(missing)}" if missing else "")
    if not invocation.place:
        unheld = f"the paths {invocation.request.grant.paths!r:.200}"
    return grant_not_held(program.name, unheld) if unheld else None


def _is_word(name: str) -> bool:
    """Whether a name is safe as an argument: not mistaken for a flag."""
    return name.isprintable() and not name.startswith("-")


def event_of(line: bytes) -> dict[str, Any] | None:
    """Parse a line; None when it is not a JSON object."""
    if line.lstrip()[:1] != b"{":
        return None
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def words_of(request: BackendRequest) -> bytes:
    """The prompt: the whole task, or only the new message when a session is resumed."""
    if request.resume is not None:
        text = request.message or _CONTINUE
    else:
        text = "\n\n".join(piece for piece in (request.system, request.prompt, request.message) if piece)
    return text.encode("utf-8", "replace")


def _place(request: BackendRequest) -> str:
    """The workspace, or the one granted folder of it; empty when the grant is anything else."""
    match request.grant.paths:
        case (path,) if request.grant.covers(path):
            place = posixpath.normpath(posixpath.join(request.workspace, path))
            return place if Path(place).is_dir() else ""
        case _:
            return ""
