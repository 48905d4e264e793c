"""The timeline of a report: one lane per run with its model calls, tool calls and waits, as SVG."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType, json

from deputy.core import events
from deputy.core.events import Record
from deputy.core.outcome import Blocked
from deputy.core.progress import shown_arguments
from deputy.core.state import ASKED, BEGUN
from deputy.interfaces.text_lines import elapsed, one_line, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deputy.core.outcome import Outcome
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.queries import DamagedRecord
    from deputy.engine.recover import RunStatus
    from deputy.interfaces.report.safe_html import Html, SafeHtml

SpanKind: TypeAlias = Literal["model", "tool", "waiting", "retry", "failed"]
LEGEND: dict[SpanKind, str] = {
    "model": "model call",
    "tool": "tool call",
    "waiting": "waits for a person",
    "retry": "waits to retry",
    "failed": "failed",
}

_BLOCKED = "blocked"
_GAP_SHARE, _GAP_SECONDS, _GAP_WIDTH = 0.1, 2.0, 3.0
"""An idle time of more than this share of the work, and of these seconds, is folded to this width."""
_LEAST_WIDTH = 0.15
"""Percent of the width. Narrower spans are drawn this wide, and neighbours of one kind as one."""
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
_TICKS, _TICK_ROOM = 6, 9.0
_TOP, _LANE, _BAR, _LABEL_LENGTH = 22, 34, 12, 60


class TimeSpan(NamedTuple):
    """What a run did from one time to another, by the journal's clock."""

    kind: SpanKind
    begin: float
    end: float
    text: str
    seq: int = 0
    """The record that ended it; of an open one the last record."""


class Lane(NamedTuple):
    """The spans of one run, and the times between start and end of each of its rounds."""

    label: str
    anchor: str
    rounds: list[tuple[float, float]]
    spans: list[TimeSpan]


def is_open(status: RunStatus) -> bool:
    """Whether the lane of a run lasts until now: a process works on it, or it waits for an answer."""
    # While it waits, no process may hold it.
    return status.state.status in ("blocked", "waiting") or (status.state.is_live and not status.is_orphaned)


def lane_of(
    label: str, anchor: str, records: Iterable[Record | DamagedRecord], redactor: Redactor, until: float | None
) -> Lane:
    """The lane of a run from its records; what has not ended lasts `until` now, or the last record."""
    lane = Lane(label, anchor, [], [])
    begun: dict[str, tuple[SpanKind, float, str]] = {}
    start: float | None = None
    last, seq = 0.0, 0
    for record in records:
        if not isinstance(record, Record):
            continue
        clock = last = max(last, record.clock)
        seq = record.seq
        if start is None and not lane.rounds:
            start = clock
        match record.event:
            case events.ModelCallBegun(model=model):
                begun[record.key.removesuffix(BEGUN)] = ("model", clock, model)
            case events.ToolCallBegun(tool=tool, arguments=arguments):
                begun[record.key.removesuffix(BEGUN)] = ("tool", clock, f"{tool} {_shown(arguments, redactor)}")
            case events.QuestionAsked(question=question):
                begun[record.key.removesuffix(ASKED)] = ("waiting", clock, question)
            case events.Retried(seconds=seconds, reason=reason):
                lane.spans.append(TimeSpan("retry", clock, clock + seconds, reason, seq))
            case events.Returned() | events.AdmissionRefused() as ended:
                lane.rounds.append((clock if start is None else start, clock))
                start = None
                _close(lane, begun, clock, seq)
                begun |= _blocked(ended.outcome, clock)
            case events.Resumed():
                _close(lane, begun, clock, seq)
                start = clock
            case _:
                if (one := begun.pop(record.key, None)) is not None:
                    lane.spans.append(_ended(one, record, clock))
    end = max(last, until or 0.0)
    if start is not None:
        lane.rounds.append((start, end))
    _close(lane, begun, end, seq)
    return lane


def _blocked(outcome: Outcome, clock: float) -> dict[str, tuple[SpanKind, float, str]]:
    """The wait for the answer that resumes a run."""
    return {_BLOCKED: ("waiting", clock, outcome.question)} if isinstance(outcome, Blocked) else {}


def _close(lane: Lane, begun: dict[str, tuple[SpanKind, float, str]], clock: float, seq: int) -> None:
    """End everything that is open."""
    lane.spans.extend(TimeSpan(kind, since, clock, text, seq) for kind, since, text in begun.values())
    begun.clear()


class _Result(Struct):
    is_error: bool = False


def _ended(begun: tuple[SpanKind, float, str], record: Record, clock: float) -> TimeSpan:
    kind, since, text = begun
    match record.event:
        case events.ModelCallEnded(usage=usage, error=error):
            text = f"{text} {tokens(usage.input, usage.output, estimated=usage.estimated)}"
            kind = "failed" if error is not None else kind
        case events.ToolCallEnded(message=message, error=error):
            kind = "failed" if error is not None or _is_error(message) else kind
        case _:
            pass
    return TimeSpan(kind, since, clock, text, record.seq)


def _is_error(message: object) -> bool:
    try:
        return isinstance(message, Raw) and json.decode(message, type=_Result).is_error
    except MsgspecError:
        return False


def _shown(arguments: Raw | UnsetType, redactor: Redactor) -> str:
    try:
        return shown_arguments(json.decode(arguments, type=dict[str, Any]), redactor) if arguments is not UNSET else ""
    except (MsgspecError, RecursionError):
        return ""


# --- the scale --------------------------------------------------------------------------------------------------------


class Scale:
    """Maps times to percent of the width; long idle times are folded."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        times = [time for lane in lanes for one in lane.rounds for time in one]
        self.begin, self.end = (min(times), max(times)) if times else (0.0, 0.0)
        busy = _union(
            sorted((one.begin, one.end) for lane in lanes for one in lane.spans if one.kind != "waiting"),
            self.begin,
            self.end,
        )
        work = sum(end - begin for begin, end in busy)
        most = max(_GAP_SECONDS, _GAP_SHARE * work)
        self.gaps = [(left, right) for (_, left), (right, _) in pairwise(busy) if right - left > most]
        shown = self.end - self.begin - sum(right - left for left, right in self.gaps)
        room = 100.0 - _GAP_WIDTH * len(self.gaps)
        if room < 50.0:
            self.gaps, shown, room = [], self.end - self.begin, 100.0
        self._times, self._places = [self.begin], [0.0]
        for time, is_folded in [*((one[i], bool(i)) for one in self.gaps for i in (0, 1)), (self.end, False)]:
            width = _GAP_WIDTH if is_folded else (time - self._times[-1]) / (shown or 1.0) * room
            self._times.append(time)
            self._places.append(self._places[-1] + width)

    def place(self, time: float) -> float:
        """Where a time is, in percent."""
        index = min(max(1, bisect_right(self._times, time)), len(self._times) - 1)
        (left, right), (low, high) = self._times[index - 1 : index + 1], self._places[index - 1 : index + 1]
        share = 0.0 if right <= left else (time - left) / (right - left)
        return min(100.0, max(0.0, low + share * (high - low)))

    def ticks(self) -> Iterator[float]:
        """Round times that are far enough from each other."""
        shown = self.end - self.begin - sum(right - left for left, right in self.gaps)
        step = next((step for step in _STEPS if shown / step <= _TICKS), max(_STEPS[-1], shown / _TICKS))
        before = -_TICK_ROOM
        edges = [self.begin, *(time for gap in self.gaps for time in gap), self.end]
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            number = -(-(left - self.begin) // step)
            while (time := self.begin + number * step) <= right:
                if self.place(time) - before >= _TICK_ROOM:
                    before = self.place(time)
                    yield time
                number += 1


def _union(spans: Sequence[tuple[float, float]], begin: float, end: float) -> list[tuple[float, float]]:
    """Sorted spans without overlaps, between the ends of the timeline."""
    found = [(begin, begin)]
    for left, right in spans:
        if left <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], right))
        else:
            found.append((left, right))
    return [*found, (max(end, found[-1][1]), max(end, found[-1][1]))]


# --- the picture ------------------------------------------------------------------------------------------------------


def timeline_svg(lanes: Sequence[Lane], html: SafeHtml) -> Html:
    """The picture of all lanes: as wide as the page, without scaled text."""
    scale = Scale(lanes)
    height = _TOP + _LANE * len(lanes)
    parts = [*_axis(scale, height, html)]
    for number, lane in enumerate(lanes):
        parts += _lane(lane, _TOP + number * _LANE, scale, html)
    title = f"{len(lanes)} run{'s' * (len(lanes) != 1)} in {elapsed(scale.end - scale.begin)}"
    return html.element("svg", *parts, class_="timeline", role="img", height=height, aria_label=f"Timeline of {title}")


def _axis(scale: Scale, height: int, html: SafeHtml) -> Iterator[Html]:
    for time in scale.ticks():
        place = scale.place(time)
        yield html.element("line", x1=_percent(place), x2=_percent(place), y1=_TOP - 6, y2=height)
        anchor = "end" if place > 100 - _TICK_ROOM else "start"
        yield html.element(
            "text", elapsed(time - scale.begin), x=_percent(place), y=11, class_="axis", text_anchor=anchor
        )
    for left, right in scale.gaps:
        place = _percent((scale.place(left) + scale.place(right)) / 2)
        title = html.element("title", f"nothing happened for {elapsed(right - left)}")
        yield html.element("line", title, x1=place, x2=place, y1=_TOP - 6, y2=height, class_="gap", stroke_width=3)


def _lane(lane: Lane, top: int, scale: Scale, html: SafeHtml) -> Iterator[Html]:
    name = html.element("text", one_line(lane.label, _LABEL_LENGTH), x=0, y=top + 13)
    yield html.element("a", name, href=f"#{lane.anchor}")
    for begin, end in lane.rounds:
        yield _bar("lane", begin, end, top, scale, html)
    for span in distinct(lane.spans, scale):
        title = html.element("title", f"{span.text} ({elapsed(span.end - span.begin)})")
        yield _bar(f"span-{span.kind}", span.begin, span.end, top, scale, html, title)


def _bar(kind: str, begin: float, end: float, top: int, scale: Scale, html: SafeHtml, *parts: Html) -> Html:
    left = scale.place(begin)
    width = max(_LEAST_WIDTH, scale.place(end) - left)
    return html.element("rect", *parts, x=_percent(left), y=top + 18, width=_percent(width), height=_BAR, class_=kind)


def distinct(spans: Iterable[TimeSpan], scale: Scale) -> list[TimeSpan]:
    """The spans that can be told apart: a narrow one that would cover another of its kind is counted with that one."""
    shown: list[TimeSpan] = []
    last: dict[SpanKind, tuple[int, int]] = {}
    for span in sorted(spans, key=lambda span: span.begin):
        place, count = last.get(span.kind, (-1, 0))
        if count and scale.place(span.end) - scale.place(shown[place].begin) < _LEAST_WIDTH:
            count += 1
            text = f"{count} times: {LEGEND[span.kind]}"
            shown[place] = shown[place]._replace(end=max(shown[place].end, span.end), text=text)
        else:
            place, count = len(shown), 1
            shown.append(span)
        last[span.kind] = (place, count)
    return shown


def _percent(place: float) -> str:
    return f"{place:.2f}%"
