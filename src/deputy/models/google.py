"""Google's Gemini protocol (`streamGenerateContent`)."""

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
from deputy.core.model_errors import BadReply, ModelRefused, StreamCut
from deputy.core.provider_errors import provider_error
from deputy.models.wire import (
    NOTHING,
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
    from collections.abc import Iterable

    from deputy.core.conversation import Conversation, GenerationSettings, ToolChoice, Toolset
    from deputy.models.wire import ModelTarget

BUDGETS: Final = {"low": 1024, "medium": 8192, "high": 24576}
UNSIGNED: Final = "skip_thought_signature_validator"
"""The placeholder signature for calls of another model."""


_NAME: Final = "google"


def _body(target: ModelTarget, conversation: Conversation, tools: Toolset, settings: GenerationSettings) -> bytes:
    head: dict[str, Any] = {}
    if conversation.system:
        head["systemInstruction"] = {"role": "user", "parts": [{"text": conversation.system}]}
    tools, settings = schema_or_tools(tools, settings)
    if len(tools):
        head["toolConfig"] = {"functionCallingConfig": _tool_choice(settings.tool_choice)}
    if generation := _generation(target, settings):
        head["generationConfig"] = generation
    contents = conversation.encoded(target.provider, lambda message: _encode(message, target.provider))
    declarations = tools.encoded(_NAME, _encode_tool)
    offered = b'{"functionDeclarations":[%b]}' % declarations if declarations else b""
    return with_arrays(head | settings.extra, *tools_field(offered), (b"contents", (contents,)))


_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    if isinstance(choice, ForcedTool):
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": _MODES[choice]}


def _generation(target: ModelTarget, settings: GenerationSettings) -> dict[str, Any]:
    fields: dict[str, Any] = {**sampling(target, "temperature", "topP", "seed")}
    limit = settings.max_output_tokens
    if limit is not None:
        fields["maxOutputTokens"] = limit
    if settings.thinking is not None and target.thinking_style is not None:
        thinking: dict[str, Any] = {"includeThoughts": True}
        if target.thinking_style == "budget":
            # Thoughts count against the output limit and must leave room for an answer.
            budget = BUDGETS[settings.thinking]
            thinking["thinkingBudget"] = budget if limit is None else min(budget, limit * 3 // 4)
        else:
            thinking["thinkingLevel"] = settings.thinking.upper()
        fields["thinkingConfig"] = thinking
    if settings.output is not None:
        fields["responseMimeType"] = "application/json"
        fields["responseJsonSchema"] = settings.output.schema
    return fields


def _encode_tool(tool: ToolSpec) -> bytes:
    return encode({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters})


def _encode(message: Message, provider: str) -> bytes:
    match message:
        case UserMessage(text=text):
            return encode({"role": "user", "parts": [{"text": text}]})
        case ToolMessage(results=results):
            parts = [
                {
                    "functionResponse": {
                        "id": result.call_id,
                        "name": result.name,
                        "response": {"error" if result.is_error else "output": result.content},
                    }
                }
                for result in results
            ]
            return encode({"role": "user", "parts": parts})
        case AssistantMessage(parts=parts, origin=origin):
            encoded = list(_encode_parts(parts, is_own=origin == provider))
            return encode({"role": "model", "parts": encoded}) if encoded else b""
        case _:
            assert_never(message)


def _encode_parts(parts: Iterable[Part], *, is_own: bool) -> Iterable[dict[str, Any]]:
    is_first_call = True
    for part in parts:
        signed = {"thoughtSignature": part.opaque} if is_own and part.opaque is not None else {}
        match part:
            case Text(text=text):
                if text or signed:
                    yield {"text": text} | signed
            case Thinking(text=text):
                if signed:
                    yield {"text": text, "thought": True} | signed
            case ToolCall():
                if is_first_call and not is_own:
                    signed = {"thoughtSignature": UNSIGNED}
                is_first_call = False
                yield {"functionCall": {"id": part.id, "name": part.name, "args": part.arguments}} | signed
            case _:
                assert_never(part)


# --- reading ----------------------------------------------------------------------------------------------------------


class _FunctionCall(Struct):
    name: str = ""
    id: str | None = None
    args: dict[str, Any] | None = None


class _Part(Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(Struct):
    parts: list[_Part] | None = None


class _Candidate(Struct, rename="camel"):
    index: int = 0
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: Any = None
    error: msgspec.Raw = NOTHING


_decoder = msgspec.json.Decoder(_Chunk).decode
_REFUSALS: Final = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"})
_BROKEN: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "OTHER"})


class _GoogleReader:
    def __init__(self) -> None:
        self.buffer = StreamBuffer()
        self.used: TokenUsage | None = None
        self._parts: list[_Part] = []
        self._finish: str | None = None
        self._continues = False
        self._detail = ""

    @property
    def is_done(self) -> bool:
        """Whether the final chunk has come; the protocol has no end event."""
        return self._finish is not None

    def read(self, data: bytes) -> None:
        """Take in the data of one event; after the final one, only usage."""
        chunk: _Chunk = decode(_decoder, data)
        self._report(chunk.usage_metadata)
        if is_given(chunk.error) and not self.is_done:
            raise provider_error(data, status=None)
        for candidate in chunk.candidates or ():
            if candidate.index != 0:
                continue
            if self.is_done:
                parts = (candidate.content and candidate.content.parts) or ()
                self._continues |= any(part.text or part.function_call for part in parts)
            else:
                self._grow(candidate)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._finish = "SAFETY"
            self._detail = f"the prompt was blocked ({chunk.prompt_feedback.block_reason})"

    def end(self) -> StreamEnd:
        finish = self._finish
        if finish is None:
            raise StreamCut("the stream ended without a finish reason")
        if self._continues:
            raise BadReply("the stream continues after its end, so its order is unreliable")
        if finish in _REFUSALS:
            raise ModelRefused(f"the model declined to answer: {self._detail or finish}")
        if finish in _BROKEN:
            raise BadReply(f"the model stopped with an error: {finish} {self._detail[:500]}".rstrip())
        reason: StopReason = "length" if finish == "MAX_TOKENS" else "end"
        return StreamEnd(reason=reason, parts=tuple(_joined(self._parts)))

    def _grow(self, candidate: _Candidate) -> None:
        for part in (candidate.content and candidate.content.parts) or ():
            if not (part.text or part.thought_signature or part.function_call):
                continue
            self._parts.append(part)
            self.buffer.begin()
            if part.function_call is not None:
                self.buffer.grow(len(encode(part.function_call)))
            if part.thought_signature:
                self.buffer.grow(len(part.thought_signature))
            if part.thought:
                self.buffer.add_thinking(part.text or "")
            elif part.text:
                self.buffer.add_text(part.text)
        if candidate.finish_reason:
            self._finish = candidate.finish_reason
            self._detail = candidate.finish_message or ""

    def _report(self, usage: Any) -> None:
        if usage is None:
            return
        thoughts = counted(usage, "thoughtsTokenCount")
        self.used = TokenUsage(
            input_tokens=counted(usage, "promptTokenCount") + counted(usage, "toolUsePromptTokenCount"),
            output_tokens=counted(usage, "candidatesTokenCount") + thoughts,
            cached_tokens=counted(usage, "cachedContentTokenCount"),
            thinking_tokens=thoughts,
        )


def _joined(parts: list[_Part]) -> Iterable[Part]:
    texts: list[str] = []
    is_thought = False

    def flush(signature: str | None = None) -> Iterable[Part]:
        if texts or signature:
            text = "".join(texts)
            texts.clear()
            yield Thinking(text=text, opaque=signature) if is_thought else Text(text=text, opaque=signature)

    for part in parts:
        call = part.function_call
        if call is not None:
            yield from flush()
            yield ToolCall(id=call.id or "", name=call.name, arguments=call.args or {}, opaque=part.thought_signature)
            continue
        if bool(part.thought) is not is_thought:
            yield from flush()
            is_thought = bool(part.thought)
        if part.text:
            texts.append(part.text)
        if part.thought_signature:
            yield from flush(part.thought_signature)
    yield from flush()


WIRE = Wire(
    name=_NAME,
    path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
    body=_body,
    reader=_GoogleReader,
    list_path="/v1beta/models?pageSize=1000",
)
