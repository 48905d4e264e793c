"""The one place where a run asks for approval: it records the question, and compares its digest before the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec import structs

from deputy.core.approval import read_decision
from deputy.core.approval_text import headline
from deputy.core.events import APPROVAL
from deputy.core.progress import Progress
from deputy.core.state import prefix

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deputy.core.approval import ApprovalRequest, Choice
    from deputy.engine.agent_context import Approval
    from deputy.engine.history import History
    from deputy.engine.ports import RunContext

Policy: TypeAlias = Literal["granted", "ask", "nobody"]
"""It may be; a person says so, now or on record; or there is nobody to ask."""


class ApprovalVerdict(NamedTuple):
    """What a person answered, and exactly what to."""

    choice: Choice
    request: ApprovalRequest

    @property
    def is_yes(self) -> bool:
        """Whether it may be done."""
        return self.choice != "no"


def policy_for(run: RunContext, key: str, approval: Approval, *, begun: str, ended: tuple[str, ...]) -> Policy:
    """How a call is decided: the decision before a crash counts, and only a new call is decided by the policy now.

    `begun` is the first record of what needs approval, `ended` the records that exist once the call is over.
    """
    if run.recorded_question(key) is not None:
        return "ask"
    if run.has_record(begun):
        return "granted"
    if any(map(run.has_record, ended)) or approval == "refuse":
        return "nobody"
    return approval


async def ask_person(
    run: RunContext,
    key: str,
    make: Callable[[], Awaitable[ApprovalRequest]],
    *,
    begun: str,
    tell: Callable[[Progress], None],
    approval: Approval = "ask",
    approval_timeout_seconds: float | None = None,
) -> ApprovalVerdict:
    """Record what would be done, wait for a person's answer to exactly that, and compare before it is done.

    `make` reads the world as it is now: a file that changed since the question makes another question, which is asked
    anew. Once `begun` is recorded the call was made, and its recorded approval stands.
    """
    label = run.state.label or run.state.command
    number = 1
    while True:
        name = key if number == 1 else f"{key}.{number}"
        asked = run.recorded_question(name)
        if asked is not None and asked.request is not None:
            request, digest = asked.request, asked.digest
        else:
            request = _identified(run, name, await make())
            digest = request.digest
        question = headline(request)
        tell(Progress(event="waiting", label=label, content=question))
        body = await run.recv(
            name, APPROVAL, question, approval_timeout_seconds=approval_timeout_seconds, request=request
        )
        verdict = ApprovalVerdict(read_decision(body, digest), request)
        if not verdict.is_yes or run.has_record(begun):
            return verdict
        if run.recorded_question(f"{key}.{number + 1}") is None:
            # What is left to spend changes while a person thinks; everything else must be as they saw it.
            now = structs.replace(_identified(run, name, await make()), cost=request.cost)
            if approval == "granted" or now.digest == digest:
                return verdict
        number += 1


def _identified(run: RunContext, key: str, request: ApprovalRequest) -> ApprovalRequest:
    """The request with who asks, and under which key."""
    state = run.state
    path = () if state.lineage is None else state.lineage.names
    label = state.label or state.command
    key = f"{prefix(state.round)}{key}"
    return structs.replace(request, key=key, session_id=run.run, path=path, label=label)


_UNASKED = " was refused: it needs approval, and nobody could be asked."
_MOST_TOLD = 20


def warn_refused(history: History | None, what: str) -> None:
    """Have the outcome say, once, what was not done because nobody could be asked."""
    warning = f"{what}{_UNASKED}"
    if history is None or warning in history.warnings:
        return
    if sum(map(is_refused_unasked, history.warnings)) < _MOST_TOLD:
        history.warnings += (warning,)


def is_refused_unasked(warning: str) -> bool:
    """Whether a warning says that something was refused because nobody could be asked."""
    return warning.endswith(_UNASKED)
