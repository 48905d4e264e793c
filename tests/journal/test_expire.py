"""A run that got more time after it was read is not ended as late."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deputy.core.events import ANSWER, QuestionAsked, Resumed, Returned, RunOpened
from deputy.core.outcome import Completed
from deputy.core.request import Lineage
from deputy.core.state import ASKED
from deputy.journal.sql.transaction import SqlLease
from deputy.journal.sqlite.sqlite_journal import SqliteJournal

RUN = "sess_1_aaaaaa"
LATE = Lineage.root(RUN, deadline=1.0)


async def nothing(journal: SqliteJournal, lease: SqlLease) -> None:
    pass


async def resumed(journal: SqliteJournal, lease: SqlLease) -> None:
    await journal.append(lease, "returned:0", Returned(outcome=Completed(lineage=LATE, summary="Done.")))
    await journal.append(lease, "resumed:1", Resumed(round=1, seconds=3600.0))


async def resumed_until_the_same_deadline(journal: SqliteJournal, lease: SqlLease) -> None:
    await journal.append(lease, "returned:0", Returned(outcome=Completed(lineage=LATE, summary="Done.")))
    await journal.append(lease, "resumed:1", Resumed(round=1, deadline=LATE.deadline))


async def waited_for_a_person(journal: SqliteJournal, lease: SqlLease) -> None:
    await journal.append(lease, f"ask{ASKED}", QuestionAsked(topic=ANSWER, question="Which?"))
    await journal.send(RUN, ANSWER, "answer", b'"this"')
    assert await journal.receive_message(lease, "ask", ANSWER) is not None


@pytest.mark.rule("registry.monitor")
@pytest.mark.parametrize(
    ("happens", "is_ended"),
    [(nothing, True), (resumed, False), (resumed_until_the_same_deadline, False), (waited_for_a_person, False)],
)
def test_a_run_is_ended_only_if_it_has_the_time_that_was_read(
    home: Path, happens: Callable[[SqliteJournal, SqlLease], Awaitable[None]], is_ended: bool
) -> None:
    async def main() -> None:
        async with SqliteJournal(home, fsync="off") as journal:
            lease = await journal.begin(RUN, RunOpened(lineage=LATE))
            seen = await journal.state(RUN)
            assert lease is not None
            assert seen is not None
            await happens(journal, lease)
            assert await journal.expire(seen) == is_ended
            after = await journal.state(RUN)
            assert after is not None
            assert after.is_live != is_ended

    asyncio.run(main())
