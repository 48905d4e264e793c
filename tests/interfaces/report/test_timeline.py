"""The timeline of a report: spans from records, and a scale that folds idle times."""

from msgspec import Raw

from deputy.core.errors import Error
from deputy.core.events import (
    Event,
    ModelCallBegun,
    ModelCallEnded,
    QuestionAsked,
    Record,
    Resumed,
    Returned,
    Started,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.outcome import Blocked, Completed
from deputy.core.redaction import Redactor
from deputy.core.request import Lineage
from deputy.interfaces.report.timeline import Lane, Scale, TimeSpan, distinct, lane_of

ASKED = Error(type="blocked", code="QUESTION", message="It asks.", recoverable=True, recommendation="Answer it.")
DONE = Returned(outcome=Completed(lineage=Lineage.root("sess_1_a"), summary="Done."))


def lane(*steps: tuple[float, str, Event], until: float | None = None) -> Lane:
    records = [
        Record(run="sess_1_a", seq=seq, key=key, at=clock, clock=clock, event=event)
        for seq, (clock, key, event) in enumerate(steps, 1)
    ]
    return lane_of("a", "run-a", records, Redactor(), until)


def test_spans_are_what_began_and_ended_and_a_failed_call_is_marked():
    made = lane(
        (1.0, "started", Started()),
        (2.0, "m.begun", ModelCallBegun(model="sonnet")),
        (5.0, "m", ModelCallEnded(model="sonnet")),
        (5.0, "t.begun", ToolCallBegun(tool="Read", arguments=Raw(b'{"path":"a.py"}'))),
        (6.0, "t", ToolCallEnded(tool="Read", message=Raw(b'{"is_error":true}'))),
        (6.5, "q.asked", QuestionAsked(topic="answer", question="Which?")),
        (9.0, "end", DONE),
    )
    assert made.rounds == [(1.0, 9.0)]
    assert made.spans == [
        TimeSpan("model", 2.0, 5.0, "sonnet in=0 out=0", 3),
        TimeSpan("failed", 5.0, 6.0, "Read a.py", 5),
        TimeSpan("waiting", 6.5, 9.0, "Which?", 7),
    ]


def test_each_round_has_its_own_time_and_a_live_call_lasts_until_now():
    made = lane(
        (1.0, "started", Started()),
        (3.0, "end", DONE),
        (100.0, "resumed", Resumed(round=1)),
        (101.0, "m.begun", ModelCallBegun(model="m")),
        until=105.0,
    )
    assert made.rounds == [(1.0, 3.0), (100.0, 105.0)]
    assert made.spans == [TimeSpan("model", 101.0, 105.0, "m", 4)]


def test_a_blocked_run_waits_until_it_is_resumed_or_until_now():
    blocked = Returned(
        outcome=Blocked(lineage=Lineage.root("sess_1_a"), summary="?", question="Which?", errors=(ASKED,))
    )
    begin = ((1.0, "started", Started()), (3.0, "end", blocked))
    still = lane(*begin, until=50.0)
    assert (still.rounds, still.spans) == ([(1.0, 3.0)], [TimeSpan("waiting", 3.0, 50.0, "Which?", 2)])
    resumed = lane(*begin, (9.0, "resumed", Resumed(round=1)), (12.0, "end:1", DONE))
    assert resumed.rounds == [(1.0, 3.0), (9.0, 12.0)]
    assert resumed.spans == [TimeSpan("waiting", 3.0, 9.0, "Which?", 3)]


def test_a_long_idle_time_is_folded_and_order_is_kept():
    spans = [
        TimeSpan("model", 0.0, 10.0, ""),
        TimeSpan("waiting", 10.0, 9000.0, ""),
        TimeSpan("tool", 9000.0, 9010.0, ""),
    ]
    scale = Scale([Lane("a", "a", [(0.0, 9010.0)], spans)])
    assert scale.gaps == [(10.0, 9000.0)]
    assert (round(scale.place(10.0), 1), round(scale.place(9000.0), 1), scale.place(9010.0)) == (48.5, 51.5, 100.0)
    places = [scale.place(time) for time in (-5.0, 0.0, 5.0, 10.0, 400.0, 9000.0, 9005.0, 9010.0, 1e9)]
    assert places == sorted(places)
    assert [round(time) for time in scale.ticks()] == [0, 5, 10, 9005, 9010]


def test_a_timeline_without_time_has_a_place_for_everything():
    scale = Scale([Lane("a", "a", [(7.0, 7.0)], [])])
    assert scale.place(7.0) in (0.0, 100.0)
    assert list(scale.ticks()) == [7.0]


def test_a_lane_with_very_many_calls_stays_small_and_counts_those_it_joins():
    spans = [TimeSpan("tool" if n % 2 else "model", n * 0.01, n * 0.01 + 0.005, "x") for n in range(100_000)]
    scale = Scale([Lane("a", "a", [(0.0, 1000.0)], spans)])
    shown = distinct(spans, scale)
    assert len(shown) < 2 * 100 / 0.15 + 2
    assert shown[0].text == "75 times: model call"
