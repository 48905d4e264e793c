"""Pass the questions of waiting runs to an answerer, each once, and send its answers back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from deputy.core.approval import Decision, Question
from deputy.core.approval_text import screen
from deputy.core.errors import UsageError
from deputy.core.events import APPROVAL, QuestionAsked
from deputy.core.state import ASKED, answer_key
from deputy.interfaces.background import background

if TYPE_CHECKING:
    from deputy.core.approval import Answerer
    from deputy.core.events import Record
    from deputy.core.progress import Progress
    from deputy.engine.ports import Engine

_PAUSES = (0.1, 1.0)
"""Seconds before each retry of an answerer that failed."""


class QuestionDispatcher:
    """Passes questions of several runs to the answerer; use it with `async with`."""

    def __init__(self, engine: Engine, answer: Answerer) -> None:
        self._engine = engine
        self._answer = answer
        self._group = asyncio.TaskGroup()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()
        """The runs that emitted `waiting` since their events were last read."""

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._following.values():
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def ask(self, progress: Progress) -> None:
        """Answer the questions of a run until it ends."""
        run = progress.session_id
        self._told.add(run)
        if run not in self._following:
            self._following[run] = self._group.create_task(self._follow(run, progress.label))

    async def _follow(self, run: str, label: str) -> None:
        """Answer every question that a run records; the `waiting` event is only a hint."""
        after = 0
        try:
            # A run may be resumed, and ask again, while its end is being noticed.
            while run in self._told:
                self._told.discard(run)
                async for record in self._engine.events(run, after=after):
                    after = record.seq
                    if isinstance(record.event, QuestionAsked):
                        await self._put(run, label, record, record.event)
        finally:
            del self._following[run]

    async def _put(self, run: str, label: str, record: Record, asked: QuestionAsked) -> None:
        key = record.key.removesuffix(ASKED)
        if not await self._waits(run, key):
            return
        question = question_of(run, label, asked)
        until_settled = asyncio.timeout(None)
        try:
            async with until_settled, background(self._deliver_answer(run, key, record.seq, until_settled)):
                answer = await self._answered(question)
        except TimeoutError:
            if until_settled.expired():
                return
            raise
        await self._engine.send(run, asked.topic, _checked(question, answer, self._answer), key=answer_key(key))

    async def _deliver_answer(self, run: str, key: str, after: int, until_settled: asyncio.Timeout) -> None:
        """Stop the answerer once the question was answered elsewhere or withdrawn."""
        async for _ in self._engine.events(run, after=after):
            if not await self._waits(run, key):
                break
        until_settled.reschedule(asyncio.get_running_loop().time())

    async def _waits(self, run: str, key: str) -> bool:
        state = await self._engine.get(run)
        return state is not None and key in state.waits

    async def _answered(self, question: Question) -> object:
        """The answer; an answerer that fails is retried."""
        for pause in _PAUSES:
            try:
                return await self._answer(question)
            except Exception:  # noqa: BLE001  the program's own code; its last failure is raised below
                await asyncio.sleep(pause)
        return await self._answer(question)


def question_of(run: str, label: str, asked: QuestionAsked) -> Question:
    """The question for the answerer, from its record."""
    text = asked.question if asked.request is None else screen(asked.request, whole=True).text
    return Question(
        session_id=run, label=label, topic=asked.topic, text=text, request=asked.request, digest=asked.digest
    )


def _checked(question: Question, answer: object, answerer: Answerer) -> Decision | str | bool:
    """The message for an answer; UsageError names the callback if the answer has the wrong type."""
    is_approval = question.topic == APPROVAL
    match answer:
        case bool() if is_approval:
            return Decision(choice="yes" if answer else "no", digest=question.digest)
        case Decision(choice=choice, digest=digest) if is_approval and digest == question.digest:
            if choice != "always" or (question.request is not None and question.request.can_always):
                return answer
        case str() if not is_approval:
            return answer
        case False if not is_approval:
            return False
        case _:
            pass
    name = getattr(answerer, "__qualname__", type(answerer).__name__)
    expected = (
        f"to an approval return True, False or Decision(choice=…, digest=question.digest), here {question.digest}"
        if is_approval
        else "to a question in words return a str, or False for no answer"
    )
    raise UsageError(f"answer callback {name}", answer, expected)
