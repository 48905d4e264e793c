"""Render a scripted turn as the stream of each of the four wire protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import json

from deputy.core.model_script import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deputy.core.conversation import TokenUsage
    from deputy.core.model_script import ScriptedTurn

Protocol: TypeAlias = Literal["anthropic", "openai-responses", "openai-chat", "google"]

ARGUMENT_PIECE: Final = 12
SIGNATURE: Final = "c2lnbmVkIGJ5IHRoZSB0ZXN0IHByb3ZpZGVy"


def render(protocol: Protocol, turn: ScriptedTurn, *, model: str, serial: int) -> list[bytes]:
    """The events of a turn, each as the bytes of one server-sent event."""
    return list(_RENDERERS[protocol](turn, model, f"{serial:08d}"))


def _pieces(arguments: dict[str, Any]) -> list[str]:
    text = json.encode(arguments).decode()
    return [text[start : start + ARGUMENT_PIECE] for start in range(0, len(text), ARGUMENT_PIECE)]


def _event(kind: str, /, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.encode({"type": kind, **fields}))


def _data(**fields: Any) -> bytes:
    return b"data: %b\n\n" % json.encode(fields)


# --- Anthropic --------------------------------------------------------------------------------------------------------


def _anthropic(turn: ScriptedTurn, model: str, serial: str) -> Iterator[bytes]:
    usage = turn.usage
    yield _event(
        "message_start",
        message={
            "id": f"msg_{serial}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
                "cache_creation_input_tokens": usage.cache_write_tokens,
                "cache_read_input_tokens": usage.cached_tokens,
                "output_tokens": 1,
            },
        },
    )
    for index, (block, deltas) in enumerate(_anthropic_blocks(turn, serial)):
        yield _event("content_block_start", index=index, content_block=block)
        if index == 0:
            yield _event("ping")
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    stop = "max_tokens" if turn.stop == "length" else "tool_use" if turn.calls else "end_turn"
    yield _event(
        "message_delta",
        delta={"stop_reason": stop, "stop_sequence": None},
        usage={"output_tokens": usage.output_tokens},
    )
    yield _event("message_stop")


def _anthropic_blocks(turn: ScriptedTurn, serial: str) -> Iterator[tuple[dict[str, Any], list[dict[str, str]]]]:
    if turn.thinking:
        deltas = [{"type": "thinking_delta", "thinking": word} for word in words(turn.thinking)]
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            [*deltas, {"type": "signature_delta", "signature": SIGNATURE}],
        )
    if turn.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words(turn.text)]
    for number, call in enumerate(turn.calls):
        yield (
            {"type": "tool_use", "id": f"toolu_{serial}{number:02d}", "name": call.name, "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(call.arguments)],
        )


# --- OpenAI Responses -------------------------------------------------------------------------------------------------


def _responses(turn: ScriptedTurn, model: str, serial: str) -> Iterator[bytes]:
    sequence = 0

    def event(kind: str, /, **fields: Any) -> bytes:
        nonlocal sequence
        sequence += 1
        return _event(kind, sequence_number=sequence - 1, **fields)

    yield event("response.created", response=_response(model, serial, "in_progress", [], None))
    yield event("response.in_progress", response=_response(model, serial, "in_progress", [], None))
    items = list(_responses_items(turn, serial))
    for index, (item, deltas) in enumerate(items):
        at = {"item_id": item["id"], "output_index": index}
        yield event("response.output_item.added", output_index=index, item=_begun(item))
        if item["type"] == "message":
            part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
            yield event("response.content_part.added", content_index=0, part={**part, "text": ""}, **at)
            for delta in deltas:
                yield event("response.output_text.delta", content_index=0, delta=delta, logprobs=[], **at)
            yield event("response.output_text.done", content_index=0, text=turn.text, logprobs=[], **at)
            yield event("response.content_part.done", content_index=0, part={**part, "text": turn.text}, **at)
        elif item["type"] == "function_call":
            for delta in deltas:
                yield event("response.function_call_arguments.delta", delta=delta, **at)
            yield event("response.function_call_arguments.done", name=item["name"], arguments=item["arguments"], **at)
        else:
            for delta in deltas:
                yield event("response.reasoning_summary_text.delta", summary_index=0, delta=delta, **at)
        yield event("response.output_item.done", output_index=index, item=item)
    is_cut = turn.stop == "length"
    response = _response(
        model,
        serial,
        "incomplete" if is_cut else "completed",
        [item for item, _ in items],
        _responses_usage(turn.usage),
    )
    if is_cut:
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    yield event("response.incomplete" if is_cut else "response.completed", response=response)


def _responses_items(turn: ScriptedTurn, serial: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    if turn.thinking:
        yield (
            {
                "id": f"rs_{serial}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": turn.thinking}],
                "encrypted_content": SIGNATURE,
            },
            words(turn.thinking),
        )
    if turn.text:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}]
        message = {"id": f"msg_{serial}", "type": "message", "status": "completed", "role": "assistant"}
        yield {**message, "content": content}, words(turn.text)
    for number, call in enumerate(turn.calls):
        yield (
            {
                "id": f"fc_{serial}{number:02d}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{serial}{number:02d}",
                "name": call.name,
                "arguments": json.encode(call.arguments).decode(),
                **({"namespace": call.namespace} if call.namespace else {}),
            },
            _pieces(call.arguments),
        )


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"status": "in_progress"}
    empty |= {"content": []} if item["type"] == "message" else {"arguments": ""}
    return {**item, **(empty if item["type"] != "reasoning" else {"summary": []})}


def _response(model: str, serial: str, status: str, output: list[Any], usage: Any) -> dict[str, Any]:
    return {
        "id": f"resp_{serial}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def _responses_usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


# --- OpenAI Chat ------------------------------------------------------------------------------------------------------


def _chat(turn: ScriptedTurn, model: str, serial: str) -> Iterator[bytes]:
    base = {"id": f"chatcmpl-{serial}", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data(
            **base, choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], usage=None
        )

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for word in words(turn.thinking):
        yield chunk({"reasoning_content": word})
    for word in words(turn.text):
        yield chunk({"content": word})
    for index, call in enumerate(turn.calls):
        function = {"name": call.name, "arguments": ""}
        head = {"index": index, "id": f"call_{serial}{index:02d}", "type": "function", "function": function}
        yield chunk({"tool_calls": [head]})
        for piece in _pieces(call.arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "length" if turn.stop == "length" else "tool_calls" if turn.calls else "stop")
    usage = turn.usage
    yield _data(
        **base,
        choices=[],
        usage={
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        },
    )
    yield b"data: [DONE]\n\n"


# --- Google -----------------------------------------------------------------------------------------------------------


def _google(turn: ScriptedTurn, model: str, serial: str) -> Iterator[bytes]:
    usage = {
        "promptTokenCount": turn.usage.input_tokens,
        "candidatesTokenCount": turn.usage.output_tokens - turn.usage.thinking_tokens,
        "thoughtsTokenCount": turn.usage.thinking_tokens,
        "cachedContentTokenCount": turn.usage.cached_tokens,
        "totalTokenCount": turn.usage.input_tokens + turn.usage.output_tokens,
    }

    def chunk(parts: list[dict[str, Any]], **fields: Any) -> bytes:
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}, **fields}
        return _data(candidates=[candidate], usageMetadata=usage, modelVersion=model, responseId=serial)

    for word in words(turn.thinking):
        yield chunk([{"text": word, "thought": True}])
    for word in words(turn.text):
        yield chunk([{"text": word}])
    for number, call in enumerate(turn.calls):
        function = {"name": call.name, "args": call.arguments, "id": f"fc{serial}{number:02d}"}
        signed = {"thoughtSignature": SIGNATURE} if number == 0 and turn.thinking else {}
        yield chunk([{"functionCall": function, **signed}])
    yield chunk([{"text": ""}], finishReason="MAX_TOKENS" if turn.stop == "length" else "STOP")


_RENDERERS: Final[dict[Protocol, Callable[[ScriptedTurn, str, str], Iterator[bytes]]]] = {
    "anthropic": _anthropic,
    "openai-responses": _responses,
    "openai-chat": _chat,
    "google": _google,
}
