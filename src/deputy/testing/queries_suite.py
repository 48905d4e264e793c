"""What every implementation of Queries must do: cases that need nothing but a store.

A test suite runs `CASES` one by one: `await case(store)` with a fresh store each. A case fails by `AssertionError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from msgspec import json

from deputy.core.errors import Error
from deputy.core.events import ANSWER, Noted, QuestionAsked, Record, Requested, Returned, RunOpened, ToolCallEnded
from deputy.core.outcome import Blocked, Completed
from deputy.core.progress import Progress
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.core.state import ASKED, answer_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from deputy.core.state import State
    from deputy.engine.ports import Journal
    from deputy.engine.ports.queries import Cursor, ProgressEvent, Queries

    Case: TypeAlias = Callable[["Store"], Awaitable[None]]

ASKS = Error(type="escalation", message="It asks.", recoverable=True, recommendation="Answer it.")
ROOT, CHILD, OTHER = "sess_1_root00", "sess_1_child0", "sess_2_other0"
_RING = 256
_EVERY = 1_000_000
_PAGES = 600


class Store(Protocol):
    """One journal, which processes of a case write and read."""

    def write(self) -> AbstractAsyncContextManager[Journal[Any]]:
        """The journal as a process writes it; leaving it is an orderly end of that process."""
        ...

    async def crash(self, journal: Journal[Any]) -> None:
        """End a writing process as kill -9 would."""
        ...

    def read(self) -> Queries:
        """The journal as another process reads it."""
        ...


class RunView(NamedTuple):
    """Everything a follower knows of one run."""

    state: State
    records: tuple[tuple[int, float, str], ...]
    progress: tuple[ProgressEvent, ...]


class Mirror:
    """All runs of a journal as a follower knows them; equal to `snapshot` whenever it has caught up."""

    def __init__(self) -> None:
        self.runs: dict[str, RunView] = {}
        self._cursor: Cursor | None = None

    def catch_up(self, queries: Queries, limit: int = 7) -> None:
        """Follow until nothing is new."""
        while self._cursor is not None:
            changes = queries.follow(self._cursor, limit)
            if changes.is_empty:
                assert not changes.has_more
                return
            self._cursor = None if changes.is_reset else changes.cursor
            for state in changes.runs:
                self.runs[state.run] = self.runs.get(state.run, RunView(state, (), ()))._replace(state=state)
            for head in changes.records:
                view = self.runs[head.run]
                self.runs[head.run] = view._replace(records=(*view.records, (head.seq, head.at, head.kind)))
            for one in changes.progress:
                # Watchers may show progress of a run that has no record yet.
                if (known := self.runs.get(one.run)) is not None:
                    self.runs[one.run] = known._replace(progress=(*known.progress, one)[-_RING:])
        self._cursor = queries.cursor()
        self.runs = snapshot(queries)


def snapshot(queries: Queries) -> dict[str, RunView]:
    """All runs of a journal, read anew."""
    states = (*queries.live(), *queries.ended(_EVERY))
    return {
        state.run: RunView(state, _heads(queries, state.run), tuple(queries.progress(state.run))) for state in states
    }


def _heads(queries: Queries, run: str) -> tuple[tuple[int, float, str], ...]:
    return tuple((one.seq, one.at, one.event.kind) for one in queries.records(run) if isinstance(one, Record))


def opened(run: str) -> RunOpened:
    """The first event of a root run."""
    return RunOpened(lineage=Lineage.root(run), label=run, command="run")


def requested(run: str, parent: str) -> Requested:
    """The first event of a child."""
    request = Request(
        session_id=run,
        target=Hop("researcher", "agent"),
        prompt="Look.",
        caller=Lineage.root(parent),
        caller_grant=Grant(),
        seconds=60.0,
    )
    return Requested(request=request, parent=parent, label=run)


def completed(run: str) -> Returned:
    """The end of a run."""
    return Returned(outcome=Completed(lineage=Lineage.root(run), summary="done", report=f"report of {run}"))


def _tool_call(number: int) -> bytes:
    return json.encode(Progress(event="tool_call", label="look", tool="Read", args=str(number)))


async def _family(journal: Journal[Any]) -> tuple[Any, Any]:
    """A root run with a child; both are live."""
    root = await journal.begin(ROOT, opened(ROOT))
    return root, await journal.spawn(root, "spawn:0", CHILD, requested(CHILD, ROOT))


# --- cases ------------------------------------------------------------------------------------------------------------


async def runs_are_found_by_their_status_and_their_tree(store: Store) -> None:
    """Live, blocked and ended runs; trees, children and descendants."""
    async with store.write() as journal:
        root, child = await _family(journal)
        await journal.finish(child, "returned:0", completed(CHILD))
        other = await journal.begin(OTHER, opened(OTHER))
        question = Blocked(lineage=Lineage.root(OTHER), summary="asks", question="Which?", errors=(ASKS,))
        await journal.finish(other, "returned:0", Returned(outcome=question))
        with store.read() as queries:
            assert [state.run for state in queries.live()] == [ROOT]
            assert queries.live_count() == 1
            assert [state.run for state in queries.blocked()] == [OTHER]
            assert {state.run for state in queries.ended(10)} == {CHILD, OTHER}
            assert [state.run for state in queries.ended(1)] == [OTHER]
            assert set(queries.ids()) == {ROOT, CHILD, OTHER}
            assert [state.run for state in queries.labelled(CHILD)] == [CHILD]
            assert queries.labelled(CHILD[:-1]) == []
            assert [state.run for state in queries.tree(ROOT)] == [ROOT, CHILD]
            assert [state.run for state in queries.children(ROOT)] == [CHILD]
            assert [state.run for state in queries.descendants(ROOT)] == [CHILD]
            assert queries.state("sess_0_none00") is None
            state = queries.state(CHILD)
            assert state is not None
            outcome = queries.outcome(state)
            assert isinstance(outcome, Completed)
            assert outcome.report == f"report of {CHILD}"
            assert (queries.examine(), queries.damage) == ([], "")
        await journal.release(root)


async def records_are_paged_by_seq(store: Store) -> None:
    """A page anywhere in a long run has exactly its records."""
    async with store.write() as journal:
        lease = await journal.begin(ROOT, opened(ROOT))
        for number in range(_PAGES):
            journal.append_soon(lease, f"note:{number}", Noted(content=str(number)))
        await journal.wait_durable(lease)
        with store.read() as queries:
            every = [one for one in queries.records(ROOT) if isinstance(one, Record)]
            assert [one.seq for one in every] == list(range(1, _PAGES + 2))
            for after, limit in ((0, 1), (0, 256), (1, 300), (255, 2), (_PAGES - 3, 3), (_PAGES, 200), (_PAGES + 1, 5)):
                page = list(queries.records(ROOT, after, limit))
                assert page == every[after : after + limit], (after, limit)
            assert queries.get(ROOT, "note:7") == every[8]
            assert queries.get(ROOT, "note:none") is None


async def follow_returns_all_that_changed_since_a_cursor(store: Store) -> None:
    """States, records and progress of all runs; then nothing."""
    async with store.write() as journal:
        root, child = await _family(journal)
        with store.read() as queries:
            begun = queries.cursor()
            assert queries.follow(begun).is_empty
            journal.show_progress(CHILD, _tool_call(1))
            await journal.append(child, "note:1", Noted(content="found"))
            await journal.finish(child, "returned:0", completed(CHILD))
            await journal.append(root, "note:1", Noted(content="heard"))
            changes = queries.follow(begun)
            assert [(head.run, head.seq, head.kind) for head in changes.records] == [
                (CHILD, 2, "noted"),
                (CHILD, 3, "returned"),
                (ROOT, 3, "noted"),
            ]
            assert {state.run: state.status for state in changes.runs} == {ROOT: "requested", CHILD: "completed"}
            assert [(one.run, one.body) for one in changes.progress] == [(CHILD, _tool_call(1))]
            assert queries.recent_progress(1) == list(changes.progress)
            assert not changes.has_more
            assert queries.follow(changes.cursor).is_empty
            again = queries.follow(begun)
            assert (again.records, again.progress) == (changes.records, changes.progress)


async def follow_is_paged_and_returns_records_before_progress(store: Store) -> None:
    """A limit cuts the changes into pages that together are all of them."""
    async with store.write() as journal:
        lease = await journal.begin(ROOT, opened(ROOT))
        with store.read() as queries:
            cursor = queries.cursor()
            for number in range(8):
                journal.show_progress(ROOT, _tool_call(number))
                await journal.append(lease, f"note:{number}", Noted(content=str(number)))
            await journal.release(lease)
            heads, shown, is_more = list[int](), list[bytes](), True
            while is_more:
                changes = queries.follow(cursor, 3)
                assert len(changes.records) <= 3
                assert len(changes.progress) <= 3
                assert not changes.progress or len(heads) + len(changes.records) == 8
                heads += [head.seq for head in changes.records]
                shown += [one.body for one in changes.progress]
                cursor, is_more = changes.cursor, changes.has_more
            assert heads == list(range(2, 10))
            assert shown == [_tool_call(number) for number in range(8)]
            assert [one.body for one in queries.recent_progress(3)] == shown[-3:]
            assert queries.follow(cursor, 3).is_empty


async def the_recent_progress_is_the_latest_of_all_runs(store: Store) -> None:
    """Events of all runs in the order of the journal; a limit leaves out the oldest, of any run."""
    async with store.write() as journal:
        root, child = await _family(journal)
        with store.read() as queries:
            begun = queries.cursor()
            assert queries.recent_progress(5) == []
            for run, lease, first in ((ROOT, root, 0), (CHILD, child, 3)):
                for number in range(first, first + 3):
                    journal.show_progress(run, _tool_call(number))
                await journal.release(lease)
            shown = queries.follow(begun).progress
            assert [one.body for one in shown] == [_tool_call(number) for number in range(6)]
            for limit in (0, 1, 3, 6, 100):
                assert queries.recent_progress(limit) == list(shown[len(shown) - limit :] if limit < 6 else shown), (
                    limit
                )
            for run in (ROOT, CHILD):
                assert [one for one in queries.recent_progress(100) if one.run == run] == queries.progress(run)


async def a_removal_voids_every_cursor(store: Store) -> None:
    """After a removal positions are used again, so a follower must read everything again."""
    async with store.write() as journal:
        lease = await journal.begin(ROOT, opened(ROOT))
        other = await journal.begin(OTHER, opened(OTHER))
        await journal.finish(other, "returned:0", completed(OTHER))
        with store.read() as queries:
            cursor = queries.cursor()
            await journal.purge(OTHER)
            await journal.append(lease, "note:1", Noted(content="one"))
            await journal.append(lease, "note:2", Noted(content="two"))
            changes = queries.follow(cursor)
            assert changes.is_reset
            assert not changes.records
            assert queries.state(OTHER) is None
            assert queries.follow(changes.cursor).is_empty
            await journal.append(lease, "note:3", Noted(content="three"))
            assert [head.seq for head in queries.follow(changes.cursor).records] == [4]


async def the_holder_of_a_run_is_seen_to_be_gone(store: Store) -> None:
    """The death of a process writes no record, but shows in the holders."""
    async with store.write() as journal:
        lease = await journal.begin(ROOT, opened(ROOT))
        other = await journal.begin(OTHER, opened(OTHER))
        await journal.finish(other, "returned:0", completed(OTHER))
        with store.read() as queries:
            holders = queries.holders()
            assert set(holders) == {ROOT}
            assert not holders[ROOT].is_orphaned
            await journal.append(lease, "note:1", Noted(content="alive"))
            cursor = queries.cursor()
            await store.crash(journal)
            assert queries.holders()[ROOT].is_orphaned
            assert queries.follow(cursor).is_empty


async def untaken_messages_are_listed(store: Store) -> None:
    """A message is listed until its run has taken it."""
    async with store.write() as journal:
        lease = await journal.begin(ROOT, opened(ROOT))
        await journal.append(lease, f"ask{ASKED}", QuestionAsked(topic=ANSWER, question="Which?"))
        with store.read() as queries:
            assert queries.addressed() == []
            await journal.send(ROOT, ANSWER, answer_key("ask"), b'"this"')
            assert queries.addressed() == [(ROOT, ANSWER)]
            await journal.receive_message(lease, "ask", ANSWER)
            assert queries.addressed() == []


async def an_error_is_logged_once_with_its_count(store: Store) -> None:
    """The same error again raises its count and keeps the stack trace; the latest error comes first."""
    first = Error(type="storage", message="Full.", recoverable=True, recommendation="Free some space.")
    second = Error(type="internal", message="Odd.", recoverable=False, recommendation="Report it.")
    async with store.write() as journal:
        lease = await journal.begin(ROOT, opened(ROOT))
        for number, (error, trace) in enumerate(((first, "a trace"), (second, "a trace"), (first, ""))):
            await journal.append(lease, f"tool:{number}", ToolCallEnded(tool="t", error=error, trace=trace))
        with store.read() as queries:
            logged = queries.errors(10)
            assert {(one.message, one.count, one.severity) for one in logged} == {
                ("Full.", 2, "warning"),
                ("Odd.", 1, "error"),
            }
            assert {one.trace for one in logged} == {"a trace"}
            assert len(queries.errors(1)) == 1


CASES: tuple[Case, ...] = (
    runs_are_found_by_their_status_and_their_tree,
    records_are_paged_by_seq,
    follow_returns_all_that_changed_since_a_cursor,
    follow_is_paged_and_returns_records_before_progress,
    the_recent_progress_is_the_latest_of_all_runs,
    a_removal_voids_every_cursor,
    the_holder_of_a_run_is_seen_to_be_gone,
    untaken_messages_are_listed,
    an_error_is_logged_once_with_its_count,
)
