"""CPU of tracing, beside the OpenTelemetry SDK alone making the same spans. Demand: at most 1.5 times."""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Any

from msgspec import Raw
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

from deputy.core.events import ModelCallBegun, ModelCallEnded, RunOpened, ToolCallBegun, ToolCallEnded
from deputy.core.outcome import Usage
from deputy.core.request import Lineage
from deputy.core.state import State
from deputy.observe.otel_metrics import OtelMetrics
from deputy.observe.otel_observer import OpenTelemetryObserver
from deputy.runtime.observation import Observation

RUNS, TURNS, TIMES = 40, 25, 7
DEMAND = 1.5
USAGE = Usage(input=1000, output=100, requests=1, cost=0.01)
MODEL = ModelCallEnded(model="anthropic:claude-sonnet-5", usage=USAGE, stop="end", message=Raw(b'{"text": "x"}'))
TOOL = ToolCallEnded(tool="Read", message=Raw(b'{"role": "tool", "call_id": "c", "name": "Read", "content": "text"}'))


class Nowhere(SpanExporter):
    """Takes spans and forgets them: encoding and sending cost the same on both sides."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def providers() -> tuple[TracerProvider, MeterProvider]:
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    return tracers, MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)


async def done(event: Any) -> Any:
    return event


async def observed(tracers: TracerProvider, meters: MeterProvider) -> None:
    """The whole way: what the runtime calls, with redaction, ids and the observer."""
    observation = Observation(OpenTelemetryObserver(tracers, meters))
    for number in range(RUNS):
        run = f"sess_1_{number:06}"
        lineage = Lineage.root(run)
        state = State(run=run, status="running", label="scout", lineage=lineage, requested_at=time.time())
        observation.run_started(state, RunOpened(lineage=lineage, prompt="Look around."), is_resumed=False)
        for turn in range(TURNS):
            begun = ModelCallBegun(model="anthropic:claude-sonnet-5")
            await observation.step(run, f"model:{turn}", begun, done, (MODEL,))
            await observation.step(run, f"tool:{turn}", ToolCallBegun(tool="Read", call="c"), done, (TOOL,))
        ended = State(run=run, status="completed", label="scout", lineage=lineage, usage=USAGE, ended_clock=1.0)
        observation.run_ended(ended)


async def alone(tracers: TracerProvider, meters: MeterProvider) -> None:
    """The same spans and measurements by hand, as one would write them with the SDK."""
    tracer, measured = tracers.get_tracer("hand"), OtelMetrics(meters.get_meter("hand"))
    for number in range(RUNS):
        run = f"sess_1_{number:06}"
        said: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": run,
            "deputy.root_session.id": run,
            "gen_ai.agent.id": run,
            "gen_ai.agent.name": "scout",
        }
        with tracer.start_as_current_span("invoke_agent scout", attributes=said) as agent:
            for _ in range(TURNS):
                asked = {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "anthropic",
                    "gen_ai.request.model": "claude-sonnet-5",
                    "gen_ai.conversation.id": run,
                }
                name = "chat claude-sonnet-5"
                began = time.monotonic()
                with tracer.start_as_current_span(name, kind=SpanKind.CLIENT, attributes=asked) as span:
                    event = await done(MODEL)
                    used = {
                        "gen_ai.response.model": "claude-sonnet-5",
                        "gen_ai.usage.input_tokens": event.usage.input,
                        "gen_ai.usage.output_tokens": event.usage.output,
                        "deputy.usage.cost": event.usage.cost,
                        "gen_ai.response.finish_reasons": (event.stop,),
                    }
                    span.set_attributes(used)
                measured.turn("anthropic", "claude-sonnet-5", time.monotonic() - began, USAGE, "")
                called = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "Read",
                    "gen_ai.tool.type": "function",
                    "gen_ai.conversation.id": run,
                    "gen_ai.tool.call.id": "c",
                }
                began = time.monotonic()
                with tracer.start_as_current_span("execute_tool Read", attributes=called):
                    await done(TOOL)
                measured.tool("Read", time.monotonic() - began, "")
            total = {
                "deputy.status": "completed",
                "gen_ai.usage.input_tokens": USAGE.input,
                "gen_ai.usage.output_tokens": USAGE.output,
                "deputy.usage.cost": 0.01,
            }
            agent.set_attributes(total)
        measured.run("completed", 1.0)


def cpu(work: Any) -> float:
    """Microseconds of CPU per span."""
    tracers, meters = providers()
    began = time.process_time()
    asyncio.run(work(tracers, meters))
    used = time.process_time() - began
    tracers.shutdown()
    meters.shutdown()
    return used / (RUNS * (2 * TURNS + 1)) * 1e6


def main() -> int:
    assert trace.get_current_span(context.get_current()) is trace.INVALID_SPAN
    cpu(observed), cpu(alone)
    pairs = [(cpu(observed), cpu(alone)) for _ in range(TIMES)]
    ours, floor = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    ratio = median(pair[0] / pair[1] for pair in pairs)
    print(f"Deputy, with redaction and derived ids   {ours:6.1f} µs per span")
    print(f"the SDK alone, the same spans            {floor:6.1f} µs per span")
    print(f"ratio {ratio:.2f}   demand: at most {DEMAND}   {'met' if ratio <= DEMAND else 'NOT MET'}")
    return int(ratio > DEMAND)


if __name__ == "__main__":
    sys.exit(main())
