"""One turn of another agent's program: called, fed, listened to within bounds, and ended with all that it started."""

from __future__ import annotations

import asyncio
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from deputy.backends.cli.ending import Stopping, end_of
from deputy.backends.cli.installed import Found, find, look_for
from deputy.backends.cli.program import Order
from deputy.backends.hearing import hearing
from deputy.backends.problems import cannot_run, grant_not_held, model_unknown, session_gone
from deputy.backends.told import Told
from deputy.core.limits import TOOL_SECONDS, RunningTool, is_hung
from deputy.core.outcome import NO_USAGE
from deputy.engine.ports.backend import BackendEnd, NotReady, Ready
from deputy.processes.environment import NETWORK, scrubbed
from deputy.processes.supervise import Command, Exit, supervised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.cli.program import Program
    from deputy.backends.hearing import Hearing
    from deputy.core.errors import Error
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import Assignment, Emit
    from deputy.processes.supervise import Child

_WATCH_SECONDS = 1.0
_LINGER_SECONDS = 3.0
"""How long a program may stay after it has said that it is done."""
_DRAIN_SECONDS = 1.0
_GO_ON = "Go on."


class CliBackend:
    """A program as a backend."""

    def __init__(self, program: Program, environ: Mapping[str, str], *, redactor: Redactor | None = None) -> None:
        self.program = program
        self._environ = environ
        self._redactor = redactor
        self._found: dict[Found | None, Ready | NotReady] = {}

    @property
    def name(self) -> str:
        """`cli:<program>`."""
        return f"cli:{self.program.name}"

    async def check(self) -> Ready | NotReady:
        """Whether it is installed, and which; remembered until another file is there."""
        found = find(self.program, self._environ)
        if found not in self._found:
            self._found = {found: await look_for(self.program, self._environ)}
        return self._found[found]

    async def run(self, assignment: Assignment, emit: Emit) -> BackendEnd:
        """Have the program carry out one turn."""
        ready = await self.check()
        if isinstance(ready, NotReady):
            return BackendEnd(kind="failed", error=ready.error)
        order = order_of(self.program, assignment, self._environ)
        if not isinstance(order, Order):
            return BackendEnd(kind="failed", error=order)
        try:
            with hearing(assignment.spill, self._redactor) as heard:
                return await _Turn(self.program, order, heard, emit).play(command_of(self.program, ready, order))
        except OSError as error:
            reason = error.strerror or str(error)
            return BackendEnd(kind="failed", error=cannot_run(self.program.name, reason, self.program.install))


class _Turn:
    """A program being listened to."""

    def __init__(self, program: Program, order: Order, heard: Hearing, emit: Emit) -> None:
        resume = order.assignment.resume
        self._clock = asyncio.get_running_loop().time
        self._program = program
        self._order = order
        self._heard = heard
        self._told = Told(emit, self._clock, NO_USAGE if resume is None else resume.counted)

    async def play(self, command: Command) -> BackendEnd:
        async with supervised(command) as child:
            stopping, exit_ = await self._attend(child, command)
        return end_of(self._program, self._order, self._told, stopping, exit_, self._heard.printed)

    async def _attend(self, child: Child, command: Command) -> tuple[Stopping, Exit]:
        """Feed it and listen until it exits or has to; then it has its grace to say the last of it."""
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(child.feed(words_of(self._order.assignment)))
            listening = {
                group.create_task(self._listen(child)),
                group.create_task(self._heard.overhear(child.stderr)),
            }
            exiting = group.create_task(child.exited())
            stopping = await self._watch(exiting)
            if stopping != "exited":
                child.ask(command.polite)
                await asyncio.wait({exiting}, timeout=command.grace_seconds)
                child.kill()
            await asyncio.wait(listening, timeout=_DRAIN_SECONDS if exiting.done() else 0)
            exit_ = exiting.result() if exiting.done() else Exit()
            for task in (feeding, exiting, *listening):
                task.cancel()
        return stopping, exit_

    async def _watch(self, exiting: asyncio.Task[Exit]) -> Stopping:
        assignment, told, began = self._order.assignment, self._told, self._clock()
        while True:
            left = None if assignment.seconds is None else began + assignment.seconds - self._clock()
            await asyncio.wait({exiting}, timeout=_WATCH_SECONDS if left is None else max(0, min(left, _WATCH_SECONDS)))
            now = self._clock()
            if exiting.done():
                return "exited"
            if assignment.seconds is not None and now - began >= assignment.seconds:
                return "time is up"
            if told.is_over and now - told.stirred_at >= _LINGER_SECONDS:
                return "done"
            running = () if told.tool_since is None else (RunningTool(told.tool_since, TOOL_SECONDS),)
            if not told.is_over and is_hung(now, told.stirred_at, running, assignment.idle_seconds):
                return "silent"

    async def _listen(self, child: Child) -> None:
        async for line in self._heard.lines(child.stdout):
            fields = event_of(line)
            if fields is None:
                self._heard.take_noise(line)
            else:
                self._heard.count_event()
                self._program.read(fields, self._told, self._order)


def order_of(program: Program, assignment: Assignment, environ: Mapping[str, str]) -> Order | Error:
    """An assignment in the program's words, or why it is not run at all."""
    model = own_name(program, assignment.model)
    if not isinstance(model, str):
        return model
    order = Order(assignment=assignment, model=model, environ=environ, place=_place(assignment))
    return _refusal(program, order) or order


def command_of(program: Program, ready: Ready, order: Order) -> Command:
    """How a program is started: with what it needs of our environment, and nothing else."""
    provider = provider_of(program, order)
    also = [
        pattern
        for switch, patterns in program.variables_by.items()
        if order.environ.get(switch) or switch == provider
        for pattern in patterns
    ]
    environment = scrubbed(order.environ, (*NETWORK, *program.variables, *also))
    return Command(
        argv=(ready.path, *program.arguments(order)),
        cwd=order.place,
        environment={**program.settings(order), **environment},
        owner=order.assignment.session_id,
        polite=program.polite,
        grace_seconds=program.grace_seconds,
    )


def provider_of(program: Program, order: Order) -> str:
    """Whose model is asked for, also where a program is named as the one that has it."""
    own, _, name = order.model.partition(program.separator) if program.separator else ("", "", "")
    return own if name else order.assignment.model.partition(":")[0]


def own_name(program: Program, model: str) -> str | Error:
    """A model in the program's words; an error when it cannot have it."""
    if model in program.model_names:
        return program.model_names[model]
    provider, colon, name = model.partition(":")
    if not _is_word(provider) or not _is_word(name):
        return model_unknown(program.name, f"{model!r:.200} is no name of one")
    if not colon:
        return model
    if provider == program.name and program.separator and program.separator in name:
        return name
    if program.providers and provider not in program.providers:
        return model_unknown(program.name, f"{model!r} is not one of {' or '.join(program.providers)}'s")
    return f"{provider}{program.separator}{name}" if program.separator else name


def _refusal(program: Program, order: Order) -> Error | None:
    """Why it is not run at all, if so."""
    if not _is_word(order.session):
        return session_gone(program.name, f"{order.session!r:.200} is no name of one")
    missing = sorted(program.always - order.tools)
    unheld = program.cannot_hold(order) or (f"working without {', '.join(missing)}" if missing else "")
    if not order.place:
        unheld = f"the paths {order.assignment.grant.paths!r:.200}"
    return grant_not_held(program.name, unheld) if unheld else None


def _is_word(name: str) -> bool:
    """Whether a name can stand among arguments: one that begins like a flag could be taken for it."""
    return name.isprintable() and not name.startswith("-")


def event_of(line: bytes) -> dict[str, Any] | None:
    """A line as an event, if it is one."""
    if line.lstrip()[:1] != b"{":
        return None
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def words_of(assignment: Assignment) -> bytes:
    """What it is told: the whole task, or only how to go on where it knows the rest."""
    if assignment.resume is not None:
        text = assignment.message or _GO_ON
    else:
        text = "\n\n".join(piece for piece in (assignment.system, assignment.prompt, assignment.message) if piece)
    return text.encode("utf-8", "replace")


def _place(assignment: Assignment) -> str:
    """The folder it is kept to: the workspace, or the one folder of it that is granted; nothing when that cannot be."""
    match assignment.grant.paths:
        case (path,) if assignment.grant.covers(path):
            place = posixpath.normpath(posixpath.join(assignment.workspace, path))
            return place if Path(place).is_dir() else ""
        case _:
            return ""
