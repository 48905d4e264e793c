"""A process that takes a lease, waits to be told, and then tries to write. For the test that freezes it.

usage: frozen.py HOME RUN
"""

import asyncio
import os
import sys
from pathlib import Path

from deputy.core.errors import LeaseLost
from deputy.core.events import Noted, RunOpened
from deputy.core.request import Lineage
from deputy.journal.sqlite.sqlite_journal import SqliteJournal


async def main(home: Path, run: str) -> None:
    # No sign of life falls into the test, so that the process is never frozen in the middle of a commit.
    async with SqliteJournal(home, beat_seconds=3600.0) as journal:
        lease = await journal.begin(run, RunOpened(lineage=Lineage.root(run)))
        assert lease is not None
        await journal.append(lease, "before", Noted(content="mine"))
        tell("ready")
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await journal.append(lease, "after", Noted(content="mine"))
            tell("written")
        except LeaseLost as lost:
            tell(f"lost {lost.run}")


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
