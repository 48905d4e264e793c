"""Models of pydantic-ai, for other providers. Needs the extra `deputy-agents[pydantic-ai]`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self, assert_never

from pydantic import TypeAdapter
from pydantic_ai import direct, exceptions, messages
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.tools import ToolDefinition

from deputy.core import model_errors as errors
from deputy.core.conversation import (
    AssistantMessage,
    ForcedTool,
    Message,
    Part,
    Stop,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    TokenUsage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from deputy.core.errors import UsageError
from deputy.core.limits import IDLE_SECONDS
from deputy.core.model_errors import EmptyReply, ModelError, ServerFailed
from deputy.core.provider_errors import provider_error
from deputy.models.wire import PartialToolCall, encode
from deputy.models.wire_model import with_ids

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from deputy.core.conversation import Conversation, GenerationSettings, StreamEvent, Toolset

_PART: Final[TypeAdapter[messages.ModelResponsePart]] = TypeAdapter(messages.ModelResponsePart)
_STOPS: Final[dict[str, StopReason]] = {"stop": "end", "tool_call": "end", "length": "length"}
_KINDS: Final[tuple[tuple[type[Exception], type[ModelError]], ...]] = (
    (exceptions.ModelRateLimitError, errors.RateLimited),
    (exceptions.ModelQuotaExceededError, errors.QuotaSpent),
    (exceptions.ModelUnavailableError, errors.Overloaded),
    (exceptions.ModelServerError, ServerFailed),
    (exceptions.ModelRequestTimeout, errors.Silent),
    (exceptions.ModelConnectionError, errors.NetworkFailed),
    (exceptions.ModelContextWindowExceededError, errors.ContextExhausted),
    (exceptions.ModelAuthenticationError, errors.BadKey),
    (exceptions.ModelNotFoundError, errors.ModelNotFound),
    (exceptions.ContentFilterError, errors.ModelRefused),
    (exceptions.ModelAPIError, ServerFailed),
    (exceptions.UnexpectedModelBehavior, errors.BadReply),
)


class PydanticAIModel:
    """A pydantic-ai model as a Model. Disable its own client's retries: Deputy retries itself."""

    is_metered = True

    def __init__(self, model: TheirModel, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self.name = f"pydantic-ai:{model.system}:{model.model_name}"
        self.context_window = model.context_window
        self._model = model
        self._idle_seconds = idle_seconds
        self._origin = f"pydantic-ai:{model.system}"

    @classmethod
    def named(cls, name: str) -> Self:
        """The pydantic-ai model with this name."""
        try:
            return cls(infer_model(name))
        except (exceptions.UserError, ValueError, ImportError) as error:
            raise UsageError("model", f"pydantic-ai:{name}", f"pydantic-ai says: {error}") from error

    async def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """One request, one turn."""
        said: list[str] = []
        try:
            async with direct.model_request_stream(
                self._model,
                self._history(conversation),
                model_settings=_settings(settings, has_tools=bool(len(tools))),
                model_request_parameters=_parameters(tools, settings),
            ) as response:
                events = aiter(response)
                while (event := await self._next(events)) is not None:
                    if (delta := _delta(event)) is not None:
                        if isinstance(delta, TextDelta):
                            said.append(delta.text)
                        yield delta
                whole = response.get()
            message, reason = self._message(whole, len(conversation))
            for call in message.calls:
                yield call
            yield _usage(whole)
            yield Stop(reason=reason, message=message)
        except (exceptions.AgentRunError, ModelError) as error:
            failure = error if isinstance(error, ModelError) else _failure(error)
            failure.model, failure.text = self.name, "".join(said)
            raise failure from error

    async def _next(self, events: Any) -> messages.ModelResponseStreamEvent | None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await anext(events, None)
        except TimeoutError as error:
            raise errors.Silent(f"the model made no progress for {self._idle_seconds:g} s") from error

    def _history(self, conversation: Conversation) -> list[messages.ModelMessage]:
        history = [self._translated(message) for message in conversation.messages]
        if conversation.system and isinstance(history[0], messages.ModelRequest):
            system = messages.SystemPromptPart(content=conversation.system)
            history[0] = messages.ModelRequest(parts=[system, *history[0].parts])
        return history

    def _translated(self, message: Message) -> messages.ModelMessage:
        match message:
            case UserMessage(text=text):
                return messages.ModelRequest(parts=[messages.UserPromptPart(content=text)])
            case ToolMessage(results=results):
                returned = [
                    messages.ToolReturnPart(
                        tool_name=result.name,
                        content=f"Error: {result.content}" if result.is_error else result.content,
                        tool_call_id=result.call_id,
                    )
                    for result in results
                ]
                return messages.ModelRequest(parts=returned)
            case AssistantMessage(parts=parts, origin=origin):
                own = origin == self._origin
                return messages.ModelResponse(parts=[p for part in parts if (p := _their_part(part, own)) is not None])
            case _:
                assert_never(message)

    def _message(self, response: messages.ModelResponse, turn: int) -> tuple[AssistantMessage, StopReason]:
        finish = response.finish_reason
        if finish is None:
            raise errors.StreamCut("the stream ended without a finish reason")
        if finish == "content_filter":
            raise errors.ModelRefused("the model declined to answer")
        if finish == "error":
            raise errors.BadReply("the provider stopped with an error")
        reason = _STOPS.get(finish, "end")
        parts = with_ids(tuple(_our_parts(response.parts, reason)), turn)
        message = AssistantMessage(parts=parts, origin=self._origin)
        if reason == "end" and not message.text.strip() and not message.calls:
            raise EmptyReply("the model ended its turn without text or a call")
        return message, reason


def _delta(event: messages.ModelResponseStreamEvent) -> TextDelta | ThinkingDelta | None:
    match event:
        case (
            messages.PartStartEvent(part=messages.TextPart(content=text))
            | messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text))
        ) if text:
            return TextDelta(text)
        case (
            messages.PartStartEvent(part=messages.ThinkingPart(content=text))
            | messages.PartDeltaEvent(delta=messages.ThinkingPartDelta(content_delta=text))
        ) if text:
            return ThinkingDelta(text)
        case _:
            return None


def _our_parts(parts: Iterable[messages.ModelResponsePart], reason: StopReason) -> Iterable[Part]:
    for part in parts:
        opaque = _PART.dump_json(part).decode()
        match part:
            case messages.TextPart(content=text):
                yield Text(text=text, opaque=opaque)
            case messages.ThinkingPart(content=text):
                yield Thinking(text=text, opaque=opaque)
            case messages.ToolCallPart():
                call = PartialToolCall(part.tool_call_id, part.tool_name, opaque)
                call.pieces.append(part.args_as_json_str() if part.args else "")
                if (done := call.complete(reason)) is not None:
                    yield done
            case _:
                pass


def _their_part(part: Part, is_own: bool) -> messages.ModelResponsePart | None:
    match part:
        case ToolCall():
            return messages.ToolCallPart(tool_name=part.name, args=part.arguments, tool_call_id=part.id)
        case Text(text=text, opaque=opaque):
            return _PART.validate_json(opaque) if opaque and is_own else messages.TextPart(content=text)
        case Thinking(opaque=opaque):
            return _PART.validate_json(opaque) if opaque and is_own else None
        case _:
            assert_never(part)


def _settings(settings: GenerationSettings, *, has_tools: bool) -> TheirSettings:
    theirs = TheirSettings()
    if settings.max_output_tokens is not None:
        theirs["max_tokens"] = settings.max_output_tokens
    if settings.thinking is not None:
        theirs["thinking"] = settings.thinking
    if has_tools and settings.tool_choice != "auto":
        choice = settings.tool_choice
        theirs["tool_choice"] = [choice.name] if isinstance(choice, ForcedTool) else choice
    if settings.extra:
        theirs["extra_body"] = settings.extra
    return theirs


def _parameters(tools: Toolset, settings: GenerationSettings) -> ModelRequestParameters:
    definitions = [
        ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=tool.parameters, strict=False
        )
        for tool in tools.items
    ]
    if settings.output is None:
        return ModelRequestParameters(function_tools=definitions)
    wanted = OutputObjectDefinition(json_schema=settings.output.schema, name=settings.output.name, strict=False)
    return ModelRequestParameters(function_tools=definitions, output_mode="native", output_object=wanted)


def _usage(response: messages.ModelResponse) -> TokenUsage:
    usage = response.usage
    return TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        thinking_tokens=usage.details.get("reasoning_tokens", 0) or usage.details.get("thoughts_tokens", 0),
        is_reported=bool(usage.input_tokens or usage.output_tokens),
    )


def _failure(error: exceptions.AgentRunError) -> ModelError:
    if isinstance(error, exceptions.ModelHTTPError):
        content = encode({"error": error.body or str(error)})
        failure = provider_error(content, status=error.status_code, headers=error.headers)
        failure.retry_after = failure.retry_after if failure.retry_after is not None else error.retry_after
        return failure
    kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), ServerFailed)
    failure = kind(str(error))
    failure.retry_after = getattr(error, "retry_after", None)
    return failure
