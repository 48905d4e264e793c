"""What a live run is doing now, and what is wrong with it: folded from progress events and its state."""

from __future__ import annotations

from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from msgspec import MsgspecError, json

from deputy.core.progress import Progress, redacted, retry_text

if TYPE_CHECKING:
    from deputy.core.redaction import Redactor
    from deputy.core.state import State

SILENT_SECONDS = 60.0
"""A running agent without a sign of life for this long is flagged as silent."""
LOOKED_AT, REPEATED = 8, 3
"""So many equal ones of the last tool calls are a loop."""
HOT_DOLLARS = 0.5
"""Dollars a minute above which a run is flagged."""
_MINUTE = 60.0
_TEXT_LENGTH = 160
_SHOWN = frozenset(("tool_call", "tool_error", "text", "thinking", "retry", "note", "fallback", "warning", "waiting"))
"""The events that say what a run does."""


_DECODER = json.Decoder(Progress)


class Doing(NamedTuple):
    """What a run does now: a kind, its text, and since when by the wall clock."""

    kind: str
    text: str
    at: float


class Activity:
    """The latest progress of one live run."""

    def __init__(self) -> None:
        self.is_retrying = False
        self.is_loop = False
        """Whether the same tool was called with the same arguments again and again."""
        self.turn_text = ""
        """The end of the text that the model has streamed since its last tool call."""
        self._latest: Progress | None = None
        """The last event that says what the run does."""
        self._at = 0.0
        self._calls: deque[tuple[str, str]] = deque(maxlen=LOOKED_AT)
        self._costs: deque[tuple[float, float]] = deque()
        self._used = 0
        self._is_repeated = False

    def last_at(self, state: State) -> float:
        """The last sign of life, by the wall clock."""
        return max(state.last_at, self._at)

    def add(self, body: bytes, at: float) -> Progress | None:
        """Add a progress event; None if it cannot be read."""
        try:
            progress = _DECODER.decode(body)
        except MsgspecError:
            return None
        self.is_retrying = progress.event == "retry" or (self.is_retrying and progress.event == "warning")
        if progress.event == "text":
            self.turn_text = (self.turn_text + (progress.content or ""))[-_TEXT_LENGTH * 2 :]
        elif progress.event in ("tool_call", "completed"):
            self.turn_text = ""
        if progress.event == "tokens":
            # A run that is continued shows its last turns again: their totals are known.
            used = (progress.input or 0) + (progress.output or 0)
            self._is_repeated, self._used = used <= self._used, max(used, self._used)
        if progress.event == "tool_call" and not self._is_repeated:
            self._note_call((progress.tool or "", progress.args or ""))
        if progress.event in _SHOWN:
            self._latest, self._at = progress, at
        return progress

    def _note_call(self, call: tuple[str, str]) -> None:
        self._calls.append(call)
        # Only the new call can begin a loop; any of them may have ended one.
        most = max(Counter(self._calls).values()) if self.is_loop else self._calls.count(call)
        self.is_loop = most >= REPEATED

    def doing(self, redactor: Redactor) -> Doing | None:
        """What the run does now; only the last event of many is redacted."""
        if self._latest is None:
            return None
        if self._latest.event == "tool_call":
            return Doing("tool", redactor.redact(f"{self._latest.tool} {self._latest.args or ''}".strip()), self._at)
        return Doing(*self._described(redacted(self._latest, redactor)), self._at)

    def _described(self, progress: Progress) -> tuple[str, str]:
        match progress.event:
            case "tool_error":
                return "error", f"{progress.tool}: {progress.reason or progress.content or 'failed'}"
            case "text":
                return "text", " ".join(self.turn_text.split())[-_TEXT_LENGTH:]
            case "thinking":
                return "thinking", f"thinking ({progress.output:,} tokens)" if progress.output else "thinking"
            case "retry":
                return "retry", retry_text(progress)
            case "note":
                return "note", " ".join((progress.content or "").split())[:_TEXT_LENGTH]
            case _:
                return progress.event, " ".join((progress.reason or progress.content or "").split())[:_TEXT_LENGTH]

    def spent(self, cost: float | None, at: float) -> None:
        """Note the total cost at a time."""
        if cost is not None and (not self._costs or self._costs[-1][1] != cost):
            self._costs.append((at, cost))

    def rate(self, now: float) -> float:
        """Dollars spent in the last minute."""
        if not self._costs:
            return 0.0
        while len(self._costs) > 1 and self._costs[1][0] <= now - _MINUTE:
            self._costs.popleft()
        if self._costs[-1][0] <= now - _MINUTE:
            return 0.0
        return self._costs[-1][1] - self._costs[0][1]

    def next_change(self, state: State, now: float, late_at: float) -> float:
        """When the rate or a flag may change without another event; `late_at` is the deadline by the wall clock."""
        times = [self.last_at(state) + SILENT_SECONDS, late_at]
        if len(self._costs) > 1:
            times += (self._costs[1][0] + _MINUTE, self._costs[-1][0] + _MINUTE)
        return min((at for at in times if at >= now), default=inf)

    def flags(self, state: State, now: float, *, is_late: bool, is_idle: bool) -> list[str]:
        """What a person should look at, of a live run; an idle one may be silent."""
        is_silent = state.status != "waiting" and now - self.last_at(state) > SILENT_SECONDS
        found = {
            "silent": is_silent and not is_idle,
            "loop": self.is_loop,
            "hot": self.rate(now) >= HOT_DOLLARS,
            "retrying": self.is_retrying,
            "overdue": is_late,
        }
        return [name for name, is_so in found.items() if is_so]
