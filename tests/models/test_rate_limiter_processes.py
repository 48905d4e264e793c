"""Real processes that ask one provider with one key: together they keep to its limit, whichever of them die."""

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import msgspec
import pytest

from deputy.core.rate_limit import SharedLimit
from deputy.journal.shared_rate_limit import JournalRateLimitStore
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.models.factory import ModelFactory
from deputy.testing import ScriptedTurn
from deputy.testing.model_suite import asking, heard
from deputy.testing.protocol_streams import render

ASKER = Path(__file__).with_name("asker.py")
STREAM = b"".join(render("anthropic", ScriptedTurn(text="Done."), model="claude-haiku-4-5", serial=1))
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(STREAM), STREAM)
SLOW = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}'
MAX_WAIT_SECONDS = 60
SETTLED_SECONDS = 0.5


def agreement(home):
    """What the processes have agreed on, as it stands in the journal."""
    with closing(sqlite3.connect(f"file:{home}/journal.db?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT shared_limit FROM rate_limits").fetchone()
    return msgspec.json.decode(row[0], type=SharedLimit) if row else SharedLimit()


class Provider:
    """A server that throws back what comes while it is busy with as many requests as it can take."""

    def __init__(self, home, capacity, seconds, retry_after):
        self.home = home
        self.capacity = capacity
        self.seconds = seconds
        self.retry_after = retry_after
        self.under_way = 0
        self.thrown_back = 0
        self.served = 0
        self.seen = []
        """At each request: when, how many were under way with it, and the limit then."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
                writer.write(await self.answer())
                await writer.drain()
        writer.close()

    async def answer(self):
        self.seen.append((asyncio.get_running_loop().time(), self.under_way + 1, agreement(self.home)))
        if self.under_way >= self.capacity:
            self.thrown_back += 1
            head = f"HTTP/1.1 429 Slow\r\nretry-after: {self.retry_after}\r\ncontent-length: {len(SLOW)}\r\n\r\n"
            return head.encode() + SLOW
        self.under_way += 1
        try:
            await asyncio.sleep(self.seconds)
            await self.may_answer.wait()
        finally:
            self.under_way -= 1
        self.served += 1
        return ANSWER


@asynccontextmanager
async def provider(home, capacity=10, seconds=0.05, retry_after=0.1):
    provider = Provider(home, capacity, seconds, retry_after)
    connections = set()

    async def connected(reader, writer):
        connections.add(asyncio.current_task())
        with suppress(asyncio.CancelledError):
            await provider.serve(reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.wait(connections)


@asynccontextmanager
async def asker(provider, workers, turns):
    process = await asyncio.create_subprocess_exec(
        sys.executable, ASKER, provider.home, provider.url, str(workers), str(turns), stdout=-1, stderr=-1
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def told(process):
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        return await process.communicate()


DONE = (b"done\n", b"")


@pytest.mark.rule("governor")
async def test_four_processes_together_keep_to_the_limit_and_win_it_back(tmp_path):
    async with (
        provider(tmp_path / "home", capacity=12) as busy,
        asker(busy, 8, 10) as a,
        asker(busy, 8, 10) as b,
        asker(busy, 8, 10) as c,
        asker(busy, 8, 10) as d,
    ):
        assert [await told(process) for process in (a, b, c, d)] == [DONE] * 4
    assert busy.served == 4 * 8 * 10
    assert busy.thrown_back < busy.served / 4
    limited = [(at, under_way, agreed.limit) for at, under_way, agreed in busy.seen if agreed.limit is not None]
    # What was under way when the limit was cut ends first, and every process hears of it with its next commit.
    settled = [(under_way, limit.slots) for at, under_way, limit in limited if at > limit.cut_at + SETTLED_SECONDS]
    assert len(settled) > 20
    assert [(under_way, slots) for under_way, slots in settled if under_way > slots] == []
    # There is a limit from the first cut on, at half of what was under way; the processes win it back.
    slots = [limit.slots for _, _, limit in limited]
    lowest = min(slots)
    assert len(limited) < len(busy.seen)
    assert lowest <= 4 * 8 / 2
    assert max(slots[slots.index(lowest) :]) > 2 * lowest


async def until(claim):
    """Look until something is so: what other processes do makes no sound here."""
    for _ in range(100 * MAX_WAIT_SECONDS):
        if claim():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be so")


@asynccontextmanager
async def one_has_the_only_slot(home):
    """A process that was thrown back has the only slot there is, and gets no answer; another one waits for it."""
    async with provider(home, capacity=0) as busy, asker(busy, 1, 1) as holder:
        busy.may_answer.clear()
        await until(lambda: busy.thrown_back)
        busy.capacity = 1
        await until(lambda: busy.under_way)
        busy.capacity = 2
        async with asker(busy, 3, 1) as other:
            await until(lambda: {(use.wanted, use.slots) for use in agreement(home).uses} == {(1, 1), (3, 0)})
            assert busy.under_way == 1
            yield busy, holder, other


@pytest.mark.rule("governor")
async def test_a_killed_process_gives_its_slots_back(tmp_path):
    async with one_has_the_only_slot(tmp_path / "home") as (busy, holder, other):
        holder.kill()
        busy.may_answer.set()
        assert await told(other) == DONE
    assert busy.thrown_back == 1


def stop_between_writes(home: Path, pid: int) -> None:
    """Stop a process while this one has the write lock: stopped with it, it would keep all others from writing."""
    with closing(sqlite3.connect(home / "journal.db", timeout=MAX_WAIT_SECONDS, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        os.kill(pid, signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            os.sched_yield()
        connection.execute("ROLLBACK")


@pytest.mark.rule("governor")
async def test_a_stopped_process_does_not_keep_its_slots_and_goes_on_when_it_wakes(tmp_path):
    async with one_has_the_only_slot(tmp_path / "home") as (busy, holder, other):
        stop_between_writes(tmp_path / "home", holder.pid)
        await until(lambda: busy.under_way == 2)
        busy.may_answer.set()
        assert await told(other) == DONE
        holder.send_signal(signal.SIGCONT)
        assert await told(holder) == DONE


@pytest.mark.rule("governor")
async def test_the_only_slot_goes_round(tmp_path):
    async with one_has_the_only_slot(tmp_path / "home") as (busy, holder, other):
        busy.may_answer.set()
        assert [await told(process) for process in (holder, other)] == [DONE] * 2


@pytest.mark.rule("governor")
async def test_models_that_are_closed_give_their_share_up_although_the_process_lives(tmp_path):
    home = tmp_path / "home"
    async with provider(home, capacity=0) as busy:
        environ = {"ANTHROPIC_BASE_URL": busy.url, "ANTHROPIC_API_KEY": "one key for all"}
        async with SqliteJournal(home) as journal:
            async with ModelFactory(
                environ=environ, pace_of=lambda account: JournalRateLimitStore(journal, account)
            ) as models:
                async with asyncio.TaskGroup() as group:
                    group.create_task(heard(models.open("anthropic:claude-haiku-4-5"), asking()))
                    await until(lambda: busy.thrown_back)
                    busy.capacity = 1
                assert [use.slots for use in agreement(home).uses] == [1]
            agreed = agreement(home)
    assert agreed.limit is not None
    assert agreed.uses == ()
