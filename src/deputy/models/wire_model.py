"""A model over HTTP: sends the request, reads the stream, and accepts only complete answers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import aiohttp
from msgspec import Struct, structs
from yarl import URL

from deputy.core.conversation import FACTOR, AssistantMessage, Part, Stop, Text, TokenUsage, ToolCall, estimated_tokens
from deputy.core.limits import IDLE_SECONDS
from deputy.core.model_errors import (
    BadReply,
    BadRequest,
    ContextExhausted,
    EmptyReply,
    ModelError,
    NoKey,
    Silent,
    StreamCut,
)
from deputy.core.provider_errors import provider_error
from deputy.engine.timeouts import SharedTimer
from deputy.models.catalog import ModelPrices, priced
from deputy.models.http_client import RequestBody, read_what_came
from deputy.models.sse import EventReader
from deputy.models.wire import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from deputy.core.conversation import Conversation, GenerationSettings, StopReason, StreamEvent, Toolset
    from deputy.models.http_client import HttpClient
    from deputy.models.wire import ModelTarget, StreamEnd, StreamReader, Wire

REST_SECONDS: Final = 2.0
"""How long to wait after the final event for the stream to close, so that the connection can be reused."""
ERROR_BODY_BYTES: Final = 64 * 1024
NOT_STREAMS: Final = ("application/json", "text/html")


class Endpoint(Struct, frozen=True, kw_only=True):
    """The address and key of a model."""

    base_url: str
    key_header: str = "authorization"
    key: ApiKey | None = None
    key_variable: str = ""
    """The variable for the key; empty for servers without keys."""

    def headers(self) -> dict[str, str]:
        """The header with the key."""
        if self.key is None:
            return {}
        value = self.key.reveal()
        return {self.key_header: f"Bearer {value}" if self.key_header == "authorization" else value}


class WireModel:
    """A model behind one of the wire protocols."""

    is_metered = True

    def __init__(
        self,
        wire: Wire,
        target: ModelTarget,
        endpoint: Endpoint,
        http: HttpClient,
        *,
        context_window: int | None = None,
        prices: ModelPrices | None = None,
        idle_seconds: float = IDLE_SECONDS,
        timer: SharedTimer | None = None,
    ) -> None:
        self.name = f"{target.provider}:{target.model}"
        self.context_window = context_window
        self._wire = wire
        self._target = target
        self._endpoint = endpoint
        self._http = http
        self._prices = prices
        self._idle_seconds = idle_seconds
        self._timer = timer or SharedTimer()
        path = wire.path.format(model=quote(target.model, safe=""))
        self._url = URL(endpoint.base_url.rstrip("/") + path, encoded=True)
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            **wire.headers,
            **endpoint.headers(),
        }

    def __repr__(self) -> str:
        return f"WireModel({self.name!r})"

    async def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """One request, one turn."""
        if self._endpoint.key is None and self._endpoint.key_variable:
            raise NoKey(f"no API key for provider {self._target.provider}; set {self._endpoint.key_variable}")
        settings = structs.replace(settings, max_output_tokens=self._most_output(settings))
        reader = self._wire.reader()
        try:
            body = RequestBody(self._wire.body(self._target, conversation, tools, settings))
            response = await self._ask(body, settings.idempotency_key)
            try:
                listening = _Listening(response, reader, self._timer, self._idle_seconds)
                try:
                    while await listening.receive():
                        for delta in reader.buffer.take():
                            yield delta
                finally:
                    listening.stop()
            finally:
                response.close()  # a fully read response has already released its connection
            for delta in reader.buffer.take():
                yield delta
            ending = reader.end()
            used = self._used(reader)
            self._check(ending, used, body.size or 0)
            message = AssistantMessage(parts=with_ids(ending.parts, len(conversation)), origin=self._target.provider)
            for call in message.calls:
                yield call
            yield used
            yield Stop(reason=ending.reason, message=message)
        except ModelError as error:
            raise self._signed(error, reader) from error.__cause__

    def _most_output(self, settings: GenerationSettings) -> int | None:
        """The output limit of a turn: at most that of the model."""
        limits = (settings.max_output_tokens, self._target.max_output_tokens)
        return min((limit for limit in limits if limit is not None), default=None)

    async def _ask(self, body: RequestBody, key: str | None) -> aiohttp.ClientResponse:
        headers = self._headers if key is None else {**self._headers, "idempotency-key": key}
        try:
            async with self._timer.timeout(self._idle_seconds):
                response = await self._http.post(self._url, headers, body)
                if response.status == 200 and _is_stream(response):
                    return response
                try:
                    raise await self._failure(response)
                finally:
                    response.close()
        except TimeoutError as error:
            raise Silent(f"no answer began within {self._idle_seconds:g} s") from error

    async def _failure(self, response: aiohttp.ClientResponse) -> ModelError:
        status, headers = response.status, {name.lower(): value for name, value in response.headers.items()}
        if 300 <= status < 400:
            host = headers.get("location", "").partition("//")[2].partition("/")[0][:200]
            return BadRequest(f"{self._url.host} redirects to {host!r}; redirects are not followed", status=status)
        if "content-encoding" in headers and headers["content-encoding"] != "identity":
            return BadReply(
                f"the answer is compressed ({headers['content-encoding'][:40]}) although the request forbids it"
            )
        body = bytearray()
        try:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) >= ERROR_BODY_BYTES:
                    break
        except (aiohttp.ClientError, OSError):
            pass  # an incomplete error message is better than none
        if status == 200 and b'"error"' not in body:
            return BadReply(f"the answer is not a stream but {headers.get('content-type', 'of no type')[:80]}")
        error = provider_error(bytes(body[:ERROR_BODY_BYTES]), status=status, headers=headers, now=time.time())
        if status == 404 and "model" not in error.message.lower():
            error.remedy = self._missing_path_remedy()
        return error

    def _missing_path_remedy(self) -> str:
        """The remedy when the server has nothing at the path of the protocol."""
        if self._wire.name == "openai-responses":
            return f"The server seems to have no Responses API. Name the model openai-chat:{self._target.model}."
        address = self._endpoint.base_url.rstrip("/")
        missing = "" if address.endswith("/v1") else ", which most servers need with /v1 at its end"
        return f"Nothing is at {self._url.path} of {self._url.host}. Check the address of the server{missing}."

    def _used(self, reader: StreamReader) -> TokenUsage:
        return priced(reader.used, self._prices) if reader.used is not None else TokenUsage(is_reported=False)

    def _check(self, ending: StreamEnd, used: TokenUsage, sent_bytes: int) -> None:
        if was_cut_silently(used, ending.reason, window=self.context_window, sent_bytes=sent_bytes):
            raise ContextExhausted(
                f"the provider truncated the conversation to its context window ({used.input_tokens:,} tokens read)",
                window=self.context_window,
            )
        says_something = any(isinstance(p, ToolCall) or (isinstance(p, Text) and p.text.strip()) for p in ending.parts)
        if ending.reason == "end" and not says_something:
            raise EmptyReply("the model ended its turn without text or a call")

    def _signed(self, error: ModelError, reader: StreamReader) -> ModelError:
        """Add model, usage and text to the error, and mask the key, which a provider may quote."""
        error.model = self.name
        if isinstance(error, ContextExhausted) and self.context_window is None:
            self.context_window = error.window
        error.text = reader.buffer.text
        error.used = self._used(reader) if reader.used is not None else None
        if self._endpoint.key is not None:
            error.message = self._endpoint.key.hide(error.message)
            error.args = (error.message,)
        return error


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    encoding = response.headers.get("content-encoding", "identity")
    return encoding == "identity" and response.content_type not in NOT_STREAMS


class _Listening:
    """Reads one response. The idle limit counts the model's progress, not bytes, and only while waiting."""

    def __init__(
        self, response: aiohttp.ClientResponse, reader: StreamReader, timer: SharedTimer, idle_seconds: float
    ) -> None:
        self._content = response.content
        self._reader = reader
        self._events = EventReader()
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._progress = reader.buffer.progress
        self._last_progress = self._loop.time()
        self._last_seen = float("-inf")
        self._is_waiting = False
        self._timer = timer
        self._watch = self._timer.set(idle_seconds, self._check_idle)

    def stop(self) -> None:
        """Stop the idle timer."""
        self._timer.cancel(self._watch)

    async def receive(self) -> bool:
        """Take in the next bytes; False at the end."""
        chunk = await self._read()
        if not chunk:
            self._read_rest()
            return False
        self._take(self._events.feed(chunk))
        if self._reader.is_done:
            await self._drain()
            return False
        return True

    def _take(self, events: list[bytes]) -> None:
        reader = self._reader
        try:
            for data in events:
                reader.read(data)
        except ModelError:
            if not reader.is_done:
                raise  # an error after the final event is ignored

    async def _read(self) -> bytes:
        if self._reader.buffer.progress != self._progress:
            # The consumer may have been slow: the wait begins now.
            self._progress = self._reader.buffer.progress
            self._last_progress = self._loop.time()
        self._is_waiting = True
        try:
            return await read_what_came(self._content)
        except (aiohttp.ClientError, OSError) as error:
            raise StreamCut(f"the connection was lost in the middle of the answer: {error}") from error
        finally:
            self._is_waiting = False

    def _check_idle(self) -> None:
        rest = self._idle_seconds
        if self._is_waiting:
            rest += self._last_progress - self._loop.time()
        if rest > 0:
            self._watch = self._timer.set(rest, self._check_idle)
        elif self._last_seen != self._last_progress:
            # After a pause of the whole process, received data may be unread: check once more.
            self._last_seen = self._last_progress
            self._watch = self._timer.set(min(1.0, self._idle_seconds / 4), self._check_idle)
        else:
            self._content.set_exception(Silent(f"the model made no progress for {self._idle_seconds:g} s"))

    def _read_rest(self) -> None:
        """Accept a last event without its closing empty line; half an event is a cut."""
        try:
            self._take(self._events.close())
        except BadReply as error:
            raise StreamCut("the stream ended in the middle of an event") from error

    async def _drain(self) -> None:
        """Read to the end of the response, for late usage and a reusable connection; the answer is complete."""
        if self._content.at_eof():
            return
        try:
            async with asyncio.timeout(REST_SECONDS):
                while chunk := await self._content.readany():
                    self._take(self._events.feed(chunk))
        except (TimeoutError, ModelError, aiohttp.ClientError, OSError):
            pass


def with_ids(parts: tuple[Part, ...], turn: int) -> tuple[Part, ...]:
    """The parts with a unique id for every call: servers omit or repeat ids."""
    seen: set[str] = set()
    serials: dict[str, int] = {}
    named: list[Part] = []
    for part in parts:
        if not isinstance(part, ToolCall):
            named.append(part)
            continue
        stem = call_id = part.id or f"call_{turn}"
        while call_id in seen:
            serials[stem] = serials.get(stem, 1) + 1
            call_id = f"{stem}_{serials[stem]}"
        seen.add(call_id)
        # The opaque form has the old id.
        opaque = part.opaque if part.id in ("", call_id) else None
        named.append(structs.replace(part, id=call_id, opaque=opaque))
    return tuple(named)


def was_cut_silently(used: TokenUsage, reason: StopReason, *, window: int | None, sent_bytes: int) -> bool:
    """Whether the provider silently dropped part of the prompt, or all room for an answer."""
    if not used.is_reported:
        return False
    if reason == "length" and used.output_tokens == 0:
        return True
    # A server cannot read more than it was sent: ignore such a number.
    if window is None or used.input_tokens > estimated_tokens(sent_bytes) * FACTOR:
        return False
    if used.input_tokens > window:
        return True
    # A server that truncates fills its window.
    return used.input_tokens >= window * 0.95 and estimated_tokens(sent_bytes) > window * 1.25
