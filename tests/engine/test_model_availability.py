"""Whether models can be asked is looked at once, whatever is there when a run goes on."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from deputy.core.events import RunOpened
from deputy.core.outcome import Completed, Outcome
from deputy.core.request import Lineage
from deputy.core.state import ASKED
from deputy.engine.model_availability import why_unreachable
from deputy.engine.ports import RunContext
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.runtime.engine import LocalEngine
from deputy.testing.virtual_clock import VirtualWorld

RUN = "sess_1_a"
MODELS = ("openai:gpt-5.2", "anthropic:claude-sonnet-4-5")


@pytest.mark.rule("delegate.key")
@pytest.mark.parametrize("had_key", [True, False])
def test_a_run_that_goes_on_where_there_are_other_keys_finds_what_it_found_before(tmp_path: Path, had_key: bool):
    looked: list[str] = []
    found: list[str] = []

    async def go_on(*, has_key: bool) -> None:
        def missing_key(model: str) -> str | None:
            looked.append(model)
            return None if has_key else model.partition(":")[0]

        async def flow(run: RunContext, start: object) -> Outcome:
            found.append(await why_unreachable(run, "call", MODELS, missing_key, None))
            await run.recv("ask", "answer", "Which?")
            return Completed(lineage=Lineage.root(run.run), summary="done")

        async with (
            SqliteJournal(tmp_path / "home", fsync="off") as journal,
            LocalEngine(journal, flow, VirtualWorld(Random(1))) as engine,
            asyncio.timeout(60),
        ):
            if await engine.submit(RUN, RunOpened(lineage=Lineage.root(RUN))):
                async for record in engine.events(RUN):
                    if record.key.endswith(ASKED):
                        return
            await engine.send(RUN, "answer", "this")
            await engine.result(RUN)

    asyncio.run(go_on(has_key=had_key))
    asyncio.run(go_on(has_key=not had_key))
    assert found == (["", ""] if had_key else ["Cannot spawn subagents: no API key for provider openai"] * 2)
    assert looked == list(MODELS if had_key else MODELS[:1])
