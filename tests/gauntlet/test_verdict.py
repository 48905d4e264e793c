"""Each counter counts what its name says, and a verdict follows from the counters alone."""

from __future__ import annotations

from gauntlet.scenario import load
from gauntlet.verdict import Observed, count, judge
from tests.support.every_case import every_case

SCENARIOS = load()


def row(child="", turn=0, at=1.0, **fields):
    defaults = {"bytes": 100, "fault": "", "is_side": False, "is_resumed": False, "done": at}
    return {"child": child, "turn": turn, "at": at, **defaults, **({} if child else {"results": []}), **fields}


def seen(*log, output="", ended=10.0, **fields):
    return Observed(log=list(log), output=output, started=0.0, ended=ended, **fields)


START = (row(), row("a"), row("b", fault="no_headers"), row("c"))


@every_case(
    ("scenario", "counter", "trial", "wanted"),
    [
        ("hang", "lost", seen(*START, row(turn=1, results=["FOUND-a: FOUND-c: ok"])), 0),
        ("hang", "lost", seen(*START, row(turn=1, results=["FOUND-c: ok"])), 1),
        ("hang", "lost", seen(*START, output="FOUND-a: and FOUND-c: ok"), 0),
        ("hang", "late_seconds", seen(*START, row(turn=1, at=7.0, results=["x"])), 2.0),
        ("hang", "late_seconds", seen(*START, ended=9.5), 4.5),
        ("call-deadline", "late_seconds", seen(*START, ended=12.0), 3.0),
        ("output-limit", "false_completed", seen(row(turn=1, results=["HALF-b: the report"])), 1),
        ("output-limit", "false_completed", seen(row(turn=1, results=["HALF-b: (partial: output limit)"])), 0),
        ("empty-answer", "false_completed", seen(row(turn=1, results=["FOUND-a:", '""', "FOUND-c:"])), 1),
        ("empty-answer", "false_completed", seen(row(turn=1, results=["FOUND-a:", "failed", "FOUND-c:"])), 0),
        ("too-many", "over_spawns", seen(row(), *(row(f"c{n:02d}") for n in range(1, 6))), 2),
        ("depth", "over_depth", seen(row("L1"), row("L2"), row("L3")), 1),
        ("cycle", "repeats", seen(row("A"), row("B"), row("A")), 1),
        ("shared-budget", "over_requests", seen(*(row("a") for _ in range(12)), row(is_side=True)), 2),
        ("kill-and-resume", "paid_twice", seen(row("a"), row("a", is_resumed=True), row("b", done=0.0)), 1),
        ("kill-and-resume", "paid_twice", seen(row("a"), row("b", done=0.0), row("b", is_resumed=True)), 0),
        ("huge-output", "over_bytes", seen(row("b", bytes=1_500_000)), 500_000),
        ("secret", "secrets", seen(row("b"), output="key k1 and k1", secret="k1"), 2),
        ("hidden-argument", "hidden", seen(row("b"), output="echo \\u202e rm -rf hidden"), 0),
        ("hidden-argument", "hidden", seen(row("b"), output="echo \u202e rm -rf hidden"), 1),
        ("hidden-argument", "hidden", seen(row("b"), output="run a command?"), 3),
    ],
)
def test_a_counter_counts(scenario, counter, trial, wanted):
    assert count(counter, SCENARIOS[scenario], trial) == wanted


def test_a_counter_over_the_most_is_missed_with_its_name():
    good = judge("deputy", SCENARIOS["hang"], seen(*START, row(turn=1, at=5.0, results=["FOUND-a: FOUND-c:"])))
    assert (good.verdict, good.over) == ("held", [])
    bad = judge("deputy", SCENARIOS["hang"], seen(*START, row(turn=1, at=5.0, results=["FOUND-a:"]), left=2))
    assert (bad.verdict, bad.over) == ("missed", ["lost", "processes"])


def test_a_trial_in_which_nothing_happened_is_missed():
    assert judge("deputy", SCENARIOS["too-many"], seen()).verdict == "missed"
    never = judge("deputy", SCENARIOS["cycle"], seen(row("A"), output="FOUND-A:"))
    assert (never.verdict, never.reason) == ("missed", "B never worked")
    assert judge("deputy", SCENARIOS["sigterm"], seen(row("a"), was_killed=True)).verdict == "missed"
    unsent = judge("deputy", SCENARIOS["orphans-of-a-killed-parent"], seen(row("b")))
    assert (unsent.verdict, unsent.reason) == ("missed", "the moment of the signal never came")
