"""OpenAI's Chat Completions protocol, with the quirks of other servers that speak it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never, cast
from zlib import crc32

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
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from deputy.core.limits import exact
from deputy.core.model_errors import BadReply, ModelRefused, StreamCut
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
    schema_or_tools,
    tools_field,
    with_arrays,
)

if TYPE_CHECKING:
    from deputy.core.conversation import Conversation, GenerationSettings, Toolset
    from deputy.models.wire import ModelTarget

QUIRKS: Final = frozenset(
    {
        "max_completion_tokens",  # the output limit has this name instead of max_tokens
        "schema_beside_tools",  # accepts both; on other servers a schema prevents tool calls, or is an error
        "no_stream_options",  # reports usage by default, and rejects the option
        "reasoning_content",  # thinking is sent back in this field, beside its calls
        "reasoning_details",  # thinking is sent back unchanged in this list
        "nine_character_ids",  # call ids have exactly nine letters or digits
    }
)


_NAME: Final = "openai-chat"


def _body(target: ModelTarget, conversation: Conversation, tools: Toolset, settings: GenerationSettings) -> bytes:
    quirks = target.quirks
    if "schema_beside_tools" not in quirks:
        tools, settings = schema_or_tools(tools, settings)
    head: dict[str, Any] = {"model": target.model, "stream": True}
    head |= sampling(target, "temperature", "top_p", "seed")
    if "no_stream_options" not in quirks:
        head["stream_options"] = {"include_usage": True}
    if settings.max_output_tokens is not None:
        name = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
        head[name] = settings.max_output_tokens
    if settings.thinking is not None and target.thinking_style is not None:
        head["reasoning_effort"] = settings.thinking
    if settings.output is not None:
        output = {"name": settings.output.name, "schema": settings.output.schema, "strict": False}
        head["response_format"] = {"type": "json_schema", "json_schema": output}
    if len(tools):
        choice = settings.tool_choice
        is_forced = isinstance(choice, ForcedTool)
        head["tool_choice"] = {"type": "function", "function": {"name": choice.name}} if is_forced else choice
    messages = conversation.encoded(target.provider, lambda message: _encode(message, target), _merged)
    system = encode({"role": "system", "content": conversation.system}) if conversation.system else b""
    comma = b"," if system and messages else b""
    offered = tools.encoded(_NAME, _encode_tool)
    return with_arrays(head | settings.extra, *tools_field(offered), (b"messages", (system, comma, messages)))


def _merged(before: Message, message: Message) -> Message | None:
    """Two user messages as one: the chat templates of many models refuse two in a row, as after an empty answer."""
    if isinstance(before, UserMessage) and isinstance(message, UserMessage):
        return UserMessage(text=f"{before.text}\n\n{message.text}")
    return None


def _encode_tool(tool: ToolSpec) -> bytes:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return encode({"type": "function", "function": function})


def _encode(message: Message, target: ModelTarget) -> bytes:
    match message:
        case UserMessage(text=text):
            return encode({"role": "user", "content": text})
        case ToolMessage(results=results):
            return b",".join(
                encode(
                    {
                        "role": "tool",
                        "tool_call_id": _call_id(result.call_id, target),
                        # The protocol has no field for a failed tool.
                        "content": f"Error: {result.content}" if result.is_error else result.content,
                    }
                )
                for result in results
            )
        case AssistantMessage():
            return _encode_assistant(message, target)
        case _:
            assert_never(message)


def _encode_assistant(message: AssistantMessage, target: ModelTarget) -> bytes:
    calls = [
        {
            "id": _call_id(call.id, target),
            "type": "function",
            "function": {"name": call.name, "arguments": encode(call.arguments).decode()},
        }
        for call in message.calls
    ]
    text = message.text
    if not calls and not text:
        return b""
    fields: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        fields["tool_calls"] = calls
    if message.origin == target.provider:
        fields |= _thinking_back(message, target, has_calls=bool(calls))
    return encode(fields)


def _thinking_back(message: AssistantMessage, target: ModelTarget, *, has_calls: bool) -> dict[str, Any]:
    thoughts = [part for part in message.parts if isinstance(part, Thinking)]
    if "reasoning_content" in target.quirks and has_calls and thoughts:
        return {"reasoning_content": "".join(thought.text for thought in thoughts)}
    if "reasoning_details" in target.quirks and (sealed := [t.opaque for t in thoughts if t.opaque is not None]):
        return {"reasoning_details": msgspec.Raw(sealed[-1].encode())}
    return {}


def _call_id(call_id: str, target: ModelTarget) -> str:
    if "nine_character_ids" not in target.quirks or (len(call_id) == 9 and call_id.isalnum()):
        return call_id
    return f"c{crc32(call_id.encode('utf-8', 'replace')):08x}"


# --- reading ----------------------------------------------------------------------------------------------------------


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Spoken(Struct):
    """One item of a content list; thinking contains items itself."""

    type: str = ""
    text: str = ""
    thinking: list[_Spoken] = []


class _Delta(Struct, gc=False):
    content: str | list[_Spoken] | None = None
    tool_calls: list[_CallDelta] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[msgspec.Raw] | None = None
    refusal: str | None = None


class _Choice(Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Groq(Struct):
    usage: Any = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    x_groq: _Groq | None = None
    error: msgspec.Raw = NOTHING


_decoder = msgspec.json.Decoder(_Chunk).decode
_MOST_DOLLARS = 1e6
"""The highest plausible cost of a request."""
_STOPS: Final[dict[str, StopReason]] = {"length": "length", "max_tokens": "length", "model_length": "length"}
_REFUSALS: Final = frozenset({"content_filter", "refusal", "sensitive"})


class _ChatReader:
    def __init__(self) -> None:
        self.buffer = StreamBuffer()
        self.used: TokenUsage | None = None
        self._finish: str | None = None
        self._continues = False
        self._thoughts: list[str] = []
        self._details: list[bytes] = []
        self._refusal: list[str] = []
        self._calls: list[PartialToolCall] = []
        self._at: dict[int | None, PartialToolCall] = {}

    @property
    def is_done(self) -> bool:
        """Whether the finish reason has come; servers differ in what they send after it."""
        return self._finish is not None

    def read(self, data: bytes) -> None:
        """Take in the data of one event; after the finish reason, only usage."""
        if data == b"[DONE]":
            return
        chunk: _Chunk = decode(_decoder, data)
        if chunk.usage is not None or chunk.x_groq is not None:
            self._report(chunk.usage or (chunk.x_groq and chunk.x_groq.usage))
        if chunk.error is not NOTHING and is_given(chunk.error) and self._finish is None:
            raise provider_error(chunk.error, status=None)
        if not chunk.choices:
            return
        for choice in chunk.choices:
            if choice.index:
                continue
            delta = choice.delta
            if self._finish is not None:
                self._continues |= delta is not None and bool(delta.content or delta.tool_calls)
                continue
            if delta is not None:
                self._grow(delta)
            self._finish = choice.finish_reason or None

    def end(self) -> StreamEnd:
        if self._finish is None:
            raise StreamCut("the stream ended without a finish reason")
        if self._continues:
            raise BadReply("the stream continues after its end, so its order is unreliable")
        if self._finish in _REFUSALS or self._refusal:
            raise ModelRefused(f"the model declined to answer: {''.join(self._refusal)[:500] or self._finish}")
        if self._finish == "error":
            raise BadReply("the server stopped with finish reason 'error'")
        reason = _STOPS.get(self._finish, "end")
        parts: list[Part] = []
        if self._thoughts or self._details:
            sealed = b"[%b]" % b",".join(self._details) if self._details else None
            parts.append(Thinking(text="".join(self._thoughts), opaque=sealed.decode() if sealed else None))
        if text := self.buffer.text:
            parts.append(Text(text=text))
        parts += [done for call in self._calls if (done := call.complete(reason)) is not None]
        return StreamEnd(reason=reason, parts=tuple(parts))

    def _grow(self, delta: _Delta) -> None:
        if content := delta.content:
            if isinstance(content, str):
                self.buffer.add_text(content)
            else:
                self._receive(content)
        if delta.tool_calls:
            self._grow_calls(delta.tool_calls)
        if thought := delta.reasoning_content or delta.reasoning:
            self._think(thought)
        if delta.reasoning_details:
            details = [bytes(detail) for detail in delta.reasoning_details]
            self._details += details
            self.buffer.grow(sum(map(len, details)))
        if delta.refusal:
            self._refusal.append(delta.refusal)
            self.buffer.grow(len(delta.refusal))

    def _receive(self, pieces: list[_Spoken]) -> None:
        for piece in pieces:
            if piece.text:
                self.buffer.add_text(piece.text)
            for thought in piece.thinking:
                self._think(thought.text)

    def _think(self, thought: str) -> None:
        self._thoughts.append(thought)
        self.buffer.add_thinking(thought)

    def _grow_calls(self, deltas: list[_CallDelta]) -> None:
        for delta in deltas:
            function = delta.function or _Function()
            call = self._call(delta, function)
            text = function.arguments if isinstance(function.arguments, str) else ""
            if isinstance(function.arguments, dict):
                text = encode(function.arguments).decode()
            if text:
                call.pieces.append(text)
            self.buffer.grow(len(text))

    def _call(self, delta: _CallDelta, function: _Function) -> PartialToolCall:
        """The call of a delta, by index; servers without indexes, or with one for all, name each call."""
        call = self._at.get(delta.index)
        has_other_id = call is not None and bool(delta.id) and bool(call.id) and delta.id != call.id
        if call is None or (function.name and call.name and (delta.index is None or has_other_id)):
            call = self._at[delta.index] = PartialToolCall("", "")
            self._calls.append(call)
            self.buffer.begin()
        call.id = call.id or delta.id or ""
        call.name = call.name or function.name or ""
        return call

    def _report(self, usage: Any) -> None:
        report = cast("dict[str, Any]", usage) if isinstance(usage, dict) else dict[str, Any]()
        dollars: Any = report.get("cost")
        cost = float(dollars) if isinstance(dollars, int | float) else -1.0
        cached = counted(report, "prompt_tokens_details", "cached_tokens")
        self.used = TokenUsage(
            input_tokens=counted(report, "prompt_tokens"),
            output_tokens=counted(report, "completion_tokens"),
            cached_tokens=cached or counted(report, "prompt_cache_hit_tokens"),
            cache_write_tokens=counted(report, "prompt_tokens_details", "cache_write_tokens"),
            thinking_tokens=counted(report, "completion_tokens_details", "reasoning_tokens"),
            cost=exact(cost) if 0 <= cost < _MOST_DOLLARS else None,
        )


WIRE = Wire(
    name=_NAME,
    path="/chat/completions",
    body=_body,
    reader=_ChatReader,
)
