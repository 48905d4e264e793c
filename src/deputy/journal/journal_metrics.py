"""Metrics of a journal in the text format of Prometheus: counters that only rise, and what waits now."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import MsgspecError, json

from deputy.core.events import APPROVAL
from deputy.core.outcome import NO_USAGE, OUTCOME_WORDS, Usage
from deputy.core.progress import Progress
from deputy.engine.ports.queries import Cursor
from deputy.processes.outgoing import outgoing_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deputy.core.state import State
    from deputy.engine.ports.queries import Changes, ProgressEvent, Queries, RecordHead

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ENDED = 10_000
"""The ended runs that count from the start."""
_RECORDS = 100_000
"""The records whose durations count from the start."""
_MOST_SEEN = 50_000
_MOST_MODELS = 200
_STEPS = {"model_call": "turn", "tool_call": "tool"}


def waiting_in(queries: Queries) -> tuple[float, int]:
    """The age in seconds of the oldest run that was requested and has not started, and the waiting approvals."""
    now, live = queries.now(), queries.live()
    ages = [now - state.asked_clock for state in live if state.status == "requested"]
    approvals = sum(topic == APPROVAL for state in live for topic in state.waits.values())
    return max(0.0, *ages, 0.0), approvals


class _Counted(NamedTuple):
    """What was counted of a run so far."""

    ended_rounds: int
    usage: Usage
    fallbacks: int


_NOTHING = _Counted(0, NO_USAGE, 0)


class JournalMetrics:
    """Counts what a journal holds, and from then on what changes in it. One thread uses it at a time."""

    def __init__(self) -> None:
        self._cursor: Cursor | None = None
        self._seen: dict[str, _Counted] = {}
        self._runs: Counter[str] = Counter(dict.fromkeys(OUTCOME_WORDS, 0))
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._cost: defaultdict[str, float] = defaultdict(float)
        self._fallbacks = 0
        self._retries = 0
        self._begun: defaultdict[tuple[str, str], deque[float]] = defaultdict(deque)
        """When the calls began that have not ended, by run and step. Their order does not matter for a sum."""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._calls: Counter[str] = Counter()

    def text(self, queries: Queries | None) -> bytes:
        """All metrics now; without a journal all of them are 0."""
        live: list[State] = []
        waiting = 0.0, 0
        if queries is not None:
            self._catch_up(queries)
            live, waiting = queries.live(), waiting_in(queries)
        return "".join(self._lines(Counter(state.status for state in live), *waiting)).encode()

    # --- counting -----------------------------------------------------------------------------------------------------

    def _catch_up(self, queries: Queries) -> None:
        if self._cursor is None:
            self._begin(queries, is_counted=True)
        while self._cursor is not None:
            changes = queries.follow(self._cursor)
            if changes.is_reset:
                # Runs were removed: what is left was counted.
                self._seen.clear()
                self._begin(queries, is_counted=False)
                return
            self._cursor = changes.cursor
            self._add(changes)
            if not changes.has_more:
                return

    def _begin(self, queries: Queries, *, is_counted: bool) -> None:
        end = queries.cursor()
        for state in (*queries.ended(_ENDED), *queries.live()):
            if is_counted:
                self._count(state)
            else:
                self._seen[state.run] = _counted(state)
        self._cursor = Cursor(end.generation, max(0, end.record - _RECORDS), end.progress) if is_counted else end

    def _add(self, changes: Changes) -> None:
        for state in changes.runs:
            self._count(state)
        for head in changes.records:
            self._time(head)
        for state in changes.runs:
            if not state.is_live:
                for step in _STEPS.values():
                    self._begun.pop((state.run, step), None)
        self._retries += sum(map(_is_retry, changes.progress))

    def _count(self, state: State) -> None:
        before, now = self._seen.pop(state.run, _NOTHING), _counted(state)
        self._seen[state.run] = now
        if len(self._seen) > _MOST_SEEN:
            for run in list(islice(self._seen, _MOST_SEEN // 10)):
                del self._seen[run]
        if now.ended_rounds > before.ended_rounds:
            self._runs[state.status] += 1
        model = self._model(state.model)
        self._tokens[model, "input"] += max(0, now.usage.input - before.usage.input)
        self._tokens[model, "output"] += max(0, now.usage.output - before.usage.output)
        self._cost[model] += max(0.0, (now.usage.cost or 0.0) - (before.usage.cost or 0.0))
        self._fallbacks += max(0, now.fallbacks - before.fallbacks)

    def _model(self, model: str) -> str:
        return model if len(self._cost) < _MOST_MODELS or model in self._cost else "other"

    def _time(self, head: RecordHead) -> None:
        call, _, end = head.kind.rpartition("_")
        step = _STEPS.get(call)
        if step is None:
            return
        begun = self._begun[head.run, step]
        if end == "begun":
            begun.append(head.at)
        elif begun:
            self._seconds[step] += max(0.0, head.at - begun.popleft())
            self._calls[step] += 1

    # --- writing ------------------------------------------------------------------------------------------------------

    def _lines(self, live: Mapping[str, int], queue_seconds: float, approvals: int) -> Iterable[str]:
        tokens = {(("model", model), ("type", kind)): used for (model, kind), used in self._tokens.items() if used}
        costs = {(("model", model),): cost for model, cost in self._cost.items() if cost}
        yield from metric_lines("runs_total", "counter", "Ended rounds of runs, by outcome.", _by("status", self._runs))
        now = {status: live.get(status, 0) for status in ("requested", "running", "waiting")}
        yield from metric_lines("runs_live", "gauge", "Runs that have not ended.", _by("status", now))
        for step, what in (("turn", "model calls"), ("tool", "tool calls")):
            name = f"{step}_duration_seconds"
            yield f"# HELP deputy_{name} Duration of {what}.\n# TYPE deputy_{name} summary\n"
            yield f"deputy_{name}_sum {self._seconds[step]:.6f}\ndeputy_{name}_count {self._calls[step]}\n"
        yield from metric_lines("retries_total", "counter", "Repeated requests to models.", {(): self._retries})
        yield from metric_lines("fallbacks_total", "counter", "Changes of the model or backend.", {(): self._fallbacks})
        yield from metric_lines("tokens_total", "counter", "Tokens, by model and type.", tokens)
        yield from metric_lines("cost_dollars_total", "counter", "Cost where the price is known, by model.", costs)
        yield from metric_lines(
            "queue_age_seconds", "gauge", "Age of the oldest run that has not started.", {(): queue_seconds}
        )
        yield from metric_lines("approvals_waiting", "gauge", "Approvals that wait for a person.", {(): approvals})


def _counted(state: State) -> _Counted:
    return _Counted(state.round + (not state.is_live), state.usage, state.counts.fallbacks)


def _is_retry(event: ProgressEvent) -> bool:
    try:
        return b'"retry"' in event.body and json.decode(event.body, type=Progress).event == "retry"
    except MsgspecError:
        return False


def _by(label: str, values: Mapping[str, int]) -> dict[tuple[tuple[str, str], ...], int]:
    return {((label, name),): number for name, number in values.items()}


def metric_lines(
    name: str, kind: str, about: str, values: Mapping[tuple[tuple[str, str], ...], float]
) -> Iterable[str]:
    """The lines of one metric."""
    yield f"# HELP deputy_{name} {about}\n# TYPE deputy_{name} {kind}\n"
    for labels, value in values.items():
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        number = str(value) if isinstance(value, int) else f"{value:.6f}"
        yield f"deputy_{name}{{{shown}}} {number}\n" if shown else f"deputy_{name} {number}\n"


def _escaped(text: str) -> str:
    clean = outgoing_text(text)
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
