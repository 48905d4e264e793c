"""Processes that share a home share the pace at which a provider is asked."""

import asyncio

import msgspec
import pytest

from deputy.journal.owner import this_process
from deputy.journal.pace import JournalPace
from deputy.journal.sqlite import SqliteJournal


def two_processes(tmp_path):
    home = tmp_path / "home"
    home.mkdir(0o700)
    owners = [msgspec.structs.replace(this_process(), nonce=name) for name in ("one", "two")]
    return [SqliteJournal(home, owner=owner) for owner in owners]


def paced(tmp_path, scene):
    async def play():
        journals = two_processes(tmp_path)
        try:
            return await scene(*(JournalPace(journal, "acme/key") for journal in journals), journals)
        finally:
            for journal in journals:
                await journal.close()

    return asyncio.run(play())


@pytest.mark.rule("governor")
def test_starts_of_two_processes_stand_in_one_line(tmp_path):
    async def scene(one, two, journals):
        return [
            await one.take(100.0, 0.5),
            await two.take(100.0, 0.5),
            await two.take(100.5, 0.5),
            await one.take(100.7, 0.5),
        ]

    assert paced(tmp_path, scene) == [0.0, 0.5, 0.0, pytest.approx(0.3)]


@pytest.mark.rule("governor")
def test_what_one_process_is_told_holds_the_other_back(tmp_path):
    async def scene(one, two, journals):
        before = two.is_calm(100.0)
        await one.hold(130.0)
        waits = await two.take(100.0, 0.1)
        return before, one.is_calm(100.0), two.is_calm(100.0), two.is_calm(130.0), waits

    assert paced(tmp_path, scene) == (True, False, False, True, 30.0)


@pytest.mark.rule("governor")
def test_a_shorter_hold_never_shortens_a_longer_one(tmp_path):
    async def scene(one, two, journals):
        await one.hold(130.0)
        await two.hold(110.0)
        return await one.take(120.0, 0.0)

    assert paced(tmp_path, scene) == 10.0


@pytest.mark.rule("governor")
def test_other_accounts_are_not_held_back(tmp_path):
    async def scene(one, two, journals):
        await one.hold(130.0)
        return await JournalPace(journals[1], "acme/other").take(100.0, 1.0)

    assert paced(tmp_path, scene) == 0.0
