"""Both implementations of Queries pass the suite, and following them equals reading them anew."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import json

from deputy.core.events import Noted
from deputy.core.progress import Progress
from deputy.journal.retention import prune
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore
from deputy.testing.memory_journal import MemoryDisk, MemoryJournal
from deputy.testing.memory_queries import MemoryQueries
from deputy.testing.queries_suite import CASES, Mirror, RunView, completed, opened, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.engine.ports import Journal
    from deputy.engine.ports.queries import Queries


class SqliteHost:
    def __init__(self, home: Path) -> None:
        self._home = home

    @asynccontextmanager
    async def write(self):
        async with SqliteJournal(self._home, fsync="off") as journal:
            yield journal

    async def crash(self, journal: SqliteJournal) -> None:
        await journal.abandon()
        # Its heartbeat is over, as it would be some seconds later.
        with sqlite3.connect(self._home / "journal.db") as connection:
            connection.execute("DELETE FROM owners")
        connection.close()

    def read(self) -> SqliteQueries:
        queries = SqliteQueries.open(self._home)
        assert queries is not None
        return queries

    async def prune(self, journal: SqliteJournal, before: float) -> None:
        await asyncio.to_thread(prune, SqliteStore(self._home), before)


class MemoryHost:
    def __init__(self, _home: Path) -> None:
        self._disk = MemoryDisk()
        self._count = 0

    @asynccontextmanager
    async def write(self):
        self._count += 1
        journal = MemoryJournal(self._disk, f"process {self._count}", time.time)
        yield journal
        await journal.close()

    async def crash(self, journal: MemoryJournal) -> None:
        journal.crash()

    def read(self) -> MemoryQueries:
        return MemoryQueries(self._disk, time.time)

    async def prune(self, journal: MemoryJournal, before: float) -> None:
        for state in self.read().ended(1000):
            if state.last_at < before:
                await journal.purge(state.run)


STORES = pytest.mark.parametrize("store", [SqliteHost, MemoryHost])


@STORES
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_an_implementation_passes_the_suite(case: Callable[..., Any], store: Callable[..., Any], tmp_path: Path):
    asyncio.run(case(store(tmp_path / "home")))


RUNS = [f"sess_{number}_run000" for number in range(4)]
_RUN = st.sampled_from(RUNS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _RUN, st.integers(1, 12)),
        st.tuples(st.just("progress"), _RUN, st.integers(1, 300)),
        st.tuples(st.just("finish"), _RUN, st.just(0)),
        st.tuples(st.just("purge"), _RUN, st.just(0)),
        st.tuples(st.just("prune"), st.just(""), st.just(0)),
        st.tuples(st.just("reopen"), st.just(""), st.just(0)),
        st.tuples(st.just("follow"), st.just(""), st.integers(1, 9)),
    ),
    max_size=25,
)


class Writer:
    """A process that does the steps of an example."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._leases: dict[str, Any] = {}
        self._count = 0

    async def do(self, journal: Journal[Any], step: str, run: str, count: int) -> None:
        if step == "prune":
            await self._store.prune(journal, time.time() + 60)
        elif step == "purge":
            state = await journal.state(run)
            if state is not None and not state.is_live:
                await journal.purge(run)
        else:
            await self._work(journal, step, run, count)

    async def _work(self, journal: Journal[Any], step: str, run: str, count: int) -> None:
        state = await journal.state(run)
        if state is not None and not state.is_live:
            return
        if state is None:
            self._leases[run] = await journal.begin(run, opened(run))
        elif run not in self._leases:
            self._leases[run] = await journal.acquire(run)
        for _ in range(count):
            self._count += 1
            if step == "progress":
                body = Progress(event="tool_call", label=run, args=str(self._count))
                journal.show_progress(run, json.encode(body))
            else:
                await journal.append(self._leases[run], f"note:{self._count}", Noted(content=""))
        if step == "finish":
            await journal.finish(self._leases.pop(run), "returned:0", completed(run))

    def forget(self) -> None:
        self._leases.clear()


def check(mirror: Mirror, queries: Queries, limit: int) -> None:
    while True:
        mirror.catch_up(queries, limit)
        fresh = snapshot(queries)
        before = dict(mirror.runs)
        # Progress is written behind the back of a test: compare only what did not change meanwhile.
        mirror.catch_up(queries, limit)
        if before == mirror.runs:
            assert {run: kept(view, fresh[run]) for run, view in mirror.runs.items()} == fresh
            return


def kept(view: RunView, fresh: RunView) -> RunView:
    """What a follower knows, without progress that was overwritten: a run in a new process begins its ring anew."""
    return view._replace(progress=tuple(one for one in view.progress if one in fresh.progress))


async def example(store: Any, steps: list[tuple[str, str, int]]) -> None:
    mirror, writer, left = Mirror(), Writer(store), list(steps)
    while left:
        async with store.write() as journal:
            await journal.begin("sess_9_first0", opened("sess_9_first0"))
            with store.read() as queries:
                while left and (step := left.pop(0))[0] != "reopen":
                    if step[0] == "follow":
                        check(mirror, queries, step[2])
                    else:
                        await writer.do(journal, *step)
                check(mirror, queries, 5)
        writer.forget()
    async with store.write():
        with store.read() as queries:
            check(mirror, queries, 5)


@STORES
@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_following_under_any_interleaving_equals_reading_anew(store: Any, steps: list[tuple[str, str, int]]):
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(example(store(Path(folder) / "home"), steps))
