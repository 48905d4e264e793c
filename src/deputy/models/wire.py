"""The interface of a wire protocol: encode a request, read its stream. One file per protocol implements it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct, structs

from deputy.core.conversation import (
    Part,
    StopReason,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCall,
    Toolset,
    map_text,
    without_surrogates,
)
from deputy.core.model_errors import BadReply, ReplyTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.core.conversation import Conversation, GenerationSettings

CONTENT_LIMIT: Final = 16 * 1024 * 1024
"""The limit on characters of text, thinking and arguments in one turn: twenty times the largest output limit."""

PART_SIZE: Final = 256
"""The overhead of a part beside its characters."""

ThinkingStyle: TypeAlias = Literal["budget", "adaptive", "effort", "level"]
"""How thinking is requested: a token budget, adaptive with an effort, an effort, or a level."""


_MASK: Final = "***"


class ApiKey:
    """An API key that repr, logs, errors, pickles and JSON do not show."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value, for a request header."""
        return self._value

    def hide(self, text: str) -> str:
        """The text with every occurrence of the value masked."""
        return text.replace(self._value, _MASK) if len(self._value) >= 4 else text

    def __repr__(self) -> str:
        return f"Secret({_MASK})"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        raise TypeError("an ApiKey cannot be pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class ModelTarget(Struct, frozen=True, kw_only=True):
    """The model of a request, with the catalog data that changes the request."""

    provider: str
    model: str
    max_output_tokens: int | None = None
    thinking_style: ThinkingStyle | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    quirks: frozenset[str] = frozenset()
    """Deviations of a server from its protocol; the protocol's file lists the names."""


def sampling(target: ModelTarget, temperature: str, top_p: str, seed: str = "") -> dict[str, float]:
    """The sampling settings of a model, under the names of a protocol; a protocol without `seed` has no name for it."""
    named = {temperature: target.temperature, top_p: target.top_p, seed: target.seed}
    return {name: value for name, value in named.items() if name and value is not None}


class StreamEnd(Struct, frozen=True, kw_only=True):
    """The stop reason of a stream, and the parts of the answer."""

    reason: StopReason
    parts: tuple[Part, ...]


class StreamReader(Protocol):
    """Reads one stream, event by event, without waiting."""

    buffer: StreamBuffer
    used: TokenUsage | None

    @property
    def is_done(self) -> bool:
        """Whether the final event has come."""
        ...

    def read(self, data: bytes) -> None:
        """Take in the data of one event; a ModelError means that it is invalid or the provider's error."""
        ...

    def end(self) -> StreamEnd:
        """The result of the whole stream; StreamCut unless its final event has come."""
        ...


class Wire(NamedTuple):
    """A protocol for turns over HTTP."""

    name: str
    path: str
    """The path of the request after the base URL; `{model}` stands for the model."""
    body: Callable[[ModelTarget, Conversation, Toolset, GenerationSettings], bytes]
    reader: Callable[[], StreamReader]
    headers: Mapping[str, str] = {}
    list_path: str = "/models"
    """The path of the list of models."""


class StreamBuffer:
    """Collects the deltas of a stream: counted, limited in size, and joined per network read."""

    __slots__ = ("_events", "_is_thought", "_pieces", "_text", "progress", "size")

    def __init__(self) -> None:
        self.progress = 0
        """Grows with the model's output; pings, comments and empty deltas are not progress."""
        self.size = 0
        self._text: list[str] = []
        self._pieces: list[str] = []
        self._is_thought = False
        self._events: list[TextDelta | ThinkingDelta] = []

    def add_text(self, text: str) -> None:
        """Add text of the model."""
        # Hot path, called for every few characters: the size is counted once per network read.
        if not text:
            return
        if self._is_thought:
            self._flush()
            self._is_thought = False
        self.progress += 1
        self._pieces.append(text)

    def add_thinking(self, text: str) -> None:
        """Add thinking of the model."""
        if not text:
            return
        if not self._is_thought:
            self._flush()
            self._is_thought = True
        self.progress += 1
        self._pieces.append(text)

    def begin(self) -> None:
        """Count a new part, because endless empty parts use memory too."""
        self.grow(PART_SIZE)

    def grow(self, size: int) -> None:
        """Count output of this size that is not emitted as a delta."""
        self.progress += 1
        self._count(size)

    @property
    def text(self) -> str:
        """The model's text so far."""
        return "".join(self._text if self._is_thought else (*self._text, *self._pieces))

    def take(self) -> list[TextDelta | ThinkingDelta]:
        """The deltas since the last take, neighbours of one kind joined."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > CONTENT_LIMIT:
            raise ReplyTooLarge(f"the model sent more than {CONTENT_LIMIT:,} characters in one turn")

    def _flush(self) -> None:
        if not self._pieces:
            return
        joined = "".join(self._pieces)
        self._pieces.clear()
        if self._is_thought:
            self._events.append(ThinkingDelta(joined))
        else:
            self._events.append(TextDelta(joined))
            self._text.append(joined)
        self._count(len(joined))


class PartialToolCall:
    """A tool call with incomplete arguments."""

    __slots__ = ("id", "name", "opaque", "pieces")

    def __init__(self, call_id: str, name: str, opaque: str | None = None) -> None:
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self.opaque = opaque

    def complete(self, reason: StopReason) -> ToolCall | None:
        """The complete call at the end of the stream; None if the output limit may have cut it."""
        text = "".join(self.pieces)
        arguments = _parse_arguments(text) if text else {}
        if reason == "length" and (not text or arguments is None):
            return None
        malformed = text if arguments is None else None
        return ToolCall(id=self.id, name=self.name, arguments=arguments or {}, malformed=malformed, opaque=self.opaque)


def _parse_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call, or None if the text is not a JSON object."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def encode(value: Any) -> bytes:
    """A value as JSON; lone surrogates become replacement characters."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(map_text(value, without_surrogates))


def with_arrays(head: dict[str, Any], *arrays: tuple[bytes, tuple[bytes | bytearray, ...]]) -> bytes:
    """A JSON object with additional arrays of encoded items; the only copy of the conversation per turn."""
    pieces: list[bytes | bytearray] = [encode(head)[:-1]]
    comma = b"," if head else b""
    for name, items in arrays:
        pieces += (comma, b'"', name, b'":[', *items, b"]")
        comma = b","
    pieces.append(b"}")
    return b"".join(pieces)


def tools_field(encoded: bytes | bytearray) -> list[tuple[bytes, tuple[bytes | bytearray, ...]]]:
    """The tools field, if there are tools."""
    return [(b"tools", (encoded,))] if encoded else []


def schema_or_tools(tools: Toolset, settings: GenerationSettings) -> tuple[Toolset, GenerationSettings]:
    """Drop the schema or the tools, for a server that does not accept both."""
    if settings.output is None or not len(tools):
        return tools, settings
    if settings.output.outranks_tools or settings.tool_choice == "none":
        return Toolset(), settings
    return tools, structs.replace(settings, output=None)


def decode(decoder: Callable[[bytes | msgspec.Raw], Any], data: bytes | msgspec.Raw) -> Any:
    """Decode one event; BadReply if it is invalid."""
    try:
        return decoder(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if _NAN.search(data):
            # Some Python servers write NaN, which is not JSON.
            return decode(decoder, _NAN.sub(rb"\1null", data))
        raise BadReply(f"an event of the stream cannot be read: {error}") from error


_NAN: Final = re.compile(rb"(:\s*)-?NaN\b")
NOTHING: Final = msgspec.Raw()


def is_given(value: msgspec.Raw) -> bool:
    """Whether a raw field exists and is not null."""
    return bytes(value) not in (b"", b"null")


def counted(report: object, *path: str) -> int:
    """A number of tokens in a provider's report; other values count as 0."""
    for name in path:
        report = cast("dict[str, object]", report).get(name) if isinstance(report, dict) else None
    return report if type(report) is int and report > 0 else 0
