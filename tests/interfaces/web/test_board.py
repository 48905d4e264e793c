"""The board equals the journal: after any appends, prunes, reopenings and lost connections."""

import asyncio
import time
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw, json
from tests.support.busy_journal import BusyJournal
from tests.support.web_client import Mirror

from deputy.core.events import Noted, QuestionAnswered, QuestionAsked
from deputy.core.progress import Progress
from deputy.core.state import ASKED, answer_key
from deputy.interfaces.web import board as module
from deputy.interfaces.web.board import FIELDS, Board, read_position
from deputy.journal.retention import prune
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore
from deputy.testing.queries_suite import completed, opened, requested

ROOTS = ("sess_1_root00", "sess_2_root00")


def decoded(board: Board) -> dict:
    return json.decode(b"{" + board.whole() + b"}")


def snapshot(home) -> dict:
    """A board that is read anew."""
    queries = SqliteQueries.open(home)
    assert queries is not None
    with queries:
        return decoded(Board(queries, "fresh"))


class Writer:
    """A process that works on runs, as the steps of an example say."""

    def __init__(self, home) -> None:
        self.home = home
        self.journal = SqliteJournal(home, fsync="off")
        self.leases: dict[str, object] = {}
        self.asked: dict[str, str] = {}
        self.count = 0

    async def step(self, what: str, number: int) -> None:
        self.count += 1
        runs = sorted(self.leases)
        run = runs[number % len(runs)] if runs else ""
        if what == "open" or not runs:
            name = f"sess_{self.count}_root00"
            self.leases[name] = await self.journal.begin(name, opened(name))
        elif what == "spawn":
            child = f"sess_{self.count}_child0"
            lease = self.leases[run]
            self.leases[child] = await self.journal.spawn(lease, f"spawn:{self.count}", child, requested(child, run))
        elif what == "note":
            await self.journal.append(self.leases[run], f"note:{self.count}", Noted(content=f"n{self.count}"))
        elif what == "progress":
            body = Progress(event="tool_call", label="x", tool="Read", args=f"f{number}.py")
            self.journal.show_progress(run, json.encode(body))
            await self.journal.append(self.leases[run], f"note:{self.count}", Noted(content=""))
        elif what == "ask" and run not in self.asked:
            key = self.asked[run] = f"ask:{self.count}"
            asked = QuestionAsked(topic="answer", question=f"q{self.count}")
            await self.journal.append(self.leases[run], f"{key}{ASKED}", asked)
        elif what == "answer" and run in self.asked:
            key = self.asked.pop(run)
            await self.journal.send(run, "answer", answer_key(key), b'"yes"')
            await self.journal.receive_message(self.leases[run], key, "answer")
        elif what == "end" and run not in self.asked:
            await self.journal.finish(self.leases.pop(run), "returned:0", completed(run))
        elif what == "prune":
            prune(SqliteStore(self.home), time.time() + 60)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "open",
                "spawn",
                "note",
                "progress",
                "ask",
                "answer",
                "end",
                "end",
                "prune",
                "look",
                "look",
                "lose",
                "drop",
                "reopen",
            ]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


class OpenPage:
    """A server's board and a page that follows it, with a connection that comes and goes."""

    def __init__(self, queries) -> None:
        self.queries = queries
        self.board = Board(queries, "first")
        self.mirror = Mirror(decoded(self.board))
        self.is_lost = False

    def look(self) -> None:
        self._apply(self.board.look())

    def look_and_lose(self) -> None:
        """Lose the connection after the first frame of a look, and connect again."""
        self._apply(self.board.look()[:1])
        self.reconnect()

    def drop(self) -> None:
        """Lose the connection, or connect again."""
        self.is_lost = not self.is_lost
        self.reconnect()

    def reopen(self, name: str) -> None:
        """Another server process."""
        self.board = Board(self.queries, name)
        self.is_lost = False
        self.reconnect()

    def reconnect(self) -> None:
        self._apply(self.board.catch_up(read_position(self.mirror.position)))

    def _apply(self, frames) -> None:
        for frame in () if self.is_lost else frames:
            self.mirror.apply(frame.event, frame.position, json.decode(frame.data))
        if self.mirror.is_reset:
            self.mirror = Mirror(decoded(self.board))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_a_page_equals_the_journal_after_any_interleaving(tmp_path_factory, steps):
    """A page that loses its connection, or whose server starts again, has the rows and questions of a new page."""
    home = tmp_path_factory.mktemp("board") / "home"

    async def main():
        writer = Writer(home)
        async with writer.journal:
            await writer.step("open", 0)
            with SqliteQueries.open(home) as queries:
                page = OpenPage(queries)
                for number, (what, chosen) in enumerate(steps):
                    match what:
                        case "look":
                            page.look()
                        case "lose":
                            page.look_and_lose()
                        case "drop":
                            page.drop()
                        case "reopen":
                            page.reopen(f"server{number}")
                        case _:
                            await writer.step(what, chosen)
                page.look()
                if page.is_lost:
                    page.drop()
                fresh = Mirror(snapshot(home))
                assert page.mirror.rows == fresh.rows
                assert page.mirror.waiting == fresh.waiting
                assert page.mirror.doing == fresh.doing

    asyncio.run(main())


def test_after_a_restart_of_the_server_a_page_sees_what_happened_without_a_record(tmp_path):
    home = tmp_path / "home"

    async def main():
        async with SqliteJournal(home, fsync="off") as journal:
            await journal.begin(ROOTS[0], opened(ROOTS[0]))
            with SqliteQueries.open(home) as queries:
                page = OpenPage(queries)
                assert field(page.mirror.rows[ROOTS[0]], "status") == "running"
        # The process has ended, which writes no record.
        with SqliteQueries.open(home) as queries:
            page.queries = queries
            page.reopen("another")
            assert field(page.mirror.rows[ROOTS[0]], "status") == "interrupted"

    asyncio.run(main())


def test_the_looks_of_a_later_server_have_higher_numbers(tmp_path, monkeypatch):
    home = tmp_path / "home"

    async def main():
        async with SqliteJournal(home, fsync="off") as journal:
            await journal.begin(ROOTS[0], opened(ROOTS[0]))
            with SqliteQueries.open(home) as queries:
                first = Board(queries, "first")
                first.look()
                later = time.time() + 1
                monkeypatch.setattr(module.time, "time", lambda: later)
                assert Board(queries, "second").position.look > first.position.look

    asyncio.run(main())


# --- what a row says --------------------------------------------------------------------------------------------------


def field(row, name):
    return row[FIELDS.index(name)]


@pytest.fixture
def written(tmp_path):
    """A journal with a root and a child, and its board."""
    home = tmp_path / "home"

    async def main(*progress: Progress, ended: bool = False):
        async with SqliteJournal(home, fsync="off") as journal:
            root = await journal.begin(ROOTS[0], opened(ROOTS[0]))
            child = await journal.spawn(root, "spawn:0", "sess_1_child0", requested("sess_1_child0", ROOTS[0]))
            for one in progress:
                journal.show_progress("sess_1_child0", json.encode(one))
            await journal.append(child, "note:0", Noted(content="found"))
            if ended:
                await journal.finish(child, "returned:0", completed("sess_1_child0"))
            queries = SqliteQueries.open(home)
            with queries:
                return decoded(Board(queries, "s"))

    return lambda *progress, **more: asyncio.run(main(*progress, **more))


def row_of(board, run):
    return next(row for row in board["runs"] if row[0] == run)


def test_a_run_that_calls_the_same_tool_alike_three_times_of_eight_is_a_loop(written):
    same = Progress(event="tool_call", label="x", tool="Read", args="a.py")
    others = [Progress(event="tool_call", label="x", tool="Read", args=f"{n}.py") for n in range(8)]
    assert "loop" in field(row_of(written(same, others[0], same, others[1], same), "sess_1_child0"), "flags")


def test_a_run_that_is_continued_again_and_again_shows_one_call_and_is_no_loop(written):
    shown = (
        Progress(event="tokens", label="x", input=2031, output=76),
        Progress(event="tool_call", label="x", tool="Edit", args="a.py"),
        Progress(event="waiting", label="x", content="Use Edit: a.py"),
    )
    assert field(row_of(written(*shown * 4), "sess_1_child0"), "flags") == []


def test_the_same_call_in_one_turn_after_the_other_is_a_loop(written):
    call = Progress(event="tool_call", label="x", tool="Edit", args="a.py")
    turns = [Progress(event="tokens", label="x", input=2000 + number, output=76) for number in range(3)]
    assert field(row_of(written(*(one for turn in turns for one in (turn, call))), "sess_1_child0"), "flags") == [
        "loop"
    ]


def test_other_calls_are_no_loop_and_old_ones_are_forgotten(written):
    same = Progress(event="tool_call", label="x", tool="Read", args="a.py")
    others = [Progress(event="tool_call", label="x", tool="Read", args=f"{n}.py") for n in range(8)]
    board = written(same, same, *others[:6], same)
    assert field(row_of(board, "sess_1_child0"), "flags") == []
    assert board["doing"]["sess_1_child0"][:2] == ["tool", "Read a.py"]


def test_a_retry_is_flagged_until_the_next_progress(written):
    retry = Progress(event="retry", label="x", attempt=2, of=4, reason="overloaded", http_status=529)
    board = written(retry)
    assert field(row_of(board, "sess_1_child0"), "flags") == ["retrying"]
    assert board["doing"]["sess_1_child0"][1] == "retrying (2/4): HTTP 529: overloaded"


def test_text_after_a_retry_ends_the_flag(written):
    retry = Progress(event="retry", label="x", attempt=2, of=4, reason="overloaded")
    board = written(retry, Progress(event="text", label="x", content="I see"))
    assert field(row_of(board, "sess_1_child0"), "flags") == []
    assert board["doing"]["sess_1_child0"][:2] == ["text", "I see"]


@pytest.mark.parametrize(("tokens", "text"), [(0, "thinking"), (1200, "thinking (1,200 tokens)")])
def test_thinking_is_shown_with_its_tokens_once_there_are_some(written, tokens, text):
    board = written(Progress(event="thinking", label="x", output=tokens))
    assert board["doing"]["sess_1_child0"][:2] == ["thinking", text]


def test_a_run_that_ended_does_nothing_now(written):
    board = written(Progress(event="text", label="x", content="I see"), ended=True)
    assert field(row_of(board, "sess_1_child0"), "status") == "completed"
    assert "sess_1_child0" not in board["doing"]


def test_a_run_without_its_process_is_interrupted_and_a_silent_one_is_silent(tmp_path, monkeypatch):
    home = tmp_path / "home"

    async def main():
        async with SqliteJournal(home, fsync="off") as journal:
            await journal.begin(ROOTS[0], opened(ROOTS[0]))
            with SqliteQueries.open(home) as queries:
                board = Board(queries, "s")
                assert field(row_of(decoded(board), ROOTS[0]), "flags") == []
                later = time.time() + 61
                monkeypatch.setattr(module.time, "time", lambda: later)
                monkeypatch.setattr(module, "TICK_SECONDS", 0)
                (rows,) = [frame for frame in board.look() if frame.event == "rows"]
                assert field(json.decode(rows.data)["rows"][0], "flags") == ["silent"]
        with SqliteQueries.open(home) as queries:
            row = row_of(decoded(Board(queries, "s")), ROOTS[0])
            assert field(row, "status") == "interrupted"
            assert field(row, "flags") == ["interrupted"]

    asyncio.run(main())


def test_a_look_with_nothing_new_makes_no_frame_and_reads_only_the_cursor(tmp_path):
    home = tmp_path / "home"

    async def main():
        async with SqliteJournal(home, fsync="off") as journal:
            await journal.begin(ROOTS[0], opened(ROOTS[0]))
            queries = SqliteQueries.open(home)
            with queries:
                board = Board(queries, "s")
                board.look()
                queries._connection.set_trace_callback(lines.append)
                assert board.look() == []

    lines: list[str] = []
    asyncio.run(main())
    assert len(lines) == 1
    assert lines[0].startswith("SELECT (SELECT number FROM generation)")


def test_runs_out_of_time_are_looked_for_at_the_first_deadline_and_not_before(tmp_path, monkeypatch):
    home = tmp_path / "home"
    asked, passed = [], [0.0]
    clock = time.monotonic

    def look_after(board, seconds: float) -> int:
        passed[0] += seconds
        board.look()
        return len(asked)

    async def main():
        async with SqliteJournal(home, fsync="off") as journal:
            busy = BusyJournal(journal)
            top, lease = await busy.root("top")
            with SqliteQueries.open(home) as queries:
                board = Board(queries, "s")
                monkeypatch.setattr(module, "expire_overdue", lambda _: asked.append(passed[0]) or inf)
                monkeypatch.setattr(module.time, "monotonic", lambda: clock() + passed[0])
                assert look_after(board, 0) == 1
                await busy.note(lease, "no deadline")
                assert [look_after(board, seconds) for seconds in (0, 5000)] == [1, 1]
                await busy.child(top, lease, "child", seconds=900)
                assert [look_after(board, seconds) for seconds in (0, 800, 110)] == [1, 1, 2]
                # A removal makes it read everything anew, with runs whose deadlines it has not seen.
                ended, done = await busy.root("ended")
                await busy.complete(ended, done)
                prune(SqliteStore(home), time.time() + 60)
                assert [look_after(board, 0) for _ in range(3)] == [2, 3, 3]

    asyncio.run(main())


def test_the_trees_that_ended_first_leave_a_board_with_too_many_rows(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setattr(module, "MOST_ROWS", 3)

    async def main():
        writer = Writer(home)
        async with writer.journal:
            for number in range(3):
                await writer.step("open", number)
            with SqliteQueries.open(home) as queries:
                page = OpenPage(queries)
                for number in range(2):
                    await writer.step("end", 0)
                    await writer.step("open", number)
                page.look()
                assert sorted(page.mirror.rows) == sorted(row[0] for row in decoded(page.board)["runs"])
                return sorted(page.mirror.rows), sorted(writer.leases)

    shown, live = asyncio.run(main())
    assert shown == live


def test_positions_that_are_none_are_refused():
    for text in (
        "",
        "1.2.3",
        "1.2.3.s.x",
        "a.b.c.d.e",
        "1.2.3.s.4.5",
        f"1.2.3.s.{'9' * 30}",
        "-1.2.3.s.4",
        "1.2.3.s\n.4",
        "1.2.3..4",
    ):
        assert read_position(text) is None
    assert read_position("1.2.3.s.4").look == 4


def test_an_answer_that_no_process_takes_is_shown_as_answered(tmp_path):
    home = tmp_path / "home"

    async def main():
        async with SqliteJournal(home, fsync="off") as journal:
            lease = await journal.begin(ROOTS[0], opened(ROOTS[0]))
            await journal.append(lease, f"ask{ASKED}", QuestionAsked(topic="answer", question="Which?"))
            with SqliteQueries.open(home) as queries:
                assert [one["answered"] for one in decoded(Board(queries, "s"))["waiting"]] == [False]
                await journal.send(ROOTS[0], "answer", answer_key("ask"), b'"this"')
                assert [one["answered"] for one in decoded(Board(queries, "s"))["waiting"]] == [True]
                await journal.append(lease, "ask", QuestionAnswered(topic="answer", body=Raw(b'"this"')))
                assert decoded(Board(queries, "s"))["waiting"] == []

    asyncio.run(main())
