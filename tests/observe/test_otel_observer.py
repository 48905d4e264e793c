"""Spans and metrics of real runs, as the OpenTelemetry SDK exports them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from tests.core.redaction.samples import made_up, secret_lines
from tests.support.house import House, approve
from tests.support.scripts import call, talk, turn

from deputy import Deputy, LoggingObserver, OpenTelemetryObserver, tool
from deputy.core.events import RunOpened
from deputy.core.model_script import ModelScript
from deputy.core.request import Lineage
from deputy.core.state import State
from deputy.core.task import Task
from deputy.core.trace_context import run_span_id
from deputy.interfaces.questions import find_pending
from deputy.runtime.observation import Observation
from deputy.testing import ProviderServer

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Telemetry:
    """An observer, and what it has exported."""

    def __init__(self, *, content: bool = False, sampler: Sampler | None = None) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._metrics], shutdown_on_exit=False)
        self.observer = OpenTelemetryObserver(self.tracers, meters, content=content)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self._spans.get_finished_spans(), key=lambda span: span.start_time or 0)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def named(self, start: str) -> ReadableSpan:
        [found] = [span for span in self.spans if span.name.startswith(start)]
        return found

    @property
    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        data = self._metrics.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "count", None) or getattr(point, "value", None))
                for point in metric.data.data_points
            ]
            for scope in scopes
            for metric in scope.metrics
        }

    @property
    def everything(self) -> str:
        return " ".join(span.to_json() for span in self.spans) + str(self.points)


@pytest.fixture
def house(tmp_path, monkeypatch) -> Iterator[House]:
    house = House(tmp_path, monkeypatch)
    yield house
    house.check()


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def traces_of(*told: Telemetry) -> set[int]:
    return {span.context.trace_id for one in told for span in one.spans if span.context is not None}


def test_a_delegation_is_one_trace_of_its_agents_models_and_tools(house: House):
    (house.workspace / "plan.txt").write_text("win\n")
    house.script(
        talk(turn("I read.", call("Read", path="plan.txt")), turn("Done."), when="Do one."),
        talk(turn("Done too."), when="Do two."),
    )
    told = Telemetry()
    tasks = Task(label="first", prompt="Do one."), Task(label="second", prompt="Do two.")
    first, _ = asyncio.run(house.delegate(*tasks, observer=told.observer))
    model = house.model.removeprefix("script:")
    root = told.named("invoke_workflow delegate")
    agents = [told.named("invoke_agent first"), told.named("invoke_agent second")]
    tool = told.named("execute_tool Read")
    chats = [span for span in told.spans if span.name == f"chat {model}"]
    assert len(told.spans) == 1 + 2 + 1 + 3
    assert len(traces_of(told)) == 1
    assert parent_of(root) is None
    assert {parent_of(agent) for agent in agents} == {id_of(root)}
    assert parent_of(tool) == id_of(agents[0])
    assert sorted(parent_of(chat) or 0 for chat in chats) == sorted([id_of(agents[0])] * 2 + [id_of(agents[1])])
    assert {span.kind for span in chats} == {trace.SpanKind.CLIENT}
    said = agents[0].attributes or {}
    assert said["gen_ai.conversation.id"] == said["gen_ai.agent.id"] == first.session_id
    assert (said["gen_ai.usage.input_tokens"], said["deputy.status"]) == (200, "completed")
    said = chats[0].attributes or {}
    assert (said["gen_ai.provider.name"], said["gen_ai.request.model"]) == ("script", model)
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.response.finish_reasons"]) == (100, ("end",))
    assert agents[0].start_time <= tool.start_time <= tool.end_time <= agents[0].end_time


def test_every_name_is_one_of_the_installed_conventions(house: House):
    house.script(talk(turn("I read.", call("Read", path="gone.txt")), turn("Done.")))
    told = Telemetry(content=True)
    house.one(observer=told.observer)
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    used = {name for span in told.spans for name in span.attributes or {}}
    used |= {name for points in told.points.values() for attributes, _ in points for name in attributes}
    assert {name for name in used if name.startswith("gen_ai.")} <= known
    assert {name for name in used if not name.startswith(("gen_ai.", "deputy."))} == {"error.type"}
    metrics = {name for name in told.points if name.startswith("gen_ai.")}
    assert metrics == {gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION, gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE}
    operations = {str((span.attributes or {})["gen_ai.operation.name"]) for span in told.spans}
    assert operations == {"invoke_workflow", "invoke_agent", "chat", "execute_tool"}


def test_a_run_continued_in_another_process_is_one_trace_with_each_span_once(house: House):
    house.script(talk(turn("I write.", call("Write", path="a.txt", content="x")), turn("Done.")))
    before, after = Telemetry(), Telemetry()

    async def leave() -> str:
        async with house.open(observer=before.observer, approval="ask", can_ask=True, suspend_seconds=0.0) as runtime:
            run = await house.start_parent(runtime, "Write it.")
            while await find_pending(runtime.journal, run) is None:  # noqa: ASYNC110  it is in the journal
                await asyncio.sleep(0.002)
        return run

    async def go_on(run: str) -> None:
        async with house.open(observer=after.observer, approval="ask", can_ask=True) as runtime:
            await runtime.engine.ensure_running(run)
            await approve(runtime, run)
            assert (await runtime.engine.result(run)).status == "completed"

    asyncio.run(go_on(asyncio.run(leave())))
    assert [name.split()[0] for name in before.names] == ["chat"]
    assert [name.split()[0] for name in after.names] == ["invoke_agent", "execute_tool", "chat"]
    assert len(traces_of(before, after)) == 1
    agent = after.named("invoke_agent")
    assert parent_of(before.spans[0]) == parent_of(after.named("execute_tool Write")) == id_of(agent)
    # The span began where the run did: in the first process.
    assert (agent.start_time or 0) <= (before.spans[0].start_time or 0)


def test_a_resumed_round_is_a_span_of_its_own_in_the_same_trace(house: House):
    house.script(
        talk(turn("What is the port?", call("Ask", question="Which port?"))), talk(turn("Done.")), strict=False
    )
    told = Telemetry()
    first = house.one(observer=told.observer)

    async def answer() -> None:
        async with house.open(observer=told.observer) as runtime:
            await runtime.engine.resume(first.session_id, "80")
            await runtime.engine.result(first.session_id)

    assert first.status == "blocked"
    asyncio.run(answer())
    rounds = [span for span in told.spans if span.name.startswith("invoke_agent")]
    assert [(span.attributes or {}).get("deputy.round", 0) for span in rounds] == [0, 1]
    assert len({id_of(span) for span in rounds}) == 2
    assert {parent_of(span) for span in rounds} == {id_of(told.named("invoke_workflow"))}
    assert len(traces_of(told)) == 1


def test_the_current_span_of_the_caller_is_the_parent_and_stays_in_the_journal(house: House):
    house.script(talk(turn("Done.")))
    told = Telemetry()

    async def main() -> Any:
        options: dict[str, Any] = {"workspace": house.workspace, "home": house.home, "models": house.given}
        async with Deputy(house.model, observer=told.observer, **options) as deputy:
            with told.tracers.get_tracer("mine").start_as_current_span("mine"):
                return await deputy.run("Look.")

    asyncio.run(main())
    mine, run = told.named("mine"), told.named("invoke_agent")
    assert parent_of(run) == id_of(mine)
    assert len(traces_of(told)) == 1
    [start] = [one.event for one in house.records(str((run.attributes or {})["gen_ai.agent.id"]))][:1]
    assert isinstance(start, RunOpened)
    assert mine.context is not None
    assert start.lineage.traceparent == f"00-{mine.context.trace_id:032x}-{id_of(mine):016x}-01"


def test_the_variable_traceparent_is_the_parent_and_its_sampling_counts(house: House, monkeypatch):
    async def main(told: Telemetry) -> None:
        options: dict[str, Any] = {"workspace": house.workspace, "home": house.home, "models": house.given}
        async with Deputy(house.model, observer=told.observer, **options) as deputy:
            await deputy.run("Look.")

    house.script(talk(turn("Done.")), talk(turn("Done.")), strict=False)
    told, unsampled = Telemetry(), Telemetry()
    monkeypatch.setenv("TRACEPARENT", CALLER)
    asyncio.run(main(told))
    assert f"{parent_of(told.named('invoke_agent')):016x}" == CALLER.split("-")[2]
    assert {f"{one:032x}" for one in traces_of(told)} == {CALLER.split("-")[1]}
    monkeypatch.setenv("TRACEPARENT", f"{CALLER[:-2]}00")
    asyncio.run(main(unsampled))
    assert unsampled.spans == []


def test_a_sampler_that_takes_nothing_exports_no_span_and_still_measures(house: House):
    house.script(talk(turn("Done.")))
    told = Telemetry(sampler=ParentBased(ALWAYS_OFF))
    assert house.one(observer=told.observer).status == "completed"
    assert told.spans == []
    assert told.points["deputy.runs"] == [({"deputy.status": "completed"}, 2)]


@tool
async def where_am_i() -> str:
    """Say the current span."""
    return f"{trace.get_current_span().get_span_context().span_id:016x}"


def test_the_span_of_a_tool_call_is_current_in_the_tool_and_not_after_it(house: House):
    house.script(talk(turn("", call("where_am_i")), turn("Done.")))
    told = Telemetry()
    seen: list[object] = []

    async def main() -> Any:
        async with house.open(observer=told.observer, tools=[where_am_i]) as runtime:
            task = Task(label="a", prompt="x", tools=("where_am_i",))
            run = await house.begin(runtime, task, tools=frozenset({"where_am_i"}))
            outcome = await runtime.engine.result(run)
            seen.append(trace.get_current_span(context.get_current()))
            return [child.run for child in await runtime.journal.descendants(run)], outcome

    [child], _ = asyncio.run(main())
    assert f"\n{id_of(told.named('execute_tool')):016x}\n" in house.results_of(child)[0]
    assert seen == [trace.INVALID_SPAN]


def test_the_span_of_a_run_is_exported_by_the_process_that_ended_it():
    lineage = Lineage.root("sess_1_aaaaaa")
    live = State(run="sess_1_aaaaaa", status="running", lineage=lineage, requested_at=5.0)
    ended = structs.replace(live, status="cancelled", ended_clock=2.0)
    waiting, cancelling = Telemetry(), Telemetry()
    waits, cancels = Observation(waiting.observer), Observation(cancelling.observer)
    waits.run_started(live, RunOpened(lineage=lineage), is_resumed=False)
    cancels.run_ended(ended)
    waits.run_ended(ended, is_elsewhere=True)
    assert waiting.spans == []
    [span] = cancelling.spans
    assert (span.name, span.start_time) == ("invoke_agent", 5_000_000_000)
    assert id_of(span) == int(run_span_id("sess_1_aaaaaa", 0), 16)
    assert cancelling.points["deputy.runs"] == [({"deputy.status": "cancelled"}, 1)]


# --- content and secrets ----------------------------------------------------------------------------------------------


@pytest.fixture
def told_with_canaries(house: House) -> Callable[[bool], str]:
    def tell(content: bool) -> str:
        secret = f"sk-ant-api03-{made_up(95)}"
        lines = secret_lines()
        (house.workspace / "canary-result.txt").write_text(
            "\n\n".join((f"canary-result {secret}", *(a for a, _ in lines)))
        )
        house.script(
            talk(
                turn(f"canary-answer {secret}", call("Read", path="canary-result.txt")),
                turn("", *(call("Grep", pattern=line[:300], path=".") for line, _ in lines[::20])),
                turn("", call("Read", path="canary-gone.txt")),
                turn(f"canary-report {secret}"),
            )
        )
        told = Telemetry(content=content)
        task = Task(label="canary-prompt-words-here", prompt=f"canary prompt words here {secret}")
        assert house.one(task, observer=told.observer).status == "completed"
        everything = told.everything
        assert secret not in everything
        assert secret[20:60] not in everything
        assert [line for line, value in lines if value in everything] == []
        return everything

    return tell


def test_no_content_is_exported_by_default(told_with_canaries):
    everything = told_with_canaries(False)
    assert "execute_tool Read" in everything
    assert "canary" not in everything


def test_content_is_exported_redacted_when_it_is_wanted(told_with_canaries):
    everything = told_with_canaries(True)
    for canary in ("canary prompt words", "canary-result", "canary-answer", "canary-report", "canary-gone.txt"):
        assert canary in everything
    assert "redacted" in everything


def test_a_failure_has_its_code_and_not_its_message(house: House):
    house.script(talk(turn("", faults=("bad_request",))), strict=False)
    told = Telemetry()
    outcome = house.one(observer=told.observer)
    assert outcome.status == "failed"
    for span in (told.named("chat"), told.named("invoke_agent")):
        assert span.status.status_code is trace.StatusCode.ERROR
        assert not span.status.description
    assert (told.named("chat").attributes or {})["error.type"] == outcome.errors[0].code
    assert outcome.errors[0].message not in told.everything


# --- metrics, events and logs -----------------------------------------------------------------------------------------


def test_retries_are_counted_and_are_events_of_the_model_call(house: House):
    told = Telemetry()
    with ProviderServer(ModelScript(conversations=(talk(turn("Done.", faults=("overloaded",))),))) as provider:
        house.use(provider)
        assert house.one(observer=told.observer).status == "completed"
    [chat] = [span for span in told.spans if span.name.startswith("chat ")]
    assert [event.name for event in chat.events] == ["deputy.retry"]
    assert (chat.attributes or {})["gen_ai.provider.name"] == "anthropic"
    assert float(str((chat.attributes or {})["deputy.usage.cost"])) > 0
    points = told.points
    assert points["deputy.retries"] == [({}, 1)]
    [(labels, cost)] = points["deputy.cost"]
    assert labels["gen_ai.request.model"] == "claude-sonnet-4-5"
    assert cost > 0
    [(_, turns)] = points["gen_ai.client.operation.duration"]
    assert turns == 1


def test_an_approval_is_an_event_of_its_run_and_counts_while_it_waits(house: House):
    house.script(talk(turn("I write.", call("Write", path="a.txt", content="x")), turn("Done.")))
    told = Telemetry()
    told.observer.measure(lambda: (2.5, 1))

    async def main() -> None:
        async with house.open(observer=told.observer, approval="ask", can_ask=True) as runtime:
            run = await house.start_parent(runtime, "Write it.")
            await approve(runtime, run)
            await runtime.engine.result(run)

    asyncio.run(main())
    events = [(event.name, dict(event.attributes or {})) for event in told.named("invoke_agent").events]
    assert events == [("deputy.approval.asked", {}), ("deputy.approval.answered", {"deputy.approval.choice": "yes"})]
    assert told.points["deputy.queue.age"] == [({}, 2.5)]
    assert told.points["deputy.approvals.waiting"] == [({}, 1)]
    [(labels, calls)] = told.points["deputy.tool.duration"]
    assert (labels, calls) == ({"gen_ai.tool.name": "Write"}, 1)


def test_log_records_have_the_ids_of_their_spans(house: House, caplog, monkeypatch):
    caplog.set_level("DEBUG", "deputy")
    house.script(talk(turn("I read.", call("Read", path="gone.txt")), turn("Done.")))
    told = Telemetry()
    monkeypatch.setattr("deputy.wiring.observers", lambda _: (told.observer, LoggingObserver()))
    house.one()
    by_id = {f"{id_of(span):016x}": span.name.split()[0] for span in told.spans}
    logged = [vars(record) for record in caplog.records if record.name in ("deputy.run", "deputy.step")]
    ended = [by_id[one["otelSpanID"]] for one in logged if "took" in one["msg"] or "failed" in one["msg"]]
    assert [name for name in ended if name != "invoke_workflow"][:3] == ["chat", "execute_tool", "chat"]
    assert [by_id[one["otelSpanID"]] for one in logged[-2:]] == ["invoke_agent", "invoke_workflow"]
    assert {one["otelTraceID"] for one in logged} == {f"{one:032x}" for one in traces_of(told)}
