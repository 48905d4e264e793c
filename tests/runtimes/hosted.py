"""A process that hosts runs on the local engine. For the test that kills it.

usage: hosted.py HOME hang|go
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from deputy.core.events import Lost, Noted, Opened, Requested
from deputy.core.outcome import Completed, Outcome
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.engine.ports import RunContext
from deputy.journal.sqlite import SqliteJournal
from deputy.runtimes.local import LocalEngine

ROOT = "sess_1_root00"
HANGS = sys.argv[2] == "hang"


class World:
    def now(self) -> float:
        return time.time()

    wall = now

    def draw(self, letters: str, count: int) -> str:
        return letters[:count]


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def pay(args: str, view: None) -> Noted:
    tell("paid")
    return Noted(content="paid once")


async def work(args: str, view: None) -> Noted:
    tell("hanging" if HANGS else "working")
    if HANGS:
        await asyncio.Event().wait()
    return Noted(content="done")


async def flow(run: RunContext, birth: Opened | Requested) -> Outcome:
    lineage = run.state.lineage
    assert lineage is not None
    if isinstance(birth, Requested):
        done = await run.step("work", work, "", view=None)
        assert not isinstance(done, Lost)
        return Completed(lineage=lineage, summary=done.content)
    paid = await run.step("pay", pay, "", view=None, repeatable=False)
    assert not isinstance(paid, Lost)
    child = await run.new_id("child id")
    request = Request(session_id=child, target=Hop("task:c", "task"), prompt="p", caller=lineage, caller_grant=Grant())
    await run.spawn("call", Requested(request=request))
    said = await run.join("join", child)
    return Completed(lineage=lineage, summary=f"{paid.content}, and the child said {said.summary}")


async def main() -> None:
    async with SqliteJournal(Path(sys.argv[1])) as journal, LocalEngine(journal, flow, World()) as engine:
        await engine.submit(ROOT, Opened(lineage=Lineage.root(ROOT)))
        await engine.adopt()
        outcome = await engine.result(ROOT)
        tell(f"{outcome.status}: {outcome.summary}")


asyncio.run(main())
