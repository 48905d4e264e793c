"""Faults of a provider: ways to answer a request badly."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import json

if TYPE_CHECKING:
    from deputy.testing.provider import Exchange

Fault: TypeAlias = Callable[["Exchange", list[bytes]], Awaitable[None]]
"""Answers a request; gets the exchange and the events of a good answer."""

Mangle: TypeAlias = Callable[[list[bytes]], list[bytes]]

_BLOCK_BYTES: Final = 1024 * 1024


def answers(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Fault:
    """Answer with this status instead of a stream; a body that is not bytes is sent as JSON."""

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        content = body if isinstance(body, bytes) else json.encode(body if body is not None else {})
        kind = "text/html" if isinstance(body, bytes) else "application/json"
        await exchange.answer(status, content, {"content-type": kind, **(headers or {})})

    return play


def cuts(at: int, how: Literal["fin", "rst", "chunked-end"] = "fin", *, inside: int = 0) -> Fault:
    """End the stream after `at` events and `inside` bytes of the next.

    `fin` closes the connection, `rst` resets it, and `chunked-end` ends the response in order.
    """

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        await exchange.begin()
        for event in events[:at]:
            await exchange.send(event)
        if inside and at < len(events):
            await exchange.send(events[at][:inside])
        if how == "chunked-end":
            await exchange.end()
        elif how == "rst":
            exchange.reset()
        else:
            exchange.close()

    return play


def stalls(at: int, *, keep_alive: bytes = b"", every_seconds: float = 0.01) -> Fault:
    """After `at` events send nothing, or only `keep_alive`, until the client leaves."""

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        await exchange.begin()
        for event in events[:at]:
            await exchange.send(event)
        while await exchange.pause(every_seconds):
            if keep_alive:
                await exchange.send(keep_alive)

    return play


def drips(at: int, *, every_seconds: float = 0.01) -> Fault:
    """After `at` events send an endless event byte by byte."""
    return stalls(at, keep_alive=b":", every_seconds=every_seconds)


def says_nothing() -> Fault:
    """Read the request and never answer."""

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        while await exchange.pause(0.01):
            pass

    return play


def hangs_up() -> Fault:
    """Close the connection without an answer."""

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        exchange.close()

    return play


def mangles(change: Mangle) -> Fault:
    """Send changed events."""

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        await exchange.begin()
        for event in change(events):
            await exchange.send(event)
        await exchange.end()

    return play


def redirects(location: str, status: int = 307) -> Fault:
    """Redirect to another address."""
    return answers(status, b"moved", {"location": location})


def gzip_bomb(size: int = 64 * 1024 * 1024) -> Fault:
    """Send a few kilobytes that decompress to this size."""

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
        await exchange.answer(200, _packed_zeros(size), headers)

    return play


def _packed_zeros(size: int) -> bytes:
    """The gzip file of so many zeros. One block is compressed and repeated: all of them take most of a second."""
    packer = zlib.compressobj(9, wbits=-15)
    count, rest = divmod(size, _BLOCK_BYTES)
    block = packer.compress(bytes(_BLOCK_BYTES)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = packer.compress(bytes(rest)) + packer.flush()
    header, checksum = b"\x1f\x8b\x08" + bytes(6) + b"\xff", zlib.crc32(bytes(size))
    return header + block * count + end + struct.pack("<II", checksum, size % 2**32)


def _google_limit() -> Fault:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.05s"}]
    error = {"code": 429, "message": "Resource exhausted.", "status": "RESOURCE_EXHAUSTED", "details": details}
    return answers(429, {"error": error})


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "code": kind, "message": message}}


FAULTS: Final[dict[str, Fault]] = {
    "bad_request": answers(400, _error("invalid_request_error", "messages: unexpected role")),
    "bad_api_key": answers(401, _error("authentication_error", "invalid api key")),
    "forbidden": answers(403, _error("permission_error", "this key may not use this model")),
    "model_not_found": answers(404, _error("model_not_found", "no such model")),
    "timed_out": answers(408, _error("timeout_error", "request timed out")),
    "request_too_large": answers(413, _error("request_too_large", "Request exceeds the maximum size")),
    "context_exhausted": answers(400, _error("context_length_exceeded", "prompt is too long: 9000 > 8192 maximum")),
    "rate_limited": answers(429, _error("rate_limit_error", "slow down"), {"retry-after": "0.05"}),
    "rate_limited_by_google": _google_limit(),
    "quota_spent": answers(429, _error("insufficient_quota", "You exceeded your current quota")),
    "rate_limited_without_advice": answers(429, _error("rate_limit_error", "slow down")),
    "server_failed": answers(500, _error("api_error", "internal error")),
    "bad_gateway": answers(502, b"<html><body><h1>502 Bad Gateway</h1></body></html>"),
    "unavailable": answers(503, _error("unavailable", "try later")),
    "overloaded": answers(529, _error("overloaded_error", "Overloaded")),
    "no_headers": says_nothing(),
    "hung_up": hangs_up(),
    "no_first_event": stalls(0),
    "silent": stalls(3),
    "only_pings": stalls(3, keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n'),
    "only_comments": stalls(3, keep_alive=b": keep-alive\n\n"),
    "drips": drips(3),
    "stream_cut": cuts(3, "chunked-end"),
    "connection_closed": cuts(3, "fin"),
    "connection_reset": cuts(3, "rst"),
    "gzip_bomb": gzip_bomb(),
}
"""Faults by their names in scripts."""
