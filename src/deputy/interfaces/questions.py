"""Answers for runs that wait: each question is put once to whoever answers, and the answer sent back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self, TypeAlias

from msgspec import Struct

from deputy.core.approval import ApprovalRequest, Decision
from deputy.core.approval_text import screen
from deputy.core.errors import UsageError
from deputy.core.events import APPROVAL, QuestionAsked
from deputy.core.state import ASKED, answer_key
from deputy.interfaces.background import background

if TYPE_CHECKING:
    from deputy.core.events import Record
    from deputy.core.progress import Progress
    from deputy.engine.ports import Engine

_PAUSES = (0.1, 1.0)
"""How long an answerer that failed is left alone before it is asked again, in seconds."""


class Question(Struct, frozen=True, kw_only=True):
    """What a run waits for: a yes or no (`approval`), or an answer in words (`answer`)."""

    session_id: str
    label: str
    topic: str
    text: str
    """The question in words; of an approval the whole of it, with nothing invisible."""
    request: ApprovalRequest | None = None
    """What is to be approved, where that is what the run waits for."""
    digest: str = ""
    """The digest of the request, which the answer is bound to."""


Answerer: TypeAlias = Callable[[Question], Awaitable[bool | str | Decision]]
"""Who is asked: a person at a terminal, or a program's own rules.

To an approval it gives True, False or a `Decision` with the request's digest; to a question in words the answer, or
False for none.
"""


class QuestionDispatcher:
    """Takes questions to the answerer, of several runs at a time; `async with` bounds their life."""

    def __init__(self, engine: Engine, answer: Answerer) -> None:
        self._engine = engine
        self._answer = answer
        self._group = asyncio.TaskGroup()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()
        """The runs that said that they wait since they were last looked at from the beginning."""

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._following.values():
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def ask(self, progress: Progress) -> None:
        """Have the questions of a run answered, until it ends."""
        run = progress.session_id
        self._told.add(run)
        if run not in self._following:
            self._following[run] = self._group.create_task(self._follow(run, progress.label))

    async def _follow(self, run: str, label: str) -> None:
        """Put every question that a run records, one after another; what it says of waiting is only a hint."""
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
        """Leave who is asked alone once it was answered elsewhere, or is not waited for any more."""
        async for _ in self._engine.events(run, after=after):
            if not await self._waits(run, key):
                break
        until_settled.reschedule(asyncio.get_running_loop().time())

    async def _waits(self, run: str, key: str) -> bool:
        state = await self._engine.get(run)
        return state is not None and key in state.waits

    async def _answered(self, question: Question) -> object:
        """The answer; an answerer that fails is asked again before that is taken for its last word."""
        for pause in _PAUSES:
            try:
                return await self._answer(question)
            except Exception:  # noqa: BLE001  it is somebody else's program, and its last failure is raised below
                await asyncio.sleep(pause)
        return await self._answer(question)


def question_of(run: str, label: str, asked: QuestionAsked) -> Question:
    """A recorded question as whoever is asked gets it."""
    text = asked.question if asked.request is None else screen(asked.request, whole=True).text
    return Question(
        session_id=run, label=label, topic=asked.topic, text=text, request=asked.request, digest=asked.digest
    )


def _checked(question: Question, answer: object, answerer: Answerer) -> Decision | str | bool:
    """What is sent for an answer; anything that is none is a mistake of the callback, which is named."""
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
