"""Processes that share a home share the pace at which a provider is asked."""

import asyncio
import sqlite3
from contextlib import closing

import msgspec
import pytest

from deputy.core.rate_limit import SlotRequest
from deputy.journal.process_identity import this_process
from deputy.journal.shared_rate_limit import JournalRateLimitStore
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.models.rate_limiter import RateLimiter


def two_processes(tmp_path):
    home = tmp_path / "home"
    home.mkdir(0o700)
    owners = [msgspec.structs.replace(this_process(), nonce=name) for name in ("one", "two")]
    return [SqliteJournal(home, owner=owner) for owner in owners]


def paced(tmp_path, scene):
    async def play():
        journals = two_processes(tmp_path)
        try:
            return await scene(*(JournalRateLimitStore(journal, "acme/key") for journal in journals), journals)
        finally:
            for journal in journals:
                await journal.close()

    return asyncio.run(play())


@pytest.mark.rule("governor")
def test_starts_of_two_processes_stand_in_one_line(tmp_path):
    async def scene(one, two, journals):
        return [
            await one.next_start(100.0, 0.5),
            await two.next_start(100.0, 0.5),
            await two.next_start(100.5, 0.5),
            await one.next_start(100.7, 0.5),
        ]

    assert paced(tmp_path, scene) == [0.0, 0.5, 0.0, pytest.approx(0.3)]


@pytest.mark.rule("governor")
def test_the_limit_of_one_process_holds_the_other_back(tmp_path):
    async def scene(one, two, journals):
        before = two.is_calm(100.0)
        await one.hold(130.0)
        waits = await two.next_start(100.0, 0.1)
        return before, one.is_calm(100.0), two.is_calm(100.0), two.is_calm(130.0), waits

    assert paced(tmp_path, scene) == (True, False, False, True, 30.0)


@pytest.mark.rule("governor")
def test_a_shorter_hold_never_shortens_a_longer_one(tmp_path):
    async def scene(one, two, journals):
        await one.hold(130.0)
        await two.hold(110.0)
        return await one.next_start(120.0, 0.0)

    assert paced(tmp_path, scene) == 10.0


@pytest.mark.rule("governor")
def test_other_accounts_are_not_held_back(tmp_path):
    async def scene(one, two, journals):
        await one.hold(130.0)
        return await JournalRateLimitStore(journals[1], "acme/other").next_start(100.0, 1.0)

    assert paced(tmp_path, scene) == 0.0


def test_what_was_agreed_on_before_a_reboot_is_forgotten(tmp_path):
    async def scene(one, two, journals):
        with closing(sqlite3.connect(journals[0].path)) as connection, connection:
            connection.execute(
                "INSERT INTO rate_limits (account, held_until, last_start) VALUES ('old/acme/key', 9e9, 9e9)"
            )
        await one.hold(130.0)
        return await one.next_start(130.0, 0.1), len(journals[0].rate_limits)

    assert paced(tmp_path, scene) == (0.0, 1)


# --- shares of a limit ---


def shared(pace, **output):
    """Ask for a share, and wait for it."""
    heard = asyncio.get_running_loop().create_future()
    pace.share(SlotRequest(**{"active": 0, "wanted": 0, **output}), heard.set_result)
    return heard


@pytest.mark.rule("governor")
def test_two_processes_have_a_limit_between_them(tmp_path):
    async def scene(one, two, journals):
        cut = await shared(one, now=100.0, active=10, wanted=10, throttled=99.0)
        late = await shared(two, now=100.1, wanted=10)
        fewer = await shared(one, now=100.2, active=3, wanted=9)
        fair = await shared(two, now=100.3, wanted=10)
        return [(share.slots, share.limit) for share in (cut, late, fewer, fair)], two.is_limited(100.3)

    shares, is_limited = paced(tmp_path, scene)
    assert shares == [(5, 5.0), (0, 5.0), (3, 5.0), (2, 5.0)]
    assert is_limited


@pytest.mark.rule("governor")
def test_the_share_of_a_process_that_is_gone_is_free_at_once(tmp_path):
    async def scene(one, two, journals):
        await shared(one, now=100.0, active=10, wanted=10, throttled=99.0)
        await shared(one, now=100.1, active=5, wanted=10)
        before = await shared(two, now=100.2, wanted=10)
        gone = msgspec.structs.replace(this_process(), started="1").name
        with closing(sqlite3.connect(journals[0].path)) as connection, connection:
            query = "UPDATE rate_limits SET shared_limit = replace(shared_limit, ?, ?)"
            connection.execute(query, (journals[0].owner, gone))
        after = await shared(two, now=100.3, wanted=10)
        return before.slots, after.slots

    assert paced(tmp_path, scene) == (0, 5)


@pytest.mark.rule("governor")
def test_nothing_is_written_until_a_provider_throttles(tmp_path):
    async def scene(one, two, journals):
        limiter = RateLimiter(store=one)
        before = await journals[0].changes()
        for _ in range(50):
            await limiter.enter()
            limiter.succeeded()
            limiter.release()
        return before, await journals[0].changes()

    before, after = paced(tmp_path, scene)
    assert before == after


def test_an_answer_that_says_nothing_new_is_not_written(tmp_path):
    async def scene(one, two, journals):
        await shared(one, now=100.0, active=10, wanted=10, throttled=99.0)
        first = await shared(one, now=100.1, active=5, wanted=10)
        before = await journals[1].changes()
        second = await shared(one, now=100.2, active=5, wanted=10)
        unchanged = await journals[1].changes() == before
        third = await shared(one, now=104.0, active=5, wanted=10)
        return first.until, second.until, third.until, unchanged, await journals[1].changes() == before

    assert paced(tmp_path, scene) == (105.1, 105.1, 109.0, True, False)


DAMAGES = [
    "shared_limit = x'00ff00'",
    "shared_limit = 'no JSON'",
    "shared_limit = 17",
    'shared_limit = \'{"limit": {"slots": "many"}}\'',
    "shared_limit = replace(shared_limit, '\"slots\":5.0', '\"slots\":-1')",
    "shared_limit = replace(shared_limit, '\"slots\":5.0', '\"slots\":null')",
    "limited_until = 'soon'",
    "limited_until = 1e300",
    "held_until = 'never', last_start = x'ff'",
    "held_until = 1e300, last_start = 1e300",
]


@pytest.mark.rule("governor")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_makes_no_process_wait_for_ever(tmp_path, damage):
    async def scene(one, two, journals):
        now = asyncio.get_running_loop().time()
        limiter = RateLimiter(store=two)
        await shared(one, now=now, active=10, wanted=10, throttled=now - 1)
        await one.hold(now)
        await shared(one, now=now)
        with closing(sqlite3.connect(journals[0].path)) as connection, connection:
            connection.execute(f"UPDATE rate_limits SET {damage}")
        await journals[1].transact(lambda tx: None)
        async with asyncio.timeout(10):
            await limiter.throttled(await limiter.enter(), 0.0)
            limiter.release()
            await limiter.enter()
            return limiter.limit

    assert paced(tmp_path, scene) >= 1


def test_a_process_that_cannot_ask_the_others_goes_on_alone(tmp_path):
    async def scene(one, two, journals):
        limiter = RateLimiter(store=two)
        await limiter.throttled(await limiter.enter(), 0.0)
        limiter.release()
        await journals[1].close()
        async with asyncio.timeout(10):
            return await shared(two, now=100.0, active=3, wanted=7)

    assert paced(tmp_path, scene).slots == 1
