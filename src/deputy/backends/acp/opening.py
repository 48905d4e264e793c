"""How a session is opened: the protocol agreed on, somebody logged in, mode and model set, or the reason why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.backends import problems
from deputy.backends.acp import wire
from deputy.backends.cli.program import Fields, part, parts, text_of

if TYPE_CHECKING:
    from deputy.backends.acp.agent import Agent
    from deputy.backends.acp.connection import Connection
    from deputy.backends.cli.program import Order
    from deputy.backends.told import Told
    from deputy.core.errors import Error

_CLIENT: Fields = {
    "protocolVersion": wire.PROTOCOL,
    # Files are offered also where they are not granted: an agent that is refused here cannot write in its own way.
    "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False},
    "clientInfo": {"name": "deputy", "title": "Deputy", "version": "0.1.0"},
}


class Opened(Struct, frozen=True, kw_only=True):
    """A session to put the task to."""

    session: str
    can_go_on: bool
    is_retold: bool = False
    """Whether all that was said before is told once more."""


class Opening:
    """A session being opened."""

    def __init__(self, agent: Agent, order: Order, connection: Connection, told: Told) -> None:
        self._agent = agent
        self._order = order
        self._connection = connection
        self._told = told

    async def open(self) -> Opened | Error | wire.Failed | None:
        """The session, or why there is none, in our words or in the agent's; nothing when it says no more."""
        agreed = await self._ask("initialize", _CLIENT)
        if not isinstance(agreed, wire.Answered):
            return agreed
        version = agreed.result.get("protocolVersion")
        if version != wire.PROTOCOL:
            program = self._agent.program
            found, wanted = f"protocol version {version!r:.50}", f"version {wire.PROTOCOL} of the protocol"
            return problems.wrong_version(program.name, found, wanted, program.install)
        abilities = part(agreed.result, "agentCapabilities")
        method = _way_to_go_on(abilities)
        opened = await self._session(method, agreed.result)
        if not isinstance(opened, wire.Answered):
            return opened
        session = self._order.session or text_of(opened.result.get("sessionId"))
        if not session:
            return problems.not_json(self._agent.program.name, "a session without an id")
        failed = await self._set_mode(session, opened.result) or await self._set_model(session, opened.result)
        is_retold = bool(self._order.session) and method == "session/load"
        return failed or Opened(session=session, can_go_on=bool(method), is_retold=is_retold)

    async def _session(self, method: str, agreed: Fields) -> wire.Answered | wire.Failed | Error | None:
        """A new session or the one to go on with; a key that is there is offered once when it is asked for."""
        program, order = self._agent.program, self._order
        params: Fields = {"cwd": order.place, "mcpServers": []}
        meta = self._agent.meta(order)
        if meta:
            params["_meta"] = dict(meta)
        if order.session:
            if not method:
                return problems.session_gone(program.name, "it cannot go on with a session")
            params["sessionId"] = order.session
        method = method if order.session else "session/new"
        opened = await self._ask(method, params)
        if isinstance(opened, wire.Failed) and opened.code == wire.AUTH_REQUIRED and await self._log_in(agreed):
            opened = await self._ask(method, params)
        if isinstance(opened, wire.Failed) and opened.code != wire.AUTH_REQUIRED and order.session:
            return problems.session_gone(program.name, opened.message)
        return opened

    async def _log_in(self, agreed: Fields) -> bool:
        for way in parts(agreed.get("authMethods")):
            name = text_of(way.get("id"))
            keys = self._agent.keyed_logins.get(name, ())
            if any(self._order.environ.get(key, "").strip() for key in keys):
                return isinstance(await self._ask("authenticate", {"methodId": name}), wire.Answered)
        return False

    async def _set_mode(self, session: str, opened: Fields) -> Error | None:
        """The mode that keeps it to the grant; without it, nothing is asked of it."""
        wanted, modes = self._agent.mode(self._order), part(opened, "modes")
        if not wanted or modes.get("currentModeId") == wanted:
            return None
        if any(mode.get("id") == wanted for mode in parts(modes.get("availableModes"))):
            params = {"sessionId": session, "modeId": wanted}
            if isinstance(await self._ask("session/set_mode", params), wire.Answered):
                return None
        return problems.grant_not_held(self._agent.program.name, f"its mode {wanted!r}")

    async def _set_model(self, session: str, opened: Fields) -> Error | None:
        model = self._order.model
        if not model or self._agent.takes_model:
            self._told.model = model
            return None
        for option in parts(opened.get("configOptions")):
            if option.get("category") == "model" or option.get("id") == "model":
                params: dict[str, Any] = {"sessionId": session, "configId": option.get("id"), "value": model}
                replied = await self._ask("session/set_config_option", params)
                if isinstance(replied, wire.Answered):
                    self._told.model = model
                    return None
                message = replied.message if isinstance(replied, wire.Failed) else model
                return problems.model_unknown(self._agent.program.name, message)
        return problems.model_unknown(self._agent.program.name, f"{model!r:.200} cannot be chosen")

    async def _ask(self, method: str, params: Fields) -> wire.Answered | wire.Failed | None:
        replied = await self._connection.ask(method, params)
        if replied is not None:
            self._told.stirs()
        return replied


def _way_to_go_on(abilities: Fields) -> str:
    """How an agent goes on with a session: better without telling all of it again."""
    if isinstance(part(abilities, "sessionCapabilities").get("resume"), dict):
        return "session/resume"
    return "session/load" if abilities.get("loadSession") is True else ""
