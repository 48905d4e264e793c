"""CPU of `deputy ps` with 10,000 live runs, beside 50: the whole process, least of several."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from deputy.core.events import Requested, RunOpened
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from startup import once

FEW, MANY, RUNS, GOAL = 50, 10_000, 5, 2.0
ROOT = "sess_1_root00"


def requested(run: str) -> Requested:
    caller, target = Lineage.root(ROOT), Hop("researcher", "agent")
    request = Request(session_id=run, target=target, prompt="Look.", caller=caller, caller_grant=Grant())
    return Requested(request=request, parent=ROOT, label=run)


async def fill(home: Path, count: int) -> None:
    """A call with so many subagents, left by a process that was killed."""
    async with SqliteJournal(home) as journal:
        root = await journal.begin(ROOT, RunOpened(lineage=Lineage.root(ROOT), label="root", command="delegate"))
        assert root is not None
        for first in range(0, count, 500):
            async with asyncio.TaskGroup() as group:
                for number in range(first, min(first + 500, count)):
                    child = f"sess_2_{number:06}"
                    group.create_task(journal.spawn(root, f"spawn:{number}", child, requested(child)))


def main() -> None:
    deputy = str(Path(sys.executable).parent / "deputy")
    best: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (FEW, MANY):
            asyncio.run(fill(Path(folder) / str(count), count))
        for _ in range(RUNS):
            for count in (FEW, MANY):
                environment = {**os.environ, "DEPUTY_HOME": f"{folder}/{count}"}
                best[count] = min(best.get(count, float("inf")), once((deputy, "ps"), environment))
    few, many = best[FEW], best[MANY]
    print(f"\n{'deputy ps, CPU ms':34} {f'{FEW} runs':>8} {f'{MANY:,}':>8} {'ratio':>7} {'goal':>12}")
    print(f"{'':34} {few:8.0f} {many:8.0f} {many / few:6.1f}× {f'≤ {GOAL:g}×':>12}")


if __name__ == "__main__":
    main()
