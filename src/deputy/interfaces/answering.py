"""Answers for runs that wait: each question is put once to whoever answers, and the answer sent back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from deputy.core.progress import Progress
    from deputy.engine.ports import Engine

_LOOK_SECONDS = 0.02
_LOOKS = 100
"""A run says that it waits a moment before it does; one that was answered already says so again when it is replayed."""


class Question(Struct, frozen=True, kw_only=True):
    """What a run waits for: a yes or no (`approval`), or an answer in words (`answer`)."""

    session_id: str
    label: str
    topic: str
    text: str


Answerer: TypeAlias = Callable[[Question], Awaitable[bool | str]]
"""Who is asked: a person at a terminal, or a program's own rules."""


class AnsweringDesk:
    """Takes questions to the answerer, several at a time; `async with` bounds their life."""

    def __init__(self, engine: Engine, answer: Answerer) -> None:
        self._engine = engine
        self._answer = answer
        self._group = asyncio.TaskGroup()
        self._open: set[asyncio.Task[None]] = set()
        self._answered: set[tuple[str, str]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._open:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def ask(self, progress: Progress) -> None:
        """Have the question of a run answered."""
        task = self._group.create_task(self._take(progress))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _take(self, progress: Progress) -> None:
        for _ in range(_LOOKS):
            state = await self._engine.get(progress.session_id)
            if state is None or not state.is_live:
                return
            for key, topic in state.waits.items():
                if (state.run, key) not in self._answered:
                    self._answered.add((state.run, key))
                    text = state.question or progress.content or ""
                    asked = Question(session_id=state.run, label=progress.label, topic=topic, text=text)
                    await self._engine.send(state.run, topic, await self._answer(asked), key=f"answer:{key}")
                    return
            await asyncio.sleep(_LOOK_SECONDS)
