"""A process that hosts runs on the local engine. For the test that kills it.

usage: hosted.py HOME hang|go
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from deputy.core.events import Noted, Requested, RunOpened, StepLost
from deputy.core.outcome import Completed, Outcome
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.engine.ports import RunContext
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.runtime.engine import LocalEngine

ROOT = "sess_1_root00"
HANGS = sys.argv[2] == "hang"


class World:
    def now(self) -> float:
        return time.time()

    wall = now

    def random_string(self, letters: str, count: int) -> str:
        return letters[:count]


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def pay(args: str) -> Noted:
    tell("paid")
    return Noted(content="paid once")


async def work(args: str) -> Noted:
    tell("hanging" if HANGS else "working")
    if HANGS:
        await asyncio.Event().wait()
    return Noted(content="done")


async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
    lineage = run.state.lineage
    assert lineage is not None
    if isinstance(start, Requested):
        done = await run.step("work", work, "")
        assert not isinstance(done, StepLost)
        return Completed(lineage=lineage, summary=done.content)
    paid = await run.step("pay", pay, "", repeatable=False)
    assert not isinstance(paid, StepLost)
    child = await run.new_id("child id")
    request = Request(session_id=child, target=Hop("task:c", "task"), prompt="p", caller=lineage, caller_grant=Grant())
    await run.spawn("call", Requested(request=request))
    said = await run.join("join", child)
    return Completed(lineage=lineage, summary=f"{paid.content}, and the child said {said.summary}")


async def main() -> None:
    async with SqliteJournal(Path(sys.argv[1])) as journal, LocalEngine(journal, flow, World()) as engine:
        await engine.submit(ROOT, RunOpened(lineage=Lineage.root(ROOT)))
        await engine.adopt()
        outcome = await engine.result(ROOT)
        tell(f"{outcome.status}: {outcome.summary}")


asyncio.run(main())
