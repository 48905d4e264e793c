"""A scripted, strict model provider on a real socket, for all four wire protocols."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Self, cast

from msgspec import MsgspecError, Struct, json

from deputy.core.model_script import ModelScript, ScriptedTurn, ScriptPlayer, script_of
from deputy.testing.faults import FAULTS, Fault, answers
from deputy.testing.protocol_streams import Protocol, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEAD_LIMIT: Final = 64 * 1024
CHAT_PROVIDERS: Final = (
    "OPENAI",
    "OPENROUTER",
    "GROQ",
    "DEEPSEEK",
    "MISTRAL",
    "OLLAMA",
    "VLLM",
    "LLAMACPP",
    "LMSTUDIO",
)
STREAM: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class ProviderRequest(Struct, frozen=True, kw_only=True):
    """A request that the server got."""

    protocol: Protocol
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    model: str
    opening: str
    """Its system prompt and the user messages before the model's first turn."""
    answered: int
    """The number of model turns in it."""
    at: float
    """Arrival time on the server's clock."""


class ProviderServer:
    """A provider for tests and demos: `async with ProviderServer(script) as provider`; point a client at its `url`.

    Usable with a plain `with` too, then it runs in a thread of its own. Leaving the block fails with AssertionError
    when the script was not asked exactly as written, unless it is not `strict` or the block failed already.
    """

    def __init__(
        self,
        *script: ModelScript | ScriptedTurn,
        faults: Mapping[str, Fault] | None = None,
        strict: bool = True,
        models: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        turns = [turn for turn in script if isinstance(turn, ScriptedTurn)]
        scripts = [one for one in script if isinstance(one, ModelScript)]
        conversations = [c for one in [*scripts, *([script_of(*turns)] if turns else [])] for c in one.conversations]
        self.asked: list[ProviderRequest] = []
        """Every request, in order."""
        self._play = ScriptPlayer(ModelScript(conversations=tuple(conversations)))
        self._faults = {**FAULTS, **(faults or {})}
        named = {fault for conversation in conversations for turn in conversation.turns for fault in turn.faults}
        if unknown := named - set(self._faults):
            raise ValueError(f"the script names unknown faults: {', '.join(sorted(unknown))}")
        self._strict = strict
        self._models = models
        """The models that it lists, like a local server."""
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread: _ServerThread | None = None

    @property
    def url(self) -> str:
        """The address without a path, for `ANTHROPIC_BASE_URL` and `GOOGLE_GEMINI_BASE_URL`."""
        return f"http://{self._host}:{self._port}"

    @property
    def environ(self) -> dict[str, str]:
        """The variables that point every provider's client here."""
        bare = {"ANTHROPIC_BASE_URL": self.url, "GOOGLE_GEMINI_BASE_URL": self.url}
        versioned = {f"{name}_BASE_URL": f"{self.url}/v1" for name in CHAT_PROVIDERS}
        keys = {f"{name}_API_KEY": f"test-key-{name.lower()}" for name in ("ANTHROPIC", "GEMINI", *CHAT_PROVIDERS)}
        return bare | versioned | keys

    def check(self) -> None:
        """Fail unless the script was asked exactly as written."""
        if problems := [*self._play.over_asked, *self._play.unasked()]:
            raise AssertionError(f"the script was not played as written: {'; '.join(problems)}")

    # --- life ---

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.stop()
        if kind is None and self._strict:
            self.check()

    def __enter__(self) -> Self:
        self._thread = _ServerThread(self)
        self._thread.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._thread is not None:
            self._thread.finish()
        if kind is None and self._strict:
            self.check()

    async def start(self) -> None:
        """Start to listen."""
        self._server = await asyncio.start_server(self._connected, self._host, self._port, limit=HEAD_LIMIT)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            pass  # only `stop` cancels this task, and asyncio's streams would log it as an error
        finally:
            writer.close()

    # --- one request ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.split("\r\n")
        path = request_line.split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        exchange = Exchange(reader, writer)
        await self._answer(exchange, path, headers, content)
        return exchange.is_reusable

    async def _answer(self, exchange: Exchange, path: str, headers: dict[str, str], content: bytes) -> None:
        if self._models and path.partition("?")[0].endswith("/models"):
            return await answers(200, {"data": [{"id": name} for name in self._models]})(exchange, [])
        protocol = protocol_of(path)
        if protocol is None:
            return await answers(404, {"error": {"message": f"nothing is at {path}"}})(exchange, [])
        try:
            asked = read_request(protocol, path, headers, content, asyncio.get_running_loop().time())
        except (MsgspecError, ValueError) as error:
            return await answers(400, {"error": {"message": f"the request cannot be read: {error}"}})(exchange, [])
        self.asked.append(asked)
        found = self._play.ask(asked.opening, asked.answered)
        if found is None:
            problem = {"type": "invalid_request_error", "message": f"the script: {self._play.over_asked[-1]}"}
            return await answers(400, {"type": "error", "error": problem})(exchange, [])
        turn, fault = found
        events = render(protocol, turn, model=asked.model, serial=len(self.asked))
        if turn.delay_seconds:
            await asyncio.sleep(turn.delay_seconds)
        if fault is not None:
            return await self._faults[fault](exchange, events)
        return await _play_well(exchange, events, turn.pace_seconds)


async def _play_well(exchange: Exchange, events: list[bytes], pace_seconds: float) -> None:
    await exchange.begin()
    if not pace_seconds:
        exchange.send_all(events)
    else:
        for event in events:
            await exchange.send(event)
            await asyncio.sleep(pace_seconds)
    await exchange.end()


class Exchange:
    """One request and its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_reusable = False
        """Whether the connection may carry another request."""

    async def answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        """A whole answer at once."""
        self._head(status, {**headers, "content-length": str(len(content))})
        self._writer.write(content)
        await self._writer.drain()
        self.is_reusable = True

    async def begin(self) -> None:
        """The head of a stream."""
        self._head(200, {**STREAM, "transfer-encoding": "chunked"})

    async def send(self, data: bytes) -> None:
        """A piece of the stream, on its own."""
        self.send_all([data])
        await self._writer.drain()

    def send_all(self, pieces: list[bytes]) -> None:
        """Pieces of the stream, one chunk each, in one write."""
        self._writer.write(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece))

    async def end(self) -> None:
        """The proper end of a stream."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        self.is_reusable = True

    async def pause(self, seconds: float) -> bool:
        """Wait; False when the client has gone."""
        try:
            async with asyncio.timeout(seconds):
                return bool(await self._reader.read(1))
        except TimeoutError:
            return not self._writer.is_closing()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def reset(self) -> None:
        """Reset the connection: what is not read yet is lost to the client."""
        raw: socket.socket = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode("latin-1"))


class _ServerThread:
    """A server on its own event loop, for tests without one."""

    def __init__(self, server: ProviderServer) -> None:
        self._server = server
        self._ready = threading.Event()
        self._done: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="provider", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self._ready.wait()

    def finish(self) -> None:
        if self._loop is not None and self._done is not None:
            self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        await self._server.start()
        self._ready.set()
        await self._done.wait()
        await self._server.stop()


# --- requests ---------------------------------------------------------------------------------------------------------


def protocol_of(path: str) -> Protocol | None:
    """The protocol of a path; None if unknown."""
    path = path.partition("?")[0]
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/responses"):
        return "openai-responses"
    if path.endswith("/chat/completions"):
        return "openai-chat"
    if path.endswith(":streamGenerateContent"):
        return "google"
    return None


def read_request(protocol: Protocol, path: str, headers: dict[str, str], content: bytes, at: float) -> ProviderRequest:
    """Parse a request; raises ValueError."""
    fields = json.decode(content, type=dict[str, Any])
    messages: Any = fields.get({"openai-responses": "input", "google": "contents"}.get(protocol, "messages"))
    rows: list[dict[str, Any]] = (
        [{"role": "user", "content": messages}] if isinstance(messages, str) else messages or []
    )
    system = fields.get("system") or fields.get("instructions") or fields.get("systemInstruction") or ""
    # Programs send their environment as messages before the task.
    first = [row for row in takewhile(lambda row: not _is_own(row), rows) if row.get("role") == "user"]
    opening = [_texts(system), *(_texts(row) for row in rows if row.get("role") == "system"), _texts(first)]
    name = str(fields.get("model", "")) or path.partition(":")[0].rpartition("/")[2]
    return ProviderRequest(
        protocol=protocol,
        path=path,
        headers=headers,
        body=fields,
        model=name,
        opening="\n".join(opening),
        answered=_answers(protocol, rows),
        at=at,
    )


def _answers(protocol: Protocol, rows: list[dict[str, Any]]) -> int:
    """Count model turns; in the Responses protocol one turn is several items."""
    if protocol != "openai-responses":
        return sum(1 for row in rows if row.get("role") in ("assistant", "model"))
    own = [_is_own(row) for row in rows]
    return sum(1 for before, now in zip([False, *own], own, strict=False) if now and not before)


def _is_own(item: dict[str, Any]) -> bool:
    return item.get("type") in ("function_call", "reasoning") or item.get("role") in ("assistant", "model")


def _texts(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(_texts(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return _texts(fields.get("content") or fields.get("parts") or fields.get("text"))
    return value if isinstance(value, str) else ""
