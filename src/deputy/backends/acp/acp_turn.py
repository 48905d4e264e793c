"""One turn of an ACP agent: open a session, send the prompt, serve requests within the grant, end the program."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.backends.acp import jsonrpc
from deputy.backends.acp.client_requests import ClientRequests
from deputy.backends.acp.handshake import AcpSession, Handshake
from deputy.backends.acp.rpc_connection import Connection
from deputy.backends.acp.updates import ToolCallLog, record_end, record_update
from deputy.backends.cli.cli_turn import CliBackend, command_of, invocation_of, words_of
from deputy.backends.cli.program import Invocation, part
from deputy.backends.cli.turn_result import StopReasonOfProgram, end_of
from deputy.backends.output_reader import read_output
from deputy.backends.program_errors import cannot_run, not_logged_in
from deputy.backends.turn_recorder import TurnRecorder
from deputy.core.errors import Silent
from deputy.core.limits import TOOL_SECONDS, RunningTool, is_hung
from deputy.core.outcome import NO_USAGE
from deputy.engine.ports.backend import BackendResult, NotReady, Ready
from deputy.processes.supervise import Command, ExitStatus, supervise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.acp.agent import AcpAgent
    from deputy.backends.output_reader import OutputReader
    from deputy.core.errors import Error
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import BackendRequest, Emit
    from deputy.engine.ports.text_files import OpenTextFiles
    from deputy.processes.supervise import SupervisedChild

_WATCH_SECONDS = 1.0
_LEAVE_SECONDS = 3.0
"""Time for an agent to exit by itself after the turn."""
_DRAIN_SECONDS = 1.0
_QUIET_SECONDS = 1.0
_RETELLING_SECONDS = 10.0
"""The longest wait for the replay of earlier messages."""
_OPENING_SECONDS = 90.0
"""The longest silence before there is a session; the model is not asked yet."""


class AcpBackend:
    """An ACP agent as a backend."""

    def __init__(
        self,
        agent: AcpAgent,
        environ: Mapping[str, str],
        open_files: OpenTextFiles,
        *,
        redactor: Redactor | None = None,
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
        """Whether its program is installed; cached until the program's file changes."""
        return await self._program.check()

    async def run(self, request: BackendRequest, emit: Emit) -> BackendResult:
        """Run one turn."""
        program, ready = self.agent.program, await self.check()
        if isinstance(ready, NotReady):
            return BackendResult(kind="failed", error=ready.error)
        invocation = invocation_of(program, request, self._environ)
        if not isinstance(invocation, Invocation):
            return BackendResult(kind="failed", error=invocation)
        files = self._open_files(request.workspace, request.grant)
        try:
            with read_output(request.spill, self._redactor) as output:
                turn = _Turn(self.agent, invocation, ClientRequests(self.agent, invocation, files), output, emit)
                return await turn.play(command_of(program, ready, invocation))
        except OSError as error:
            reason = error.strerror or str(error)
            return BackendResult(kind="failed", error=cannot_run(program.name, reason, program.install))


class _Turn:
    """One turn with a running agent."""

    def __init__(
        self, agent: AcpAgent, invocation: Invocation, requests: ClientRequests, output: OutputReader, emit: Emit
    ) -> None:
        resume = invocation.request.resume
        self._clock = asyncio.get_running_loop().time
        self._agent = agent
        self._order = invocation
        self._requests = requests
        self._output = output
        self._recorder = TurnRecorder(emit, self._clock, NO_USAGE if resume is None else resume.counted)
        self._calls = ToolCallLog()
        self._is_asked = False
        """Whether the prompt was sent; updates before that belong to earlier turns."""
        self._can_resume = False
        self._active_at = asyncio.Event()

    async def play(self, command: Command) -> BackendResult:
        async with supervise(command) as child:
            stopping, exit_ = await self._attend(child, command)
        end = end_of(self._agent.program, self._order, self._recorder, stopping, exit_, self._output.printed)
        return structs.replace(end, is_resumable=end.is_resumable and self._can_resume)

    async def _attend(self, child: SupervisedChild, command: Command) -> tuple[StopReasonOfProgram, ExitStatus]:
        """Run the turn until it is over, the program exits, or a limit is reached; then let the program exit."""
        connection = Connection(child.stdin, self._serve)
        async with asyncio.TaskGroup() as group:
            talking = group.create_task(self._converse(connection))
            listening = group.create_task(self._listen(child, connection))
            overhearing = group.create_task(self._output.overhear(child.stderr))
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
            exit_ = exiting.result() if exiting.done() else ExitStatus()
            for task in (talking, listening, overhearing, exiting):
                task.cancel()
        return stopping, exit_

    async def _watch(self, talking: asyncio.Task[None], exiting: asyncio.Task[ExitStatus]) -> StopReasonOfProgram:
        request, recorder, began = self._order.request, self._recorder, self._clock()
        while True:
            left = None if request.seconds is None else began + request.seconds - self._clock()
            pending = {task for task in (talking, exiting) if not task.done()}
            seconds = _WATCH_SECONDS if left is None else max(0, min(left, _WATCH_SECONDS))
            await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            now = self._clock()
            if talking.done() and recorder.is_over:
                return "done"
            if exiting.done():
                await asyncio.wait({talking}, timeout=_DRAIN_SECONDS)
                return "exited"
            if request.seconds is not None and now - began >= request.seconds:
                return "time is up"
            running = () if recorder.tool_since is None else (RunningTool(recorder.tool_since, TOOL_SECONDS),)
            if not self._is_asked and now - recorder.active_at >= _OPENING_SECONDS:
                message = f"{self._agent.program.name} opened no session within {_OPENING_SECONDS:g} s"
                recorder.error = Silent(message).as_value()
                return "done"
            if is_hung(now, recorder.active_at, running, request.idle_seconds):
                return "silent"

    async def _converse(self, connection: Connection) -> None:
        """Open the session, send the prompt and record the end; `_watch` handles an exit of the program."""
        recorder, name = self._recorder, self._agent.program.name
        opened = await Handshake(self._agent, self._order, connection, recorder).open()
        if not isinstance(opened, AcpSession):
            self._fail(opened)
            return
        if opened.is_retold:
            await self._let_pass()
        recorder.session, self._can_resume, self._is_asked = opened.session, opened.can_resume, True
        prompt = [{"type": "text", "text": words_of(self._order.request).decode()}]
        replied = await connection.ask("session/prompt", {"sessionId": opened.session, "prompt": prompt})
        if isinstance(replied, jsonrpc.RpcResult):
            record_end(replied.result, recorder, name)
            if self._agent.fails_in_words and not recorder.usage.output and recorder.text.strip():
                # The error is the last paragraph, after warnings.
                recorder.fails(recorder.text.strip().rpartition("\n\n")[2])
        else:
            self._fail(replied)

    async def _let_pass(self) -> None:
        """Wait for the replay of earlier messages to end: one agent sends it after it has opened the session."""
        until, is_quiet = self._clock() + _RETELLING_SECONDS, False
        while not is_quiet and self._clock() < until:
            self._active_at.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await self._active_at.wait()
            except TimeoutError:
                is_quiet = True

    def _fail(self, why: Error | jsonrpc.RpcError | None) -> None:
        """Record why there is no answer; None means that the exit status will tell."""
        if why is None:
            return
        if not isinstance(why, jsonrpc.RpcError):
            self._recorder.error = why
        elif why.code == jsonrpc.AUTH_REQUIRED:
            program = self._agent.program
            self._recorder.error = not_logged_in(program.name, why.message, program.login)
        else:
            self._recorder.fails(why.message)
        self._recorder.finishes()

    async def _serve(self, asked: jsonrpc.RpcRequest) -> bytes | None:
        if asked.method == "session/update":
            self._active_at.set()
            if self._is_asked and asked.params.get("sessionId") == self._recorder.session:
                record_update(
                    part(asked.params, "update"), self._recorder, self._order, self._calls, self._agent.notice
                )
            return None
        if asked.id is None:
            return None
        return await self._requests.serve(asked, asked.id, self._recorder, self._calls)

    async def _listen(self, child: SupervisedChild, connection: Connection) -> None:
        async for line in self._output.lines(child.stdout):
            message = jsonrpc.read(line)
            if message is None:
                self._output.take_noise(line)
            else:
                self._output.count_event()
                await connection.receive(message)
        connection.end()

    def _cancel(self, connection: Connection) -> None:
        if self._recorder.session:
            connection.notify("session/cancel", {"sessionId": self._recorder.session})
