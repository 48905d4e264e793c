"""What waits for a person: approvals and questions of all runs, as the page shows them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct, to_builtins

from deputy.core.events import ANSWER, APPROVAL, QuestionAsked, Record
from deputy.core.state import ASKED
from deputy.core.visible_text import visible_json
from deputy.processes.outgoing import outgoing_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries

DELEGATE = "delegate"


class OpenQuestion(Struct, frozen=True, kw_only=True):
    """A question of a run; an answer names its key and its digest."""

    run: str
    key: str
    topic: str
    question: str
    digest: str
    since: float
    """By the wall clock, for display, as `until_at`."""
    until: float | None = None
    """When it counts as refused, by the journal's clock."""
    until_at: float | None = None
    asked: QuestionAsked | None = None
    """The record of it; None if the run ended with its question."""

    @property
    def needs_resume(self) -> bool:
        """Whether the run has ended, so that an answer resumes it."""
        return self.asked is None


def digest_of(question: str) -> str:
    """The digest of a question in words."""
    return sha256(question.encode(errors="backslashreplace")).hexdigest()


def open_questions(queries: Queries, state: State) -> Iterator[OpenQuestion]:
    """The questions of a run that only a person can answer."""
    if state.status == "blocked" and state.question and state.command != DELEGATE:
        yield OpenQuestion(
            run=state.run,
            key=f"returned:{state.round}",
            topic=ANSWER,
            question=state.question,
            digest=digest_of(state.question),
            since=state.ended_at or state.last_at,
        )
    for key, topic in state.waits.items() if state.is_live else ():
        if topic not in (APPROVAL, ANSWER):
            continue
        record = queries.get(state.run, f"{key}{ASKED}")
        if not isinstance(record, Record) or not isinstance(asked := record.event, QuestionAsked):
            continue
        yield OpenQuestion(
            run=state.run,
            key=key,
            topic=topic,
            question=asked.question,
            digest=asked.digest or digest_of(asked.question),
            since=record.at,
            until=asked.until,
            until_at=None if asked.until is None else asked.until + record.at - record.clock,
            asked=asked,
        )


def question_json(one: OpenQuestion, state: State, path: Sequence[str], *, is_answered: bool) -> bytes:
    """A question for the page. Everything is redacted but what is approved: a person approves exactly what runs."""
    form: dict[str, Any] = {
        "run": one.run,
        "key": one.key,
        "topic": one.topic,
        "label": state.label or state.command or state.agent,
        "path": list(path),
        "since": one.since,
        "until": one.until_at,
        "question": one.question,
        "digest": one.digest,
        "needs_resume": one.needs_resume,
        "answered": is_answered,
        "workspace": state.workspace,
    }
    return visible_json({**_redacted(form), "about": _about(one)})


def _redacted(form: dict[str, Any]) -> dict[str, Any]:
    return {name: Raw(outgoing_json(value)) for name, value in form.items()}


def _about(one: OpenQuestion) -> dict[str, Any] | None:
    request = None if one.asked is None else one.asked.request
    if request is None:
        return None
    form = to_builtins(request)
    return {name: form.get(name) for name in ("tool", "title", "parts", "risk", "cost", "folder", "can_always")}
