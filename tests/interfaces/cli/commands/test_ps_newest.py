"""`deputy ps` with more runs than a table shows."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deputy.core.events import ANSWER, QuestionAsked, RunOpened
from deputy.core.request import Lineage
from deputy.interfaces.cli import deputy
from deputy.journal.clock import Clock
from deputy.journal.sqlite.sqlite_journal import SqliteJournal


def call(*arguments: str) -> Result:
    return CliRunner().invoke(deputy, arguments, catch_exceptions=False)


def test_ps_shows_the_newest_runs_and_what_waits_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("DEPUTY_HOME", str(home))
    runs = [f"sess_{second}_{second:06}" for second in range(100, 170)]

    async def main() -> None:
        now = 0.0
        async with SqliteJournal(home, fsync="off", clock=Clock(wall=lambda: now, monotonic=lambda: now)) as journal:
            for run in runs:
                now += 1
                lease = await journal.begin(run, RunOpened(lineage=Lineage.root(run), label=run))
                assert lease is not None
                if run == runs[3]:
                    await journal.append(lease, "ask:asked", QuestionAsked(topic=ANSWER, question="Which one?"))

    asyncio.run(main())
    shown = call("ps")
    assert [line.split()[-1] for line in shown.stdout.splitlines()[1:]] == ["one?", *runs[-50:]]
    assert "19 more runs are active; --all lists them too." in shown.stderr.splitlines()
    assert len(json.loads(call("ps", "--json").stdout)["delegations"]) == 70
    everything = call("ps", "--all")
    assert len(everything.stdout.splitlines()) == 71
    assert "more runs" not in everything.stderr
