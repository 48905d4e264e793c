"""Find pending approvals, and build the answer to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from deputy.core.approval import Decision
from deputy.core.errors import UnknownRun, Unquoted, UsageError
from deputy.core.events import APPROVAL, QuestionAsked
from deputy.core.state import ASKED, answer_key

if TYPE_CHECKING:
    from deputy.core.approval import ApprovalRequest, Choice
    from deputy.core.state import State
    from deputy.engine.ports import Journal


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


class Answer(NamedTuple):
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


def answer_to(asking: PendingApproval, choice: Choice, *, digest: str, now: float) -> Answer:
    """The answer to an approval: another digest is refused, and a late yes becomes a no.

    A no needs no digest: it starts nothing.
    """
    if (digest or choice != "no") and digest != asking.digest:
        raise not_what_is_asked(asking, digest)
    if choice == "always" and not (asking.request is not None and asking.request.can_always):
        raise UsageError("choice", choice, "this is approved call by call: answer yes or no")
    choice = "no" if asking.is_late(now) else choice
    return Answer(asking.run, answer_key(asking.key), Decision(choice=choice, digest=asking.digest))


def not_what_is_asked(asking: PendingApproval, digest: str) -> UsageError:
    """The error for an answer to another question, with the current one."""
    found = digest or Unquoted("none")
    now = f"{asking.run} asks now for {asking.digest} ({asking.question})"
    return UsageError("digest", found, f"name the digest of what you approve; {now}")
