"""Test whether a model can do the work of a subagent: one real tool call, and an answer that uses its result."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    GenerationSettings,
    Stop,
    ToolCall,
    ToolMessage,
    ToolResult,
    Toolset,
    ToolSpec,
    UserMessage,
)
from deputy.core.errors import UsageError
from deputy.core.model_errors import ModelError
from deputy.core.text_calls import read_calls, without_thinking

if TYPE_CHECKING:
    from deputy.engine.ports import Model
    from deputy.models.factory import ModelFactory

CHECK_SECONDS = 120.0
CODE_WORD = "maple-4821"
"""Only the result of the tool has it."""
_TOKENS = 2048
FILE = "notes.txt"
_READ = ToolSpec(
    name="Read",
    description="Read a text file. Returns its lines.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string", "description": "The path of the file."}},
        "required": ["path"],
    },
)
_SYSTEM = "You work with tools. Call a tool whenever you need what it returns; never guess a result."
TASK = f"The file {FILE} has a code word. Read the file, then answer with the code word and nothing else."
_ANOTHER = (
    "Choose another model, or start the server so that it takes tool calls: llama-server with --jinja, "
    "vLLM with --enable-auto-tool-choice and --tool-call-parser NAME."
)

CheckResult: TypeAlias = Literal["works", "calls_as_text", "no_call", "no_use", "failed"]


class ToolCallCheck(Struct, frozen=True, kw_only=True):
    """Whether a model can call tools, and what to do if not."""

    model: str
    result: CheckResult
    message: str
    remedy: str = ""
    seconds: float = 0.0

    @property
    def can_work(self) -> bool:
        """Whether subagents can use the model."""
        return self.result in ("works", "calls_as_text")


async def check_tool_call(models: ModelFactory, name: str, seconds: float = CHECK_SECONDS) -> ToolCallCheck:
    """Let a model call one tool and use its result; at most two small requests."""
    started = time.monotonic()

    def ended(result: CheckResult, message: str, remedy: str = "") -> ToolCallCheck:
        took = time.monotonic() - started
        return ToolCallCheck(model=name, result=result, message=message, remedy=remedy, seconds=took)

    try:
        async with asyncio.timeout(seconds):
            return ended(*await _converse(models.open(name)))
    except TimeoutError:
        return ended(
            "failed",
            f"it did not finish within {seconds:g} s",
            "Try again when the server has less to do, or choose a faster model.",
        )
    except ModelError as error:
        value = error.as_value()
        return ended("failed", value.message, value.recommendation)
    except UsageError as error:
        return ended("failed", error.expected)


async def _converse(model: Model) -> tuple[CheckResult, str, str]:
    conversation = Conversation(_SYSTEM, [UserMessage(text=TASK)])
    said = await _turn(model, conversation)
    content = f"1\tThe code word is {CODE_WORD}."
    conversation.append(said)
    written = None if said.calls else read_calls(without_thinking(said.text), [_READ.name])
    if said.calls:
        conversation.append(ToolMessage(results=tuple(_result(call, content) for call in said.calls)))
        is_right = any(_is_right(call.name, call.arguments) for call in said.calls)
    elif written is not None:
        conversation.append(UserMessage(text=f"Result of Read:\n{content}"))
        is_right = any(_is_right(call.name, call.arguments) for call in written.calls)
    else:
        return "no_call", "it answered without calling the tool", _ANOTHER
    if not is_right:
        return "no_call", "it called the tool with wrong arguments", _ANOTHER
    if CODE_WORD not in (await _turn(model, conversation)).text:
        return "no_use", "it called the tool, but did not use the result", _ANOTHER
    if written is not None:
        return "calls_as_text", "it writes its tool calls as text; Deputy reads them, but less reliably", ""
    return "works", "it called the tool and used the result", ""


def _is_right(name: str, arguments: dict[str, object]) -> bool:
    return name.lower() == _READ.name.lower() and FILE in str(arguments)


def _result(call: ToolCall, content: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=content)


async def _turn(model: Model, conversation: Conversation) -> AssistantMessage:
    settings = GenerationSettings(max_output_tokens=_TOKENS)
    async with aclosing(model.stream(conversation, Toolset([_READ]), settings)) as events:
        async for event in events:
            if isinstance(event, Stop):
                return event.message
    raise AssertionError("a turn ends with Stop")
