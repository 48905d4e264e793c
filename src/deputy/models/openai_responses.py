"""OpenAI's Responses protocol without server state: encrypted reasoning is sent back with each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never

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
from deputy.core.model_errors import ModelRefused, StreamCut
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
    is_given,
    sampling,
    tools_field,
    with_arrays,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.conversation import Conversation, GenerationSettings, Toolset
    from deputy.models.wire import ModelTarget

SEALED: Final = "reasoning.encrypted_content"


_NAME: Final = "openai-responses"


def _body(target: ModelTarget, conversation: Conversation, tools: Toolset, settings: GenerationSettings) -> bytes:
    head: dict[str, Any] = {"model": target.model, "stream": True, "store": False, "include": [SEALED]}
    head |= sampling(target, "temperature", "top_p")
    if conversation.system:
        head["instructions"] = conversation.system
    if settings.max_output_tokens is not None:
        head["max_output_tokens"] = settings.max_output_tokens
    if settings.thinking is not None and target.thinking_style is not None:
        head["reasoning"] = {"effort": settings.thinking}
    if settings.output is not None:
        head["text"] = {
            "format": {
                "type": "json_schema",
                "name": settings.output.name,
                "schema": settings.output.schema,
                "strict": False,
            }
        }
    if len(tools):
        choice = settings.tool_choice
        head["tool_choice"] = {"type": "function", "name": choice.name} if isinstance(choice, ForcedTool) else choice
    items = conversation.encoded(target.provider, lambda message: _encode(message, target.provider))
    offered = tools.encoded(_NAME, _encode_tool)
    return with_arrays(head | settings.extra, *tools_field(offered), (b"input", (items,)))


def _encode_tool(tool: ToolSpec) -> bytes:
    return encode(
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": False,
        }
    )


def _encode(message: Message, provider: str) -> bytes:
    match message:
        case UserMessage(text=text):
            return encode({"role": "user", "content": text})
        case ToolMessage(results=results):
            return b",".join(
                encode({"type": "function_call_output", "call_id": r.call_id, "output": _output(r.content, r.is_error)})
                for r in results
            )
        case AssistantMessage(parts=parts, origin=origin):
            return b",".join(_encode_parts(parts, is_own=origin == provider))
        case _:
            assert_never(message)


def _output(content: str, is_error: bool) -> str:
    """The result of a call; the protocol has no field for a failed tool."""
    return f"Error: {content}" if is_error else content


def _encode_parts(parts: Iterable[Part], *, is_own: bool) -> Iterable[bytes]:
    for part in parts:
        match part:
            case Text() | Thinking() | ToolCall() if is_own and part.opaque is not None:
                yield part.opaque.encode()
            case Text(text=text):
                if text:
                    yield encode({"role": "assistant", "content": text})
            case Thinking():
                pass
            case ToolCall():
                yield encode(
                    {
                        "type": "function_call",
                        "call_id": part.id,
                        "name": part.name,
                        "arguments": encode(part.arguments).decode(),
                    }
                )
            case _:
                assert_never(part)


# --- reading ----------------------------------------------------------------------------------------------------------


class _Piece(Struct):
    text: str | None = None
    refusal: str | None = None


class _Item(Struct):
    type: str = ""
    id: str | None = None
    status: str | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = ""
    content: list[_Piece] | None = None
    summary: list[_Piece] | None = None
    encrypted_content: str | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    output: list[msgspec.Raw] | None = None
    usage: Any = None
    error: msgspec.Raw = NOTHING
    incomplete_details: _Incomplete | None = None


class _Event(Struct):
    type: str = ""
    sequence_number: int | None = None
    output_index: int = 0
    delta: Any = ""
    item: msgspec.Raw = NOTHING
    response: _Response | None = None


_decoder = msgspec.json.Decoder(_Event).decode
_item_decoder = msgspec.json.Decoder(_Item).decode


class _ResponsesReader:
    """Reads one Responses stream. Deltas are for watchers; the result is made from the finished items."""

    def __init__(self) -> None:
        self.buffer = StreamBuffer()
        self.is_done = False
        self.used: TokenUsage | None = None
        self._items: dict[int, msgspec.Raw] = {}
        self._last = -1
        self._reason: StopReason = "end"
        self._refusal = ""

    def read(self, data: bytes) -> None:
        if self.is_done or data == b"[DONE]":
            return
        event: _Event = decode(_decoder, data)
        if event.sequence_number is not None:
            if event.sequence_number <= self._last:
                return
            self._last = event.sequence_number
        if event.type.endswith(".delta"):
            self._grow(event)
            return
        match event.type:
            case "response.output_item.added" | "response.created":
                self.buffer.progress += 1
            case "response.output_item.done" if is_given(event.item):
                self._items.setdefault(event.output_index, event.item)
                self.buffer.grow(len(bytes(event.item)))
            case "response.completed" | "response.incomplete":
                self._finish(event.response or _Response())
            case "response.failed":
                self._report(event.response)
                raise provider_error(event.response.error if event.response else NOTHING, status=None)
            case "error":
                raise provider_error(data, status=None)
            case _:
                pass

    def end(self) -> StreamEnd:
        if not self.is_done:
            raise StreamCut("the stream ended before its response")
        parts = [part for index in sorted(self._items) for part in self._parts(self._items[index])]
        if self._refusal:
            raise ModelRefused(f"the model declined to answer: {self._refusal[:500]}")
        return StreamEnd(reason=self._reason, parts=tuple(parts))

    def _parts(self, raw: msgspec.Raw) -> Iterable[Part]:
        item: _Item = decode(_item_decoder, raw)
        match item.type:
            case "message":
                self._refusal += "".join(piece.refusal or "" for piece in item.content or ())
                if text := "".join(piece.text or "" for piece in item.content or ()):
                    yield Text(text=text, opaque=_sealed(raw))
            case "reasoning":
                text = "\n\n".join(piece.text or "" for piece in [*(item.summary or ()), *(item.content or ())])
                # The provider cannot read reasoning back without its encrypted form.
                yield Thinking(text=text, opaque=_sealed(raw) if item.encrypted_content is not None else None)
            case "function_call" if item.status in (None, "completed"):
                call = PartialToolCall(item.call_id or "", item.name, _sealed(raw) if item.call_id else None)
                call.pieces.append(item.arguments)
                if (done := call.complete(self._reason)) is not None:
                    yield done
            case _:
                pass

    def _grow(self, event: _Event) -> None:
        delta = event.delta
        if not isinstance(delta, str) or not delta:
            return
        match event.type:
            case "response.output_text.delta":
                self.buffer.add_text(delta)
            case "response.function_call_arguments.delta" | "response.refusal.delta":
                self.buffer.grow(len(delta))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.buffer.add_thinking(delta)
            case _:
                pass

    def _finish(self, response: _Response) -> None:
        self.is_done = True
        self._report(response)
        for index, item in enumerate(response.output or ()):
            self._items.setdefault(index, item)
        match response.incomplete_details and response.incomplete_details.reason:
            case "max_output_tokens":
                self._reason = "length"
            case "content_filter":
                self._refusal = "the provider's content filter stopped the answer"
            case _:
                pass

    def _report(self, response: _Response | None) -> None:
        usage = response and response.usage
        if usage is None:
            return
        self.used = TokenUsage(
            input_tokens=counted(usage, "input_tokens"),
            output_tokens=counted(usage, "output_tokens"),
            cached_tokens=counted(usage, "input_tokens_details", "cached_tokens"),
            cache_write_tokens=counted(usage, "input_tokens_details", "cache_write_tokens"),
            thinking_tokens=counted(usage, "output_tokens_details", "reasoning_tokens"),
        )


def _sealed(raw: msgspec.Raw) -> str:
    """An item to send back: unchanged, without null fields."""
    fields: dict[str, Any] = msgspec.json.decode(raw)
    return encode({name: value for name, value in fields.items() if value is not None}).decode()


WIRE = Wire(
    name=_NAME,
    path="/responses",
    body=_body,
    reader=_ResponsesReader,
)
