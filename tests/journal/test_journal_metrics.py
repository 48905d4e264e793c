"""Metrics of a journal as Prometheus reads them."""

import asyncio
import re

import pytest
from tests.support.house import House, approve
from tests.support.scripts import call, talk, turn

from deputy.core.model_script import ModelScript
from deputy.core.task import Task
from deputy.interfaces.questions import find_pending
from deputy.journal.journal_metrics import JournalMetrics
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.testing import ProviderServer

LABEL = r'\w+="(\\.|[^"\\])*"'
LINE = re.compile(rf"# (HELP|TYPE) deputy_\w+ .+|deputy_\w+(\{{{LABEL}(,{LABEL})*\}})? \d+(\.\d+)?")


@pytest.fixture
def house(tmp_path, monkeypatch):
    house = House(tmp_path, monkeypatch)
    yield house
    house.check()


def read(house: House, metrics: JournalMetrics) -> dict[str, float]:
    with SqliteQueries.open(house.home) as queries:
        text = metrics.text(queries).decode()
    assert all(LINE.fullmatch(line) for line in text.splitlines()), text
    values = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _, _ in values}) == len(values)
    return {name: float(value) for name, _, value in values}


def test_counters_hold_what_is_stored_and_rise_with_each_run(house: House):
    (house.workspace / "plan.txt").write_text("win\n")
    house.script(talk(turn("I read.", call("Read", path="plan.txt")), turn("Done."), times=2))
    house.one()
    metrics = JournalMetrics()
    first = read(house, metrics)
    tokens = f'deputy_tokens_total{{model="{house.model}",type="input"}}'
    assert (first['deputy_runs_total{status="completed"}'], first['deputy_runs_total{status="failed"}']) == (2, 0)
    assert (first[tokens], first["deputy_tool_duration_seconds_count"]) == (200, 1)
    assert first["deputy_turn_duration_seconds_count"] == 2
    assert first["deputy_turn_duration_seconds_sum"] > 0
    assert read(house, metrics) == first
    house.one()
    later = read(house, metrics)
    assert (later['deputy_runs_total{status="completed"}'], later[tokens]) == (4, 400)
    assert later["deputy_turn_duration_seconds_count"] == 4
    # Another reader of the same journal has the same counters.
    assert read(house, JournalMetrics()) == pytest.approx(later)


def test_a_removal_of_runs_lowers_no_counter_and_counts_nothing_twice(house: House):
    house.script(talk(turn("Done."), times=3))
    house.one()
    metrics = JournalMetrics()
    read(house, metrics)
    outcome = house.one()

    async def remove() -> None:
        async with house.open() as runtime:
            await runtime.engine.purge(outcome.lineage.root_id)

    read(house, metrics)
    asyncio.run(remove())
    assert read(house, metrics)['deputy_runs_total{status="completed"}'] == 4
    house.one()
    assert read(house, metrics)['deputy_runs_total{status="completed"}'] == 6


def test_a_waiting_approval_is_counted_while_it_waits(house: House):
    house.script(talk(turn("I write.", call("Write", path="a.txt", content="x")), turn("Done.")))
    metrics = JournalMetrics()

    async def main() -> tuple[dict[str, float], dict[str, float]]:
        async with house.open(approval="ask", can_ask=True) as runtime:
            run = await house.start_parent(runtime, "Write it.")
            while await find_pending(runtime.journal, run) is None:  # noqa: ASYNC110  it is in the journal
                await asyncio.sleep(0.002)
            during = read(house, metrics)
            await approve(runtime, run)
            await runtime.engine.result(run)
            return during, read(house, metrics)

    during, after = asyncio.run(main())
    assert (during["deputy_approvals_waiting"], after["deputy_approvals_waiting"]) == (1, 0)
    assert (during['deputy_runs_live{status="waiting"}'], after['deputy_runs_live{status="waiting"}']) == (1, 0)


def test_retries_and_cost_are_counted(house: House):
    metrics = JournalMetrics()
    house.script(talk(turn("Done.")))
    house.one()
    assert read(house, metrics)["deputy_retries_total"] == 0
    with ProviderServer(ModelScript(conversations=(talk(turn("Done.", faults=("overloaded",))),))) as provider:
        house.use(provider)
        house.one(Task(label="b", prompt="x"))
    found = read(house, metrics)
    assert found["deputy_retries_total"] == 1
    assert found['deputy_cost_dollars_total{model="anthropic:claude-sonnet-4-5"}'] > 0


def test_a_name_cannot_break_the_text():
    metrics = JournalMetrics()
    metrics._cost['a"b\\c\nd'] = 1.0
    [line] = [line for line in metrics.text(None).decode().splitlines() if line.startswith("deputy_cost")]
    assert LINE.fullmatch(line)
