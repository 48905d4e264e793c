"""What a model is told and what it answers: messages, tools, settings, and the events of one streamed turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from deputy.core.outcome import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# --- messages ---------------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text", gc=False):
    """Something the model said."""

    text: str
    opaque: str | None = None
    """What the provider wants back beside it, as it came: JSON for its own eyes."""


class Thinking(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="thinking", gc=False):
    """Something the model thought: readable text, and the sealed form its provider wants back."""

    text: str
    opaque: str | None = None


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call", gc=False):
    """A complete call of a tool. Also an event of the stream: it is told only when the turn has ended well."""

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None = None
    """The arguments as the model wrote them, when they are not a JSON object: such a call is never run."""
    opaque: str | None = None


Part: TypeAlias = Text | Thinking | ToolCall


class UserMessage(Struct, frozen=True, kw_only=True, tag="user", tag_field="role", gc=False):
    """What the caller says."""

    text: str


class AssistantMessage(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="assistant", tag_field="role", gc=False
):
    """What the model answered: its parts in order."""

    parts: tuple[Part, ...]
    origin: str = ""
    """The provider that made it; only there do opaque parts mean anything."""

    @property
    def text(self) -> str:
        """All it said, without what it thought."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools it called, in order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


class ToolResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one call came to."""

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
    """How one turn is asked for. What a model lacks is left out of the request, never faked."""

    max_output_tokens: int | None = None
    thinking: ThinkingLevel | None = None
    tool_choice: ToolChoice = "auto"
    output: OutputSchema | None = None
    idempotency_key: str | None = None
    """Names the request to providers that serve the same one only once."""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields added to the request body as they are, for what only one server knows."""


# --- events of one streamed turn --------------------------------------------------------------------------------------


class TextDelta(Struct, frozen=True, tag="text_delta", gc=False):
    """More of what the model says."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta", gc=False):
    """More of what the model thinks."""

    text: str


class TokenUsage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="used", gc=False):
    """What one request used, told once. Input includes what was read from or written to a cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input: read from the provider's cache."""
    cache_write_tokens: int = 0
    """Of the input: written to the provider's cache."""
    thinking_tokens: int = 0
    """Of the output: spent on thinking."""
    cost: int | None = None
    """In billionths of a dollar; None where the price is unknown, never 0."""
    is_reported: bool = True
    """Whether the provider told these numbers; else they are our own estimate."""

    @property
    def usage(self) -> Usage:
        """The same as outcomes sum it."""
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            cached=self.cached_tokens,
            requests=1,
            cost=self.cost,
        )


class RetryNotice(Struct, frozen=True, kw_only=True, tag="retried"):
    """The turn begins again: what was told of it before counts no more, except its usage."""

    attempt: int
    seconds: float
    """How long the wait was meant to be."""
    code: str
    message: str


StopReason: TypeAlias = Literal["end", "length"]


class Stop(Struct, frozen=True, kw_only=True, tag="stop", gc=False):
    """The turn ended well; the last event. `length` says the answer was cut at the output limit.

    Whether there are tools to run is told by the calls in the message, never by the reason.
    """

    reason: StopReason
    message: AssistantMessage


StreamEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCall | TokenUsage | RetryNotice | Stop

# --- kept encoded -----------------------------------------------------------------------------------------------------

_Item = TypeVar("_Item")


class _Written:
    """What one protocol has made of a list so far."""

    __slots__ = ("buffer", "seen")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.seen = 0


class EncodedOnce(Generic[_Item]):
    """A list that only grows, and the bytes that each protocol has made of its items, each made once."""

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self._items: list[_Item] = list(items)
        self._written: dict[str, _Written] = {}

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[_Item]:
        """The items so far."""
        return self._items

    def append(self, item: _Item) -> None:
        """Add an item at the end."""
        self._items.append(item)

    def encoded(self, key: str, encode: Callable[[_Item], bytes]) -> bytearray:
        """All items as `key` writes them, joined by commas; an item that `encode` has no bytes for is left out.

        What comes back is the list's own buffer, which grows with it: copy from it, never change it.
        """
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = _Written()
        buffer = written.buffer
        for item in self._items[written.seen :]:
            if encoded := encode(item):
                if buffer:
                    buffer += b","
                buffer += encoded
        written.seen = len(self._items)
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
