"""The OpenTelemetry metrics of runs: counters and durations of this process, gauges of the whole journal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

from deputy.core.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Meter

    from deputy.core.outcome import Usage

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""The boundaries that the conventions advise."""


class OtelMetrics:
    """The instruments, and how they are recorded."""

    def __init__(self, meter: Meter) -> None:
        self.waiting: Callable[[], tuple[float, int]] = lambda: (0.0, 0)
        """The age of the oldest run that has not started, and the number of waiting approvals."""
        self._turns = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of model calls.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of model calls.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._tools = meter.create_histogram(
            "deputy.tool.duration", "s", "Duration of tool calls.", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._run_seconds = meter.create_histogram("deputy.run.duration", "s", "Duration of a round of a run.")
        self._runs = meter.create_counter("deputy.runs", "{run}", "Ended rounds of runs, by status.")
        self._cost = meter.create_counter("deputy.cost", "USD", "Cost of model calls with a known price.")
        self.retries = meter.create_counter("deputy.retries", "{retry}", "Repeated requests to models.")
        self.fallbacks = meter.create_counter("deputy.fallbacks", "{fallback}", "Changes of the model or backend.")
        meter.create_observable_gauge(
            "deputy.queue.age", [self._observe_queue], "s", "Age of the oldest run that has not started."
        )
        meter.create_observable_gauge(
            "deputy.approvals.waiting", [self._observe_approvals], "{approval}", "Approvals that wait for a person."
        )

    def run(self, status: str, seconds: float) -> None:
        """Record the end of a run."""
        attributes = {"deputy.status": status}
        self._runs.add(1, attributes)
        self._run_seconds.record(seconds, attributes)

    def turn(self, provider: str, model: str, seconds: float, usage: Usage, error: str) -> None:
        """Record a model call."""
        common = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        self._turns.record(seconds, {**common, "error.type": error} if error else common)
        if usage.requests:
            self._tokens.record(usage.input, {**common, "gen_ai.token.type": "input"})
            self._tokens.record(usage.output, {**common, "gen_ai.token.type": "output"})
            if usage.cost:
                self._cost.add(usage.cost, common)

    def tool(self, name: str, seconds: float, error: str) -> None:
        """Record a tool call."""
        attributes = {"gen_ai.tool.name": name}
        self._tools.record(seconds, {**attributes, "error.type": error} if error else attributes)

    def _observe_queue(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(seconds) for seconds, _ in self._read()]

    def _observe_approvals(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(approvals) for _, approvals in self._read()]

    def _read(self) -> list[tuple[float, int]]:
        try:
            return [self.waiting()]
        except StorageError as error:
            logging.getLogger("deputy.observer").debug("the journal cannot be measured: %s", error)
            return []
