"""Questions and approvals of waiting runs: find them, and pass them to an answerer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from deputy.core.approval import Decision, Question
from deputy.core.approval_text import screen
from deputy.core.errors import UnknownRun, Unquoted, UsageError
from deputy.core.events import APPROVAL, QuestionAsked
from deputy.core.state import ASKED, answer_key
from deputy.interfaces.background import background

if TYPE_CHECKING:
    from deputy.core.approval import Answerer, ApprovalRequest, Choice
    from deputy.core.events import Record
    from deputy.core.progress import Progress
    from deputy.core.state import State
    from deputy.engine.ports import Engine, Journal

MOST_TEXT = 50_000
"""The longest text of an approval in another program; a longer one is cut and can only be denied there."""
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


# --- pending approvals ------------------------------------------------------------------------------------------------


class PendingApproval(NamedTuple):
    """An approval that a run waits for."""

    run: str
    key: str
    digest: str
    question: str
    """The approval on one line."""
    request: ApprovalRequest | None = None
    until: float | None = None

    def is_late(self, now: float) -> bool:
        """Whether it can no longer be approved."""
        return self.until is not None and self.until <= now


def approval_form(asking: PendingApproval) -> tuple[str, tuple[Choice, ...]]:
    """The text of an approval for another program, and its choices; what is not fully shown cannot be approved."""
    if asking.request is None:
        return f"{asking.question}\nSee all of it: deputy approve {asking.run} --details", ("no",)
    elsewhere = f"deputy approve {asking.run} --key {asking.key} --digest {asking.digest}"
    whole = screen(asking.request, whole=True).text
    if len(whole) <= MOST_TEXT:
        choices: tuple[Choice, ...] = ("yes", "no", "always") if asking.request.can_always else ("yes", "no")
        return f"{whole}\n  In a terminal: {elsewhere}", choices
    cut = screen(asking.request)
    rest = (
        f"  Too long for this form: {cut.hidden_bytes:,} bytes are not shown, so it can only be denied here.\n"
        f"  See all of it, and answer: deputy approve {asking.run} --details, then {elsewhere}"
    )
    return f"{cut.text}\n{rest}", ("no",)


class ApprovalAnswer(NamedTuple):
    """The message that answers an approval."""

    run: str
    key: str
    decision: Decision


async def find_pending(journal: Journal[Any], run: str, key: str = "") -> PendingApproval | None:
    """The pending approval of a run, else of its descendants; `key` selects one of several."""
    state = await journal.state(run)
    if state is None:
        raise UnknownRun(run)
    found = await asking_of(journal, state) or await _asking_below(journal, run)
    if key:
        found = [one for one in found if one.key == key]
    if len(found) > 1:
        several = ", ".join(f"{one.run} --key {one.key}" for one in found)
        raise UsageError("ID", run, f"it waits for several approvals; name one of them: {several}")
    return found[0] if found else None


async def all_asking(journal: Journal[Any], run: str) -> list[PendingApproval]:
    """Every pending approval of a run and its descendants."""
    state = await journal.state(run)
    if state is None:
        raise UnknownRun(run)
    return [*await asking_of(journal, state), *await _asking_below(journal, run)]


async def _asking_below(journal: Journal[Any], run: str) -> list[PendingApproval]:
    return [one for below in await journal.descendants(run) for one in await asking_of(journal, below)]


async def asking_of(journal: Journal[Any], state: State) -> list[PendingApproval]:
    """The pending approvals of one run."""
    found: list[PendingApproval] = []
    for key in [key for key, topic in state.waits.items() if topic == APPROVAL]:
        record = await journal.get(state.run, f"{key}{ASKED}")
        if record is not None and isinstance(asked := record.event, QuestionAsked):
            found.append(PendingApproval(state.run, key, asked.digest, asked.question, asked.request, asked.until))
    return found


def answer_to(asking: PendingApproval, choice: Choice, *, digest: str, now: float) -> ApprovalAnswer:
    """The answer to an approval: another digest is refused, and a late yes becomes a no.

    A no needs no digest: it starts nothing.
    """
    if (digest or choice != "no") and digest != asking.digest:
        raise not_what_is_asked(asking, digest)
    if choice == "always" and not (asking.request is not None and asking.request.can_always):
        raise UsageError("choice", choice, "this is approved call by call: answer yes or no")
    choice = "no" if asking.is_late(now) else choice
    return ApprovalAnswer(asking.run, answer_key(asking.key), Decision(choice=choice, digest=asking.digest))


def not_what_is_asked(asking: PendingApproval, digest: str) -> UsageError:
    """The error for an answer to another question, with the current one."""
    found = digest or Unquoted("none")
    now = f"{asking.run} asks now for {asking.digest} ({asking.question})"
    return UsageError("digest", found, f"name the digest of what you approve; {now}")
