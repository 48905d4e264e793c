"""One turn of an agent that speaks the protocol: opened, asked, answered within a grant, and ended for good."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.backends.acp import wire
from deputy.backends.acp.connection import Connection
from deputy.backends.acp.desk import Desk
from deputy.backends.acp.opening import Opened, Opening
from deputy.backends.acp.updates import Calls, take_end, take_update
from deputy.backends.cli.backend import CliBackend, command_of, order_of, words_of
from deputy.backends.cli.ending import Stopping, end_of
from deputy.backends.cli.program import Order, part
from deputy.backends.hearing import hearing
from deputy.backends.problems import cannot_run, not_logged_in
from deputy.backends.told import Told
from deputy.core.errors import Silent
from deputy.core.limits import TOOL_SECONDS, RunningTool, is_hung
from deputy.core.outcome import NO_USAGE
from deputy.engine.ports.backend import BackendEnd, NotReady, Ready
from deputy.processes.supervise import Command, Exit, supervised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.acp.agent import Agent
    from deputy.backends.hearing import Hearing
    from deputy.core.errors import Error
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import Assignment, Emit
    from deputy.engine.ports.text_files import OpenTextFiles
    from deputy.processes.supervise import Child

_WATCH_SECONDS = 1.0
_LEAVE_SECONDS = 3.0
"""How long an agent has to go by itself once nothing more is asked of it."""
_DRAIN_SECONDS = 1.0
_QUIET_SECONDS = 1.0
_RETELLING_SECONDS = 10.0
"""How long it may take to tell again what was said before."""
_OPENING_SECONDS = 90.0
"""How long an agent may be silent before it has a session: it has nothing to think about yet."""


class AcpBackend:
    """An agent as a backend."""

    def __init__(
        self, agent: Agent, environ: Mapping[str, str], open_files: OpenTextFiles, *, redactor: Redactor | None = None
    ) -> None:
        self.agent = agent
        self._environ = environ
        self._open_files = open_files
        self._redactor = redactor
        self._program = CliBackend(agent.program, environ)

    @property
    def name(self) -> str:
        """`acp:<agent>`."""
        return f"acp:{self.agent.name}"

    async def check(self) -> Ready | NotReady:
        """Whether its program is installed, and which; remembered until another file is there."""
        return await self._program.check()

    async def run(self, assignment: Assignment, emit: Emit) -> BackendEnd:
        """Have the agent carry out one turn."""
        program, ready = self.agent.program, await self.check()
        if isinstance(ready, NotReady):
            return BackendEnd(kind="failed", error=ready.error)
        order = order_of(program, assignment, self._environ)
        if not isinstance(order, Order):
            return BackendEnd(kind="failed", error=order)
        files = self._open_files(assignment.workspace, assignment.grant)
        try:
            with hearing(assignment.spill, self._redactor) as heard:
                turn = _Turn(self.agent, order, Desk(self.agent, order, files), heard, emit)
                return await turn.play(command_of(program, ready, order))
        except OSError as error:
            reason = error.strerror or str(error)
            return BackendEnd(kind="failed", error=cannot_run(program.name, reason, program.install))


class _Turn:
    """An agent being talked to."""

    def __init__(self, agent: Agent, order: Order, desk: Desk, heard: Hearing, emit: Emit) -> None:
        resume = order.assignment.resume
        self._clock = asyncio.get_running_loop().time
        self._agent = agent
        self._order = order
        self._desk = desk
        self._heard = heard
        self._told = Told(emit, self._clock, NO_USAGE if resume is None else resume.counted)
        self._calls = Calls()
        self._is_asked = False
        """Whether the task is put: what was told before is of earlier turns."""
        self._can_go_on = False
        self._stirred = asyncio.Event()

    async def play(self, command: Command) -> BackendEnd:
        async with supervised(command) as child:
            stopping, exit_ = await self._attend(child, command)
        end = end_of(self._agent.program, self._order, self._told, stopping, exit_, self._heard.printed)
        return structs.replace(end, is_resumable=end.is_resumable and self._can_go_on)

    async def _attend(self, child: Child, command: Command) -> tuple[Stopping, Exit]:
        """Talk to it until the turn is over, it exits, or it has to stop; then it is let go."""
        connection = Connection(child.stdin, self._serve)
        async with asyncio.TaskGroup() as group:
            talking = group.create_task(self._talk(connection))
            listening = group.create_task(self._listen(child, connection))
            overhearing = group.create_task(self._heard.overhear(child.stderr))
            exiting = group.create_task(child.exited())
            try:
                stopping = await self._watch(talking, exiting)
                if stopping in ("time is up", "silent"):
                    self._cancel(connection)
                    await asyncio.wait({talking, exiting}, timeout=command.grace_seconds)
            except asyncio.CancelledError:
                self._cancel(connection)
                raise
            connection.hang_up()
            await asyncio.wait({exiting}, timeout=_LEAVE_SECONDS if stopping == "done" else 0)
            await asyncio.wait({listening, overhearing}, timeout=_DRAIN_SECONDS if exiting.done() else 0)
            exit_ = exiting.result() if exiting.done() else Exit()
            for task in (talking, listening, overhearing, exiting):
                task.cancel()
        return stopping, exit_

    async def _watch(self, talking: asyncio.Task[None], exiting: asyncio.Task[Exit]) -> Stopping:
        assignment, told, began = self._order.assignment, self._told, self._clock()
        while True:
            left = None if assignment.seconds is None else began + assignment.seconds - self._clock()
            pending = {task for task in (talking, exiting) if not task.done()}
            seconds = _WATCH_SECONDS if left is None else max(0, min(left, _WATCH_SECONDS))
            await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            now = self._clock()
            if talking.done() and told.is_over:
                return "done"
            if exiting.done():
                await asyncio.wait({talking}, timeout=_DRAIN_SECONDS)
                return "exited"
            if assignment.seconds is not None and now - began >= assignment.seconds:
                return "time is up"
            running = () if told.tool_since is None else (RunningTool(told.tool_since, TOOL_SECONDS),)
            if not self._is_asked and now - told.stirred_at >= _OPENING_SECONDS:
                message = f"{self._agent.program.name} opened no session within {_OPENING_SECONDS:g} s"
                told.error = Silent(message).as_value()
                return "done"
            if is_hung(now, told.stirred_at, running, assignment.idle_seconds):
                return "silent"

    async def _talk(self, connection: Connection) -> None:
        """The whole turn, from our side; an end that the agent gives itself is left to the watch."""
        told, name = self._told, self._agent.program.name
        opened = await Opening(self._agent, self._order, connection, told).open()
        if not isinstance(opened, Opened):
            self._fail(opened)
            return
        if opened.is_retold:
            await self._let_pass()
        told.session, self._can_go_on, self._is_asked = opened.session, opened.can_go_on, True
        prompt = [{"type": "text", "text": words_of(self._order.assignment).decode()}]
        replied = await connection.ask("session/prompt", {"sessionId": opened.session, "prompt": prompt})
        if isinstance(replied, wire.Answered):
            take_end(replied.result, told, name)
            if self._agent.fails_in_words and not told.usage.output and told.text.strip():
                # Warnings stand before it.
                told.fails(told.text.strip().rpartition("\n\n")[2])
        else:
            self._fail(replied)

    async def _let_pass(self) -> None:
        """Wait until what was said before is told: one of them does so after it says that the session is there."""
        until, is_quiet = self._clock() + _RETELLING_SECONDS, False
        while not is_quiet and self._clock() < until:
            self._stirred.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await self._stirred.wait()
            except TimeoutError:
                is_quiet = True

    def _fail(self, why: Error | wire.Failed | None) -> None:
        """It did not come to an answer; when it says no more, how it exits tells the rest."""
        if why is None:
            return
        if not isinstance(why, wire.Failed):
            self._told.error = why
        elif why.code == wire.AUTH_REQUIRED:
            program = self._agent.program
            self._told.error = not_logged_in(program.name, why.message, program.login)
        else:
            self._told.fails(why.message)
        self._told.finishes()

    async def _serve(self, asked: wire.Asked) -> bytes | None:
        if asked.method == "session/update":
            self._stirred.set()
            if self._is_asked and asked.params.get("sessionId") == self._told.session:
                take_update(part(asked.params, "update"), self._told, self._order, self._calls, self._agent.notice)
            return None
        if asked.id is None:
            return None
        return await self._desk.serve(asked, asked.id, self._told, self._calls)

    async def _listen(self, child: Child, connection: Connection) -> None:
        async for line in self._heard.lines(child.stdout):
            message = wire.read(line)
            if message is None:
                self._heard.take_noise(line)
            else:
                self._heard.count_event()
                await connection.hear(message)
        connection.end()

    def _cancel(self, connection: Connection) -> None:
        if self._told.session:
            connection.tell("session/cancel", {"sessionId": self._told.session})
