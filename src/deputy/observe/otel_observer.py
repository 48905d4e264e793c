"""OpenTelemetryObserver: spans and metrics of runs by the GenAI semantic conventions of OpenTelemetry."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from opentelemetry import context, metrics, trace
from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from deputy.engine.ports.observer import Observer
from deputy.observe.otel_metrics import OtelMetrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from deputy.core.approval import Choice
    from deputy.engine.ports.observer import ObservedRun, ObservedStep, RunEnd, SpanIds, StepEnd

SCOPE = "deputy"
_WORKFLOWS = frozenset({"delegate", "refine"})
"""The commands whose run calls no model itself."""
_UNSUCCESSFUL = frozenset({"failed", "rejected"})
_NANOSECONDS = 1_000_000_000
_PROVIDERS = {
    "openai-chat": "openai",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "bedrock": "aws.bedrock",
}
"""The names of providers in the conventions, where they differ from ours."""


class _GivenIds(IdGenerator):
    """Gives spans the ids that their runs have in every process."""

    def __init__(self) -> None:
        self._given = threading.local()
        self._random = RandomIdGenerator()

    def give(self, trace_id: str, span_id: str) -> None:
        """Set the ids of the next span of this thread."""
        self._given.ids = (int(trace_id, 16), int(span_id, 16))

    def generate_trace_id(self) -> int:
        return self._given.ids[0] if hasattr(self._given, "ids") else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        return self._given.ids[1] if hasattr(self._given, "ids") else self._random.generate_span_id()


class OpenTelemetryObserver(Observer):
    """Makes a span of each run, model call and tool call, in one trace per root session, and metrics.

    Without providers it uses those of your program (`opentelemetry.trace.set_tracer_provider`). Prompts, messages,
    arguments, results and reports are left out unless `content` is set; then they are redacted.
    """

    traces = True

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        content: bool = False,
    ) -> None:
        self.wants_content = content
        self._tracer = (tracer_provider or trace.get_tracer_provider()).get_tracer(SCOPE)
        self._ids = _ids_of(self._tracer)
        self._metrics = OtelMetrics((meter_provider or metrics.get_meter_provider()).get_meter(SCOPE))
        self._runs: dict[str, Span] = {}
        self._steps: dict[str, tuple[Span, Token[Context]]] = {}

    def measure(self, waiting: Callable[[], tuple[float, int]]) -> None:
        """Read here the age of the oldest run that has not started, and the number of waiting approvals."""
        self._metrics.waiting = waiting

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run_started(self, run: ObservedRun) -> None:
        """A run starts, or is resumed here."""
        if run.span is not None:
            self._runs[run.session_id] = self._start_run(run, run.span)

    def _start_run(self, run: ObservedRun, ids: SpanIds) -> Span:
        is_workflow = run.parent is None and run.command in _WORKFLOWS
        operation = "invoke_workflow" if is_workflow else "invoke_agent"
        name = run.command if is_workflow else run.name
        attributes: dict[str, str | int | bool] = {
            "gen_ai.operation.name": operation,
            "gen_ai.conversation.id": run.session_id,
            "deputy.root_session.id": run.root_id,
        }
        if run.round:
            attributes["deputy.round"] = run.round
        if is_workflow:
            attributes["gen_ai.workflow.name"] = name
        else:
            attributes["gen_ai.agent.id"] = run.session_id
            if name:
                attributes["gen_ai.agent.name"] = name
        if run.prompt:
            attributes["gen_ai.input.messages"] = _message("user", run.prompt)
        self._give_ids(ids.trace_id, ids.span_id)
        return self._tracer.start_span(
            f"{operation} {name}" if name else operation,
            self._above(run, ids),
            attributes=attributes,
            start_time=int(run.requested_at * _NANOSECONDS),
        )

    def _above(self, run: ObservedRun, ids: SpanIds) -> Context:
        """The context of the parent span: of this process, of another one, or none."""
        if not ids.parent_id:
            return context.Context()
        span = self._runs.get(run.parent) if run.parent is not None else None
        if span is None:
            flags = TraceFlags(TraceFlags.SAMPLED if self._is_sampled(ids) else TraceFlags.DEFAULT)
            parent = SpanContext(int(ids.trace_id, 16), int(ids.parent_id, 16), is_remote=True, trace_flags=flags)
            span = NonRecordingSpan(parent)
        return trace.set_span_in_context(span, context.Context())

    def _is_sampled(self, ids: SpanIds) -> bool:
        """What the top of the trace decided: the caller, or our sampler, which decides alike in every process."""
        if ids.is_sampled is not None or not isinstance(self._tracer, Tracer):
            return bool(ids.is_sampled)
        sampler = self._tracer.sampler
        return sampler.should_sample(context.Context(), int(ids.trace_id, 16), SCOPE).decision.is_sampled()

    def run_ended(self, run: ObservedRun, end: RunEnd) -> None:
        """A run has ended."""
        span = self._runs.pop(run.session_id, None)
        if end.is_elsewhere or run.span is None:
            # The process that ended it reports the span.
            return
        if span is None:
            span = self._start_run(run, run.span)
        usage = end.usage
        if span.is_recording():
            attributes: dict[str, str | int | float] = {"deputy.status": end.status}
            if usage.requests:
                attributes |= {"gen_ai.usage.input_tokens": usage.input, "gen_ai.usage.output_tokens": usage.output}
                if usage.cost is not None:
                    attributes["deputy.usage.cost"] = usage.cost
            if end.report:
                attributes["gen_ai.output.messages"] = _message("assistant", end.report)
            if end.status in _UNSUCCESSFUL:
                attributes["error.type"] = end.reason or end.status
                span.set_status(StatusCode.ERROR)
            span.set_attributes(attributes)
            span.end()
        self._metrics.run(end.status, end.seconds)

    # --- steps --------------------------------------------------------------------------------------------------------

    def step_started(self, step: ObservedStep) -> None:
        """A model call or a tool call starts: its span is current while it runs."""
        run = self._runs.get(step.run.session_id)
        if run is None or not step.span_id or step.run.span is None:
            return
        self._give_ids(step.run.span.trace_id, step.span_id)
        if step.kind == "model":
            provider, model = _provider_and_model(step.name)
            span = self._tracer.start_span(
                f"chat {model}",
                trace.set_span_in_context(run, context.Context()),
                SpanKind.CLIENT,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": provider,
                    "gen_ai.request.model": model,
                    "gen_ai.conversation.id": step.run.session_id,
                },
            )
        else:
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": step.name,
                "gen_ai.tool.type": "function",
                "gen_ai.conversation.id": step.run.session_id,
            }
            if step.call:
                attributes["gen_ai.tool.call.id"] = step.call
            if step.arguments:
                attributes["gen_ai.tool.call.arguments"] = step.arguments
            above = trace.set_span_in_context(run, context.Context())
            span = self._tracer.start_span(f"execute_tool {step.name}", above, attributes=attributes)
        self._steps[step.span_id] = (span, context.attach(trace.set_span_in_context(span)))

    def step_ended(self, step: ObservedStep, end: StepEnd) -> None:
        """A step ended."""
        started = self._steps.pop(step.span_id, None)
        if started is None:
            return
        span, token = started
        context.detach(token)
        error = "" if end.error is None else end.error.code or end.error.type
        if step.kind == "model":
            provider, model = _provider_and_model(end.model or step.name)
            self._metrics.turn(provider, model, end.seconds, end.usage, error)
        else:
            provider = model = ""
            self._metrics.tool(step.name, end.seconds, error)
        if not span.is_recording():
            return
        attributes: dict[str, str | int | float | tuple[str, ...]] = {}
        if step.kind == "model":
            usage = end.usage
            attributes = {
                "gen_ai.response.model": model,
                "gen_ai.usage.input_tokens": usage.input,
                "gen_ai.usage.output_tokens": usage.output,
            }
            if usage.cached:
                attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached
            if usage.cost is not None:
                attributes["deputy.usage.cost"] = usage.cost
            if end.stop:
                attributes["gen_ai.response.finish_reasons"] = (end.stop,)
            if end.backend:
                attributes["deputy.backend"] = end.backend
            if end.content:
                attributes["gen_ai.output.messages"] = f"[{end.content}]"
        elif end.content:
            attributes["gen_ai.tool.call.result"] = end.content
        if error:
            attributes["error.type"] = error
            span.set_status(StatusCode.ERROR)
        span.set_attributes(attributes)
        span.end()

    # --- what else happens --------------------------------------------------------------------------------------------

    def retried(self, run: ObservedRun, reason: str) -> None:
        """A request to a model is repeated."""
        trace.get_current_span().add_event("deputy.retry")
        self._metrics.retries.add(1)

    def fell_back(self, run: ObservedRun, taken: str, reason: str) -> None:
        """The run continues with another model or backend."""
        self._add_event(run, "deputy.fallback", {"deputy.fallback.taken": taken})
        self._metrics.fallbacks.add(1)

    def approval_asked(self, run: ObservedRun, question: str) -> None:
        """A person is asked for an approval."""
        self._add_event(run, "deputy.approval.asked", {})

    def approval_answered(self, run: ObservedRun, question: str, choice: Choice) -> None:
        """An approval was answered."""
        self._add_event(run, "deputy.approval.answered", {"deputy.approval.choice": choice})

    def _add_event(self, run: ObservedRun, name: str, attributes: dict[str, str]) -> None:
        span = self._runs.get(run.session_id)
        if span is not None:
            span.add_event(name, attributes)

    def _give_ids(self, trace_id: str, span_id: str) -> None:
        if self._ids is not None:
            self._ids.give(trace_id, span_id)


def _ids_of(tracer: trace.Tracer) -> _GivenIds | None:
    """The ids of a tracer's spans; None if it is not of the SDK, whose spans have ids of their own."""
    if not isinstance(tracer, Tracer):
        return None
    if isinstance(tracer.id_generator, _GivenIds):
        return tracer.id_generator
    # The tracer is ours alone: its scope is our name.
    tracer.id_generator = ids = _GivenIds()
    return ids


def _provider_and_model(name: str) -> tuple[str, str]:
    provider, colon, model = name.partition(":")
    return (_PROVIDERS.get(provider, provider), model) if colon else ("_OTHER", name)


def _message(role: str, text: str) -> str:
    from msgspec import json

    return json.encode([{"role": role, "parts": [{"type": "text", "content": text}]}]).decode()
