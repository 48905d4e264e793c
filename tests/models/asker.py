"""A process that asks a model over and over, noting each turn in the journal, as a delegation does. For tests of many.

usage: asker.py HOME URL WORKERS TURNS   prints `done` when every worker has had all its turns
"""

import asyncio
import os
import sys
from pathlib import Path

from deputy.core.events import Noted, RunOpened
from deputy.core.request import Lineage
from deputy.journal.shared_rate_limit import JournalRateLimitStore
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.models.factory import ModelFactory
from deputy.models.retry import RetryPolicy
from deputy.testing.model_suite import asking, heard


async def ask(home: str, url: str, workers: int, turns: int) -> None:
    run = f"sess_{os.getpid()}_aaaaaa"
    environ = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "one key for all"}
    patient = RetryPolicy(attempts_when_limited=1000)
    async with (
        SqliteJournal(Path(home)) as journal,
        ModelFactory(
            environ=environ, retry=patient, pace_of=lambda account: JournalRateLimitStore(journal, account)
        ) as models,
    ):
        model = models.open("anthropic:claude-haiku-4-5")
        lease = await journal.begin(run, RunOpened(lineage=Lineage.root(run)))

        async def work(worker: int) -> None:
            for turn in range(turns):
                await journal.append(lease, f"note:{worker}:{turn}", Noted(content="a turn begins"))
                await heard(model, asking())

        async with asyncio.TaskGroup() as group:
            for worker in range(workers):
                group.create_task(work(worker))
    print("done")


if __name__ == "__main__":
    asyncio.run(ask(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
