"""The ACP server: answers the requests of one client; everything that it sends is hostile input."""

from __future__ import annotations

import asyncio
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deputy import __version__
from deputy.backends.acp import jsonrpc
from deputy.backends.cli.program import Fields, json_object, parts, text_of
from deputy.core.errors import DeputyError, UnknownRun, UsageError
from deputy.core.events import Record, RunOpened
from deputy.core.request import timestamp
from deputy.core.visible_text import visible_json_of
from deputy.engine.call import RUN
from deputy.interfaces.acp.acp_session import AcpOptions, AcpSession
from deputy.interfaces.background import cause_of, first_of
from deputy.interfaces.stdio_streams import MOST_LINE, MOST_UNWRITTEN, StdioReader, StdioWriter, own_streams
from deputy.interfaces.text_lines import one_line
from deputy.journal.home import home_path
from deputy.processes.bounded_output import MOST_PARTS, has_too_many_parts
from deputy.processes.outgoing import outgoing_text
from deputy.stores import open_queries
from deputy.tools.tool_text import safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MOST_SESSIONS = 64
"""How many sessions may be open; more are refused."""
MOST_REQUESTS = 256
"""How many requests may be served at once; more are refused."""
_METHODS = (
    "initialize, session/new, session/load, session/resume, session/list, session/prompt, session/cancel, session/close"
)
_SEARCHED, _LISTED, _TITLE_WIDTH = 1000, 100, 80
_CODES = {UnknownRun: jsonrpc.NOT_FOUND, UsageError: jsonrpc.INVALID_PARAMS}
_ABILITIES: Fields = {
    "loadSession": True,
    "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    "sessionCapabilities": {"resume": {}, "list": {}, "close": {}},
}


class AcpServer:
    """Serves one client; use it with `async with`. On leaving, its runs stop where they can be resumed."""

    def __init__(self, options: AcpOptions) -> None:
        self.connection = jsonrpc.Connection(self._serve)
        self._options = options
        self._is_initialized = False
        self._sessions: dict[str, AcpSession] = {}
        self._keeping: set[AcpSession] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.connection.end()
        for task in self._serving:
            task.cancel()
        for session in self._keeping:
            session.over.set()
        try:
            await self._group.__aexit__(None, None, None)
        except BaseExceptionGroup as raised:
            raise cause_of(raised) from None

    async def receive(self, said: jsonrpc.Message | bytes) -> None:
        """Handle a message, or send the refusal of a line that is none."""
        if isinstance(said, bytes):
            await self.connection.send(said)
        else:
            await self.connection.receive(said)

    async def _serve(self, asked: jsonrpc.RpcRequest) -> bytes | None:
        number = asked.id
        if number is None:
            self._notified(asked)
            return None
        if asked.method == "initialize":
            self._is_initialized = True
            info = {"name": "deputy", "title": "Deputy", "version": __version__}
            agreed = {"protocolVersion": jsonrpc.PROTOCOL, "agentCapabilities": _ABILITIES, "agentInfo": info}
            return jsonrpc.answer(number, {**agreed, "authMethods": []})
        work = self._work(asked, number)
        if work is None:
            words = f"Unknown method {asked.method[:100]!r}. Deputy serves: {_METHODS}."
            return jsonrpc.refusal(number, jsonrpc.NO_SUCH_METHOD, words)
        if not self._is_initialized or len(self._serving) >= MOST_REQUESTS:
            work.close()
            wrong = f"{MOST_REQUESTS} requests are being served" if self._is_initialized else "Send initialize first"
            return jsonrpc.refusal(number, jsonrpc.INVALID_REQUEST, f"{wrong}.")
        task = self._group.create_task(self._answer(number, work))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return None

    def _work(self, asked: jsonrpc.RpcRequest, number: str | int) -> Coroutine[Any, Any, Fields] | None:
        match asked.method:
            case "session/new":
                return self._open(asked.params)
            case "session/load":
                return self._load(asked.params, is_replayed=True)
            case "session/resume":
                return self._load(asked.params, is_replayed=False)
            case "session/list":
                return asyncio.to_thread(listed_sessions, _text(asked.params, "cwd"))
            case "session/prompt":
                return self._prompt(asked.params, number)
            case "session/close":
                return self._close(asked.params)
            case _:
                return None

    def _notified(self, asked: jsonrpc.RpcRequest) -> None:
        match asked.method:
            case "session/cancel":
                session = self._sessions.get(_text(asked.params, "sessionId"))
            case "$/cancel_request":
                number = asked.params.get("requestId")
                turns = (one for one in self._sessions.values() if one.turn is not None and one.turn == number)
                session = next(turns, None)
            case _:
                return
        if session is not None:
            session.cancel()

    async def _answer(self, number: str | int, work: Coroutine[Any, Any, Fields]) -> None:
        try:
            reply = jsonrpc.answer(number, await work)
        except DeputyError as error:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), jsonrpc.INTERNAL_ERROR)
            reply = jsonrpc.refusal(number, code, outgoing_text(str(error)))
        except Exception as error:  # noqa: BLE001  a bug in one request must not end the sessions beside it
            sys.stderr.write(outgoing_text("".join(traceback.format_exception(error))))
            reply = jsonrpc.refusal(number, jsonrpc.INTERNAL_ERROR, f"A bug in Deputy: {type(error).__name__}.")
        await self.connection.send(reply)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def _open(self, params: Fields, load: str = "", *, is_replayed: bool = False) -> Fields:
        folder = _text(params, "cwd")
        if "\0" in folder or not Path(folder).is_absolute() or not await asyncio.to_thread(Path(folder).is_dir):
            raise UsageError("cwd", folder[:200], "give the absolute path of a folder that exists")
        if len(self._keeping) >= MOST_SESSIONS:
            raise UsageError("sessions", len(self._keeping), "close one first, with session/close")
        if load and any(one.id == load for one in self._keeping):
            raise UsageError("sessionId", load[:200], "the session is open here already")
        session = AcpSession(folder, mcp_servers(params.get("mcpServers")), self._options, self.connection)
        session.id = load
        opened: asyncio.Future[AcpSession] = asyncio.get_running_loop().create_future()
        self._keeping.add(session)
        keeping = self._group.create_task(session.keep(opened, load, is_replayed=is_replayed))
        keeping.add_done_callback(lambda _: self._keeping.discard(session))
        try:
            await opened
        except asyncio.CancelledError:
            session.over.set()
            raise
        self._sessions[session.id] = session
        return {"sessionId": session.id} if not load else {}

    async def _load(self, params: Fields, *, is_replayed: bool) -> Fields:
        name = _text(params, "sessionId")
        if not name:
            raise UsageError("sessionId", name, "give the id of a session")
        return await self._open(params, name, is_replayed=is_replayed)

    def _session(self, params: Fields) -> AcpSession:
        name = _text(params, "sessionId")
        if name not in self._sessions:
            raise UsageError("sessionId", name[:200], "open the session first, with session/new or session/load")
        return self._sessions[name]

    async def _prompt(self, params: Fields, number: str | int) -> Fields:
        return await self._session(params).prompt(number, params.get("prompt"))

    async def _close(self, params: Fields) -> Fields:
        session = self._session(params)
        del self._sessions[session.id]
        await session.close()
        return {}


def _text(params: Fields, name: str) -> str:
    value = params.get(name)
    return value if isinstance(value, str) else ""


def listed_sessions(folder: str) -> Fields:
    """The latest sessions in a folder, or in all folders; agents that were started elsewhere can be opened too."""
    sessions: list[Fields] = []
    with open_queries(home_path()) or nullcontext() as queries:
        states = [] if queries is None else [*queries.live(), *queries.ended(_SEARCHED)]
        found = [one for one in states if one.command == RUN and one.parent is None and one.workspace]
        found = [one for one in found if folder in ("", one.workspace)]
        for state in sorted(found, key=lambda one: one.last_at, reverse=True)[:_LISTED]:
            opened = None if queries is None else next(iter(queries.records(state.run, limit=1)), None)
            event = opened.event if isinstance(opened, Record) else None
            prompt = event.prompt if isinstance(event, RunOpened) else ""
            title = one_line(prompt, _TITLE_WIDTH)
            sessions.append(
                {
                    "sessionId": state.run,
                    "cwd": state.workspace,
                    "title": title or state.run,
                    "updatedAt": timestamp(state.last_at),
                }
            )
    return {"sessions": sessions}


def mcp_servers(given: object) -> dict[str, dict[str, Any]]:
    """The MCP servers of a client, with the settings of `[mcp.servers.NAME]`."""
    servers: dict[str, dict[str, Any]] = {}
    for one in parts(given):
        name = safe_name(text_of(one.get("name")), "-").replace("_", "-").strip("-") or "server"
        if one.get("type") in ("http", "sse"):
            headers = {text_of(each.get("name")): text_of(each.get("value")) for each in parts(one.get("headers"))}
            servers[name] = {"url": text_of(one.get("url")), "headers": headers}
        else:
            env = {text_of(each.get("name")): text_of(each.get("value")) for each in parts(one.get("env"))}
            servers[name] = {"command": text_of(one.get("command")), "args": one.get("args", []), "env": env}
    return servers


# --- standard input and output ----------------------------------------------------------------------------------------


def read_line(line: bytes | None) -> jsonrpc.Message | bytes:
    """The message of a line, or the refusal to send."""
    if line is None:
        return jsonrpc.refusal(None, jsonrpc.INVALID_REQUEST, f"A message has at most {MOST_LINE:,} bytes.")
    if has_too_many_parts(line):
        return jsonrpc.refusal(None, jsonrpc.INVALID_REQUEST, f"A message is made of at most {MOST_PARTS:,} values.")
    fields = json_object(line)
    if fields is None:
        return jsonrpc.refusal(None, jsonrpc.PARSE_ERROR, "Send one JSON object per line.")
    said, number = jsonrpc.message_of(fields), jsonrpc.id_of(fields)
    if said is None or fields.get("jsonrpc") != "2.0":
        number = number if "method" in fields else None
        return jsonrpc.refusal(number, jsonrpc.INVALID_REQUEST, "This is no JSON-RPC 2.0 message.")
    if isinstance(said, jsonrpc.RpcRequest) and number is None and "id" in fields:
        return jsonrpc.refusal(None, jsonrpc.INVALID_REQUEST, "An id is a string or a whole number.")
    return said


class StdioSink:
    """Standard output as the sink of a connection."""

    def __init__(self, sink: int, leave: Callable[[], None]) -> None:
        """`leave` is called when the client takes nothing more."""
        self._writer = StdioWriter(sink)
        self._leave = leave
        self._unwritten = 0
        self._has_room = asyncio.Event()
        self._is_closed = False
        self.written = 0
        """How many messages the client took."""

    def write(self, data: bytes, /) -> None:
        """Write a message, after those before it."""
        self._unwritten += 1
        self._writer.put(visible_json_of(data.rstrip(b"\n")) + b"\n", self._wrote).add_done_callback(self._done)

    async def drain(self) -> None:
        """Wait while too many messages are unwritten."""
        while self._unwritten >= MOST_UNWRITTEN and not self._is_closed:
            self._has_room.clear()
            await self._has_room.wait()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._is_closed

    def close(self) -> None:
        """Write nothing more."""
        self._is_closed = True
        self._has_room.set()

    def _wrote(self) -> None:
        self.written += 1

    def _done(self, written: asyncio.Future[bool]) -> None:
        self._unwritten -= 1
        self._has_room.set()
        if not written.cancelled() and not written.result():
            self.close()
            self._leave()


async def serve_stdio(options: AcpOptions, stop: asyncio.Event) -> None:
    """Serve one client until it leaves or `stop` is set."""
    left = asyncio.Event()
    with own_streams() as (source, sink):
        out = StdioSink(sink, left.set)
        async with AcpServer(options) as server:
            server.connection.open(out)
            StdioReader(source, lambda: out.written, left.set).start(read_line, server.receive)
            await first_of(left.wait(), stop.wait())
