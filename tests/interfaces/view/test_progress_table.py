import pytest

from deputy.core.outcome import OUTCOME_WORDS
from deputy.core.progress import Progress
from deputy.interfaces.view.progress_table import ProgressTable, line, moment, text_of

TEN = 10.0


def test_where_there_is_little_room_the_total_stays_and_those_at_work_come_first():
    board = ProgressTable([f"t{number}" for number in range(6)])
    for number in range(6):
        board.emit(Progress(event="started", label=f"t{number}", session_id=str(number)), 0.0)
    for number in range(4):
        board.emit(Progress(event="completed", label=f"t{number}", session_id=str(number), status="completed"), 1.0)
    shown = [text_of(spans) for spans in board.lines(1.0, 6)]
    assert [one.split()[0] for one in shown] == ["Delegate", "[t0]", "[t4]", "[t5]", "…", "total"]
    assert shown[4] == "… 3 more"
    assert len(board.lines(1.0, 8)) == len(board.lines(1.0)) == 8
    assert [text_of(spans).split()[0] for spans in board.lines(1.0, 1)] == ["Delegate", "…", "total"]


def told(*events: dict, labels: tuple[str, ...] = ()) -> ProgressTable:
    board = ProgressTable(labels)
    for at, event in enumerate(events):
        board.emit(Progress(session_id=f"sess_{event['label']}", **event), float(at))
    return board


@pytest.mark.rule("delegate.view")
def test_the_view_has_a_heading_a_line_for_each_subagent_and_a_total():
    board = told(
        {"event": "started", "label": "security", "index": 0, "total": 3},
        {"event": "started", "label": "correctness", "index": 1, "total": 3},
        {"event": "started", "label": "refactor", "index": 2, "total": 3},
        {"event": "tokens", "label": "security", "input": 45_000, "output": 2_100, "cost": 0.14},
        {"event": "completed", "label": "security", "status": "completed"},
        {"event": "tokens", "label": "correctness", "input": 23_000, "output": 890, "cost": 0.05},
        {"event": "tool_call", "label": "correctness", "tool": "Read", "args": "src/lib.rs"},
        {"event": "completed", "label": "refactor", "status": "partial", "reason": "context_exhausted"},
        labels=("security", "correctness", "refactor"),
    )
    heading, security, correctness, refactor, total = [text_of(spans) for spans in board.lines(TEN)]
    assert heading == "Delegate [3 subagents]"
    assert security == "[security] ✓ completed (in=45k out=2.1k) 4.0s $0.14"
    assert correctness == "[correctness] → Read src/lib.rs (in=23k out=890) 9.0s $0.05"
    assert refactor == "[refactor] ⚠ partial: context exhausted 5.0s"
    assert total == "total  1 completed, 1 partial, 1 running · in=68k out=3k · 10s · $0.19"


@pytest.mark.rule("events.words")
def test_the_total_counts_each_outcome_by_its_common_word():
    board = ProgressTable(OUTCOME_WORDS[::-1])
    for word in board.rows:
        board.emit(Progress(event="completed", label=word.label, session_id=word.label, status=word.label), 0.0)
    *rows, total = [text_of(spans) for spans in board.lines(0.0)][1:]
    assert all(f"] {mark} {word}" in row for row, mark, word in zip(rows, "✗✗?✗⚠✓", OUTCOME_WORDS[::-1], strict=True))
    assert total.startswith("total  1 completed, 1 partial, 1 failed, 1 blocked, 1 cancelled, 1 rejected ")


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"event": "note", "content": "found\nit"}, "✎ found it"),
        ({"event": "text", "content": "…"}, "… writing"),
        ({"event": "retry", "reason": "overloaded"}, "↻ retrying: overloaded"),
        (
            {"event": "retry", "reason": "overloaded", "attempt": 2, "of": 4, "wait": 3.2, "http_status": 529},
            "↻ retrying (2/4) in 3 s: HTTP 529: overloaded",
        ),
        ({"event": "retry", "reason": "slow", "attempt": 2, "of": 4, "wait": 0.05}, "↻ retrying (2/4) in 0.1 s: slow"),
        (
            {"event": "tool_error", "tool": "Read", "args": "x" * 99, "reason": "It does not exist."},
            f"✗ Read {'x' * 31}…: It does not exist.",
        ),
        ({"event": "tool_error", "tool": "Nope", "args": "", "reason": "No such tool."}, "✗ Nope: No such tool."),
        ({"event": "fallback", "reason": "refused"}, "↪ other model: refused"),
        ({"event": "waiting", "content": "Which one?"}, "? asks: Which one?"),
        ({"event": "completed", "status": "failed", "reason": "provider"}, "✗ failed: provider"),
        ({"event": "completed", "status": "blocked", "reason": "question"}, "? blocked: question"),
        ({"event": "completed", "status": "blocked", "reason": "blocked"}, "? blocked 1.0s"),
        ({"event": "completed", "status": "cancelled"}, "✗ cancelled"),
        ({"event": "completed", "status": "rejected", "reason": "depth"}, "✗ rejected: depth"),
    ],
)
def test_everything_that_happens_has_its_line(event, shown):
    board = told({"event": "started", "label": "a"}, {**event, "label": "a"})
    assert text_of(line(board.rows[0], 1.0)).startswith(f"[a] {shown}")


def test_tasks_that_wait_for_their_turn_are_shown_from_the_start():
    board = told({"event": "started", "label": "b", "index": 1, "total": 2}, labels=("a", "b"))
    lines = [text_of(spans) for spans in board.lines(0.0)]
    assert lines[1:3] == ["[a] · queued", "[b] … thinking 0.0s"]
    assert lines[3].startswith("total  1 running, 1 queued")


def test_subagents_of_the_same_label_keep_their_own_lines():
    board = ProgressTable(("a", "a"))
    for place, run in enumerate(("x", "y")):
        board.emit(Progress(event="started", label="a", session_id=run, index=place, total=2), 0.0)
    board.emit(Progress(event="tool_call", label="a", session_id="y", tool="Glob", args="*"), 0.0)
    assert [row.activity for row in board.rows] == ["thinking", "Glob *"]


def test_events_of_unknown_runs_change_nothing():
    board = ProgressTable(("a",))
    assert board.emit(Progress(event="text", label="a", session_id="stranger"), 0.0) is None
    assert board.rows[0].activity == "queued"


def test_one_that_was_never_started_still_ends_on_its_own_line():
    board = told({"event": "completed", "label": "b", "index": 1, "status": "cancelled"}, labels=("a", "b"))
    assert [row.status for row in board.rows] == ["", "cancelled"]


@pytest.mark.rule("untrusted")
def test_nothing_that_others_wrote_moves_the_terminal():
    board = told(
        {"event": "started", "label": "\x1b[2Jevil\n[/bold]"},
        {"event": "tool_call", "label": "\x1b[2Jevil\n[/bold]", "tool": "Read", "args": "a\x1b]0;x\x07b\r\n" * 99},
    )
    shown = [text_of(spans) for spans in board.lines(0.0)]
    assert all(text.isprintable() and len(text) < 200 for text in shown)
    assert "[evil (/bold)] →" in shown[1]


@pytest.mark.rule("text.visible")
def test_a_label_cannot_draw_a_second_task():
    label = "a] ✓ completed 1.0s\n[b"
    board = told({"event": "started", "label": label}, {"event": "completed", "label": label, "status": "failed"})
    shown = [text_of(spans) for spans in board.lines(0.0)]
    assert sum(text.count("[") for text in shown[1:]) == 1
    assert shown[1].startswith("[a) ✓ completed 1.0s (b] ✗ failed")


def test_a_call_is_over_when_those_that_have_not_begun_are_too():
    board = told(
        {"event": "started", "label": "a", "index": 0, "total": 2},
        {"event": "completed", "label": "a", "status": "completed"},
    )
    assert not board.is_over
    assert text_of(board.lines(TEN)[0]) == "Delegate [2 subagents]"
    assert text_of(board.lines(TEN)[-1]).startswith("total  1 completed, 1 queued")


def test_resumed_runs_keep_their_rows_whatever_their_place_was():
    board = told(
        {"event": "started", "label": "c", "index": 2, "total": 3},
        {"event": "started", "label": "b", "index": 1, "total": 3},
        labels=("b", "c"),
    )
    assert [row.session_id for row in board.rows] == ["sess_b", "sess_c"]
    assert text_of(board.lines(TEN)[0]) == "Delegate [2 subagents]"


def test_several_that_never_began_have_a_row_each():
    board = ProgressTable(("a", "b"))
    for index, label in enumerate(("a", "b")):
        board.emit(Progress(event="completed", label=label, index=index, total=2, status="cancelled"), 1.0)
    assert [row.status for row in board.rows] == ["cancelled", "cancelled"]


def test_runs_of_the_same_label_are_distinguished():
    board = ProgressTable(("a", "b", "a"))
    for index, label in enumerate(("a", "b", "a")):
        board.emit(Progress(event="started", label=label, session_id=f"sess_{index}", index=index, total=3), 0.0)
    assert [text_of(spans).partition("]")[0] for spans in board.lines(TEN)[1:4]] == ["[a", "[b", "[a #2"]


def test_what_is_over_took_as_long_as_it_did_whenever_it_is_looked_at():
    board = told(
        {"event": "started", "label": "a", "seconds": 600.0},
        {"event": "completed", "label": "a", "status": "completed", "seconds": 90.0},
    )
    row, total = [text_of(spans) for spans in board.lines(TEN)[1:]]
    assert row == "[a] ✓ completed 1m30s"
    assert total == "total  1 completed · in=0 out=0 · 1m30s"


@pytest.mark.rule("delegate.view")
def test_each_stands_beneath_its_parent_at_every_depth_and_all_are_counted():
    board = told(
        {"event": "started", "label": "a", "index": 0, "total": 2, "parent": "sess_call"},
        {"event": "started", "label": "b", "index": 1, "total": 2, "parent": "sess_call"},
        {"event": "started", "label": "b1", "index": 0, "total": 1, "parent": "sess_b"},
        {"event": "started", "label": "a1", "index": 0, "total": 2, "parent": "sess_a"},
        {"event": "started", "label": "a11", "index": 0, "total": 1, "parent": "sess_a1"},
        {"event": "started", "label": "a2", "index": 1, "total": 2, "parent": "sess_a"},
        {"event": "tokens", "label": "a11", "input": 50_000, "output": 7},
        {"event": "completed", "label": "a11", "status": "completed"},
        labels=("a", "b", "later"),
    )
    heading, *rows, total = [text_of(spans) for spans in board.lines(TEN)]
    assert heading == "Delegate [7 subagents]"
    assert [row.split("]")[0] for row in rows] == ["[a", "  [a1", "    [a11", "  [a2", "[b", "  [b1", "[later"]
    assert total.startswith("total  1 completed, 5 running, 1 queued · in=50k out=7 · ")
    assert not board.is_over


def test_a_subagent_below_another_never_takes_the_row_of_a_task_of_its_name():
    board = told(
        {"event": "started", "label": "a", "index": 0, "total": 2, "parent": "sess_call"},
        {"event": "started", "label": "b", "index": 0, "total": 1, "parent": "sess_a"},
        labels=("a", "b"),
    )
    rows = [text_of(spans) for spans in board.lines(TEN)][1:-1]
    assert [row.split(" ")[:3] for row in rows] == [["[a]", "…", "thinking"], ["", "", "[b"], ["[b]", "·", "queued"]]


def test_one_that_ended_elsewhere_is_shown_with_what_it_used_and_how_long_it_worked():
    ended = {"event": "completed", "label": "a", "status": "partial", "reason": "timeout"}
    board = told(ended | {"input": 4_000, "output": 70, "cost": None, "seconds": 9.0}, labels=("a",))
    row, total = [text_of(spans) for spans in board.lines(TEN)][1:]
    assert row == "[a] ⚠ partial: timeout (in=4k out=70) 9.0s cost unknown"
    assert total == "total  1 partial · in=4k out=70 · 9.0s · cost unknown"


def test_a_run_that_began_before_the_view_has_one_clock():
    board = ProgressTable(("a",))
    for event in ({"event": "started", "seconds": 2.3}, {"event": "note", "content": "found it", "seconds": 0.1}):
        progress = Progress(label="a", session_id="sess_a", **event)
        row = board.emit(progress, TEN)
        assert row is not None
        assert moment(row, progress, TEN) == pytest.approx(TEN - 2.3 + (0.1 if progress.event == "note" else 0.0))


def test_the_latest_note_stays_below_a_running_subagent_while_there_is_room():
    board = told(
        {"event": "started", "label": "a"},
        {"event": "started", "label": "b"},
        {"event": "note", "label": "a", "content": "the first"},
        {"event": "note", "label": "a", "content": "the\nsecond"},
        {"event": "tool_call", "label": "b", "tool": "Note", "args": "its own"},
        {"event": "note", "label": "b", "content": "its own"},
        {"event": "text", "label": "a", "content": "and on"},
        labels=("a", "b"),
    )
    shown = [text_of(spans) for spans in board.lines(TEN, 6)]
    assert [one.partition(" 1")[0] for one in shown[1:5]] == [
        "[a] … writing",
        "  ✎ the second",
        "[b] ✎ noted 9.0s",
        "  ✎ its own",
    ]
    assert [text_of(spans)[:9] for spans in board.lines(TEN, 5)[1:3]] == ["[a] … wri", "[b] ✎ its"]
    board.emit(Progress(event="completed", label="a", session_id="sess_a", status="completed"), TEN)
    assert [text_of(spans)[:5] for spans in board.lines(TEN)[1:4]] == ["[a] ✓", "[b] ✎", "  ✎ i"]


def test_a_model_that_all_subagents_have_is_named_once():
    used = {"event": "tokens", "input": 5, "output": 5}
    board = told(
        {"event": "started", "label": "a"},
        {"event": "started", "label": "b"},
        {**used, "label": "a", "model": "anthropic:claude-sonnet-5-5"},
    )
    _, row, _, total = [text_of(spans) for spans in board.lines(TEN)]
    assert "anthropic" not in row
    assert total.endswith(" · anthropic:claude-sonnet-5-5")
    board.emit(Progress(**used, label="b", model="ollama:qwen3", session_id="sess_b"), TEN)
    _, *rows, total = [text_of(spans) for spans in board.lines(TEN)]
    assert "anthropic" not in total
    assert [row.split()[-1] for row in rows] == ["anthropic:claude-sonnet-5-5", "ollama:qwen3"]


def test_a_subagent_that_ended_in_another_process_shows_what_it_used_in_all() -> None:
    board = ProgressTable(["a"])
    board.emit(Progress(event="started", label="a", session_id="1"), 0.0)
    board.emit(Progress(event="tokens", label="a", session_id="1", input=1000, output=8, cost=0.01), 1.0)
    end = Progress(event="completed", label="a", session_id="1", status="completed", input=3000, output=28, cost=0.03)
    row = board.emit(end, 2.0)
    assert row is not None
    assert (row.input, row.output, row.cost, row.ended) == (3000, 28, 0.03, 2.0)
