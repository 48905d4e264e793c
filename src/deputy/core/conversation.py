"""The conversation with a model: messages, tools, settings, and the events of one streamed turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast

from msgspec import Struct, field, json

from deputy.core.outcome import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# --- messages ---------------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text", gc=False):
    """Text of the model."""

    text: str
    opaque: str | None = None
    """JSON that the provider wants back unchanged with this part."""


class Thinking(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="thinking", gc=False):
    """Thinking of the model: readable text, and the opaque form that its provider wants back."""

    text: str
    opaque: str | None = None


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call", gc=False):
    """A complete tool call. Also a stream event, emitted only after the turn has ended well."""

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None = None
    """The raw arguments if they are not a JSON object; such a call is never executed."""
    opaque: str | None = None


Part: TypeAlias = Text | Thinking | ToolCall


class UserMessage(Struct, frozen=True, kw_only=True, tag="user", tag_field="role", gc=False):
    """A message of the caller."""

    text: str


class AssistantMessage(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="assistant", tag_field="role", gc=False
):
    """An answer of the model: its parts in order."""

    parts: tuple[Part, ...]
    origin: str = ""
    """The provider that made it; opaque parts are only sent back there."""

    @property
    def text(self) -> str:
        """The text parts joined, without thinking."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


class ToolResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The result of one call."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


class ToolMessage(Struct, frozen=True, kw_only=True, tag="tool", tag_field="role", gc=False):
    """The results of all calls of one turn, in the order of the calls."""

    results: tuple[ToolResult, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage

# --- tools and settings -----------------------------------------------------------------------------------------------


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model sees it: name, description, and the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ForcedTool(Struct, frozen=True, kw_only=True, tag="tool"):
    """The model must call this tool."""

    name: str


class OutputSchema(Struct, frozen=True, kw_only=True):
    """The JSON Schema that the answer must follow, where the provider can enforce one."""

    name: str
    schema: dict[str, Any]
    outranks_tools: bool = False
    """Where a provider cannot have both, the tools are left out of the turn instead of the schema."""


ThinkingLevel: TypeAlias = Literal["low", "medium", "high"]
ToolChoice: TypeAlias = Literal["auto", "none", "required"] | ForcedTool


class GenerationSettings(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The settings of one turn. A setting that a model lacks is left out of the request."""

    max_output_tokens: int | None = None
    thinking: ThinkingLevel | None = None
    tool_choice: ToolChoice = "auto"
    output: OutputSchema | None = None
    idempotency_key: str | None = None
    """Names the request for providers that deduplicate requests."""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields added to the request body unchanged, for features of one server."""


# --- events of one streamed turn --------------------------------------------------------------------------------------


class TextDelta(Struct, frozen=True, tag="text_delta", gc=False):
    """The next piece of text."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta", gc=False):
    """The next piece of thinking."""

    text: str


class TokenUsage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="used", gc=False):
    """The usage of one request, emitted once. Input includes tokens read from or written to a cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    thinking_tokens: int = 0
    cost: float | None = None
    """In dollars; None where the price is unknown, 0 only where the model is free."""
    is_reported: bool = True
    """Whether the provider reported these numbers; otherwise they are an estimate."""

    @property
    def usage(self) -> Usage:
        """The usage in the form that outcomes add up."""
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            cached=self.cached_tokens,
            requests=1,
            cost=self.cost,
        )


class RetryNotice(Struct, frozen=True, kw_only=True, tag="retried"):
    """The turn starts again: discard its earlier events, except usage."""

    attempt: int
    """The number of the attempt that failed."""
    of: int | None = None
    """The maximum number of attempts, if it is known."""
    seconds: float
    """The wait before the next one."""
    code: str
    message: str
    status: int | None = None
    """The HTTP status of the failure."""


StopReason: TypeAlias = Literal["end", "length"]


class Stop(Struct, frozen=True, kw_only=True, tag="stop", gc=False):
    """The turn ended well; the last event. `length` means that the answer was cut at the output limit."""

    reason: StopReason
    message: AssistantMessage


StreamEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCall | TokenUsage | RetryNotice | Stop

# --- kept encoded -----------------------------------------------------------------------------------------------------

_Item = TypeVar("_Item")


class EncodedOnce(Generic[_Item]):
    """An append-only list that encodes each item once per protocol."""

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self._items: list[_Item] = list(items)
        self._buffers: dict[str, bytearray] = {}
        self._encoded: dict[str, int] = {}
        self._last: dict[str, tuple[int, _Item]] = {}
        """Where the last encoded item begins, and the item."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[_Item]:
        """The items so far."""
        return self._items

    def append(self, item: _Item) -> None:
        """Add an item at the end."""
        self._items.append(item)

    def encoded(
        self,
        key: str,
        encode: Callable[[_Item], bytes],
        merged: Callable[[_Item, _Item], _Item | None] = lambda _before, _item: None,
    ) -> bytearray:
        """All items in the protocol `key`, joined by commas, without items that encode to nothing.

        `merged` makes one item of two that follow each other, where the protocol needs that.
        Returns the list's own buffer: copy from it, never change it.
        """
        buffer = self._buffers.setdefault(key, bytearray())
        for item in self._items[self._encoded.get(key, 0) :]:
            if not (encoded := encode(item)):
                continue
            start, before = self._last.get(key, (0, None))
            if before is not None and (both := merged(before, item)) is not None:
                del buffer[start:]
                self._last[key] = start, both
                buffer += encode(both)
                continue
            if buffer:
                buffer += b","
            self._last[key] = len(buffer), item
            buffer += encoded
        self._encoded[key] = len(self._items)
        return buffer


class Conversation(EncodedOnce[Message]):
    """A system prompt and the messages after it, append-only."""

    def __init__(self, system: str = "", messages: Iterable[Message] = ()) -> None:
        super().__init__(messages)
        self.system = system

    @property
    def messages(self) -> Sequence[Message]:
        """The messages so far."""
        return self.items


class Toolset(EncodedOnce[ToolSpec]):
    """The tools offered in a turn."""


# --- estimated usage --------------------------------------------------------------------------------------------------

BYTES_PER_TOKEN = 4
FACTOR = 3
"""A report that differs from the estimate by more than this factor is not charged."""
MOST_THINKING_TOKENS = 64_000
"""The most hidden thinking that is added if the request has no output limit."""


def text_size(text: str) -> int:
    """The size of a text in bytes."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def call_size(call: ToolCall) -> int:
    """The approximate size in bytes of a tool call."""
    written = len(json.encode(call.arguments)) if call.malformed is None else text_size(call.malformed)
    return len(call.name) + written


def estimated_tokens(size: int) -> int:
    """The approximate number of tokens in this many bytes of text, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def is_plausible(reported: TokenUsage, *, sent_tokens: int, received_tokens: int, most_output: int | None) -> bool:
    """Whether a report is within the factor of the estimate.

    Hidden thinking is not in the received text, so the reported thinking is added, up to the request's output limit.
    """
    if not reported.is_reported or reported.cached_tokens + reported.cache_write_tokens > reported.input_tokens:
        return False
    thinking = min(reported.thinking_tokens, reported.output_tokens, most_output or MOST_THINKING_TOKENS)
    expected = sent_tokens + received_tokens + thinking
    total = reported.input_tokens + reported.output_tokens
    return expected <= total * FACTOR and total <= expected * FACTOR


# --- text in JSON data ------------------------------------------------------------------------------------------------


def map_text(value: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every string changed, including field names."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value)
        return {map_text(key, change): map_text(item, change) for key, item in pairs.items()}
    if isinstance(value, list | tuple):
        return [map_text(item, change) for item in cast("list[Any]", value)]
    return value


def without_surrogates(text: str) -> str:
    """The text with lone surrogates, which cannot be encoded, replaced by `?`."""
    return text.encode(errors="replace").decode()
