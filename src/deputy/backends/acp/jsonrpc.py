"""JSON-RPC of the Agent Client Protocol, for both sides: messages, one per line, and the connection.

Input is untrusted.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from msgspec import Struct, json

from deputy.backends.cli.program import Fields, json_object, part, text_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PROTOCOL = 1
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
INVALID_PARAMS = -32602
NO_SUCH_METHOD = -32601
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
_MESSAGE_LENGTH = 4000


class RpcRequest(Struct, frozen=True):
    """A request of the other side; without an id it is a notification."""

    method: str
    params: Fields
    id: str | int | None = None


class RpcResult(Struct, frozen=True):
    """The result of one of our requests."""

    id: int
    result: Fields


class RpcError(Struct, frozen=True):
    """The error of one of our requests."""

    id: int
    code: int
    message: str


Message: TypeAlias = RpcRequest | RpcResult | RpcError


def read(line: bytes) -> Message | None:
    """Parse a line; None when it is not a message."""
    fields = json_object(line)
    return None if fields is None else message_of(fields)


def message_of(fields: Fields) -> Message | None:
    """The message in a JSON object; None when there is none."""
    method, number = fields.get("method"), id_of(fields)
    if isinstance(method, str):
        return RpcRequest(method, part(fields, "params"), number)
    if not isinstance(number, int):
        return None
    if "error" in fields:
        error = part(fields, "error")
        code = error.get("code")
        return RpcError(number, code if isinstance(code, int) else 0, _words(error))
    return RpcResult(number, part(fields, "result")) if "result" in fields else None


def id_of(fields: Fields) -> str | int | None:
    """The id of a message, if it has a valid one."""
    number = fields.get("id")
    return number if isinstance(number, str | int) and not isinstance(number, bool) else None


def request(method: str, params: Fields, number: int | None = None) -> bytes:
    """Encode a request; without a number it is a notification."""
    return _line({"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number}))


def answer(number: str | int, result: Fields) -> bytes:
    """Encode a result."""
    return _line({"jsonrpc": "2.0", "id": number, "result": result})


def refusal(number: str | int | None, code: int, message: str) -> bytes:
    """Encode an error."""
    return _line({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def _line(fields: Fields) -> bytes:
    try:
        return json.encode(fields) + b"\n"
    except (UnicodeError, ValueError):
        # A text contains a lone surrogate.
        return json.encode(_clean(fields)) + b"\n"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in cast("Fields", value).items()}
    return [_clean(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _words(error: Fields) -> str:
    """The message and data of an error: agents differ in where they put the reason."""
    data = error.get("data")
    texts = [text_of(error.get("message"))]
    if isinstance(data, str):
        texts.append(data)
    elif isinstance(data, dict):
        texts += [value for value in cast("Fields", data).values() if isinstance(value, str)]
    return ": ".join(text for text in texts if text)[:_MESSAGE_LENGTH]


class Sink(Protocol):
    """Where a connection writes, like `asyncio.StreamWriter`."""

    def write(self, data: bytes, /) -> None:
        """Write without waiting."""
        ...

    async def drain(self) -> None:
        """Wait while too much is unwritten."""
        ...

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        ...

    def close(self) -> None:
        """Write nothing more."""
        ...


class Connection:
    """A connection to one peer. Its requests are served one at a time, so a flood of them waits."""

    def __init__(self, serve: Callable[[RpcRequest], Awaitable[bytes | None]]) -> None:
        self._stdin: Sink | None = None
        self._serve = serve
        self._waiting: dict[int, asyncio.Future[RpcResult | RpcError | None]] = {}
        self._number = 0
        self._is_over = False

    def open(self, stdin: Sink | None) -> None:
        """Write to this stream from now on."""
        self._stdin = stdin

    async def ask(self, method: str, params: Fields, *, withdraws: bool = False) -> RpcResult | RpcError | None:
        """Send a request and wait for the answer; None when the connection has ended.

        With `withdraws`, a cancelled wait also cancels the request.
        """
        if self._is_over:
            return None
        self._number += 1
        number = self._number
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self.send(request(method, params, number))
            return await self._waiting[number]
        except asyncio.CancelledError:
            if withdraws:
                self.notify("$/cancel_request", {"requestId": number})
            raise
        finally:
            del self._waiting[number]

    def notify(self, method: str, params: Fields) -> None:
        """Send a notification without waiting."""
        if self._stdin is not None and not self._stdin.is_closing():
            with suppress(ConnectionError):
                self._stdin.write(request(method, params))

    async def receive(self, message: Message) -> None:
        """Handle a message of the peer."""
        if isinstance(message, RpcRequest):
            reply = await self._serve(message)
            if reply is not None:
                await self.send(reply)
        else:
            waiting = self._waiting.get(message.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def end(self) -> None:
        """Note the end of the peer's output; pending requests get no answer."""
        self._is_over = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def hang_up(self) -> None:
        """Close the peer's input."""
        if self._stdin is not None:
            with suppress(ConnectionError):
                self._stdin.close()

    async def send(self, line: bytes) -> None:
        """Send an encoded message, and wait while the peer does not read."""
        if self._stdin is None or self._stdin.is_closing():
            return
        with suppress(ConnectionError):
            self._stdin.write(line)
            await self._stdin.drain()
