"""The marks of rows that are read again only when they may have changed equal those of all rows read now."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import json, structs

from deputy.core.outcome import Usage
from deputy.core.progress import Progress
from deputy.core.request import Lineage
from deputy.core.state import State
from deputy.interfaces.web.row_marks import Marks, RowMarks

ROOT, CHILD = "sess_1_root00", "sess_2_child0"
OFFSET = 1_000_000.0
EVENTS = {
    "retry": Progress(event="retry", label="x", attempt=2, of=4),
    "call": Progress(event="tool_call", label="x", tool="Read", args="a.py"),
    "text": Progress(event="text", label="x", content="word"),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.5, 2.0, 30.0, 60.0, 61.0])),
        st.tuples(st.just("spend"), st.sampled_from([0.0, 0.2, 0.6])),
        st.tuples(st.sampled_from(["retry", "call", "text", "ask", "end", "set the clock"]), st.just(0.0)),
    ),
    max_size=30,
)


class Rows:
    """A root and its child, with the marks that a page was sent last."""

    def __init__(self) -> None:
        self.marks = RowMarks()
        self.now, self.offset = OFFSET + 100.0, OFFSET
        self.states: dict[str, State] = {}
        self.shown: dict[str, Marks] = {}
        self.marks.set_clock(self.now, self.offset)
        lineage = Lineage(session_id=CHILD, root_id=ROOT, depth=1, path=(), deadline=400.0)
        self.put(State(run=ROOT, status="running", last_at=self.now))
        self.put(State(run=CHILD, parent=ROOT, status="running", last_at=self.now, lineage=lineage))

    def put(self, state: State) -> None:
        self.marks.put(self.states.get(state.run), state)
        self.states[state.run] = state
        self.shown[state.run] = self.marks.of(state)

    def step(self, what: str, number: float) -> None:
        child = self.states[CHILD]
        match what:
            case "wait":
                self.now += number
            case "set the clock":
                self.now -= 3600.0
                self.offset -= 3600.0
            case "spend":
                usage = Usage(input=1, output=1, requests=1, cost=(child.usage.cost or 0.0) + number)
                self.put(structs.replace(child, usage=usage, last_at=self.now))
            case "ask":
                status = "waiting" if child.status == "running" else "running"
                self.put(structs.replace(child, status=status, last_at=self.now))
            case "end":
                self.put(structs.replace(child, status="completed" if child.is_live else "running", last_at=self.now))
            case _:
                if activity := self.marks.activities.get(CHILD):
                    activity.add(json.encode(EVENTS[what]), self.now)
                    self.marks.note_progress(CHILD)

    def tick(self) -> None:
        self.marks.set_clock(self.now, self.offset)
        for run in self.marks.changed(self.states):
            self.shown[run] = self.marks.of(self.states[run])


@given(STEPS)
def test_the_marks_that_a_page_has_after_a_tick_are_those_of_now(steps):
    rows = Rows()
    for what, number in steps:
        rows.step(what, number)
        rows.tick()
        assert rows.shown == {run: rows.marks.of(state) for run, state in rows.states.items()}


def test_a_tick_reads_only_the_marks_that_may_have_changed():
    rows = Rows()
    rows.tick()
    read: list[str] = []
    rows.marks.of = lambda state: read.append(state.run) or Marks("running", [], 0.0)
    rows.now += 30
    rows.tick()
    assert read == []
    rows.step("call", 0)
    rows.tick()
    assert read == []
    rows.step("retry", 0)
    rows.tick()
    assert set(read) == {CHILD}


def test_silence_a_deadline_and_the_end_of_a_hot_minute_are_seen_without_an_event():
    rows = Rows()
    rows.step("spend", 0.1)
    rows.step("spend", 0.6)
    assert rows.shown[CHILD] == Marks("running", ["hot"], 0.7)
    for seconds, flags in ((59.0, ["hot"]), (2.0, ["silent"]), (240.0, ["silent", "overdue"])):
        rows.step("wait", seconds)
        rows.tick()
        assert rows.shown[CHILD].flags == flags, seconds
    assert rows.shown[CHILD].rate == 0.0
    # A caller is not silent while a subagent of it works.
    assert rows.shown[ROOT].flags == []
    rows.step("end", 0)
    rows.tick()
    assert rows.shown[ROOT].flags == ["silent"]
