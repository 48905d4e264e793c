"""What a wire protocol is: how a turn is asked for, and how its stream is read. One file per protocol implements it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct, structs

from deputy.core.conversation import Part, StopReason, TextDelta, ThinkingDelta, TokenUsage, ToolCall, Toolset
from deputy.core.errors import BadReply, ReplyTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.conversation import Conversation, GenerationSettings

CONTENT_LIMIT: Final = 16 * 1024 * 1024
"""The most characters of text, thinking and arguments in one turn: twenty times what the largest models may say."""

PART_SIZE: Final = 256
"""What a part counts beside its characters."""

ThinkingStyle: TypeAlias = Literal["budget", "adaptive", "effort", "level"]
"""How a model is told to think: a number of tokens, its own choice under an effort, an effort, or a level."""


class ModelTarget(Struct, frozen=True, kw_only=True):
    """The model that a request is for, with what the catalog knows that changes the request."""

    provider: str
    model: str
    max_output_tokens: int | None = None
    thinking_style: ThinkingStyle | None = None
    quirks: frozenset[str] = frozenset()
    """What sets a server apart from the protocol it speaks; the protocol's file lists the names."""


class StreamEnd(Struct, frozen=True, kw_only=True):
    """How a stream ended, and the parts of the answer it told."""

    reason: StopReason
    parts: tuple[Part, ...]


class StreamReader(Protocol):
    """Reads one stream, event by event. It never waits, and knows no time."""

    buffer: StreamBuffer
    used: TokenUsage | None
    """What the provider has reported so far."""

    @property
    def is_done(self) -> bool:
        """Whether the final event has come; nothing after it counts."""
        ...

    def read(self, data: bytes) -> None:
        """Take in the data of one event; a ModelError says what is wrong with it, or passes on the provider's."""
        ...

    def end(self) -> StreamEnd:
        """What the whole stream said; StreamCut unless its final event has come."""
        ...


class Wire(Protocol):
    """One way to ask a provider for a turn over HTTP."""

    name: str

    def path(self, target: ModelTarget) -> str:
        """Where the request goes, after the base URL."""
        ...

    def headers(self) -> dict[str, str]:
        """What every request carries beside its key."""
        ...

    def body(
        self, target: ModelTarget, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> bytes:
        """The request. Messages and tools are encoded once and joined."""
        ...

    def reader(self) -> StreamReader:
        """A reader for one stream."""
        ...


class StreamBuffer:
    """What a stream tells, on its way to whoever listens: counted, bounded, and joined per network read."""

    __slots__ = ("_events", "_is_thought", "_pieces", "_text", "progress", "size")

    def __init__(self) -> None:
        self.progress = 0
        """Grows with everything the model does; pings, comments and empty deltas are not progress."""
        self.size = 0
        self._text: list[str] = []
        self._pieces: list[str] = []
        self._is_thought = False
        self._events: list[TextDelta | ThinkingDelta] = []

    def add_text(self, text: str) -> None:
        """The model said something."""
        # Once for every few letters of an answer, so that it is counted with the others of one network read.
        if not text:
            return
        if self._is_thought:
            self._flush()
            self._is_thought = False
        self.progress += 1
        self._pieces.append(text)

    def add_thinking(self, text: str) -> None:
        """The model thought something."""
        if not text:
            return
        if not self._is_thought:
            self._flush()
            self._is_thought = True
        self.progress += 1
        self._pieces.append(text)

    def begin(self) -> None:
        """The model began a new part; endless empty ones fill the memory too."""
        self.grow(PART_SIZE)

    def grow(self, size: int) -> None:
        """The model did something of this size that is not told yet."""
        self.progress += 1
        self._count(size)

    @property
    def text(self) -> str:
        """All that the model said until now."""
        return "".join(self._text if self._is_thought else (*self._text, *self._pieces))

    def take(self) -> list[TextDelta | ThinkingDelta]:
        """What was told since the last take, neighbours of one kind joined."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > CONTENT_LIMIT:
            raise ReplyTooLarge(f"the model said more than {CONTENT_LIMIT:,} characters in one turn")

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
    """A tool call whose arguments are still coming."""

    __slots__ = ("id", "name", "opaque", "pieces")

    def __init__(self, call_id: str, name: str, opaque: str | None = None) -> None:
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self.opaque = opaque

    def complete(self, reason: StopReason) -> ToolCall | None:
        """The call, now that the stream has ended; None when the output limit may have cut it."""
        text = "".join(self.pieces)
        arguments = parse_arguments(text) if text else {}
        if reason == "length" and (not text or arguments is None):
            return None
        malformed = text if arguments is None else None
        return ToolCall(id=self.id, name=self.name, arguments=arguments or {}, malformed=malformed, opaque=self.opaque)


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call, or None when the text is not a JSON object."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def encode(value: Any) -> bytes:
    """A value as JSON; half characters, which files and models do hold, become replacement characters."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(value))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in cast("list[Any]", value)]
    return value


def with_arrays(head: dict[str, Any], *arrays: tuple[bytes, tuple[bytes | bytearray, ...]]) -> bytes:
    """A JSON object with more fields: arrays of encoded items. A turn copies its conversation once, and here."""
    pieces: list[bytes | bytearray] = [encode(head)[:-1]]
    comma = b"," if head else b""
    for name, items in arrays:
        pieces += (comma, b'"', name, b'":[', *items, b"]")
        comma = b","
    pieces.append(b"}")
    return b"".join(pieces)


def tools_field(encoded: bytes | bytearray) -> list[tuple[bytes, tuple[bytes | bytearray, ...]]]:
    """The field that offers tools, where there are any."""
    return [(b"tools", (encoded,))] if encoded else []


def schema_or_tools(tools: Toolset, settings: GenerationSettings) -> tuple[Toolset, GenerationSettings]:
    """The tools and settings for a server that does not take both: one of them is left out."""
    if settings.output is None or not len(tools):
        return tools, settings
    if settings.output.outranks_tools:
        return Toolset(), settings
    return tools, structs.replace(settings, output=None)


def decode(decoder: Callable[[bytes | msgspec.Raw], Any], data: bytes | msgspec.Raw) -> Any:
    """One event, decoded; BadReply when it is not what the protocol says."""
    try:
        return decoder(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if _NAN.search(data):
            # Python servers write it for a number that they do not have, which no JSON allows.
            return decode(decoder, _NAN.sub(rb"\1null", data))
        raise BadReply(f"an event of the stream cannot be read: {error}") from error


_NAN: Final = re.compile(rb"(:\s*)-?NaN\b")
NOTHING: Final = msgspec.Raw()


def is_given(value: msgspec.Raw) -> bool:
    """Whether a field that is kept as it came is there and not null."""
    return bytes(value) not in (b"", b"null")


def counted(report: object, *path: str) -> int:
    """A number of tokens in a provider's report; anything else in its place counts as none."""
    for name in path:
        report = cast("dict[str, object]", report).get(name) if isinstance(report, dict) else None
    return report if type(report) is int and report > 0 else 0
