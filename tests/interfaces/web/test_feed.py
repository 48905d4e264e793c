"""The stream of all readers: what it does after an error, and from where a reader continues."""

import asyncio

import pytest
from tests.support.busy_journal import BusyJournal
from tests.support.scripts import talk, turn
from tests.support.web_client import open_page

from deputy.core.errors import StorageBusy, StorageCorrupt
from deputy.core.task import Task
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

TASK = Task(label="scout", prompt="Look around.")
BUSY = StorageBusy("journal.db", "it was locked for 30 s")


@pytest.fixture
def failing(monkeypatch):
    """Make one query of the journal raise the errors in the returned list, one at each call."""

    def make(name):
        errors = []
        query = getattr(SqliteQueries, name)

        def fail_or_read(*given):
            if errors:
                raise errors.pop()
            return query(*given)

        monkeypatch.setattr(SqliteQueries, name, fail_or_read)
        return errors

    return make


@pytest.mark.parametrize(
    ("error", "state", "status"), [(BUSY, "ok", 202), (StorageCorrupt("journal.db", "a page is lost"), "damaged", 503)]
)
def test_after_one_error_the_page_can_act_again_unless_the_journal_is_damaged(house, failing, error, state, status):
    house.script(talk(turn("all is well")))
    outcome = house.one(TASK)
    errors = failing("follow")

    async def main():
        async with open_page(house.home) as client:
            board = await client.get("/api/board")
            async with client.follow(board["cursor"]) as stream:
                await stream.next()
                errors.append(error)
                await stream.until(lambda event, _: event == "reset")
                after = await client.get("/api/board")
            assert len(after["runs"]) == len(board["runs"]) == 2
            return after["journal"]["state"], (await client.post(f"/api/runs/{outcome.session_id}/pin", {}))[0]

    assert asyncio.run(main()) == (state, status)


def test_a_board_that_could_not_be_brought_up_to_date_is_read_anew(house, failing):
    """A look that ended in the middle has read changes whose rows it did not make."""
    house.script(talk(turn("all is well"), times=2))
    house.one(TASK)
    errors = failing("addressed")

    async def main():
        async with open_page(house.home) as client:
            await client.get("/api/board")
            await house.delegate(TASK)
            errors.append(BUSY)
            status, content = await client.ask("GET", "/api/board")
            assert (status, content["error"]["code"]) == (503, "STORAGE")
            return await client.get("/api/board")

    board = asyncio.run(main())
    assert (board["journal"]["state"], len(board["runs"])) == ("ok", 4)


def test_a_stream_that_begins_with_an_error_tells_its_reader_to_read_the_board_again(house, failing):
    house.script(talk(turn("all is well")))
    house.one(TASK)
    errors = failing("follow")

    async def main():
        async with open_page(house.home) as client:
            board = await client.get("/api/board")
            errors.append(BUSY)
            async with client.follow(board["cursor"]) as stream:
                return (await stream.next())[0]

    assert asyncio.run(main()) == "reset"


def test_a_reader_that_loses_its_connection_while_it_catches_up_continues_from_where_it_was(house):
    async def main():
        async with SqliteJournal(house.home, fsync="off") as journal, open_page(house.home) as client:
            busy = BusyJournal(journal)
            _, lease = await busy.root("top")
            before = (await client.get("/api/board"))["cursor"]
            await busy.question(lease, "Which?")
            position, seen = before, []
            for frames in (1, 2):
                async with client.follow(position) as stream:
                    seen += [await stream.next() for _ in range(frames)]
                position = seen[0][1]
            return before, seen

    before, seen = asyncio.run(main())
    assert [event for event, _, _ in seen] == ["rows", "rows", "waiting"]
    assert [position == before for _, position, _ in seen] == [True, True, False]
    assert seen[0][2]["rows"] == seen[1][2]["rows"]
