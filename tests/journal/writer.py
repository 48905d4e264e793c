"""A process that appends records and tells, line by line, which of them are durable. For tests that kill it.

usage: writer.py HOME RUN [--count N] [--bytes N] [--appenders N] [--fsync group|each|off] [--lives N]

With `--lives` it forks a process that writes, tells its id, waits until it is gone, and forks the next.
"""

import argparse
import asyncio
import os
from pathlib import Path

from deputy.core.events import Noted, RunOpened
from deputy.core.request import Lineage
from deputy.journal.sqlite.sqlite_journal import SqliteJournal


async def write(options: argparse.Namespace) -> None:
    async with SqliteJournal(options.home, fsync=options.fsync) as journal:
        opened = RunOpened(lineage=Lineage.root(options.run))
        lease = await journal.begin(options.run, opened) or await journal.acquire(options.run)
        first = lease.state.counts.notes
        tell("ready")

        async def appender(number: int) -> None:
            for n in range(first + number, first + options.count, options.appenders):
                content = f"{n}:".ljust(max(2, (n * 7919) % options.bytes), "x")
                record = await journal.append(lease, f"note:{n}", Noted(content=content))
                tell(f"{record.seq} {record.key} {len(content)}")

        async with asyncio.TaskGroup() as group:
            for number in range(options.appenders):
                group.create_task(appender(number))
    tell("done")


def live(options: argparse.Namespace) -> None:
    for _ in range(options.lives):
        child = os.fork()
        if not child:
            asyncio.run(write(options))
            os._exit(0)
        tell(f"pid {child}")
        os.waitpid(child, 0)
        tell("gone")


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=2000)
    parser.add_argument("--appenders", type=int, default=4)
    parser.add_argument("--fsync", default="group")
    parser.add_argument("--lives", type=int)
    given = parser.parse_args()
    if given.lives:
        live(given)
    else:
        asyncio.run(write(given))
