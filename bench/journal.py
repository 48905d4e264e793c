"""Figures of the journal: throughput beside the disk's own, cost per turn, opening, and `deputy ps`."""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Raw, json

from deputy.core.events import ModelCallBegun, ModelCallEnded, Noted, Returned, RunOpened
from deputy.core.outcome import Completed, Usage
from deputy.core.request import Lineage
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

NOTE = Noted(content="x" * 300)
MESSAGE = Raw(json.encode({"role": "assistant", "content": "x" * 2000}))


def opened(run: str) -> RunOpened:
    return RunOpened(lineage=Lineage.root(run), label=f"label of {run}")


def row(name: str, figure: str, bound: str = "") -> None:
    print(f"{name:<52}{figure:>22}   {bound}", flush=True)


def sync_seconds(folder: Path, count: int = 100) -> float:
    """What one durable append of a page takes, with nothing of ours in between."""
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    spent: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        os.write(descriptor, bytes(4096))
        os.fdatasync(descriptor)
        spent.append(time.perf_counter() - began)
    os.close(descriptor)
    return statistics.median(spent)


async def throughput(home: Path, appenders: int, each: int) -> tuple[float, float]:
    """Events a second, and seconds of CPU per event."""
    async with SqliteJournal(home) as journal:
        runs = [f"sess_{appenders}_{number:06}" for number in range(appenders)]
        leases = [await journal.begin(run, opened(run)) for run in runs]

        async def append(lease: object) -> None:
            for number in range(each):
                await journal.append(lease, f"note:{number}", NOTE)

        began, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for lease in leases:
                group.create_task(append(lease))
        events = appenders * each
        return events / (time.perf_counter() - began), (time.process_time() - cpu) / events


async def turns(home: Path, count: int) -> list[tuple[int, float]]:
    """What each turn of one conversation wrote, in bytes, and took, in seconds of CPU."""
    costs: list[tuple[int, float]] = []
    async with SqliteJournal(home, fsync="off") as journal:
        lease = await journal.begin("sess_1_turns0", opened("sess_1_turns0"))
        for number in range(count):
            wrote, cpu = written(), time.process_time()
            journal.append_soon(lease, f"model:{number}.begun", ModelCallBegun(model="m"))
            usage = Usage(input=number * 500, output=90, requests=1)
            await journal.append(lease, f"model:{number}", ModelCallEnded(model="m", message=MESSAGE, usage=usage))
            costs.append((written() - wrote, time.process_time() - cpu))
    return costs


def written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


async def fill(home: Path, runs: int, events: int) -> None:
    """A journal of so many ended runs with so many events each, and ten that are live."""
    async with SqliteJournal(home, fsync="off") as journal:
        for number in range(runs):
            run = f"sess_2_{number:06}"
            lease = await journal.begin(run, opened(run))
            for note in range(events - 2):
                journal.append_soon(lease, f"note:{note}", NOTE)
            if number >= 10:
                ended = Returned(outcome=Completed(lineage=Lineage.root(run), summary="done"))
                await journal.finish(lease, "returned:0", ended)


def cpu_of(*command: str, home: Path) -> float:
    """Milliseconds of CPU that a command takes, the median of some."""
    spent: list[float] = []
    for _ in range(9):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env={**os.environ, "DEPUTY_HOME": str(home)}, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(spent) * 1000


def main(folder: Path) -> None:
    sync = sync_seconds(folder)
    row("one write and fdatasync of 4 KiB, nothing else", f"{sync * 1000:.2f} ms")
    row("  so one durable event at a time could be", f"{1 / sync:,.0f} events/s")
    for appenders in (1, 16, 64):
        rate, cpu = asyncio.run(throughput(folder / f"rate{appenders}", appenders, 2000 // appenders))
        bound = "≥ 2,000 where a sync takes 4 ms; CPU ≤ 0.2 ms" if appenders >= 16 else ""
        row(f"durable events, {appenders} appenders", f"{rate:,.0f}/s, {cpu * 1000:.3f} ms CPU", bound)

    costs = asyncio.run(turns(folder / "turns", 760))
    # As many turns as it takes for both to have had their share of checkpoints.
    early, late = (statistics.mean(cost[0] for cost in costs[at : at + 250]) for at in (5, 500))
    row(
        "bytes written per turn, around turn 5 and turn 500",
        f"{early:,.0f} → {late:,.0f} B",
        f"{late / early:.2f}× ≤ 1.2×",
    )
    early, late = (statistics.median(cost[1] for cost in costs[at : at + 100]) * 1000 for at in (5, 500))
    row("CPU per turn, around turn 5 and turn 500", f"{early:.3f} → {late:.3f} ms", f"{late / early:.2f}× ≤ 1.2×")

    asyncio.run(fill(folder / "many", 1000, 100))
    began = time.perf_counter()
    reader = SqliteQueries.open(folder / "many")
    assert reader is not None
    with reader:
        live = list_runs(reader)
    row(
        f"open 100,000 events and list {len(live)} live runs",
        f"{(time.perf_counter() - began) * 1000:.1f} ms",
        "≤ 500 ms",
    )

    floor = cpu_of(sys.executable, "-c", "import click, msgspec, sqlite3", home=folder / "many")
    ps = cpu_of(sys.executable, "-c", "from deputy.interfaces.cli import main; main()", "ps", home=folder / "many")
    row(
        "`deputy ps` over importing click, msgspec, sqlite3",
        f"{ps - floor:.0f} ms CPU",
        f"≤ 60 ms ({ps:.0f} over {floor:.0f})",
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="deputy-bench-") as temporary:
        main(Path(temporary))
