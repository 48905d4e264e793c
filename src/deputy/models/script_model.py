"""`script:FILE`: a model that answers from a script, without a network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from deputy.core.conversation import (
    AssistantMessage,
    Part,
    Stop,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    UserMessage,
)
from deputy.core.errors import UsageError
from deputy.core.model_errors import BadRequest, ModelError
from deputy.core.model_script import ModelScript, ScriptedTurn, ScriptPlayer, read_script, words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from deputy.core.conversation import Conversation, GenerationSettings, StreamEvent, Toolset

SIZE_LIMIT: Final = 64 * 1024 * 1024


class ScriptModel:
    """A model that plays a script."""

    context_window: int | None = None

    def __init__(
        self, script: ModelScript, *, name: str = "script:", sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.name = name
        self._play = ScriptPlayer(script)
        self._sleep = sleep

    @classmethod
    def read(cls, path: str) -> Self:
        """A model with the script of a file."""
        try:
            if Path(path).exists() and not Path(path).is_file():
                raise UsageError("model", f"script:{path}", "the script must be a regular file")
            with Path(path).open("rb") as file:
                data = file.read(SIZE_LIMIT + 1)
        except OSError as error:
            raise UsageError("model", f"script:{path}", f"the script cannot be read: {error.strerror}") from error
        if len(data) > SIZE_LIMIT:
            raise UsageError("model", f"script:{path}", f"the script is larger than {SIZE_LIMIT} bytes")
        return cls(read_script(data, path), name=f"script:{path}")

    def unasked(self) -> list[str]:
        """The turns that were requested less often than the script says."""
        return self._play.unasked()

    async def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """The next turn of the script."""
        found = self._play.ask(_opening(conversation), _answers(conversation))
        if found is None:
            raise BadRequest(f"the script has no answer: {self._play.over_asked[-1]}", model=self.name)
        turn, fault = found
        await self._sleep(turn.delay_seconds)
        if fault is not None:
            raise _failure(fault, self.name)
        async for delta in self._reply(turn):
            yield delta
        message = _message(turn, len(conversation))
        for call in message.calls:
            yield call
        yield turn.usage
        yield Stop(reason=turn.stop, message=message)

    async def _reply(self, turn: ScriptedTurn) -> AsyncGenerator[StreamEvent, None]:
        if turn.thinking:
            yield ThinkingDelta(turn.thinking)
        for word in words(turn.text):
            yield TextDelta(word)
            await self._sleep(turn.pace_seconds)


def _opening(conversation: Conversation) -> str:
    first = next((message.text for message in conversation.messages if isinstance(message, UserMessage)), "")
    return f"{conversation.system}\n{first}"


def _answers(conversation: Conversation) -> int:
    return sum(1 for message in conversation.messages if isinstance(message, AssistantMessage))


def _message(turn: ScriptedTurn, position: int) -> AssistantMessage:
    parts: list[Part] = []
    if turn.thinking:
        parts.append(Thinking(text=turn.thinking))
    if turn.text:
        parts.append(Text(text=turn.text))
    parts += [
        ToolCall(id=f"call_{position}_{number}", name=call.name, arguments=call.arguments)
        for number, call in enumerate(turn.calls)
    ]
    return AssistantMessage(parts=tuple(parts), origin="script")


def _failure(fault: str, name: str) -> ModelError:
    kinds = {kind.code.lower(): kind for kind in ModelError.__subclasses__()}
    if fault not in kinds:
        raise UsageError("fault", fault, f"the faults of a script are {', '.join(sorted(kinds))}")
    return kinds[fault](f"scripted fault {fault}", model=name)
