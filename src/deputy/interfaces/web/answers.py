"""Answers from the page: bound to the key and the digest of a question, sent through the journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json

from deputy.core.approval import Decision
from deputy.core.errors import Error, UnknownRun, UsageError
from deputy.core.events import APPROVAL, QuestionAnswered, Record
from deputy.core.state import answer_key
from deputy.interfaces.web.waiting import OpenQuestion, open_questions
from deputy.stores import open_journal

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.core.approval import Choice
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries

_MAX_WAIT_SECONDS = 2.0
_LOOK_SECONDS = 0.05
MOST_WORDS = 100_000


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer as the page sends it: a decision, or words."""

    key: str
    digest: str
    approve: bool | None = None
    always: bool = False
    words: str | None = None


class NotCounted(Exception):
    """The answer does not count: the question is another one now, or was answered."""

    def __init__(self, error: Error, now: OpenQuestion | None, state: State) -> None:
        super().__init__(error.message)
        self.error = error
        self.now = now
        self.state = state


def find_question(queries: Queries, run: str, answer: Answer) -> OpenQuestion:
    """The question that an answer names; NotCounted if it is not asked any more, with what is asked now."""
    state = queries.state(run)
    if state is None:
        raise UnknownRun(run)
    questions = list(open_questions(queries, state))
    question = next((one for one in questions if one.key == answer.key), None)
    if question is None:
        raise NotCounted(_answered(queries, state, answer.key), questions[0] if questions else None, state)
    if question.digest != answer.digest:
        message = "The question has changed: this answer names another digest."
        raise NotCounted(_error("OTHER_QUESTION", message, "Read what is asked now, and answer that."), question, state)
    _check_kind(question, answer)
    if question.until is not None and question.until <= queries.now() and answer.approve:
        message = "The time to approve it is over, so a yes does not count."
        raise NotCounted(_error("TOO_LATE", message, "Start the work again."), question, state)
    return question


def _check_kind(question: OpenQuestion, answer: Answer) -> None:
    if question.topic == APPROVAL:
        if answer.approve is None or answer.words is not None:
            raise UsageError("approve", answer.approve, "an approval is answered with approve: true or false")
        request = None if question.asked is None else question.asked.request
        if answer.always and not (answer.approve and request is not None and request.can_always):
            raise UsageError("always", True, "this is approved call by call")
    elif answer.words is None or answer.approve is not None:
        raise UsageError("words", answer.words, "a question in words is answered with words")
    elif not answer.words.strip() or len(answer.words) > MOST_WORDS:
        raise UsageError("words", answer.words[:40], f"give an answer of 1 to {MOST_WORDS:,} characters")


def _answered(queries: Queries, state: State, key: str) -> Error:
    """Why a question is not open: another answer won, or the run ended."""
    record = queries.get(state.run, key)
    if isinstance(record, Record) and isinstance(record.event, QuestionAnswered):
        return _error("ANSWERED", f"Another answer came first: {_choice(record.event)}.", "Nothing is left to do.")
    if not state.is_live:
        return _error("ENDED", f"The run has ended: {state.status}.", "Resume it, or start it again.")
    return _error("NOT_ASKED", "The run does not ask this now.", "Read what is asked now.")


def _choice(answered: QuestionAnswered) -> str:
    if answered.topic != APPROVAL:
        return "it was answered"
    try:
        choice = json.decode(answered.body, type=Decision).choice
    except ValueError:
        choice = "no"
    return "denied" if choice == "no" else "approved"


def _error(code: str, message: str, remedy: str) -> Error:
    return Error(type="not_counted", code=code, message=message, recoverable=True, recommendation=remedy)


async def send_answer(home: Path, question: OpenQuestion, answer: Answer) -> dict[str, Any]:
    """Send an answer; whether it counts, and whether a process has taken it."""
    if question.topic == APPROVAL:
        choice: Choice = "always" if answer.always else "yes" if answer.approve else "no"
        body = json.encode(Decision(choice=choice, digest=question.digest))
    else:
        body = json.encode(answer.words)
    async with open_journal(home) as journal:
        is_first = await journal.send(question.run, question.topic, answer_key(question.key), body)
        is_taken = False
        try:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                while not is_taken:
                    state = await journal.state(question.run)
                    is_taken = state is None or question.key not in state.waits
                    if not is_taken:
                        await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            is_taken = False
    return {"counted": is_first, "taken": is_taken}
