"""Figures of the read side with 1,001 live runs: a look with nothing new, new records, holders, pages of records."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import json

from deputy.core.events import Noted, Requested, RunOpened
from deputy.core.progress import Progress
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.interfaces.cli.commands.watch import _Follower
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

ROOT, RUNS, EVENTS, SHOWN, LONG = "sess_1_root00", 1000, 109, 77, 100_000
NOTE = Noted(content="x" * 300)


def row(name: str, figure: str, bound: str = "") -> None:
    print(f"{name:<64}{figure:>14}   {bound}", flush=True)


def ms(do: Callable[[], object], times: int) -> float:
    """Milliseconds that a call takes, the median of some."""
    spent: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        do()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1000


def child(number: int) -> str:
    return f"sess_2_{number:06}"


def requested(run: str) -> Requested:
    caller, target = Lineage.root(ROOT), Hop("researcher", "agent")
    request = Request(
        session_id=run, target=target, prompt="Look.", caller=caller, caller_grant=Grant(), seconds=36_000.0
    )
    return Requested(request=request, parent=ROOT, label=run)


async def fill(journal: SqliteJournal) -> list[object]:
    """A root with a thousand live children, each with records and progress; and a run with 100,000 records."""
    root = await journal.begin(ROOT, RunOpened(lineage=Lineage.root(ROOT), label="root", command="delegate"))
    leases: list[object] = []
    for number in range(RUNS):
        lease = await journal.spawn(root, f"spawn:{number}", child(number), requested(child(number)))
        for note in range(EVENTS - 2):
            journal.append_soon(lease, f"note:{note}", NOTE)
        for call in range(SHOWN):
            body = Progress(event="tool_call", label="look", tool="Read", args=f"file{call}.py")
            journal.show_progress(child(number), json.encode(body))
        await journal.wait_durable(lease)
        leases.append(lease)
    long = await journal.begin("sess_3_long00", RunOpened(lineage=Lineage.root("sess_3_long00"), label="long"))
    for note in range(LONG):
        journal.append_soon(long, f"note:{note}", NOTE)
    await journal.wait_durable(long)
    return leases


class WholeLook:
    """A look as `deputy watch` made it before there was a cursor: it read every run of the tree."""

    def __init__(self, queries: SqliteQueries) -> None:
        self._queries = queries
        self._last = queries.cursor().progress

    def poll(self) -> None:
        queries, last = self._queries, self._last
        for state in (queries.state(ROOT), *queries.descendants(ROOT)):
            queries._rows("SELECT id, at, body FROM progress WHERE run = ? AND id > ? ORDER BY id", state.run, last)
        queries.state(ROOT)
        queries.holders()


async def main(folder: Path) -> None:
    async with SqliteJournal(folder, fsync="off") as journal:
        leases = await fill(journal)
        queries = SqliteQueries.open(folder)
        with queries:
            await asyncio.sleep(0.5)
            cursor = queries.cursor()
            row("journal", f"{queries.cursor().record:,} records, {cursor.progress:,} progress events")
            whole = ms(WholeLook(queries).poll, 7)
            row("a look of `watch` before: every run of the tree", f"{whole:.2f} ms")
            follower = _Follower(queries, ROOT)
            began = time.perf_counter()
            news, code = follower.poll()
            assert code is None
            row(f"the first look of `watch`: {len(news):,} events", f"{(time.perf_counter() - began) * 1000:.0f} ms")
            follower.poll()
            look = ms(follower.poll, 200)
            row("a look of `watch` with nothing new", f"{look:.4f} ms", f"1/{whole / look:,.0f} ≤ 1/100 of before")
            nothing = ms(lambda: queries.follow(cursor), 500)
            row("`follow` with nothing new", f"{nothing:.4f} ms", "about 0.01 ms")
            row("the holders of 1,001 runs in one join", f"{ms(queries.holders, 20):.2f} ms")
            for lease in leases:
                journal.append_soon(lease, "more", NOTE)
            await journal.wait_durable(leases[-1])
            row("`follow` with 1,000 new records of 1,000 runs", f"{ms(lambda: queries.follow(cursor), 7):.1f} ms")
            for at in (0, LONG // 2, LONG - 200):
                page = ms(lambda at=at: list(queries.records("sess_3_long00", at, 200)), 20)
                row(f"200 records after record {at:,} of 100,000", f"{page:.2f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="deputy-bench-") as temporary:
        sys.exit(asyncio.run(main(Path(temporary))))
