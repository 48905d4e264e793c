"""Which run waits for a person's yes or no: the one that is named, or one below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deputy.core.errors import UnknownRun, UsageError
from deputy.core.events import APPROVAL

if TYPE_CHECKING:
    from deputy.core.state import State
    from deputy.journal.sqlite import SqliteJournal


class Asking(NamedTuple):
    """A run that waits for approval, under which key, and what it asks."""

    run: str
    key: str
    question: str
    until: float | None = None

    def is_late(self, now: float) -> bool:
        """Whether nobody can say yes any more."""
        return self.until is not None and self.until <= now


async def find_asking(journal: SqliteJournal, run: str) -> Asking | None:
    """The one that waits for approval, of a run and those below it; None when none does."""
    state = await journal.state(run)
    if state is None:
        raise UnknownRun(run)
    if (own := _asking(state)) is not None:
        return own
    below = [asking for one in await journal.descendants(run) if (asking := _asking(one)) is not None]
    if len(below) > 1:
        raise UsageError("ID", run, f"several below it ask; answer each by its own: {', '.join(a.run for a in below)}")
    return below[0] if below else None


def _asking(state: State) -> Asking | None:
    keys = [key for key, topic in state.waits.items() if topic == APPROVAL]
    return Asking(state.run, keys[0], state.question, state.answer_by) if keys else None
