"""An ACP agent as a backend: open a session, send the prompt, serve requests within the grant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from deputy.backends import program_errors
from deputy.backends.acp import jsonrpc
from deputy.backends.acp.client_requests import ClientRequests
from deputy.backends.acp.updates import ToolCallLog, record_end, record_update
from deputy.backends.cli.program import Fields, part, parts, text_of
from deputy.backends.program_backend import ProgramBackend
from deputy.backends.program_turn import DRAIN_SECONDS, ProgramTurn
from deputy.core.model_errors import Silent
from deputy.processes.current_trace import current_traceparent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.acp.known_agents import AcpAgent
    from deputy.backends.cli.program import Invocation
    from deputy.backends.program_turn import OutputReader, StopReasonOfProgram, TurnTasks
    from deputy.core.errors import Error
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import Emit, OpenTextFiles, TextFiles
    from deputy.processes.supervise import SupervisedChild

_LEAVE_SECONDS = 3.0
"""Time for an agent to exit by itself after the turn."""
_QUIET_SECONDS = 1.0
_RETELLING_SECONDS = 10.0
"""The longest wait for the replay of earlier messages."""
_OPENING_SECONDS = 90.0
"""The longest silence before there is a session; the model is not asked yet."""
_CLIENT: Fields = {
    "protocolVersion": jsonrpc.PROTOCOL,
    # Always offer file access: the agent then writes through us, where the grant is checked.
    "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False},
    "clientInfo": {"name": "deputy", "title": "Deputy", "version": "0.1.0"},
}


class AcpBackend(ProgramBackend):
    """An ACP agent as a backend."""

    def __init__(
        self, agent: AcpAgent, environ: Mapping[str, str], open_files: OpenTextFiles, redactor: Redactor | None = None
    ) -> None:
        super().__init__(f"acp:{agent.name}", agent.program, environ, redactor=redactor)
        self.agent = agent
        self._open_files = open_files

    def turn(self, invocation: Invocation, output: OutputReader, emit: Emit) -> ProgramTurn:
        """A turn of the agent."""
        files = self._open_files(invocation.request.workspace, invocation.request.grant)
        return _AcpTurn(self.agent, files, invocation, output, emit)


class _AcpTurn(ProgramTurn):
    def __init__(
        self, agent: AcpAgent, files: TextFiles, invocation: Invocation, output: OutputReader, emit: Emit
    ) -> None:
        super().__init__(invocation, output, emit)
        self._agent = agent
        self._calls = ToolCallLog()
        self._requests = ClientRequests(agent, files, self._recorder, self._calls)
        self._connection = jsonrpc.Connection(self._serve)
        self._is_asked = False
        """Whether the prompt was sent; updates before that belong to earlier turns."""
        self._updated = asyncio.Event()

    async def talk(self, child: SupervisedChild) -> None:
        """Open the session, send the prompt and record the end; an exit of the program ends the turn, too."""
        recorder = self._recorder
        self._connection.open(child.stdin)
        try:
            session = await self._open()
            if not isinstance(session, str):
                self._fail(session)
                return
            recorder.session, self._is_asked = session, True
            prompt = [{"type": "text", "text": self._order.prompt}]
            asked: dict[str, Any] = {"sessionId": session, "prompt": prompt}
            if (traceparent := current_traceparent()) is not None:
                asked["_meta"] = {"traceparent": str(traceparent)}
            replied = await self._connection.ask("session/prompt", asked)
        except asyncio.CancelledError:
            self._cancel()
            raise
        if isinstance(replied, jsonrpc.RpcResult):
            record_end(replied.result, recorder)
            if self._agent.fails_in_words and not recorder.usage.output and recorder.text.strip():
                # The error is the last paragraph, after warnings.
                recorder.fails(recorder.text.strip().rpartition("\n\n")[2])
        else:
            self._fail(replied)

    async def receive(self, line: bytes) -> bool:
        message = jsonrpc.read(line)
        if message is not None:
            await self._connection.receive(message)
        return message is not None

    async def listen(self, child: SupervisedChild) -> None:
        await super().listen(child)
        self._connection.end()

    def stuck(self, now: float) -> StopReasonOfProgram | None:
        if not self._is_asked and now - self._recorder.active_at >= _OPENING_SECONDS:
            message = f"{self._order.program.name} opened no session within {_OPENING_SECONDS:g} s"
            self._recorder.error = Silent(message).as_value()
            return "done"
        return super().stuck(now)

    async def finish(self, stopping: StopReasonOfProgram, child: SupervisedChild, tasks: TurnTasks) -> None:
        if stopping == "exited":
            await asyncio.wait({tasks.talking}, timeout=DRAIN_SECONDS)
        elif stopping != "done":
            self._cancel()
            await asyncio.wait(tasks, timeout=self._order.program.grace_seconds)
        self._connection.hang_up()
        await asyncio.wait({tasks.exiting}, timeout=_LEAVE_SECONDS if stopping == "done" else 0)

    async def _open(self) -> str | Error | jsonrpc.RpcError | None:
        """Open a session: its id, or our error or the agent's; None when the agent has exited."""
        agreed = await self._ask("initialize", _CLIENT)
        if not isinstance(agreed, jsonrpc.RpcResult):
            return agreed
        version = agreed.result.get("protocolVersion")
        if version != jsonrpc.PROTOCOL:
            program = self._order.program
            found, wanted = f"protocol version {version!r:.50}", f"version {jsonrpc.PROTOCOL} of the protocol"
            return program_errors.wrong_version(program.name, found, wanted, program.install)
        method = _resume_method(part(agreed.result, "agentCapabilities"))
        opened = await self._session(method, agreed.result)
        if not isinstance(opened, jsonrpc.RpcResult):
            return opened
        session = self._order.session or text_of(opened.result.get("sessionId"))
        if not session:
            return program_errors.not_json(self._order.program.name, "it opened a session without an id")
        failed = await self._set_mode(session, opened.result) or await self._set_model(session, opened.result)
        if failed is None:
            self._recorder.can_resume = bool(method)
            if self._order.session and method == "session/load":
                await self._let_pass()
        return failed or session

    async def _session(self, method: str, agreed: Fields) -> jsonrpc.RpcResult | jsonrpc.RpcError | Error | None:
        """Open or resume a session; if the agent requires a login, try once with a key."""
        program, invocation = self._order.program, self._order
        params: Fields = {"cwd": invocation.place, "mcpServers": []}
        meta = self._agent.meta(invocation)
        if meta:
            params["_meta"] = dict(meta)
        if invocation.session:
            if not method:
                return program_errors.session_gone(program.name, "it cannot resume sessions")
            params["sessionId"] = invocation.session
        method = method if invocation.session else "session/new"
        opened = await self._ask(method, params)
        if isinstance(opened, jsonrpc.RpcError) and opened.code == jsonrpc.AUTH_REQUIRED and await self._log_in(agreed):
            opened = await self._ask(method, params)
        if isinstance(opened, jsonrpc.RpcError) and opened.code != jsonrpc.AUTH_REQUIRED and invocation.session:
            return program_errors.session_gone(program.name, opened.message)
        return opened

    async def _log_in(self, agreed: Fields) -> bool:
        for way in parts(agreed.get("authMethods")):
            name = text_of(way.get("id"))
            keys = self._agent.keyed_logins.get(name, ())
            if any(self._order.environ.get(key, "").strip() for key in keys):
                return isinstance(await self._ask("authenticate", {"methodId": name}), jsonrpc.RpcResult)
        return False

    async def _set_mode(self, session: str, opened: Fields) -> Error | None:
        """Set the mode that limits the agent to the grant; without it, no prompt is sent."""
        wanted, modes = self._agent.mode(self._order), part(opened, "modes")
        if not wanted or modes.get("currentModeId") == wanted:
            return None
        if any(mode.get("id") == wanted for mode in parts(modes.get("availableModes"))):
            params = {"sessionId": session, "modeId": wanted}
            if isinstance(await self._ask("session/set_mode", params), jsonrpc.RpcResult):
                return None
        return program_errors.grant_not_held(self._order.program.name, f"its mode {wanted!r}")

    async def _set_model(self, session: str, opened: Fields) -> Error | None:
        model = self._order.model
        if not model or self._agent.takes_model:
            self._recorder.model = model
            return None
        for option in parts(opened.get("configOptions")):
            if option.get("category") == "model" or option.get("id") == "model":
                params: dict[str, Any] = {"sessionId": session, "configId": option.get("id"), "value": model}
                replied = await self._ask("session/set_config_option", params)
                if isinstance(replied, jsonrpc.RpcResult):
                    self._recorder.model = model
                    return None
                message = replied.message if isinstance(replied, jsonrpc.RpcError) else model
                return program_errors.model_unknown(self._order.program.name, message)
        return program_errors.model_unknown(self._order.program.name, f"{model!r:.200} cannot be selected")

    async def _ask(self, method: str, params: Fields) -> jsonrpc.RpcResult | jsonrpc.RpcError | None:
        replied = await self._connection.ask(method, params)
        if replied is not None:
            self._recorder.mark_active()
        return replied

    async def _let_pass(self) -> None:
        """Wait for the replay of earlier messages to end: one agent sends it after it has opened the session."""
        until, is_quiet = self._clock() + _RETELLING_SECONDS, False
        while not is_quiet and self._clock() < until:
            self._updated.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await self._updated.wait()
            except TimeoutError:
                is_quiet = True

    def _fail(self, why: Error | jsonrpc.RpcError | None) -> None:
        """Record why there is no answer; None means that the exit status will tell."""
        if why is None:
            return
        if not isinstance(why, jsonrpc.RpcError):
            self._recorder.error = why
        elif why.code == jsonrpc.AUTH_REQUIRED:
            program = self._order.program
            self._recorder.error = program_errors.not_logged_in(program.name, why.message, program.login)
        else:
            self._recorder.fails(why.message)
        self._recorder.finishes()

    async def _serve(self, asked: jsonrpc.RpcRequest) -> bytes | None:
        if asked.method == "session/update":
            self._updated.set()
            if self._is_asked and asked.params.get("sessionId") == self._recorder.session:
                record_update(part(asked.params, "update"), self._recorder, self._calls, self._agent.notice)
            return None
        return None if asked.id is None else await self._requests.serve(asked, asked.id)

    def _cancel(self) -> None:
        if self._recorder.session:
            self._connection.notify("session/cancel", {"sessionId": self._recorder.session})


def _resume_method(abilities: Fields) -> str:
    """The method to resume a session, if possible without a replay of its messages."""
    if isinstance(part(abilities, "sessionCapabilities").get("resume"), dict):
        return "session/resume"
    return "session/load" if abilities.get("loadSession") is True else ""
