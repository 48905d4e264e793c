"""The rows of the board: all runs that the page shows, kept equal to the journal by following it."""

from __future__ import annotations

import os
import time
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import json

from deputy.core.events import Record
from deputy.core.visible_text import visible_json
from deputy.engine.ports.queries import Cursor
from deputy.engine.recover import GRACE_SECONDS
from deputy.interfaces.cli.console import expire_overdue
from deputy.interfaces.web.record_lines import record_head
from deputy.interfaces.web.row_marks import RowMarks
from deputy.interfaces.web.waiting import open_questions, question_json
from deputy.journal.registry import due_times
from deputy.processes.outgoing import outgoing_json, process_redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.state import State
    from deputy.engine.ports.queries import Changes, ProgressEvent, Queries
    from deputy.interfaces.web.activity import Activity, Doing

ENDED = 50
"""The latest ended runs that the board shows; their trees are always whole."""
MOST_ROWS = 5000
"""When there are more, trees that have ended are no longer followed."""
TICK_SECONDS = 2.0
"""How often holders, deadlines and flags are looked at: they change without a record."""
_MOST_HEADS = 200
_MOST_CAUGHT_UP = 20
_READ_PROGRESS, _ENOUGH_PROGRESS = 32, 16
"""The latest progress events of a run that are read when the board opens, and how many of them are enough."""

FIELDS = (
    "id",
    "parent",
    "root",
    "label",
    "status",
    "agent",
    "command",
    "model",
    "requested_at",
    "began_at",
    "ended_at",
    "last_at",
    "deadline",
    "waited",
    "input",
    "output",
    "cached",
    "requests",
    "cost",
    "estimated",
    "context_tokens",
    "context_window",
    "turns",
    "tool_calls",
    "notes",
    "retries",
    "reason",
    "flags",
    "rate",
    "seq",
    "round",
)


class Frame(NamedTuple):
    """One event of the stream; `run` names the run whose watchers get it, empty for all."""

    event: str
    data: bytes
    look: int
    run: str = ""
    position: str = ""
    """The position after this frame."""


class Position(NamedTuple):
    """Where a reader of the stream is: a cursor of the journal, and a look of one server."""

    cursor: Cursor
    server: str
    look: int

    @property
    def text(self) -> str:
        """The position as the id of a frame."""
        return f"{self.cursor.generation}.{self.cursor.record}.{self.cursor.progress}.{self.server}.{self.look}"


def read_position(text: str) -> Position | None:
    """The position of a text; None if it is none."""
    parts = text.split(".")
    numbers = [part for at, part in enumerate(parts) if at != 3]
    # The text is sent back as a line of the stream.
    if len(parts) != 5 or not (text.isascii() and parts[3].isalnum()):
        return None
    if not all(part.isdigit() and len(part) < 20 for part in numbers):
        return None
    generation, record, progress, look = map(int, numbers)
    return Position(Cursor(generation, record, progress), parts[3], look)


class Board:
    """All rows, what waits, and what each run does. One thread uses it, that of its queries."""

    def __init__(self, queries: Queries, server: str) -> None:
        self.queries = queries
        self.watched: set[str] = set()
        """The runs whose records and text are streamed."""
        self._server = server
        self._redactor = process_redactor()
        # The looks of a later server have higher numbers: a page leaves out the frames that are older than its board.
        self._look = int(time.time() * 1000)
        self._tick_at = -inf
        self._read_everything()

    def _read_everything(self) -> None:
        queries = self.queries
        self._cursor = queries.cursor()
        self._states: dict[str, State] = {}
        self._marks = RowMarks()
        self._rows: dict[str, bytes] = {}
        self._texts: dict[str, tuple[tuple[str, ...], list[str]]] = {}
        self._versions: dict[str, int] = {}
        self._doing: dict[str, Doing] = {}
        self._doing_versions: dict[str, int] = {}
        self._waiting: dict[tuple[str, str], bytes] = {}
        self._expire_at = -inf
        self._measure()
        found = {state.run: state for state in (*queries.live(), *queries.blocked(), *queries.ended(ENDED))}
        roots = {_root(state) for state in found.values()}
        found |= {state.run: state for root in roots for state in queries.tree(root)}
        for state in sorted(found.values(), key=_age):
            self._put(state)
        self._read_progress()
        self._marks.check_holders(queries, self._states)
        self._encode(self._states)
        self._question(self._states)

    def _read_progress(self) -> None:
        """Read what the live runs did last: in one query, but for runs that did little lately."""
        latest: dict[str, list[ProgressEvent]] = {run: [] for run, state in self._states.items() if state.is_live}
        for one in self.queries.recent_progress(len(latest) * _READ_PROGRESS):
            if one.run in latest:
                latest[one.run].append(one)
        for run, events in latest.items():
            known = events if len(events) >= _ENOUGH_PROGRESS else self.queries.progress(run)
            self._take_progress(known[-_READ_PROGRESS:])

    def _measure(self) -> None:
        self._now = time.time()
        # Deadlines and progress are by the journal's clock.
        self._offset = self._now - self.queries.now()
        self._marks.set_clock(self._now, self._offset)

    # --- what is read -------------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Where the board is."""
        return Position(self._cursor, self._server, self._look)

    @property
    def waiting_count(self) -> int:
        """The number of open questions."""
        return len(self._waiting)

    def whole(self) -> bytes:
        """The board as JSON."""
        fields = json.encode(FIELDS).decode()
        return (
            f'"cursor":"{self.position.text}","now":{self._now:.3f},"fields":{fields},'.encode()
            + b'"runs":[%b],"waiting":[%b],"doing":%b'
            % (b",".join(self._rows.values()), b",".join(self._waiting.values()), self._doing_json(self._doing))
        )

    def state(self, run: str) -> State | None:
        """The state of a run on the board."""
        return self._states.get(run)

    def catch_up(self, position: Position | None) -> list[Frame]:
        """The frames that bring a reader from a position to this look; a reset if it must read the board again."""
        frames = self._caught_up(position)
        return [*frames[:-1], *(frame._replace(position=self.position.text) for frame in frames[-1:])]

    def _caught_up(self, position: Position | None) -> list[Frame]:
        if position is None or position.cursor.generation != self._cursor.generation:
            return [self._frame("reset", b"{}")]
        if position.server == self._server and position.look <= self._look:
            changed = [run for run, look in self._versions.items() if look > position.look]
            doing = {run: self._doing[run] for run, look in self._doing_versions.items() if look > position.look}
            return self._frames(changed, doing, self._waiting.values())
        changed = self._changed_since(position.cursor)
        if changed is None:
            return [self._frame("reset", b"{}")]
        # Another server saw other holders and flags: the rows of all live runs are sent.
        live = (run for run, state in self._states.items() if state.is_live)
        return self._frames([*dict.fromkeys((*changed, *live))], self._doing, self._waiting.values())

    def _changed_since(self, cursor: Cursor) -> list[str] | None:
        found: dict[str, None] = {}
        for _ in range(_MOST_CAUGHT_UP):
            changes = self.queries.follow(cursor)
            if changes.is_reset:
                return None
            cursor = changes.cursor
            found |= {state.run: None for state in changes.runs}
            if not changes.has_more:
                return [run for run in found if run in self._rows]
        return None

    # --- a look -------------------------------------------------------------------------------------------------------

    def look(self) -> list[Frame]:
        """The frames of everything that changed since the last look."""
        now = time.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + expire_overdue(self.queries)
        is_tick = now >= self._tick_at
        changes = self.queries.follow(self._cursor)
        if changes.is_empty and not is_tick:
            return []
        self._look += 1
        if changes.is_reset:
            self._read_everything()
            return [self._frame("reset", b"{}")]
        before = self.position._replace(look=self._look - 1).text
        frames = self._news(changes, now if is_tick else None)
        # A reader that loses its connection in the middle of a look gets all of it again.
        positions = [*(before for _ in frames[1:]), self.position.text]
        return [frame._replace(position=at) for frame, at in zip(frames, positions, strict=False)]

    def _news(self, changes: Changes, tick: float | None) -> list[Frame]:
        self._measure()
        changed: dict[str, None] = {}
        frames: list[Frame] = []
        doing: dict[str, Doing] = {}
        while True:
            self._cursor = changes.cursor
            frames += self._heads({head.run: head.seq for head in reversed(changes.records)})
            for state in changes.runs:
                self._put(state)
                changed[state.run] = None
            doing |= self._take_progress(changes.progress, frames)
            if not changes.has_more:
                break
            changes = self.queries.follow(self._cursor)
        self._expire_at = min(self._expire_at, self._next_expiry(changed))
        asked = dict(changed)
        if tick is not None:
            self._tick_at = tick + TICK_SECONDS
            self._marks.check_holders(self.queries, self._states)
            changed |= dict.fromkeys(self._marks.changed(self._states))
            asked |= {run: None for run, _ in self._waiting}
        before = dict(self._waiting)
        self._question(asked)
        added = [body for key, body in self._waiting.items() if before.get(key) != body]
        dropped = [key for key in before if key not in self._waiting]
        frames += self._frames(self._encode(changed), doing)
        if added or dropped:
            body = b'{"add":[%b],"drop":%b}' % (b",".join(added), json.encode(dropped))
            frames.append(self._frame("waiting", body))
        return frames + self._trim()

    def _next_expiry(self, runs: Iterable[str]) -> float:
        """When the first of these runs may be out of time, by the monotonic clock."""
        live = (state for run in runs if (state := self._states[run]).is_live)
        first = min((at for state in live for at in due_times(state)), default=inf)
        return time.monotonic() + max(first + self._offset - self._now, GRACE_SECONDS)

    def _put(self, state: State) -> None:
        before = self._states.get(state.run)
        self._states[state.run] = state
        if self._marks.put(before, state):
            self._doing.pop(state.run, None)
            self._doing_versions.pop(state.run, None)

    def _take_progress(self, events: Iterable[ProgressEvent], frames: list[Frame] | None = None) -> dict[str, Doing]:
        """Take progress events; text of watched runs becomes frames."""
        touched: dict[str, Activity] = {}
        for one in events:
            activity = self._marks.activities.get(one.run)
            if activity is None:
                continue
            progress = activity.add(one.body, round(one.at + self._offset, 3))
            touched[one.run] = activity
            if frames is not None and progress is not None and progress.event == "text" and one.run in self.watched:
                turn = self._states[one.run].counts.turns
                text = {"run": one.run, "turn": turn, "piece": progress.content or ""}
                frames.append(self._frame("text", visible_json(text), one.run))
        changed: dict[str, Doing] = {}
        for run, activity in touched.items():
            self._marks.note_progress(run)
            doing = activity.doing(self._redactor)
            if doing is not None and self._doing.get(run) != doing:
                self._doing[run] = changed[run] = doing
                self._doing_versions[run] = self._look
        return changed

    def _heads(self, first: dict[str, int]) -> list[Frame]:
        """The heads of new records of watched runs; `first` has the first new seq of each run."""
        frames: list[Frame] = []
        for run, seq in first.items():
            if run in self.watched:
                records = self.queries.records(run, after=seq - 1, limit=_MOST_HEADS)
                heads = [record_head(record) for record in records if isinstance(record, Record)]
                frames.append(self._frame("records", outgoing_json({"run": run, "heads": heads}), run))
        return frames

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _texts_of(self, state: State) -> list[str]:
        """The texts of a row without secrets; redacted again only when they change."""
        texts = (state.label or state.command or state.agent, state.agent, state.command, state.model, state.reason)
        known = self._texts.get(state.run)
        if known is None or known[0] != texts:
            known = self._texts[state.run] = (
                texts,
                json.decode(self._redactor.redact_json(json.encode(texts)), type=list[str]),
            )
        return known[1]

    def _encode(self, runs: Iterable[str]) -> list[str]:
        """Encode the rows of these runs; returns those that are different now."""
        changed: list[str] = []
        for run in runs:
            body = visible_json(self._row(self._states[run]))
            if self._rows.get(run) != body:
                self._rows[run] = body
                self._versions[run] = self._look
                changed.append(run)
        return changed

    def _row(self, state: State) -> list[Any]:
        lineage, usage, counts = state.lineage, state.usage, state.counts
        marks = self._marks.of(state)
        label, agent, command, model, reason = self._texts_of(state)
        deadline = None if lineage is None or lineage.deadline is None else lineage.deadline + lineage.drift
        return [
            state.run,
            state.parent,
            _root(state),
            label,
            marks.status,
            agent,
            command,
            model,
            state.requested_at,
            state.began_at,
            state.ended_at,
            state.last_at,
            deadline,
            round(state.waited, 1),
            usage.input,
            usage.output,
            usage.cached,
            usage.requests,
            usage.cost,
            usage.estimated,
            state.context_tokens,
            state.context_window,
            counts.turns,
            counts.tool_calls,
            counts.notes,
            counts.retries,
            reason or marks.reason,
            marks.flags,
            marks.rate,
            state.seq,
            state.round,
        ]

    def _question(self, runs: Iterable[str]) -> None:
        """Find the open questions of these runs."""
        runs = list(runs)
        if not runs:
            return
        answered = set(self.queries.addressed())
        wanted = set(runs)
        for key in [key for key in self._waiting if key[0] in wanted]:
            del self._waiting[key]
        for run in runs:
            state = self._states.get(run)
            if state is None or not (state.waits or state.status == "blocked"):
                continue
            path = self._path(state)
            for one in open_questions(self.queries, state):
                is_answered = state.is_live and (run, one.topic) in answered
                body = question_json(one, state, path, is_answered=is_answered)
                self._waiting[run, one.key] = body

    def _path(self, state: State) -> Sequence[str]:
        """The labels of the callers, the root first."""
        path: list[str] = []
        above = self._states.get(state.parent or "")
        while above is not None and len(path) < 100:
            path.append(above.label or above.command or above.agent)
            above = self._states.get(above.parent or "")
        return path[::-1]

    # --- frames -------------------------------------------------------------------------------------------------------

    def _frames(
        self, runs: Iterable[str], doing: dict[str, Doing], waiting: Iterable[bytes] | None = None
    ) -> list[Frame]:
        frames: list[Frame] = []
        if rows := [self._rows[run] for run in runs]:
            frames.append(self._frame("rows", b'{"now":%.3f,"rows":[%b]}' % (self._now, b",".join(rows))))
        if doing:
            frames.append(self._frame("doing", self._doing_json(doing)))
        if waiting is not None:
            frames.append(self._frame("waiting", b'{"all":[%b]}' % b",".join(waiting)))
        return frames

    def _doing_json(self, doing: dict[str, Doing]) -> bytes:
        # The texts are redacted already: streamed text as a stream, the others event by event.
        return visible_json(doing)

    def _frame(self, event: str, data: bytes, run: str = "") -> Frame:
        return Frame(event, data, self._look, run)

    def _trim(self) -> list[Frame]:
        """Drop trees that ended first, when there are too many rows."""
        if len(self._states) <= MOST_ROWS:
            return []
        kept = {_root(state) for state in self._states.values() if state.is_live or state.status == "blocked"}
        ended = sorted((state for state in self._states.values() if _root(state) not in kept), key=_ended)
        dropped: list[str] = []
        for state in ended[: len(self._states) - MOST_ROWS]:
            dropped.append(state.run)
            for held in (self._states, self._rows, self._versions, self._texts):
                held.pop(state.run, None)
            self._marks.forget(state.run)
        return [self._frame("gone", json.encode({"runs": dropped}))] if dropped else []


def new_server_name() -> str:
    """A name for this server process, so that readers notice another one."""
    return os.urandom(6).hex()


def _root(state: State) -> str:
    return state.run if state.lineage is None else state.lineage.root_id


def _age(state: State) -> tuple[float, str]:
    return state.requested_at, state.run


def _ended(state: State) -> float:
    return state.ended_at or 0.0
