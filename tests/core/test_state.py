"""State is a fold over records: total, small, and the same value live and replayed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs
from tests.support.every_case import every_case

from deputy.core.approval import ApprovalRequest
from deputy.core.errors import Error
from deputy.core.events import (
    AdmissionRefused,
    Admitted,
    Adopted,
    CancelRequested,
    Delivered,
    Event,
    FellBack,
    Joined,
    ModelCallBegun,
    ModelCallEnded,
    Noted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    Repaired,
    Requested,
    Resumed,
    Retried,
    Returned,
    RunOpened,
    Spawned,
    Started,
    StepBegun,
    StepEnded,
    StepLost,
    ToolCallBegun,
    ToolCallEnded,
    Unrecognised,
    decode,
    encode,
)
from deputy.core.outcome import Blocked, Cancelled, Completed, Fallback, Partial, Rejected, Usage
from deputy.core.request import Grant, Hop, Lineage, Request, TaskContext
from deputy.core.state import (
    CLAIM,
    RESUME_APPROVAL,
    Counts,
    State,
    answer_key,
    apply,
    decode_state,
    encode_state,
    is_awaited,
    may_answer,
    not_begun,
    prefix,
    prime,
    replay,
    why_not_claimed,
)

RUN = "sess_1_aaaaaa"
LINEAGE = Lineage.root(RUN, deadline=1000.0)
ERROR = Error(type="timeout", code="TIMEOUT", message="Late.", recoverable=True, recommendation="Resume.")
REQUEST = Request(
    session_id=RUN,
    target=Hop("researcher", "agent"),
    prompt="find",
    caller=Lineage.root("sess_1_parent"),
    caller_grant=Grant(),
    seconds=60.0,
    task_context=TaskContext(task_number=7),
)


def history(*events: Event | tuple[str, Event]) -> list[Record]:
    """Records of these events, one a second, under their own keys."""
    keyed = [event if isinstance(event, tuple) else (f"k{n}", event) for n, event in enumerate(events)]
    return [
        Record(run=RUN, seq=n + 1, key=key, at=100.0 + n, clock=100.0 + n, event=event)
        for n, (key, event) in enumerate(keyed)
    ]


APPROVAL = ApprovalRequest(tool="resume", title="Resume", parts=(), risk="low")
BIRTH = Requested(request=REQUEST, label="look", command="research", parent="sess_1_parent")
DONE = Returned(outcome=Completed(lineage=LINEAGE, summary="done"))

EVENTS: list[Event] = [
    BIRTH,
    RunOpened(lineage=LINEAGE),
    Admitted(lineage=LINEAGE, grant=Grant()),
    Started(backend="native", model="m"),
    Noted(content="n"),
    ModelCallBegun(model="m"),
    ModelCallEnded(model="m", usage=Usage(input=5, output=2, requests=1)),
    ToolCallBegun(tool="Read", is_repeatable=False),
    ToolCallEnded(tool="Read"),
    QuestionAsked(topic="answer", question="Which?"),
    QuestionAnswered(topic="answer", body=Raw(b'"this"')),
    CancelRequested(reason="enough"),
    DONE,
    Returned(outcome=Partial(lineage=LINEAGE, summary="late", errors=(ERROR,))),
    Returned(outcome=Blocked(lineage=LINEAGE, summary="?", errors=(ERROR,), question="Which?")),
    Delivered(to="somebody"),
    Resumed(round=1),
    Resumed(round=2),
    Unrecognised(kind="teleported", version=1, body=Raw(b'{"v":1,"kind":"teleported"}')),
]
KEYS = st.sampled_from([f"{key}{end}" for key in "abcd" for end in ("", ".begun", ".asked")])
HISTORIES = st.lists(st.tuples(KEYS, st.sampled_from(EVENTS), st.floats(0, 2000)), max_size=25)


@given(HISTORIES, st.booleans(), st.data())
def test_replaying_any_prefix_gives_the_live_state(
    steps: list[tuple[str, Event, float]], is_born: bool, data: st.DataObject
) -> None:
    records = [
        Record(run=RUN, seq=n, key=key, at=at, clock=at, event=event)
        for n, (key, event, at) in enumerate([("birth", BIRTH, 1.0)] * is_born + steps, 1)
    ]
    live = [State()]
    for record in records:
        live.append(apply(live[-1], record))
    at = data.draw(st.integers(0, len(records)))
    # What comes back from disk is what was written, and what it folds to is what stood in memory.
    written = [msgspec.structs.replace(record, event=decode(encode(record.event))) for record in records[:at]]
    assert replay(written) == live[at]
    assert decode_state(encode_state(live[at])) == live[at]
    assert replay(records[at:], live[at]) == live[-1]
    # Records that were folded before change nothing.
    assert replay(records, live[-1]) == live[-1]
    assert live[-1].seq == len(records)
    assert len(live[-1].under_way) <= len(records)


@every_case("event", EVENTS, ids=lambda event: event.kind)
@every_case("before", [[], [BIRTH], [BIRTH, DONE]], ids=["unborn", "live", "ended"])
def test_every_event_moves_every_state_by_one(event: Event, before: list[Event]) -> None:
    state = replay(history(*before))
    after = apply(state, Record(run=RUN, seq=state.seq + 1, key="x", at=5.0, clock=5.0, event=event))
    assert after.seq == state.seq + 1
    assert after.run == RUN
    assert after.oddities in (state.oddities, state.oddities + 1)


@pytest.mark.rule("registry.entry")
def test_a_request_says_what_the_registry_shows() -> None:
    state = replay(history(BIRTH))
    assert (state.status, state.command, state.agent, state.label) == ("requested", "research", "researcher", "look")
    assert (state.task_number, state.seconds, state.parent) == (7, 60.0, "sess_1_parent")
    assert state.lineage is not None
    assert (state.lineage.depth, state.lineage.deadline) == (1, 160.0)
    assert state.lineage.names == ("orchestrator", "researcher")


def test_a_run_goes_from_request_to_delivery() -> None:
    records = history(BIRTH, Started(backend="native"), DONE, Delivered(to="x"))
    assert [replay(records[:n]).status for n in range(5)] == [
        "unborn",
        "requested",
        "running",
        "completed",
        "completed",
    ]
    assert not replay(records[:3]).is_settled
    assert replay(records).is_settled


def test_usage_and_turns_are_summed() -> None:
    call = ModelCallEnded(model="m", usage=Usage(input=5, output=2, requests=1, cost=7))
    state = replay(history(BIRTH, call, call, Noted(content="n")))
    assert state.usage == Usage(input=10, output=4, requests=2, cost=14)
    assert (state.counts.turns, state.counts.notes) == (2, 1)


def test_a_step_is_under_way_from_its_beginning_to_its_end() -> None:
    begun = ("call.begun", ToolCallBegun(tool="Write", is_repeatable=False))
    state = replay(history(BIRTH, begun))
    assert state.under_way["call"].name == "Write"
    assert not state.under_way["call"].is_repeatable
    assert not replay(history(BIRTH, begun, ("call", ToolCallEnded(tool="Write")))).under_way


def test_waiting_for_a_person_stops_the_clock_once() -> None:
    first, second = ("a.asked", QuestionAsked(topic="t", question="One?")), ("b.asked", QuestionAsked(topic="t"))
    answers = [("a", QuestionAnswered(topic="t", body=Raw(b"1"))), ("b", QuestionAnswered(topic="t", body=Raw(b"2")))]
    records = history(BIRTH, first, second, *answers)
    assert [replay(records[:n]).status for n in (2, 3, 4, 5)] == ["waiting", "waiting", "waiting", "requested"]
    state = replay(records)
    assert state.lineage is not None
    assert state.lineage.deadline == 160.0 + 3.0


@pytest.mark.rule("escalate")
def test_a_clock_stands_still_while_a_descendant_waits_and_overlapping_waits_count_once() -> None:
    long, within = Joined(child="a", waited=60.0, waited_until=70.0), Joined(child="b", waited=20.0, waited_until=50.0)
    later = Joined(child="c", waited=5.0, waited_until=100.0)
    state = replay(history(BIRTH, Started(), long, within, later))
    assert state.lineage is not None
    assert state.lineage.deadline == 160.0 + 60.0 + 5.0
    assert state.waited == 65.0, "its ancestors count all of it"


def test_an_ended_run_takes_no_more_and_says_what_was_odd() -> None:
    state = replay(history(BIRTH, DONE, Noted(content="late"), DONE))
    assert (state.status, state.counts.notes, state.oddities) == ("completed", 0, 2)
    assert "Returned in a run that is completed" in state.oddity


def test_a_resumed_run_has_another_round_with_its_own_clock() -> None:
    late = Returned(outcome=Partial(lineage=LINEAGE, summary="late", errors=(ERROR,)))
    records = history(BIRTH, Started(), late, Delivered(to="x"), Resumed(round=1, seconds=30.0))
    assert replay(records[:3]).reason == "timeout"
    state = replay(records)
    assert (state.status, state.round, state.is_delivered, state.reason) == ("requested", 1, False, "")
    assert state.lineage is not None
    assert state.lineage.deadline == 104.0 + 30.0
    again = replay(history(BIRTH, Started(), late, Resumed(round=1), Started(), Noted(content="n"), late))
    assert (replay(records[:3]).seconds_worked(999.0), again.seconds_worked(999.0)) == (1.0, 1.0 + 2.0)
    assert replay(history(BIRTH, late, Resumed(round=2))).oddities == 1


def test_the_time_between_a_dead_process_and_the_next_is_not_time_worked() -> None:
    adopted = Adopted(owner="b", previous_owner="a")
    born, admitted, started, note, taken, again, ended = history(
        BIRTH, adopted, Started(), Noted(content="n"), adopted, Noted(content="m"), DONE
    )
    # It waited 60 s for a process before it began, and 600 s after its process had died.
    late = [structs.replace(one, clock=one.clock + 60) for one in (admitted, started, note)]
    later = [structs.replace(one, clock=one.clock + 660) for one in (taken, again, ended)]
    records = [born, *late, *later]
    assert replay(records[:4]).seconds_worked(now=170.0) == 170.0 - 162.0
    assert replay(records).seconds_worked(now=9999.0) == 1.0 + 2.0
    more = Record(run=RUN, seq=8, key="r", at=0.0, clock=900.0, event=Resumed(round=1))
    assert replay([*records, more]).seconds_worked(now=904.0) == 3.0 + 4.0


def test_a_state_stays_small_whatever_its_history() -> None:
    turn = [
        ("m.begun", ModelCallBegun(model="m")),
        ("m", ModelCallEnded(model="m", usage=Usage(input=100, output=10, requests=1))),
        Noted(content="x" * 1000),
    ]
    short, long = replay(history(BIRTH, *turn * 5)), replay(history(BIRTH, *turn * 500))
    assert len(encode_state(long)) <= len(encode_state(short)) + 20


def test_a_cancelled_run_keeps_what_it_used() -> None:
    call = ModelCallEnded(model="m", usage=Usage(input=5))
    ended = Returned(outcome=Cancelled(lineage=LINEAGE, summary="stopped"))
    records = history(BIRTH, call, CancelRequested(), ended)
    assert replay(records[:3]).is_cancelling
    assert replay(records).usage.input == 5
    assert not replay(records).is_cancelling


def test_every_counted_event_has_its_own_count() -> None:
    fell = Fallback(left="a", taken="b", reason="r")
    state = replay(
        history(
            BIRTH,
            *[ToolCallEnded(tool="t")] * 2,
            *[StepLost(step="s")] * 3,
            *[Retried(what="w", attempt=1, reason="r")] * 4,
            *[Repaired(attempt=1)] * 5,
            *[Spawned(child="c")] * 6,
            FellBack(fallback=fell, left="native"),
            FellBack(fallback=fell, left="other"),
        )
    )
    assert state.counts == Counts(
        tool_calls=2, lost=3, retries=4, repairs=5, children=6, fallbacks=2, native_failures=1
    )
    late = Returned(outcome=Partial(lineage=LINEAGE, summary="late", errors=(ERROR,)))
    assert replay(history(BIRTH, late, Resumed(round=1), late, Resumed(round=2), DONE)).counts.timeouts == 2


def test_a_run_begins_when_its_first_round_starts_and_a_round_when_it_starts() -> None:
    late = Returned(outcome=Partial(lineage=LINEAGE, summary="late", errors=(ERROR,)))
    records = history(BIRTH, Started(), late, Resumed(round=1), Started(), Started())
    states = [replay(records[:count]) for count in range(1, 7)]
    assert [state.began_at for state in states] == [100.0, 101.0, 101.0, 101.0, 101.0, 101.0]
    assert [state.began_clock for state in states] == [100.0, 101.0, 101.0, 103.0, 104.0, 104.0]
    assert [state.started_at for state in states] == [None, 101.0, 101.0, None, 104.0, 104.0]
    assert [state.resumed_at for state in states] == [None, None, None, 103.0, 103.0, 103.0]
    assert [state.ended_at for state in states] == [None, None, 102.0, None, None, None]
    # A state of before the first start was kept has only the start of its round.
    assert structs.replace(states[1], first_started_at=None).began_at == 101.0


def test_a_run_that_has_asked_keeps_waiting_when_it_starts_and_its_question_is_gone_with_the_answer() -> None:
    asked = ("q.asked", QuestionAsked(topic="t", question="Which?", until=500.0))
    answer = QuestionAnswered(topic="t", body=Raw(b"1"))
    records = history(BIRTH, asked, Started(), ("other", answer), ("q", answer))
    waiting, answered = replay(records[:4]), replay(records)
    assert (waiting.status, waiting.question, waiting.answer_by) == ("waiting", "Which?", 500.0)
    assert (answered.status, answered.question, answered.answer_by, answered.waits) == ("running", "", None, {})
    assert (answered.waited, answered.waited_until) == (3.0, 104.0)
    assert replay(history(BIRTH, asked, DONE)).waits == {}
    assert replay(history(BIRTH, asked, DONE)).answer_by is None


def test_a_model_call_without_a_model_or_a_context_keeps_those_of_the_call_before() -> None:
    call = ModelCallEnded(model="m", context_tokens=50, context_window=100)
    state = replay(history(BIRTH, Started(model="s", scratchpad="p"), call, ModelCallEnded(model=""), Started()))
    assert (state.model, state.context_tokens, state.context_window, state.scratchpad) == ("m", 50, 100, "p")


def test_steps_are_repeatable_unless_they_say_otherwise() -> None:
    begun = (("a.begun", StepBegun(step="s")), ("b.begun", StepBegun(step="s", is_repeatable=False)))
    state = replay(history(BIRTH, *begun))
    assert {key: step.is_repeatable for key, step in state.under_way.items()} == {"a": True, "b": False}
    assert list(replay(history(BIRTH, *begun, ("a", StepEnded(step="s")))).under_way) == ["b"]
    assert replay(history(BIRTH, *begun, DONE)).under_way == {}


@pytest.mark.rule("time.clock")
def test_a_lineage_knows_how_far_the_wall_clock_is_from_the_clock_of_its_deadline() -> None:
    opened = RunOpened(lineage=LINEAGE, seconds=9.0, workspace="/w", label="l", command="c", model="m")
    admitted = Admitted(lineage=LINEAGE, grant=Grant())
    done = replay(history(opened, DONE))
    for state, event in (
        (State(), opened),
        (State(), BIRTH),
        (replay(history(BIRTH)), admitted),
        (done, Resumed(round=1)),
    ):
        after = apply(state, Record(run=RUN, seq=9, key="x", at=5000.4, clock=100.0, event=event))
        assert after.lineage is not None
        assert after.lineage.drift == 4900.0
    opened_state = replay(history(opened))
    assert (opened_state.agent, opened_state.seconds, opened_state.workspace) == ("orchestrator", 9.0, "/w")
    assert (opened_state.last_at, opened_state.last_clock, opened_state.parent) == (100.0, 100.0, None)


def test_a_refused_request_has_ended_and_a_delivery_belongs_to_a_run_that_has() -> None:
    refused = AdmissionRefused(outcome=Rejected(lineage=LINEAGE, summary="no", errors=(ERROR,)))
    state = replay(history(BIRTH, refused))
    assert (state.status, state.is_live, state.ended_clock, state.reason) == ("rejected", False, 101.0, "timeout")
    early = replay(history(BIRTH, Delivered()))
    assert (early.oddities, early.is_delivered, early.is_settled) == (1, False, False)
    assert replay(history(BIRTH, DONE, Adopted(owner="b"))).oddities == 1
    assert replay(history(Delivered())).oddities == 1


@pytest.mark.rule("time.inherit")
def test_a_round_ends_at_the_earlier_of_its_own_time_and_its_callers() -> None:
    for seconds, deadline, end in ((30.0, None, 132.0), (30.0, 120.0, 120.0), (30.0, 200.0, 132.0), (None, None, None)):
        state = replay(history(BIRTH, DONE, Resumed(round=1, seconds=seconds, deadline=deadline)))
        assert state.lineage is not None
        assert state.lineage.deadline == end
    assert replay(history(BIRTH, Resumed(round=1))).oddities == 1, "it has not ended"


def test_a_dismissed_round_only_ends_the_run() -> None:
    state = replay(history(BIRTH, DONE, Resumed(round=1, is_dismissed=True)))
    assert (state.is_cancelling, state.resumed_at) == (True, None)
    state = replay(history(BIRTH, DONE, Resumed(round=1)))
    assert (state.is_cancelling, state.resumed_at) == (False, 102.0)


@pytest.mark.rule("approve.exact")
def test_an_answer_belongs_to_one_question_and_another_message_to_any() -> None:
    state = replay(history(BIRTH, ("q.asked", QuestionAsked(topic="t"))))
    assert may_answer(answer_key("q"), "q")
    assert not may_answer(answer_key("p"), "q")
    assert may_answer("message", "q")
    assert is_awaited(answer_key("q"), state)
    assert not is_awaited(answer_key("p"), state)
    assert not is_awaited("message", replay(history(BIRTH)))


def test_a_round_that_could_not_claim_its_task_says_why() -> None:
    problem = StepEnded(step="claim", result=Raw(msgspec.json.encode(ERROR)))
    claimed, unknown = StepEnded(step="claim", result=Raw(b"null")), StepEnded(step="claim")
    assert (prefix(0), prefix(2)) == ("", "round:2/")
    assert why_not_claimed(history(BIRTH, (CLAIM, problem)), 0) == ERROR
    assert why_not_claimed(history(BIRTH, (f"{prefix(2)}{CLAIM}", problem)), 2) == ERROR
    for other in ((CLAIM, claimed), (CLAIM, unknown), ("other", problem), (CLAIM, Noted(content="n"))):
        assert why_not_claimed(history(BIRTH, other), 0) is None


@pytest.mark.rule("approve.exact")
def test_a_round_begins_with_an_approval_of_exactly_its_request_and_with_its_task_claimed() -> None:
    resumed = Resumed(round=1, request=APPROVAL)
    key = f"{prefix(1)}{RESUME_APPROVAL}"
    asked = (f"{key}.asked", QuestionAsked(topic="approval", digest="d"))

    def answered(choice: str, digest: str) -> tuple[str, Event]:
        body = Raw(msgspec.json.encode({"choice": choice, "digest": digest}))
        return (key, QuestionAnswered(topic="approval", body=body))

    def claim(result: bytes | None) -> tuple[str, Event]:
        return (f"{prefix(1)}{CLAIM}", StepEnded(step="claim", result=msgspec.UNSET if result is None else Raw(result)))

    yes = answered("yes", "d")
    for events, kept_out in (
        ([], set()),
        ([resumed], {1}),
        ([resumed, asked, yes], set()),
        ([resumed, asked, answered("no", "d")], {1}),
        ([resumed, asked, answered("yes", "other")], {1}),
        ([resumed, asked, yes, claim(b"null")], set()),
        ([resumed, asked, yes, claim(b'{"type":"x"}')], {1}),
        ([resumed, asked, yes, claim(None)], {1}),
        ([Resumed(round=1)], set()),
        ([Resumed(round=1), Noted(content="n"), Resumed(round=2, request=APPROVAL)], {2}),
    ):
        assert not_begun(history(BIRTH, (CLAIM, StepEnded(step="claim")), *events)) == kept_out


def test_the_decoder_can_be_built_before_threads_use_it() -> None:
    prime()
    assert decode_state(encode_state(State())) == State()
