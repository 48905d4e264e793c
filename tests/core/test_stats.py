import pytest

from deputy.core.limits import WallLimit
from deputy.core.state import State
from deputy.core.stats import percentile, stats_of


def ended(seconds: float, command: str = "research", **fields) -> State:
    return State(
        run="r", command=command, started_clock=100.0, ended_clock=100.0 + seconds, status="completed", **fields
    )


@pytest.mark.rule("time.wall")
def test_real_durations_stand_beside_the_limits():
    late = State(run="r", command="research", started_clock=0.0, ended_clock=3600.0, status="partial", reason="timeout")
    runs = [*(ended(seconds) for seconds in range(1, 101)), late, ended(5, "plan")]
    research, plan = stats_of(runs, {"research": WallLimit(3600, 7200)}.get)
    assert (research.command, research.count, research.timeouts) == ("research", 101, 1)
    assert (research.median_seconds, research.p95_seconds) == (51, 96)
    assert (research.default_seconds, research.max_seconds) == (3600, 7200)
    assert (plan.count, plan.median_seconds, plan.max_seconds) == (1, 5, None)


def test_what_never_ran_or_has_not_ended_does_not_count_and_a_task_is_a_subagent():
    refused = State(run="r", command="plan", ended_clock=1.0, status="rejected")
    live = State(run="r", command="plan", started_at=1.0, status="running")
    [subagent] = stats_of([refused, live, ended(2, "")], lambda _: None)
    assert (subagent.command, subagent.count) == ("subagent", 1)


def test_a_percentile_lies_between_its_neighbours():
    assert [percentile([1.0, 2.0], percent) for percent in (0, 50, 95, 100)] == [1.0, 1.5, pytest.approx(1.95), 2.0]
    assert percentile([7.0], 95) == 7.0
