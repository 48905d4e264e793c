"""Anthropic's Messages protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never, cast

import msgspec
from msgspec import Struct

from deputy.core.conversation import (
    AssistantMessage,
    ForcedTool,
    Message,
    Part,
    StopReason,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from deputy.core.model_errors import BadReply, ContextExhausted, ModelRefused, StreamCut
from deputy.core.provider_errors import provider_error
from deputy.models.wire import (
    NOTHING,
    PartialToolCall,
    StreamBuffer,
    StreamEnd,
    Wire,
    counted,
    decode,
    encode,
    sampling,
    tools_field,
    with_arrays,
)

if TYPE_CHECKING:
    from deputy.core.conversation import Conversation, GenerationSettings, ToolChoice, Toolset
    from deputy.models.wire import ModelTarget

VERSION: Final = "2026-10-21"
DEFAULT_MAX_TOKENS: Final = 8192
LEAST_BUDGET: Final = 1024
BUDGETS: Final = {"low": 2048, "medium": 8192, "high": 24576}
CACHED: Final = {"type": "ephemeral"}


_NAME: Final = "anthropic"


def _body(target: ModelTarget, conversation: Conversation, tools: Toolset, settings: GenerationSettings) -> bytes:
    """The request, with a cache marker after the system prompt and one at the end of the conversation."""
    limit = settings.max_output_tokens or target.max_output_tokens or DEFAULT_MAX_TOKENS
    head: dict[str, Any] = {"model": target.model, "max_tokens": limit, "stream": True, "cache_control": CACHED}
    head |= sampling(target, "temperature", "top_p")
    if conversation.system:
        head["system"] = [{"type": "text", "text": conversation.system, "cache_control": CACHED}]
    if len(tools):
        head["tool_choice"] = _tool_choice(settings.tool_choice)
    head |= _thinking(target, settings, limit)
    if settings.output is not None and (schema := closed_schema(settings.output.schema)) is not None:
        head["output_config"] = {
            **head.get("output_config", {}),
            "format": {"type": "json_schema", "schema": schema},
        }
    messages = conversation.encoded(target.provider, lambda message: _encode(message, target.provider))
    offered = tools.encoded(_NAME, _encode_tool)
    return with_arrays(head | settings.extra, *tools_field(offered), (b"messages", (messages,)))


def _tool_choice(choice: ToolChoice) -> dict[str, str]:
    if isinstance(choice, ForcedTool):
        return {"type": "tool", "name": choice.name}
    return {"type": "any" if choice == "required" else choice}


def _thinking(target: ModelTarget, settings: GenerationSettings, limit: int) -> dict[str, Any]:
    if settings.thinking is None or target.thinking_style is None:
        return {}
    if settings.tool_choice == "required" or isinstance(settings.tool_choice, ForcedTool):
        return {}  # the protocol does not allow a forced tool with thinking
    if target.thinking_style != "budget":
        # Hidden thinking would look like silence for minutes.
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": settings.thinking},
        }
    budget = min(BUDGETS[settings.thinking], limit * 3 // 4)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= LEAST_BUDGET else {}


def _encode_tool(tool: ToolSpec) -> bytes:
    return encode({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})


def _encode(message: Message, provider: str) -> bytes:
    match message:
        case UserMessage(text=text):
            return encode({"role": "user", "content": [{"type": "text", "text": text}]})
        case ToolMessage(results=results):
            blocks = [
                {"type": "tool_result", "tool_use_id": r.call_id, "content": r.content}
                | ({"is_error": True} if r.is_error else {})
                for r in results
            ]
            return encode({"role": "user", "content": blocks})
        case AssistantMessage(parts=parts, origin=origin):
            content = [b for part in parts if (b := _encode_part(part, is_own=origin == provider)) is not None]
            return encode({"role": "assistant", "content": content}) if content else b""
        case _:
            assert_never(message)


def _encode_part(part: Part, *, is_own: bool) -> Any:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case Thinking(opaque=opaque):
            return msgspec.Raw(opaque.encode()) if opaque is not None and is_own else None
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
        case _:
            assert_never(part)


# --- output schemas ---------------------------------------------------------------------------------------------------

_KEPT: Final = frozenset({"type", "description", "title", "enum", "const", "$ref", "required", "default"})
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_DROPPED: Final = frozenset({
    "$schema", "$id", "$comment", "examples", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties",
})  # fmt: skip
"""Keywords that only narrow: a looser schema still helps, because the answer is checked against the whole one."""

_DEEPEST = 40


def closed_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The enforceable form of a schema; None if it would forbid valid values, or does not exist."""
    try:
        return _closed(schema, 0)
    except _NotClosed:
        return None


class _NotClosed(Exception):
    """The schema has no enforceable form."""


def _closed(schema: object, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        raise _NotClosed
    form: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", schema).items():
        if name not in _DROPPED:
            form |= _kept(name, value, depth)
    if form.get("type") == "object":
        # An object without named fields is a map; closed, it would always be empty.
        if not form.get("properties"):
            raise _NotClosed
        form["additionalProperties"] = False
    elif not form.keys() & {"type", "enum", "const", "$ref", "anyOf"}:
        raise _NotClosed
    return form


def _kept(name: str, value: Any, depth: int) -> dict[str, Any]:
    match name, value:
        case (("properties" | "$defs"), dict()):
            return {name: {key: _closed(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()}}
        case "items", dict():
            return {name: _closed(cast("object", value), depth + 1)}
        case (("anyOf" | "oneOf"), list()):
            return {"anyOf": [_closed(item, depth + 1) for item in cast("list[Any]", value)]}
        case "additionalProperties", False:
            return {}
        case "format", str():
            return {name: value} if value in _FORMATS else {}
        case _ if name in _KEPT:
            return {name: value}
        case _:
            raise _NotClosed


# --- reading ----------------------------------------------------------------------------------------------------------


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _StopDetails(Struct):
    category: str | None = None
    explanation: str | None = None


class _Block(Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    input: dict[str, Any] | None = None


class _Message(Struct):
    usage: Any = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Any = None
    error: msgspec.Raw = NOTHING


_decoder = msgspec.json.Decoder(_Event).decode

_STOPS: Final[dict[str, StopReason]] = {"max_tokens": "length"}


class _OpenBlock:
    __slots__ = ("block", "call", "is_open", "pieces", "signature")

    def __init__(self, block: _Block) -> None:
        self.block = block
        self.is_open = True
        self.call = PartialToolCall(block.id, block.name)
        self.pieces = [block.text or block.thinking]
        self.signature = [block.signature]

    def part(self, reason: StopReason) -> Part | None:
        block, text = self.block, "".join(self.pieces)
        match block.type:
            case "text":
                return Text(text=text) if text else None
            case "thinking":
                signature = "".join(self.signature)
                sealed = {"type": "thinking", "thinking": text, "signature": signature}
                return Thinking(text=text, opaque=encode(sealed).decode() if signature else None)
            case "redacted_thinking":
                return Thinking(text="", opaque=encode({"type": block.type, "data": block.data}).decode())
            case "tool_use":
                if block.input and not self.call.pieces:
                    self.call.pieces.append(encode(block.input).decode())
                return self.call.complete(reason)
            case _:
                return None


class _AnthropicReader:
    def __init__(self) -> None:
        self.buffer = StreamBuffer()
        self.is_done = False
        self.used: TokenUsage | None = None
        self._blocks: dict[int, _OpenBlock] = {}
        self._reported: dict[str, Any] = {}
        self._stop: str | None = None
        self._detail = ""
        self._has_begun = False

    def read(self, data: bytes) -> None:
        if self.is_done:
            return
        event: _Event = decode(_decoder, data)
        match event.type:
            case "content_block_delta":
                self._grow(event)
            case "content_block_start" if event.content_block is not None:
                self._open(event.index, event.content_block)
            case "content_block_stop":
                self._block(event.index).is_open = False
            case "message_start":
                self._begin(event)
            case "message_delta":
                self._report(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._stop = event.delta.stop_reason
                    self._detail = _detail(event.delta.stop_details)
            case "message_stop":
                self.is_done = True
            case "error":
                raise provider_error(event.error, status=None)
            case _:
                pass

    def end(self) -> StreamEnd:
        if not self.is_done or self._stop is None or any(block.is_open for block in self._blocks.values()):
            raise StreamCut("the stream ended before its message")
        if self._stop == "refusal":
            raise ModelRefused(f"the model declined to answer{self._detail}")
        if self._stop == "model_context_window_exceeded":
            raise ContextExhausted("the answer reached the end of the model's context window")
        reason = _STOPS.get(self._stop, "end")
        parts = [part for block in self._blocks.values() if (part := block.part(reason)) is not None]
        return StreamEnd(reason=reason, parts=tuple(parts))

    def _begin(self, event: _Event) -> None:
        if self._has_begun:
            raise BadReply("the stream has two messages")
        self._has_begun = True
        self.buffer.progress += 1
        if event.message is not None:
            self._report(event.message.usage)

    def _open(self, index: int, block: _Block) -> None:
        if index in self._blocks:
            raise BadReply(f"the stream has two blocks at index {index}")
        self._blocks[index] = _OpenBlock(block)
        self.buffer.begin()
        self.buffer.grow(len(block.data) + len(block.signature))
        if block.type == "text":
            self.buffer.add_text(block.text)
        elif block.type == "thinking":
            self.buffer.add_thinking(block.thinking)

    def _grow(self, event: _Event) -> None:
        block, delta = self._block(event.index), event.delta
        if delta is None:
            return
        match delta.type:
            case "text_delta":
                block.pieces.append(delta.text)
                self.buffer.add_text(delta.text)
            case "input_json_delta":
                if delta.partial_json:
                    block.call.pieces.append(delta.partial_json)
                    self.buffer.grow(len(delta.partial_json))
            case "thinking_delta":
                block.pieces.append(delta.thinking)
                self.buffer.add_thinking(delta.thinking)
            case "signature_delta":
                block.signature.append(delta.signature)
                self.buffer.grow(len(delta.signature))
            case _:
                pass

    def _block(self, index: int) -> _OpenBlock:
        block = self._blocks.get(index)
        if block is None or not block.is_open:
            raise BadReply(f"the stream continues block {index}, which is not open")
        return block

    def _report(self, usage: Any) -> None:
        """The numbers are running totals: the latest counts."""
        if not isinstance(usage, dict):
            return
        seen = self._reported
        seen.update({name: value for name, value in cast("dict[str, Any]", usage).items() if value is not None})
        cached, written = counted(seen, "cache_read_input_tokens"), counted(seen, "cache_creation_input_tokens")
        self.used = TokenUsage(
            input_tokens=counted(seen, "input_tokens") + cached + written,
            output_tokens=counted(seen, "output_tokens"),
            cached_tokens=cached,
            cache_write_tokens=written,
            thinking_tokens=counted(seen, "output_tokens_details", "thinking_tokens"),
        )


def _detail(details: _StopDetails | None) -> str:
    said = details and (details.explanation or details.category)
    return f": {said[:500]}" if said else ""


WIRE = Wire(
    name=_NAME,
    path="/v1/messages",
    body=_body,
    reader=_AnthropicReader,
    headers={"anthropic-version": VERSION},
    list_path="/v1/models?limit=1000",
)
