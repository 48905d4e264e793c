"""The progress table: one row per subagent, folded from events, and its lines."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Literal, assert_never

from msgspec import Struct, structs

from deputy.core.limits import added
from deputy.core.outcome import OUTCOME_WORDS
from deputy.core.progress import retry_text
from deputy.core.task import cleaned_label
from deputy.interfaces.text_lines import cost_part, elapsed, one_line, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.progress import Progress

Tone = Literal["plain", "label", "good", "warning", "bad", "quiet"]
Span = tuple[str, Tone]
"""A piece of a line and its tone; renderers choose colours."""

_ACTIVITY_WIDTH, _CALL_WIDTH, _MODEL_WIDTH = 80, 32, 60
_INDENT = "  "
_NOTE_MARK = "✎"
_AFTER_END = ("started", "tokens", "completed")
"""The events that change the row of a subagent that has ended."""


class ProgressRow(Struct, frozen=True, kw_only=True):
    """The state of one subagent."""

    label: str
    session_id: str = ""
    mark: str = "·"
    tone: Tone = "quiet"
    activity: str = "queued"
    status: str = ""
    number: int = 1
    """Its number among the rows with the same label."""
    above: int | None = None
    """The row of its parent, if that is a subagent too."""
    depth: int = 0
    input: int = 0
    estimated: bool = False
    output: int = 0
    cost: float | None = 0.0
    model: str = ""
    note: str = ""
    """Its latest finding."""
    began: float | None = None
    ended: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return bool(self.status)

    @property
    def is_used(self) -> bool:
        """Whether a model was called, so that there is a cost."""
        return bool(self.input or self.output)


class ProgressTable:
    """The subagents of one delegation, in the order of their tasks, and their own subagents."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self.rows: list[ProgressRow] = []
        """In the order of their tasks if these are known, else of their start."""
        for label in labels:
            self.rows.append(ProgressRow(label=label, number=self._number(label, len(self.rows))))
        self._is_closed = bool(labels)
        """Whether all tasks are known; else the table grows."""
        self._size = len(labels)
        self._places: dict[str, int] = {}
        self.began: float | None = None

    def emit(self, progress: Progress, now: float) -> ProgressRow | None:
        """Take in an event; returns the changed row, None for an event of other runs, or a call that a note follows."""
        if (progress.event, progress.tool) == ("tool_call", "Note"):
            return None
        self.began = now if self.began is None else self.began
        place = self._place(progress)
        if place is None or (self.rows[place].is_over and progress.event not in _AFTER_END):
            return None
        row = self.rows[place] = _changed(self.rows[place], progress, now)
        self.began = self.began if row.began is None else min(row.began, self.began)
        return row

    @property
    def is_over(self) -> bool:
        """Whether every subagent has ended."""
        return bool(self.rows) and self.size == len(self.rows) and all(row.is_over for row in self.rows)

    @property
    def size(self) -> int:
        """The number of subagents, started or not."""
        below = sum(row.depth > 0 for row in self.rows)
        return below + max(len(self.rows) - below, self._size)

    def lines(self, now: float, most: int | None = None) -> list[list[Span]]:
        """The lines: a heading, one line per subagent with its own subagents beneath it, and the total.

        A running subagent has its latest note below it. With at most `most` lines, notes are left out first; then
        running subagents are shown first, and the rest is counted. A model that all have in
        common is named once, in the total.
        """
        shown, left = self._tree(), 0
        has_notes = most is None or len(shown) + sum(map(_shows_note, shown)) + 2 <= most
        if most is not None and len(shown) + 2 > most:
            by_need = sorted(range(len(shown)), key=lambda place: (shown[place].is_over, place))
            room = max(0, most - 3)
            shown, left = [shown[place] for place in sorted(by_need[:room])], len(shown) - room
        models = {row.model for row in self.rows if row.is_used}
        common = models.pop() if len(models) == 1 else ""
        named: list[Span] = [(f" · {one_line(common, _MODEL_WIDTH)}", "quiet")] if common else []
        body: list[list[Span]] = []
        for each in shown:
            row = structs.replace(each, model="") if common else each
            body += _with_note(row, now) if has_notes and _shows_note(row) else [line(row, now)]
        more: list[list[Span]] = [[(f"… {left} more", "quiet")]] if left else []
        return [[(heading(self.size), "plain")], *body, *more, [*self.total(now), *named]]

    def _tree(self) -> list[ProgressRow]:
        """The rows in tree order: each before its subagents."""
        below: dict[int | None, list[int]] = {}
        for place, row in enumerate(self.rows):
            below.setdefault(row.above, []).append(place)
        ahead, found = below.get(None, [])[::-1], list[ProgressRow]()
        while ahead:
            place = ahead.pop()
            found.append(self.rows[place])
            ahead += below.get(place, [])[::-1]
        return found

    def _place(self, progress: Progress) -> int | None:
        place = self._places.get(progress.session_id)
        if place is not None or progress.event not in ("started", "completed"):
            return place
        above = self._places.get(progress.parent)
        if above is not None:
            return self._seat(progress, len(self.rows), above)
        if not self._is_closed:
            self._size = max(self._size, progress.total or 0)
        free = [i for i, row in enumerate(self.rows) if not row.session_id and not row.is_over]
        named = [i for i in free if self.rows[i].label == progress.label]
        if self._is_closed and not named:
            # It ended before this view was opened.
            return None
        wanted = progress.index if progress.index in named else next(iter(named or free), len(self.rows))
        return self._seat(progress, wanted, None)

    def _seat(self, progress: Progress, place: int, above: int | None) -> int:
        if place == len(self.rows):
            self.rows.append(ProgressRow(label=progress.label))
        self.rows[place] = structs.replace(
            self.rows[place],
            session_id=progress.session_id,
            label=progress.label,
            number=self._number(progress.label, place),
            above=above,
            depth=0 if above is None else self.rows[above].depth + 1,
        )
        if progress.session_id:
            self._places[progress.session_id] = place
        return place

    def _number(self, label: str, place: int) -> int:
        return 1 + sum(row.label == label for row in self.rows[:place])

    def total(self, now: float) -> list[Span]:
        """The last line: how many have ended and how, and what all of them used."""
        over = [row.status for row in self.rows if row.is_over]
        # `interrupted` is no outcome: the process died.
        words = (*OUTCOME_WORDS, "interrupted")
        parts = [f"{over.count(word)} {word}" for word in words if word in over]
        if running := sum(1 for row in self.rows if not row.is_over and row.began is not None):
            parts.append(f"{running} running")
        waiting = sum(1 for row in self.rows if row.began is None and not row.is_over)
        if queued := waiting + self.size - len(self.rows):
            parts.append(f"{queued} queued")
        used = tokens(
            sum(row.input for row in self.rows),
            sum(row.output for row in self.rows),
            estimated=any(row.estimated for row in self.rows),
        )
        cost = reduce(added, (row.cost for row in self.rows), 0.0)
        until = max((row.ended for row in self.rows if row.ended is not None), default=now) if self.is_over else now
        seconds = 0.0 if self.began is None else until - self.began
        is_used = any(row.is_used for row in self.rows)
        said = (", ".join(parts), used, elapsed(seconds), cost_part(cost) if is_used else "")
        return [("total  ", "quiet"), (" · ".join(part for part in said if part), "plain")]


def heading(count: int) -> str:
    """The heading of the table."""
    return f"Delegate [{count} subagent{'s' * (count != 1)}]"


def line(row: ProgressRow, now: float) -> list[Span]:
    """The line of one subagent, safe to print."""
    name = one_line(cleaned_label(row.label), 32) + (f" #{row.number}" if row.number > 1 else "")
    spans: list[Span] = [(f"{_INDENT * row.depth}[{name}]", "label"), (f" {row.mark} ", row.tone)]
    spans.append((row.activity, row.tone if row.is_over or row.tone == "bad" else "plain"))
    if row.is_used:
        spans.append((f" ({tokens(row.input, row.output, estimated=row.estimated)})", "quiet"))
    if row.began is not None:
        seconds = (now if row.ended is None else row.ended) - row.began
        spans.append((f" {elapsed(seconds)}", "quiet"))
    if row.is_used:
        spans.append((f" {cost_part(row.cost)}", "quiet"))
    if row.model:
        spans.append((f" {one_line(row.model, _MODEL_WIDTH)}", "quiet"))
    return spans


def _shows_note(row: ProgressRow) -> bool:
    return bool(row.note) and not row.is_over


def _with_note(row: ProgressRow, now: float) -> list[list[Span]]:
    """The line of a subagent, and its latest note below it, where it stays while the subagent goes on."""
    row = structs.replace(row, activity="noted") if row.mark == _NOTE_MARK else row
    return [line(row, now), [(f"{_INDENT * (row.depth + 1)}{_NOTE_MARK} {row.note}", "quiet")]]


def ending_mark(status: str) -> str:
    """The mark of a status; `·` for a run that has not ended."""
    if status in _ENDINGS:
        return _ENDINGS[status][0]
    return "✗" if status in OUTCOME_WORDS or status == "interrupted" else "·"


def moment(row: ProgressRow, progress: Progress, now: float) -> float:
    """The time of an event: now, unless the event says how long after the start."""
    if row.began is None or progress.seconds is None:
        return now
    return row.began + (0.0 if progress.event == "started" else progress.seconds)


def tool_error_text(progress: Progress) -> str:
    """A tool call that failed, and why."""
    call = f"{progress.tool or ''} {one_line(progress.args or '', _CALL_WIDTH)}".rstrip()
    return f"{call}: {progress.reason or ''}"


def text_of(spans: Sequence[Span]) -> str:
    """A line as plain text."""
    return "".join(text for text, _ in spans)


# --- events -----------------------------------------------------------------------------------------------------------

_ENDINGS: dict[str, tuple[str, Tone]] = {
    "completed": ("✓", "good"),
    "partial": ("⚠", "warning"),
    "blocked": ("?", "warning"),
}


def _changed(row: ProgressRow, progress: Progress, now: float) -> ProgressRow:
    row = structs.replace(row, model=progress.model or row.model)
    match progress.event:
        case "started":
            row = structs.replace(row, began=now - (progress.seconds or 0.0) if row.began is None else row.began)
            return structs.replace(row, ended=None, status="", mark="…", tone="good", activity="thinking")
        case "tokens":
            given, taken = progress.input or 0, progress.output or 0
            return structs.replace(row, input=given, output=taken, cost=progress.cost, estimated=progress.estimated)
        case "completed":
            return _ended(row, progress, now)
        case _:
            mark, activity, tone = _activity(progress)
            text = one_line(activity, _ACTIVITY_WIDTH)
            note = text if progress.event == "note" else row.note
            return structs.replace(row, mark=mark, activity=text, tone=tone, note=note)


def _activity(progress: Progress) -> tuple[str, str, Tone]:
    """The mark of an event, its text and its tone."""
    content, reason = progress.content or "", progress.reason or ""
    match progress.event:
        case "tool_call":
            return "→", f"{progress.tool or ''} {progress.args or ''}", "good"
        case "tool_error":
            return "✗", tool_error_text(progress), "bad"
        case "note":
            return _NOTE_MARK, content, "good"
        case "thinking":
            return "…", "thinking", "good"
        case "text":
            return "…", "writing", "good"
        case "retry":
            return "↻", retry_text(progress), "warning"
        case "fallback":
            return "↪", f"{content or 'other model'}: {reason}", "warning"
        case "warning":
            return "⚠", content, "warning"
        case "waiting":
            return "?", f"asks: {content}", "warning"
        case "started" | "tokens" | "completed":
            raise AssertionError(f"{progress.event} is no activity")
        case _:
            assert_never(progress.event)


def _ended(row: ProgressRow, progress: Progress, now: float) -> ProgressRow:
    status = progress.status or "failed"
    mark, tone = ending_mark(status), _ENDINGS.get(status, ("", "bad"))[1]
    reason = (progress.reason or "").replace("_", " ")
    says_more = reason not in ("", status) and status != "completed"
    activity = one_line(f"{status}: {reason}" if says_more else status, _ACTIVITY_WIDTH)
    if row.began is None and progress.seconds is not None:
        # It ran in another process; this is its only event here.
        row = structs.replace(row, began=now - progress.seconds)
    if progress.input is not None or progress.output is not None:
        used = {"input": progress.input or 0, "output": progress.output or 0, "cost": progress.cost}
        row = structs.replace(row, **used, estimated=progress.estimated)
    return structs.replace(
        row, mark=mark, tone=tone, activity=activity, status=status, ended=moment(row, progress, now)
    )
