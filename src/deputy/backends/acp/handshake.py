"""Open an ACP session: agree on the protocol, log in, set mode and model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.backends import program_errors
from deputy.backends.acp import jsonrpc
from deputy.backends.cli.program import Fields, part, parts, text_of

if TYPE_CHECKING:
    from deputy.backends.acp.agent import AcpAgent
    from deputy.backends.acp.rpc_connection import Connection
    from deputy.backends.cli.program import Invocation
    from deputy.backends.turn_recorder import TurnRecorder
    from deputy.core.errors import Error

_CLIENT: Fields = {
    "protocolVersion": jsonrpc.PROTOCOL,
    # Always offer file access: the agent then writes through us, where the grant is checked.
    "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False},
    "clientInfo": {"name": "deputy", "title": "Deputy", "version": "0.1.0"},
}


class AcpSession(Struct, frozen=True, kw_only=True):
    """An open session."""

    session: str
    can_resume: bool
    is_retold: bool = False
    """Whether the agent replays the earlier messages."""


class Handshake:
    """Opens one session."""

    def __init__(self, agent: AcpAgent, invocation: Invocation, connection: Connection, recorder: TurnRecorder) -> None:
        self._agent = agent
        self._order = invocation
        self._connection = connection
        self._recorder = recorder

    async def open(self) -> AcpSession | Error | jsonrpc.RpcError | None:
        """The session, or our error or the agent's; None when the agent has exited."""
        agreed = await self._ask("initialize", _CLIENT)
        if not isinstance(agreed, jsonrpc.RpcResult):
            return agreed
        version = agreed.result.get("protocolVersion")
        if version != jsonrpc.PROTOCOL:
            program = self._agent.program
            found, wanted = f"protocol version {version!r:.50}", f"version {jsonrpc.PROTOCOL} of the protocol"
            return program_errors.wrong_version(program.name, found, wanted, program.install)
        abilities = part(agreed.result, "agentCapabilities")
        method = _resume_method(abilities)
        opened = await self._session(method, agreed.result)
        if not isinstance(opened, jsonrpc.RpcResult):
            return opened
        session = self._order.session or text_of(opened.result.get("sessionId"))
        if not session:
            return program_errors.not_json(self._agent.program.name, "it opened a session without an id")
        failed = await self._set_mode(session, opened.result) or await self._set_model(session, opened.result)
        is_retold = bool(self._order.session) and method == "session/load"
        return failed or AcpSession(session=session, can_resume=bool(method), is_retold=is_retold)

    async def _session(self, method: str, agreed: Fields) -> jsonrpc.RpcResult | jsonrpc.RpcError | Error | None:
        """Open or resume a session; if the agent requires a login, try once with a key."""
        program, invocation = self._agent.program, self._order
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
        return program_errors.grant_not_held(self._agent.program.name, f"its mode {wanted!r}")

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
                return program_errors.model_unknown(self._agent.program.name, message)
        return program_errors.model_unknown(self._agent.program.name, f"{model!r:.200} cannot be selected")

    async def _ask(self, method: str, params: Fields) -> jsonrpc.RpcResult | jsonrpc.RpcError | None:
        replied = await self._connection.ask(method, params)
        if replied is not None:
            self._recorder.mark_active()
        return replied


def _resume_method(abilities: Fields) -> str:
    """The method to resume a session, if possible without a replay of its messages."""
    if isinstance(part(abilities, "sessionCapabilities").get("resume"), dict):
        return "session/resume"
    return "session/load" if abilities.get("loadSession") is True else ""
