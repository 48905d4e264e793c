import json

import pytest

from deputy.core.events import Record, Resumed, Returned, RunOpened, Started
from deputy.core.limits import time_is_up
from deputy.core.outcome import Completed, Partial, Usage
from deputy.core.request import Lineage
from deputy.core.state import Counts, State, replay
from deputy.interfaces.cli.commands.stats import _percentile, _row, bar, stats_of

DAY = 86_400.0


def ended(seconds: float, command: str = "research", **fields) -> State:
    times = {"started_clock": 100.0, "ended_clock": 100.0 + seconds}
    return State(**{"run": "r", "command": command, **times, "status": "completed", **fields})


def used(cost: float | None, **fields) -> State:
    return ended(2, "", usage=Usage(input=1000, output=10, requests=1, cost=cost), **fields)


@pytest.mark.rule("cost.unit")
@pytest.mark.parametrize(
    ("costs", "shown"),
    [((0.0, None), ("unknown", "unknown")), ((0.0, 0.0), ("free", "free")), ((0.5, None), ("$0.50 + ?", "$0.50"))],
)
def test_a_row_says_of_its_costs_either_that_they_are_free_or_that_they_are_unknown(costs, shown):
    [row], _ = stats_of([used(cost, agent="task:a") for cost in costs], "agent")
    assert _row(row, "agent")[-2:] == shown


@pytest.mark.rule("time.wall")
def test_durations_and_timeouts_are_counted_by_command():
    late = ended(3600, status="partial", counts=Counts(timeouts=1))
    [research, plan], total = stats_of([*(ended(one) for one in range(1, 101)), late, ended(5, "plan")], "command")
    assert (research.name, research.count, research.timeouts) == ("research", 101, 1)
    assert (research.median_seconds, research.p95_seconds) == (51, 96)
    assert (plan.count, plan.median_seconds, plan.cost) == (1, 5, 0)
    assert total is not None
    assert total.count == 102


def test_the_times_and_timeouts_of_all_rounds_count_after_a_resume():
    lineage = Lineage.root("sess_1_aaaaaa")
    late = Partial(lineage=lineage, summary="Partial.", errors=(time_is_up(5.0),))
    events = [
        RunOpened(lineage=lineage, command="research", seconds=5.0),
        Started(),
        Returned(outcome=late),
        Resumed(round=1, seconds=5.0),
        Started(),
        Returned(outcome=Completed(lineage=lineage, summary="Done.")),
    ]
    records = [
        Record(run=lineage.session_id, seq=seq, key=str(seq), at=float(seq), clock=float(seq), event=event)
        for seq, event in enumerate(events, 1)
    ]
    [research], _ = stats_of([replay(records)], "command")
    assert (research.count, research.timeouts, research.median_seconds) == (1, 1, 2.0)


def test_a_run_that_never_ran_or_has_not_ended_does_not_count_and_a_task_is_a_subagent():
    refused = ended(1, "plan", status="rejected")
    live = State(run="r", command="plan", started_at=1.0, status="running")
    [subagent], _ = stats_of([refused, live, ended(2, "")], "command")
    assert (subagent.name, subagent.count) == ("subagent", 1)
    assert stats_of([refused, live], "command") == ([], None)


@pytest.mark.rule("cost.unit")
def test_costs_are_summed_by_model_and_an_unknown_cost_is_never_zero():
    runs = [used(0.1, model="a"), used(0.2, model="a"), used(None, model="a"), used(None, model="b"), ended(1)]
    [a, b], total = stats_of(runs, "model")
    assert (a.name, a.count, a.cost, a.median_cost, a.unknown_costs) == ("a", 3, 0.3, 0.15, 1)
    assert (b.name, b.cost, b.median_cost, b.unknown_costs) == ("b", None, None, 1)
    assert (a.input, a.output) == (3000, 30)
    assert total is not None
    assert (total.count, total.cost, total.unknown_costs) == (4, 0.3, 2)


@pytest.mark.rule("cost.unit")
def test_costs_are_summed_by_agent_and_by_day_with_the_latest_day_first():
    runs = [
        used(0.1, agent="task:auth", ended_at=DAY),
        used(0.2, agent="researcher", ended_at=DAY),
        used(0.4, agent="researcher", ended_at=2 * DAY),
        ended(1, "delegate", agent="orchestrator", ended_at=2 * DAY),
    ]
    agents, _ = stats_of(runs, "agent")
    assert [(one.name, one.cost) for one in agents] == [("researcher", 0.6), ("no agent", 0.1)]
    days, _ = stats_of(runs, "day")
    assert [(one.name, one.count, one.cost) for one in days] == [("1970-01-03", 2, 0.4), ("1970-01-02", 2, 0.3)]


def test_a_percentile_lies_between_its_neighbours():
    assert [_percentile([1.0, 2.0], percent) for percent in (0, 50, 95, 100)] == [1.0, 1.5, pytest.approx(1.95), 2.0]
    assert _percentile([7.0], 95) == 7.0


@pytest.mark.rule("time.wall")
@pytest.mark.rule("cost.unit")
def test_stats_are_shown_beside_the_limits_and_by_model(house):
    model = house.script("one", {"times": 2, "turns": [{"text": "Done."}]})
    assert house.run("delegate", "-t", "a=x", "-t", "b=y", "--yes", "--model", model).returncode == 0
    output = json.loads(house.run("stats", "--json").stdout)
    assert [(one["name"], one["count"], one["timeouts"]) for one in output["stats"]] == [
        ("subagent", 2, 0),
        ("delegate", 1, 0),
    ]
    assert (output["by"], output["total"]["cost"], output["total"]["unknown_costs"]) == ("command", None, 2)
    (house.workspace / "deputy.toml").write_text("[limits.commands.delegate]\ndefault = 600\n")
    heading, subagents, _, total = house.run("stats").stdout.splitlines()
    assert heading.split() == ["COMMAND", "RUNS", "TIMEOUTS", "MEDIAN", "P95", "LIMIT", "MAX", "IN", "OUT", "COST"]
    assert subagents.split()[-5:] == ["10m00s", "30d00h", "200", "40", "unknown"]
    assert total.split()[:3] == ["total", "3", "0"]
    heading, line = house.run("stats", "--by", "model").stdout.splitlines()
    assert heading.split() == ["MODEL", "RUNS", "TIMEOUTS", "MEDIAN", "IN", "OUT", "COST", "EACH"]
    assert line.split()[-4:] == ["200", "40", "unknown", "unknown"]
    empty = house.run("stats", DEPUTY_HOME=str(house.workspace / "none"))
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "No run has ended yet.\n")


def test_a_bar_has_eighths_and_shows_the_least_share():
    assert [bar(share, 4) for share in (1, 0.5, 0.28125, 0.001, 0)] == ["████", "██", "█▏", "▏", ""]


def test_bars_compare_the_costs_at_a_terminal_of_80_columns_and_not_in_a_pipe(house):
    model = house.script("m", {"times": 3, "turns": [{"text": "Done."}]})
    assert house.run("delegate", "-t", "a=x", "-t", "b=y", "--yes", "--model", model).returncode == 0
    assert house.run("run", "do", "--yes", "--model", model).returncode == 0
    screen = house.terminal("stats")
    assert screen.end() == 0
    lines = screen.text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[lines.index("TOKENS") + 1 :] == [f"subagent  240  {'█' * 50}", f"run       120  {'█' * 25}"]
    assert "█" not in house.run("stats").stdout
