import ast
import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs
from pydantic import BaseModel

import deputy
from deputy import Decision, Deputy, Question, Task, run_sync
from deputy.core.effective_settings import EffectiveSettings
from deputy.core.errors import CannotSpawn, UnknownRun, UsageError
from deputy.core.events import QuestionAsked, Record
from deputy.core.limits import Budget, WallLimit
from deputy.core.model_script import ScriptedTurn
from deputy.core.progress import Progress
from deputy.core.results import results_dict
from deputy.core.state import ASKED, State
from deputy.interfaces.questions import QuestionDispatcher
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.models import retry
from deputy.testing.faults import answers
from deputy.testing.provider import ProviderServer

READ = {"name": "Read", "arguments": {"path": "plan.txt"}}


@pytest.fixture
def place(house):
    (house.workspace / "plan.txt").write_text("win\n")
    return {"workspace": house.workspace, "home": house.home}


def test_importing_the_package_does_no_work():
    program = "import sys; before = set(sys.modules); import deputy; print(sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"asyncio", "msgspec", "deputy.core", "json"} & set(ast.literal_eval(loaded))


def test_type_checkers_know_the_names_that_there_are():
    stub = Path(deputy.__file__).with_suffix(".pyi").read_text()
    output = {line.rpartition(" as ")[2] for line in stub.splitlines() if " as " in line} | {"__version__"}
    assert output == set(dir(deputy))
    assert all(getattr(deputy, name) is not None for name in output)
    with pytest.raises(AttributeError, match="Deputee"):
        deputy.Deputee  # noqa: B018  what it raises is the test


def _environment(house, monkeypatch, **more: str) -> None:
    for name, value in {**house.env, "DEPUTY_MODEL": "", **more}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.rule("honest.model")
def test_without_a_model_a_program_is_refused_unless_every_task_names_one(house, place, monkeypatch):
    _environment(house, monkeypatch)
    with pytest.raises(CannotSpawn, match=r"no model is configured.*Deputy\(MODEL\)"):
        run_sync("x", **place)
    with pytest.raises(CannotSpawn, match="no model is configured"):
        run_sync(Task(label="a", prompt="x", model="offline:scout"), "y", **place)
    [outcome] = run_sync(Task(label="a", prompt="x", model="offline:scout"), **place)
    assert (outcome.status, outcome.model) == ("completed", "offline:scout")


@pytest.mark.rule("honest.model")
def test_a_detected_server_that_stops_is_an_error_and_no_other_model_is_used(house, place, monkeypatch):
    monkeypatch.setattr(retry, "SHORTEST_WAIT_SECONDS", 0.0)

    async def main():
        async with Deputy(**place) as deputy:
            async with ProviderServer(ScriptedTurn(text="Well."), models=("qwen3",)) as server:
                _environment(house, monkeypatch, OLLAMA_BASE_URL=server.environ["OLLAMA_BASE_URL"])
                [first] = await deputy.delegate([Task(label="a", prompt="x")])
            [second] = await deputy.delegate([Task(label="a", prompt="x")])
        return first, second

    first, second = asyncio.run(main())
    assert (first.status, first.model) == ("completed", "ollama:qwen3")
    assert (second.status, second.model, second.fallbacks) == ("failed", "ollama:qwen3", ())
    assert second.errors[0].code == "NETWORK_FAILED"
    assert second.errors[0].recommendation.startswith("Check that the server runs; else ")


@pytest.mark.rule("model.alias")
def test_a_retired_model_is_replaced_by_its_successor_with_a_warning(house, place, monkeypatch):
    with ProviderServer(ScriptedTurn(text="Done.")) as server:
        _environment(house, monkeypatch, **server.environ)
        [outcome] = run_sync("x", model="sonnet-4", **place)
        assert [asked.model for asked in server.asked] == ["claude-sonnet-5-5"]
    assert (outcome.status, outcome.model) == ("completed", "anthropic:claude-sonnet-5-5")
    assert outcome.warnings == (
        "claude-sonnet-4 is retired; its successor claude-sonnet-5-5 was used. Name that model, or another one.",
    )


def test_a_model_without_tools_fails_at_once_with_a_remedy_and_without_retry_or_fallback(house, place, monkeypatch):
    message = "registry.ollama.ai/library/gemma3:4b does not support tools"
    refusal = answers(400, {"error": {"message": message, "type": "api_error"}})
    with ProviderServer(ScriptedTurn(faults=("no tools",)), faults={"no tools": refusal}, strict=False) as server:
        _environment(house, monkeypatch, **server.environ)
        [outcome] = run_sync("x", model="ollama:gemma3:4b", **place)
        assert len(server.asked) == 1
    [error] = outcome.errors
    assert (outcome.status, error.code, error.recoverable) == ("failed", "TOOLS_UNSUPPORTED", False)
    assert error.message == f"ollama:gemma3:4b: {message} (HTTP 400)"
    assert "ollama show" in error.recommendation
    assert outcome.fallbacks == ()


@pytest.mark.rule("guard.quota")
def test_what_a_program_hands_over_itself_is_not_held_to_the_quota_of_models(house, place):
    model = house.script("many", {"turns": [{"text": "ok"}], "times": 70})
    many = [Task(label=f"t{number}", prompt="x") for number in range(70)]
    outcomes = run_sync(*many, model=model, concurrency=16, **place)
    assert {outcome.status for outcome in outcomes} == {"completed"}


@pytest.mark.rule("delegate.order")
def test_outcomes_stand_in_the_order_of_the_tasks_and_one_that_fails_stops_no_other(house, place):
    model = house.script(
        "three",
        {"when": "slow", "turns": [{"text": "slow", "delay_seconds": 0.2}]},
        {"when": "bad", "turns": [{"faults": ["bad_request"]}]},
        {"when": "quick", "turns": [{"text": "quick"}]},
    )
    tasks = [Task(label=word, prompt=word) for word in ("slow", "bad", "quick")]
    outcomes = run_sync(*tasks, model=model, concurrency=3, **place)
    assert [outcome.status for outcome in outcomes] == ["completed", "failed", "completed"]
    assert [outcome.report for outcome in outcomes if outcome.status == "completed"] == ["slow", "quick"]


def test_a_program_may_ask_for_more_than_a_model_may(house, place):
    model = house.script("many", {"times": 40, "turns": [{"text": "one of many"}]})
    outcomes = run_sync(*(f"task {n}" for n in range(40)), model=model, concurrency=20, **place)
    assert [outcome.status for outcome in outcomes] == ["completed"] * 40


def test_a_pydantic_model_is_a_return_schema(house, place):
    class Finding(BaseModel):
        title: str
        line: int

    model = house.script(
        "schema",
        {"turns": [{"text": "no JSON"}, {"text": 'Here: ```json\n{"title": "x", "line": 3}\n```'}]},
    )
    [outcome] = run_sync(Task(label="a", prompt="find", schema=Finding), model=model, **place)
    assert Finding.model_validate_json(outcome.report) == Finding(title="x", line=3)


def test_own_tools_are_given_to_subagents_that_name_no_others(house, place):
    def shout(word: str) -> str:
        """Say it loud."""
        return word.upper()

    model = house.script(
        "tool", {"turns": [{"calls": [{"name": "shout", "arguments": {"word": "hi"}}]}, {"text": "ok"}]}
    )
    output = []
    [with_tool] = run_sync("x", model=model, tools=[shout], watch=output.append, **place)
    assert with_tool.status == "completed"
    assert [(one.tool, one.args) for one in output if one.event == "tool_call"] == [("shout", "hi")]


def opened(place, model, **options):
    return Deputy(model, **place, **options)


def test_events_come_as_they_happen_and_end_with_the_deputy(house, place):
    model = house.script("events", {"turns": [{"text": "I read.", "calls": [READ]}, {"text": "Done."}]})

    async def carry_out():
        async with opened(place, model) as deputy:
            watching = asyncio.create_task(collected(deputy))
            await asyncio.sleep(0)
            await deputy.delegate([Task(label="a", prompt="x")])
        return await watching

    async def collected(deputy):
        return [progress async for progress in deputy.events()]

    output = asyncio.run(carry_out())
    kinds = [progress.event for progress in output]
    assert kinds[0] == "started"
    assert kinds[-1] == "completed"
    assert {"text", "tool_call", "tokens"} <= set(kinds)
    assert {progress.label for progress in output} == {"a"}


@pytest.mark.rule("escalate")
def test_a_question_blocks_and_the_answer_resumes_it(house, place):
    model = house.script(
        "ask", {"turns": [{"calls": [{"name": "Ask", "arguments": {"question": "Which?"}}]}, {"text": "Then: blue."}]}
    )

    async def carry_out():
        async with opened(place, model) as deputy:
            [blocked] = await deputy.delegate([Task(label="a", prompt="x")])
            return blocked, await deputy.resume(blocked.session_id, answer="blue")

    blocked, done = asyncio.run(carry_out())
    assert (blocked.status, blocked.question) == ("blocked", "Which?")
    assert (done.status, done.report) == ("completed", "Then: blue.")


def test_the_answerer_is_asked_once_for_each_question(house, place):
    calls = [{"name": "Ask", "arguments": {"question": "Which?"}}, {"name": "Ask", "arguments": {"question": "Sure?"}}]
    model = house.script("asks", {"turns": [{"calls": calls}, {"text": "Good."}]})
    asked: list[Question] = []

    async def answer(question: Question) -> str:
        asked.append(question)
        return f"answer {len(asked)}"

    [outcome] = run_sync("x", model=model, answer=answer, **place)
    assert outcome.status == "completed"
    assert [(one.topic, one.text) for one in asked] == [("answer", "Which?"), ("answer", "Sure?")]


def asking(house):
    ask = {"name": "Ask", "arguments": {"question": "Which?"}}
    return house.script("asking", {"turns": [{"calls": [ask]}, {"text": "Good."}]})


def test_an_answerer_that_fails_is_asked_again(house, place, monkeypatch):
    monkeypatch.setattr("deputy.interfaces.questions._PAUSES", (0.0,))
    asked: list[Question] = []

    async def answer(question: Question) -> str:
        asked.append(question)
        if len(asked) == 1:
            raise ConnectionError("nobody is there yet")
        return "blue"

    [outcome] = run_sync("x", model=asking(house), answer=answer, **place)
    assert outcome.status == "completed"
    assert [one.text for one in asked] == ["Which?", "Which?"]


def test_an_answerer_that_never_works_raises_its_own_error(house, place, monkeypatch):
    monkeypatch.setattr("deputy.interfaces.questions._PAUSES", ())

    async def answer(question: Question) -> str:
        raise ConnectionError("nobody is there")

    with pytest.raises(ConnectionError):
        run_sync("x", model=asking(house), answer=answer, **place)


def test_a_question_is_put_however_long_after_it_was_announced_it_is_asked(place):
    async def carry_out():
        asked: list[Question] = []
        put = asyncio.Event()

        async def answer(question: Question) -> str:
            asked.append(question)
            put.set()
            return "blue"

        async with QuestionDispatcher(LateEngine(looks=500), answer) as desk:
            for _ in range(3):
                desk.ask(Progress(event="waiting", label="a", session_id="s", content="Which?"))
            await put.wait()
        return asked

    [question] = asyncio.run(carry_out())
    assert (question.session_id, question.label, question.text) == ("s", "a", "Which?")


class LateEngine:
    """An engine with one run, which records its question only after so many looks at it."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    async def get(self, run: str) -> State:
        self._looks -= 1
        await asyncio.sleep(0)
        waits = {"ask": "answer"} if self._looks < 0 else {}
        return State(run=run, status="waiting" if waits else "running", waits=waits, question="Which?" if waits else "")

    async def events(self, run: str, *, after: int = 0):
        while not (await self.get(run)).waits:
            continue
        yield Record(
            run=run, seq=1, key=f"ask{ASKED}", at=0.0, clock=0.0, event=QuestionAsked(topic="answer", question="Which?")
        )

    async def send(self, run: str, topic: str, body: object, *, key: str = "") -> None:
        assert (run, topic, body, key) == ("s", "answer", "blue", "answer:ask")


def test_a_run_that_was_put_aside_while_it_waited_tells_of_no_finished_call_again(house, place):
    ask = {"name": "Ask", "arguments": {"question": "Which?"}}
    task = {"name": "Delegate", "arguments": {"tasks": [{"label": "a", "prompt": "read"}]}}
    reading = {"when": "You are a subagent", "turns": [{"calls": [READ]}, {"calls": [ask]}, {"text": "Good."}]}
    model = house.script("aside", reading, {"turns": [{"calls": [task]}, {"text": "All good."}]})
    output = []

    async def carry_out():
        async def answer(question: Question) -> bool | str:
            for _ in range(1000):
                statuses = await deputy._runtime.journal.unfinished()
                if any(one.is_orphaned and one.state.run == question.session_id for one in statuses):
                    break
                await asyncio.sleep(0.01)
            return True if question.topic == "approval" else "blue"

        async with opened(place, model, answer=answer, watch=output.append) as deputy:
            return await deputy.run("go")

    assert asyncio.run(carry_out()).report == "All good."
    assert [one.args for one in output if one.tool == "Read"] == ["plan.txt"]


@pytest.mark.parametrize(("approves", "changed"), [(True, True), (False, False)])
def test_what_a_parent_wants_to_change_is_asked_first(house, place, approves, changed):
    write = {"name": "Write", "arguments": {"path": "new.txt", "content": "hello"}}
    model = house.script("write", {"turns": [{"calls": [write]}, {"text": "Done."}]})
    asked = []

    async def answer(question: Question) -> bool:
        asked.append(question.topic)
        return approves

    async def carry_out():
        async with opened(place, model, answer=answer) as deputy:
            return await deputy.run("write it")

    assert asyncio.run(carry_out()).status == "completed"
    assert asked == ["approval"]
    assert (house.workspace / "new.txt").exists() is changed


@pytest.mark.rule("delegate.cancel")
def test_a_cancelled_call_stops_its_subagents_and_leaves_their_outcomes(house, place):
    model = house.script("slow", {"times": 2, "turns": [{"text": "never", "delay_seconds": 60}]})

    async def carry_out():
        async with opened(place, model) as deputy:
            started = asyncio.Event()
            ids = []

            async def watch():
                async for progress in deputy.events():
                    ids.append(progress.session_id)
                    if len(ids) == 2:
                        started.set()

            watching = asyncio.create_task(watch())
            await asyncio.sleep(0)
            call = asyncio.create_task(deputy.delegate([Task(label=x, prompt=x) for x in "ab"]))
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            watching.cancel()
            return [await deputy.outcome(one) for one in ids[:2]]

    assert [outcome.status for outcome in asyncio.run(carry_out())] == ["cancelled", "cancelled"]


def test_an_end_is_reported_when_it_is_on_record_and_of_one_that_is_cancelled_while_others_go_on(house, place):
    model = house.script("slow", {"times": 2, "turns": [{"text": "never", "delay_seconds": 60}]})
    found, ids = [], {}

    async def carry_out():
        begun, ended = asyncio.Event(), asyncio.Event()

        def watch(progress):
            if progress.event == "started":
                ids[progress.label] = progress.session_id
                if len(ids) == 2:
                    begun.set()
            if progress.event == "completed" and not ended.is_set():
                reader = SqliteQueries.open(house.home, is_written=True)
                with reader:
                    found.append((progress.label, progress.status, reader.state(progress.session_id).status))
                ended.set()

        async with asyncio.timeout(20), opened(place, model, watch=watch) as deputy:
            call = await deputy.start([Task(label=x, prompt=x) for x in "ab"])
            await begun.wait()
            await deputy.cancel(ids["a"])
            await ended.wait()
            await deputy.cancel(call)

    asyncio.run(carry_out())
    assert found == [("a", "cancelled", "cancelled")]


@pytest.mark.rule("delegate.cancel")
def test_leaving_while_a_call_is_under_way_stops_it_and_leaves_its_outcomes(house, place):
    model = house.script("slow", {"turns": [{"text": "never", "delay_seconds": 60}]})
    calls, ids = [], []

    async def leave():
        started = asyncio.Event()

        def watch(progress):
            ids.append(progress.session_id)
            started.set()

        async with opened(place, model, watch=watch) as deputy:
            calls.append(asyncio.create_task(deputy.delegate([Task(label="a", prompt="a")])))
            await started.wait()
            raise RuntimeError("mine")

    async def carry_out():
        with pytest.raises(RuntimeError, match="mine"):
            await leave()
        assert [outcome.status for outcome in await calls[0]] == ["cancelled"]
        async with opened(place, model) as deputy:
            return await deputy.outcome(ids[0])

    assert asyncio.run(carry_out()).status == "cancelled"


@pytest.mark.rule("resume")
def test_a_call_that_was_cancelled_goes_on_with_what_did_not_complete(house, place):
    quick = {"when": "quick", "turns": [{"text": "quick"}]}
    stuck = house.script("first", quick, {"when": "stuck", "turns": [{"text": "never", "delay_seconds": 60}]})

    async def first():
        output = asyncio.Event()

        def watch(progress):
            if progress.event == "completed":
                output.set()

        async with opened(place, stuck, watch=watch) as deputy:
            call = await deputy.start([Task(label=x, prompt=x) for x in ("quick", "stuck")])
            await output.wait()
            await deputy.cancel(call)
            return call, await deputy.results(call)

    async def later(call):
        async with opened(place, None) as deputy:
            await deputy.resume_run(call)
            return await deputy.results(call), await deputy.outcome(call)

    call, before = asyncio.run(first())
    house.script("first", {"when": "stuck", "turns": [{"text": "free"}]})
    after, whole = asyncio.run(later(call))
    assert [result.outcome.status for result in before] == ["completed", "cancelled"]
    assert [result.outcome.report for result in after] == ["quick", "free"]
    assert before[0].outcome.session_id == after[0].outcome.session_id, "what was complete was not done again"
    assert whole.status == "completed"


@pytest.mark.rule("recover")
def test_only_runs_without_a_live_process_are_resumed(house, place):
    model = house.script("slow", {"turns": [{"text": "never said", "delay_seconds": 60}], "times": 3})

    async def main():
        async with opened(place, model) as deputy:
            run = await deputy.start([Task(label="a", prompt="the work")])
            at_work = await deputy.resume_suspended(run)
            await deputy.cancel(run)
            await deputy.results(run)
            ended = await deputy.resume_suspended(run)
            left = await deputy.start([Task(label="b", prompt="the work")])
            state = await deputy.state(run)
        async with opened(place, model) as deputy:
            return at_work, ended, state.round, state.status, await deputy.resume_suspended(left)

    assert asyncio.run(main()) == (False, False, 0, "cancelled", True)


def test_misuse_is_reported_before_anything_happens(house, place):
    async def carry_out():
        async with opened(place, "script:nowhere.json") as deputy:
            with pytest.raises(UsageError, match="at least one deputy"):
                await deputy.delegate([])
            with pytest.raises(UsageError, match="cannot be read"):
                await deputy.delegate([Task(label="a", prompt="x")])
            with pytest.raises(UnknownRun):
                await deputy.resume("sess_1_nobody")
            assert await deputy._runtime.engine.list() == []

    asyncio.run(carry_out())
    with pytest.raises(UsageError, match="async with"):
        asyncio.run(Deputy("offline:scout").run("x"))


# --- misuse, before anything is spent ---------------------------------------------------------------------------------


GOOD = {"label": "a", "prompt": "x"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"label": " "}, "tasks[0].label"),
        ({"label": "a" * 33}, "tasks[0].label"),
        ({"label": 7}, "tasks[0].label"),
        ({"prompt": "\n"}, "tasks[0].prompt"),
        ({"model": ""}, "tasks[0].model"),
        ({"context": ("f",) * 11}, "tasks[0].context"),
        ({"max_output_tokens": 0}, "tasks[0].max_output_tokens"),
        ({"max_output_tokens": 1_000_000}, "tasks[0].max_output_tokens"),
        ({"timeout": 0}, "tasks[0].timeout"),
        ({"timeout": -1.0}, "tasks[0].timeout"),
        ({"timeout": float("inf")}, "tasks[0].timeout"),
        ({"timeout": float("nan")}, "tasks[0].timeout"),
        ({"timeout": 10**400}, "tasks[0].timeout"),
        ({"budget": Budget(requests=0)}, "tasks[0].budget.requests"),
        ({"budget": Budget(cost=0)}, "tasks[0].budget.cost"),
        ({"return_format": "xml"}, "tasks[0].return_format"),
    ],
)
def test_a_task_that_cannot_be_done_is_refused_by_the_name_of_its_field(house, place, fields, field):
    with pytest.raises(UsageError) as refused:
        run_sync(Task(**{**GOOD, **fields}), model=house.script("none"), **place)
    assert refused.value.field == field


@pytest.mark.rule("budget")
@pytest.mark.parametrize("work", ["x", [Task(**GOOD)]])
def test_a_cap_on_the_cost_of_all_is_refused_where_no_price_is_known(house, place, work):
    async def carry_out():
        async with Deputy(house.script("none"), budget=Budget(cost=0.5), **place) as deputy:
            await deputy.start(work)

    with pytest.raises(UsageError, match=r"budget.cost: found \$0.50; no price is known for script:.* cap `tokens`"):
        asyncio.run(carry_out())


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.5, "2"])
def test_work_that_cannot_be_approved_is_refused(house, place, concurrency):
    with pytest.raises(UsageError) as refused:
        run_sync("x", model=house.script("none"), concurrency=concurrency, **place)
    assert refused.value.field == "concurrency"


@pytest.mark.parametrize(("work", "field"), [("  ", "prompt"), ([GOOD], "tasks[0]"), ([], "tasks"), ("", "prompt")])
def test_work_that_is_none_is_refused(house, place, work, field):
    async def carry_out():
        async with opened(place, house.script("none")) as deputy:
            await deputy.start(work)

    with pytest.raises(UsageError) as refused:
        asyncio.run(carry_out())
    assert refused.value.field == field


@pytest.mark.rule("delegate.cancel")
def test_a_cancelled_call_stays_cancelled_when_its_subagents_do_not_stop_in_time(house, place, monkeypatch):
    monkeypatch.setattr("deputy.interfaces.cancel_tree._STOP_SECONDS", 0.3)
    model = house.script("stubborn", {"turns": [{"calls": [{"name": "hold_on", "arguments": {}}]}, {"text": "ok"}]})

    async def carry_out():
        begun, released = asyncio.Event(), asyncio.Event()

        async def hold_on() -> str:
            """Go on, whoever wants it to stop."""
            begun.set()
            while not released.is_set():
                with suppress(asyncio.CancelledError):
                    await released.wait()
            return "let go"

        async with opened(place, model, tools=[hold_on]) as deputy:
            call = asyncio.create_task(deputy.delegate([Task(label="a", prompt="x")]))
            await begun.wait()
            call.cancel()
            try:
                with pytest.raises(asyncio.CancelledError):
                    await call
            finally:
                released.set()

    asyncio.run(carry_out())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"model": 5}, "model"),
        ({"model": " "}, "model"),
        ({"workspace": 5}, "workspace"),
        ({"workspace": "no/such/place"}, "workspace"),
        ({"home": 5}, "home"),
        ({"home": ""}, "home"),
        ({"budget": 5}, "budget"),
        ({"policy": {}}, "policy"),
        ({"tools": "Read"}, "tools"),
        ({"tools": ["Read"]}, "tools[0]"),
        ({"approval": "yes"}, "approval"),
        ({"answer": "yes"}, "answer"),
        ({"watch": 1}, "watch"),
        ({"base_prompt": None}, "base_prompt"),
        ({"private": "x"}, "private"),
        ({"private": [1]}, "private"),
    ],
)
def test_a_deputy_that_cannot_be_made_names_the_option(place, options, field):
    with pytest.raises(UsageError) as refused:
        Deputy(**{**place, **options})
    assert refused.value.field == field
    assert not place["home"].exists()


def test_a_home_may_be_a_text(house, place):
    [done] = run_sync(
        "x", model=house.script("one", {"turns": [{"text": "Done."}]}), **{**place, "home": str(house.home)}
    )
    assert done.status == "completed"
    assert (house.home / "journal.db").exists()


@pytest.mark.parametrize(
    ("misuse", "field"),
    [
        (lambda deputy: deputy.delegate([]), "tasks"),
        (lambda deputy: deputy.delegate("a prompt"), "tasks"),
        (lambda deputy: deputy.delegate(Task(label="a", prompt="x")), "tasks"),
        (lambda deputy: deputy.delegate(5), "tasks"),
        (lambda deputy: deputy.run(5), "prompt"),
        (lambda deputy: deputy.run([Task(label="a", prompt="x")]), "prompt"),
        (lambda deputy: deputy.start(None), "tasks"),
        (lambda deputy: deputy.resume(5), "session_id"),
        (lambda deputy: deputy.cancel(None), "session_id"),
        (lambda deputy: deputy.outcome(""), "session_id"),
    ],
)
def test_a_call_that_makes_no_sense_names_the_argument(place, misuse, field):
    async def carry_out():
        async with Deputy("offline:scout", **place) as deputy:
            await misuse(deputy)

    with pytest.raises(UsageError) as refused:
        asyncio.run(carry_out())
    assert refused.value.field == field


def test_a_deputy_is_used_once_and_while_it_is_open(place):
    async def carry_out():
        async with Deputy("offline:scout", **place) as deputy:
            with pytest.raises(UsageError, match="create a new one"):
                await deputy.__aenter__()
        with pytest.raises(UsageError, match="found a closed Deputy; use it inside"):
            await deputy.run("x")
        with pytest.raises(UsageError, match="found a running event loop; await"):
            run_sync("x", model="offline:scout", **place)

    asyncio.run(carry_out())


@pytest.mark.parametrize(("work", "field"), [((5,), "tasks[0]"), ((), "tasks"), ((["x"],), "tasks[0]")])
def test_a_script_that_asks_for_no_task_is_reported(place, work, field):
    with pytest.raises(UsageError) as refused:
        run_sync(*work, model="offline:scout", **place)
    assert refused.value.field == field


def test_a_task_that_never_began_has_no_session(house, place):
    model = house.script("stuck", {"turns": [{"text": "never", "delay_seconds": 60}]})

    async def carry_out():
        async with opened(place, model) as deputy:
            call = await deputy.start([Task(label="a", prompt="x"), Task(label="b", prompt="y")], concurrency=1)
            async for progress in deputy.events():
                if progress.event == "started":
                    break
            await deputy.cancel(call)
            return await deputy.results(call)

    begun, never = results_dict(asyncio.run(carry_out()))["results"]
    assert begun["session_id"].startswith("sess_")
    assert (never["label"], never["status"], never["session_id"]) == ("b", "cancelled", None)


@pytest.mark.rule("time.wall")
def test_the_rules_of_the_configuration_hold_for_programs_too(house, place):
    model = house.script("json", {"times": 3, "turns": [{"text": "no JSON"}, {"text": "still none"}]})
    rules = EffectiveSettings(repairs=0, max_depth=0, wall={"delegate": WallLimit(5, 10)})
    with pytest.raises(UsageError, match=r"timeout: found 11\.0; delegate takes more than 0 and at most 10 seconds"):
        run_sync(Task(label="a", prompt="x", timeout=11.0), model=model, rules=rules, **place)
    [refused] = run_sync("x", model=model, rules=rules, **place)
    assert (refused.status, refused.code) == ("rejected", "MAX_DEPTH_EXCEEDED")
    allowed = structs.replace(rules, max_depth=1)
    [failed] = run_sync(Task(label="a", prompt="x", return_format="json"), model=model, rules=allowed, **place)
    assert failed.errors[0].code == "INVALID_RETURN"
    assert failed.usage.requests == 1, "it was not sent back"
    assert failed.lineage.deadline is not None


@pytest.mark.rule("delegate.approve")
def test_a_configuration_that_refuses_holds_for_programs_that_say_nothing(house, place):
    tasks = [{"label": "a", "prompt": "x"}]
    calls = [{"name": "Delegate", "arguments": {"tasks": tasks}}]
    model = house.script("parent", {"times": 3, "turns": [{"calls": calls}, {"text": "Without."}]})

    async def children(rules: EffectiveSettings) -> int:
        async with Deputy(model, rules=rules, **place) as deputy:
            outcome = await deputy.run("Do it.")
            return (await deputy.state(outcome.session_id)).counts.children

    assert asyncio.run(children(EffectiveSettings(approval="refuse"))) == 0
    assert asyncio.run(children(EffectiveSettings())) == 1


@pytest.mark.rule("resume")
def test_several_questions_are_answered_by_their_ids(house, place):
    asking = [{"name": "Ask", "arguments": {"question": "Which?"}}]
    turns = [{"calls": asking}, {"text": "Thanks."}]
    model = house.script("ask", {"times": 2, "turns": turns})

    async def carry_out():
        async with opened(place, model) as deputy:
            call = await deputy.start([Task(label="a", prompt="x"), Task(label="b", prompt="y")])
            whole = await deputy.outcome(call)
            questions = await deputy.questions(call)
            with pytest.raises(UsageError, match="subagents wait for answers; answer them first"):
                await deputy.resume(call, "red")
            with pytest.raises(UsageError, match="this run asks nothing; runs that ask: "):
                await deputy.resume(call, {"sess_1_nobody": "red"})
            done = await deputy.resume(call, {question.session_id: f"{question.label}!" for question in questions})
            return whole, questions, done

    whole, questions, done = asyncio.run(carry_out())
    assert (whole.status, whole.question) == ("blocked", "[a] Which?\n[b] Which?")
    assert [(one.label, one.topic, one.text) for one in questions] == [
        ("a", "answer", "Which?"),
        ("b", "answer", "Which?"),
    ]
    assert done.status == "completed"


@pytest.mark.rule("delegate.norecursion")
@pytest.mark.parametrize(("definition", "is_granted"), [(None, False), ("Read", False), ("Read, Delegate", True)])
def test_only_the_definition_of_an_agent_lets_a_task_hand_work_on(house, place, definition, is_granted):
    agent = None
    if definition is not None:
        folder = house.workspace / ".deputy" / "agents"
        folder.mkdir(parents=True)
        (folder / "lead.md").write_text(f"---\nname: lead\ndescription: leads\ntools: {definition}\n---\nYou lead.\n")
        agent = "lead"
    inner = {"name": "Delegate", "arguments": {"tasks": [{"label": "below", "prompt": "deep work"}]}}
    model = house.script(
        "m",
        {"when": "deep work", "turns": [{"text": "Deep."}], "times": 1},
        {"when": "lead it", "turns": [{"calls": [inner]}, {"text": "Led."}]},
    )
    task = Task(label="top", prompt="lead it", agent=agent, tools=("Read", "Delegate"))

    async def carry_out():
        async with opened(place, model, trusts_project=True) as deputy:
            return await deputy.delegate([task])

    if not is_granted:
        with pytest.raises(UsageError, match="only an agent's definition grants it") as refused:
            asyncio.run(carry_out())
        assert refused.value.field == "tasks[0].tools"
        return
    [outcome] = asyncio.run(carry_out())
    assert (outcome.report, outcome.usage.requests) == ("Led.", 3)


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("yes", "return True, False or Decision"),
        (1, "return True, False or Decision"),
        (Decision(choice="yes", digest="0" * 64), "return True, False or Decision"),
    ],
)
def test_an_answerer_that_gives_no_answer_is_named_with_what_it_must_give(tmp_path, answer, expected):
    mark = tmp_path / "ran"

    async def my_answerer(question):
        assert question.request.tool == "Run"
        assert question.digest == question.request.digest
        return answer

    calls = [{"name": "Run", "arguments": {"command": f"touch {mark}"}}]
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"conversations": [{"turns": [{"calls": calls}, {"text": "Done."}]}]}))

    async def go():
        async with Deputy(f"script:{path}", workspace=tmp_path, home=tmp_path / "home", answer=my_answerer) as deputy:
            await deputy.run("Do it.")

    with pytest.raises(UsageError, match=expected) as raised:
        asyncio.run(go())
    assert "my_answerer" in str(raised.value)
    assert not mark.exists()


@pytest.mark.rule("resume.progress")
def test_a_resume_replaces_a_spent_budget_and_refuses_one_that_is_reached(house, place):
    look = {"calls": [{"name": "Glob", "arguments": {"pattern": "*"}}]}
    model = house.script("m", {"turns": [look, {"text": "Some."}, {"text": "All."}]})

    async def carry_out():
        async with opened(place, model) as deputy:
            [some] = await deputy.delegate([Task(label="a", prompt="x", budget=Budget(requests=2))])
            with pytest.raises(UsageError, match=r"budget: found 2 requests; the run has used 2 requests"):
                await deputy.resume(some.session_id, budget=Budget(requests=2))
            with pytest.raises(UsageError, match=r"nowhere:x"):
                await deputy.resume(some.session_id, model="nowhere:x")
            return some, await deputy.resume(some.session_id, budget=Budget(requests=3))

    some, done = asyncio.run(carry_out())
    assert (some.status, some.errors[0].code) == ("partial", "BUDGET_SPENT")
    assert (done.status, done.report) == ("completed", "All.")
