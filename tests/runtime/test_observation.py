"""What an observer gets of real runs."""

import asyncio
import logging
from typing import Any

import pytest
from tests.core.redaction.samples import made_up
from tests.support.house import House, approve
from tests.support.scripts import call, talk, turn

from deputy import Observer
from deputy.core.events import Noted, RunOpened
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Completed, Outcome
from deputy.core.progress import Progress, retry_text
from deputy.core.request import Lineage
from deputy.core.state import State
from deputy.core.task import Task
from deputy.engine.ports import RunContext
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.runtime.engine import LocalEngine, SystemWorld
from deputy.runtime.observation import Observation
from deputy.testing import ProviderServer

METHODS = [name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_")]


class Recorder(Observer):
    """Keeps every call: the method and its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in METHODS:
            return super().__getattribute__(name)
        return lambda *arguments: self.calls.append((name, arguments))

    def names(self, *wanted: str) -> list[str]:
        return [name for name, _ in self.calls if not wanted or name in wanted]

    def of(self, wanted: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.calls if name == wanted]


@pytest.fixture
def house(tmp_path, monkeypatch):
    house = House(tmp_path, monkeypatch)
    yield house
    house.check()


def test_a_run_reports_its_start_its_steps_and_its_end(house: House):
    (house.workspace / "plan.txt").write_text("win\n")
    house.script(talk(turn("I read.", call("Read", path="plan.txt")), turn("Done.")))
    seen = Recorder()
    outcome = house.one(observer=seen)
    (parent,), (child,) = seen.of("run_started")
    assert (child.session_id, child.parent, child.root_id) == (outcome.session_id, parent.session_id, parent.session_id)
    assert (child.label, child.round, child.is_resumed) == ("scout", 0, False)
    steps = [(step, end) for step, end in seen.of("step_ended") if step.run == child]
    assert [(step.kind, step.name) for step, _ in steps] == [
        ("model", house.model),
        ("tool", "Read"),
        ("model", house.model),
    ]
    assert [step for (step,) in seen.of("step_started") if step.run == child] == [step for step, _ in steps]
    assert [(end.usage.input, end.usage.output, end.error) for _, end in steps] == [
        (100, 20, None),
        (0, 0, None),
        (100, 20, None),
    ]
    assert all(end.seconds > 0 for _, end in steps)
    assert steps[0][1].model == house.model
    (first, end), (last, _) = seen.of("run_ended")
    assert (first, last) == (child, parent)
    assert (end.status, end.usage.input) == ("completed", 200)
    assert end.seconds > 0


def test_a_failed_tool_call_and_a_failed_model_call_have_their_error(house: House):
    turns = (turn("I read.", call("Read", path="gone.txt")), turn("", faults=("bad_request",)))
    house.script(talk(*turns), strict=False)
    seen = Recorder()
    outcome = house.one(observer=seen)
    assert outcome.status == "failed"
    errors = [(step.kind, end.error) for step, end in seen.of("step_ended") if end.error is not None]
    assert [kind for kind, _ in errors] == ["tool", "model"]
    assert "gone.txt" in errors[0][1].message
    assert errors[1][1] == outcome.errors[0]


def test_a_cancelled_step_ends_as_cancelled(house: House):
    house.script(talk(turn("x", delay_seconds=60)))
    seen = Recorder()

    async def main() -> None:
        async with house.open(observer=seen) as runtime:
            run = await house.begin(runtime, Task(label="a", prompt="x"))
            async with asyncio.timeout(20):
                while not seen.of("step_started"):  # noqa: ASYNC110  the observer has no event
                    await asyncio.sleep(0.002)
            await runtime.engine.cancel(run)
            await runtime.engine.result(run)

    asyncio.run(main())
    [(_, end)] = seen.of("step_ended")
    assert end.error.code == "CANCELLED"
    assert {end.status for _, end in seen.of("run_ended")} == {"cancelled"}


def test_a_retry_is_reported_with_its_reason(house: House):
    script = ModelScript(conversations=(talk(turn("Done.", faults=("overloaded",))),))
    seen = Recorder()
    with ProviderServer(script) as provider:
        house.use(provider)
        assert house.one(observer=seen).status == "completed"
    [(run, reason)] = seen.of("retried")
    [event] = [one for one in house.seen if one.event == "retry"]
    assert (event.attempt, event.of, event.http_status, event.reason) == (2, 5, 529, "Overloaded")
    assert event.wait > 0
    assert (run.label, reason) == ("scout", retry_text(event))
    assert seen.names("retried", "step_ended") == ["retried", "step_ended"]


async def until_suspended(runtime: Any, run: str) -> None:
    async with asyncio.timeout(20):
        is_active = True
        while is_active:
            is_active = run in runtime.engine._supervisor.work or not (await runtime.engine.get(run)).waits
            await asyncio.sleep(0.002)


def test_a_run_that_is_cancelled_while_suspended_ends_once(house: House):
    house.script(talk(turn("", call("Write", path="a.txt", content="x"))))
    seen = Recorder()

    async def main() -> None:
        async with house.open(observer=seen, approval="ask", can_ask=True, suspend_seconds=0.0) as runtime:
            run = await house.start_parent(runtime, "Write it.")
            await until_suspended(runtime, run)
            await runtime.engine.cancel(run)
            await runtime.engine.result(run)

    asyncio.run(main())
    assert seen.names("run_started", "run_ended") == ["run_started", "run_ended"]
    assert [end.status for _, end in seen.of("run_ended")] == ["cancelled"]


def test_an_approval_is_reported_once_while_its_run_is_suspended_and_resumed(house: House):
    house.script(talk(turn("", call("Write", path="a.txt", content="x")), turn("Done.")))
    seen = Recorder()

    async def main() -> Outcome:
        async with house.open(observer=seen, approval="ask", can_ask=True, suspend_seconds=0.0) as runtime:
            run = await house.start_parent(runtime, "Write it.")
            await until_suspended(runtime, run)
            await approve(runtime, run)
            return await runtime.engine.result(run)

    assert asyncio.run(main()).status == "completed"
    happenings = ["run_started", "run_ended", "approval_asked", "approval_answered"]
    assert seen.names(*happenings) == ["run_started", "approval_asked", "approval_answered", "run_ended"]
    [(run, question)] = seen.of("approval_asked")
    assert seen.of("approval_answered") == [(run, question, "yes")]
    assert "a.txt" in question
    assert [step.key for step, _ in seen.of("step_ended") if step.kind == "model"] == ["model:0", "model:1"]


def test_recorded_steps_are_not_reported_again_when_a_run_is_resumed(tmp_path):
    hangs = asyncio.Event()

    async def work(name: str) -> Noted:
        if name == "second" and not hangs.is_set():
            hangs.set()
            await asyncio.Event().wait()
        return Noted(content=name)

    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        await run.step("first", work, "first")
        await run.step("second", work, "second")
        return Completed(lineage=start.lineage, summary="done")

    async def life(seen: Recorder, *, ends: bool) -> None:
        async with (
            SqliteJournal(tmp_path / "home") as journal,
            LocalEngine(journal, flow, SystemWorld(journal.clock.now), observers=[seen]) as engine,
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await engine.adopt()
            await (engine.result("sess_1_a") if ends else hangs.wait())

    async def main() -> tuple[Recorder, Recorder]:
        before, after = Recorder(), Recorder()
        await life(before, ends=False)
        await life(after, ends=True)
        return before, after

    before, after = asyncio.run(main())
    assert [step.key for (step,) in before.of("step_started")] == ["first", "second"]
    assert before.of("run_ended") == []
    assert [run.is_resumed for (run,) in after.of("run_started")] == [True]
    assert after.names() == ["run_started", "step_started", "step_ended", "run_ended"]
    assert [step.key for (step,) in after.of("step_started")] == ["second"]


class Broken(Observer):
    """Raises in one method."""

    def __init__(self, method: str, error: BaseException) -> None:
        self.calls = 0
        self._error = error
        setattr(self, method, self._fail)

    def _fail(self, *_: object) -> None:
        self.calls += 1
        raise self._error


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()], ids=["error", "cancelled"])
@pytest.mark.parametrize("method", ["run_started", "step_started", "step_ended", "run_ended"])
def test_an_observer_that_raises_harms_no_run_and_is_called_no_more(house: House, caplog, method, error):
    (house.workspace / "plan.txt").write_text("win\n")
    house.script(talk(turn("I read.", call("Read", path="plan.txt")), turn("Done.")))
    broken = Broken(method, error)
    assert house.one(observer=broken).status == "completed"
    assert broken.calls == 1
    [record] = [one for one in caplog.records if one.name == "deputy.observer"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f"Broken.{method} raised; it is not called again"
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_observers_get_no_secrets(house: House):
    secret = f"sk-ant-api03-{made_up(80)}"
    house.script(talk(turn("I read.", call("Read", path=secret)), turn("Done.")))
    seen = Recorder()
    house.one(Task(label=secret[:31], prompt="x"), observer=seen)
    shown = repr(seen.calls)
    assert "redacted" in shown.lower()
    assert secret[:31] not in shown


@pytest.mark.rule("redact.where")
def test_an_observer_that_wants_prompts_gets_them_without_secrets():
    seen, secret = Recorder(), f"sk-ant-api03-{made_up(80)}"
    seen.wants_content = True
    start = RunOpened(lineage=Lineage.root("sess_1_a"), prompt=f"Use {secret} for this.")
    Observation(seen).run_started(State(run="sess_1_a"), start, is_resumed=False)
    [(run,)] = seen.of("run_started")
    assert run.prompt == "Use [redacted] for this."


def test_observers_get_texts_on_one_short_line_without_terminal_escapes():
    seen = Recorder()
    observation = Observation(seen)
    observation.run_started(State(run="sess_1_a"), RunOpened(lineage=Lineage.root("sess_1_a")), is_resumed=False)
    observation.progress("sess_1_a", Progress(event="retry", label="a", reason=f"a\x1b[31m\nb {'c' * 1000}"))
    [(_, reason)] = seen.of("retried")
    assert reason.startswith("retrying: a b ccc")
    assert len(reason) == 500


def test_an_observer_that_raises_leaves_the_others_at_work(caplog):
    seen, start = Recorder(), RunOpened(lineage=Lineage.root("sess_1_a"))
    observation = Observation(Broken("run_started", ValueError("no")), seen)
    observation.run_started(State(run="sess_1_a"), start, is_resumed=False)
    observation.approval_asked("sess_1_a", "May I?")
    assert seen.names() == ["run_started", "approval_asked"]
    assert [record.getMessage() for record in caplog.records] == ["Broken.run_started raised; it is not called again"]
