"""A process that hangs in the middle of a run which is past its deadline. For the test that ends the run meanwhile.

usage: hung.py HOME RUN
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from deputy.core.events import Noted, RunOpened, ToolCallEnded
from deputy.core.outcome import Completed, Outcome
from deputy.core.request import Lineage
from deputy.engine.ports import RunContext
from deputy.journal.clock import Clock
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.runtime.engine import LocalEngine

HOME, RUN = Path(sys.argv[1]), sys.argv[2]
BEHIND_SECONDS = 1000.0


class SlowWorld:
    """A world whose clock is far behind, so that this process does not see that it is late."""

    def now(self) -> float:
        return time.time() - BEHIND_SECONDS

    wall = now

    def random_string(self, letters: str, count: int) -> str:
        return letters[:count]


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def flow(run: RunContext, start: RunOpened) -> Outcome:
    await run.record("noted", Noted(content="found before it hung"))
    await run.record("tool", ToolCallEnded(tool="Write", changed=("made.txt",)))
    await run.sleep("durable", 0)
    tell("hanging")
    sys.stdin.readline()
    await run.record("late", Noted(content="written too late"))
    return Completed(lineage=start.lineage, summary="as if nothing had happened")


async def main() -> None:
    world = SlowWorld()
    # The journal's own clock, which every other process goes by.
    await SqliteJournal(HOME).close()
    deadline = time.time() - 60.0
    start = RunOpened(lineage=Lineage.root(RUN, deadline=deadline), seconds=30.0, label="hung", command="run")
    # No sign of life falls into the test, so that the process is never frozen in the middle of a commit.
    async with (
        SqliteJournal(HOME, clock=Clock(wall=world.wall, monotonic=world.now), beat_seconds=3600.0) as journal,
        LocalEngine(journal, flow, world) as engine,
    ):
        await engine.submit(RUN, start)
        outcome = await engine.result(RUN)
    tell(f"{outcome.status}: {outcome.summary}")


asyncio.run(main())
