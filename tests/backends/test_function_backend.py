"""Functions of a program as targets of delegations, through the whole of Deputy."""

import asyncio
from dataclasses import dataclass
from functools import partial

import pytest
from tests.support.scripts import call, talk, turn

from deputy import Budget, Deputy, Task, TokenUsage, UsageError
from deputy.backends.function_backend import FunctionBackend, is_agent_function
from deputy.core.events import ModelCallEnded
from deputy.core.model_script import ModelScript
from deputy.engine.ports.backend import BackendRequest
from deputy.models.script_model import ScriptModel


@dataclass
class Count:
    words: int


async def echo(request):
    return f"You said: {request.prompt.splitlines()[0]}"


@pytest.fixture
def delegate(tmp_path):
    def run(function, *, agents=None, models=None, **task):
        async def main():
            async with Deputy(
                "offline:scout" if models is None else next(iter(models)),
                models=models,
                agents=agents or {"mine": function},
                workspace=tmp_path,
                home=tmp_path / "home",
                fallback=False,
            ) as deputy:
                [outcome] = await deputy.delegate([Task(label="t", prompt="the task", agent="mine", **task)])
                return outcome, await deputy.records(outcome.session_id)

        return asyncio.run(main())

    return run


def test_a_function_answers_as_a_backend_and_its_turn_is_a_recorded_step(delegate):
    outcome, records = delegate(echo)
    assert (outcome.status, outcome.report, outcome.backend) == ("completed", "You said: the task", "python:mine")
    [ended] = [record.event for record in records if isinstance(record.event, ModelCallEnded)]
    assert ended.backend == "python:mine"
    # It called no model as far as it said, so nothing is charged.
    assert (outcome.usage.input, outcome.usage.output, outcome.usage.estimated) == (0, 0, False)


def test_usage_that_a_function_reports_is_charged(delegate):
    async def metered(request):
        yield TokenUsage(input_tokens=1000, output_tokens=200)
        yield "done"

    outcome, _ = delegate(metered)
    assert (outcome.report, outcome.usage.input, outcome.usage.output) == ("done", 1000, 200)


def test_a_wrong_report_is_sent_back_to_the_function_with_the_conversation_so_far(delegate):
    prompts = []

    async def learns(request):
        prompts.append(request.prompt)
        return {"words": "many"} if len(prompts) == 1 else Count(words=3)

    outcome, _ = delegate(learns, schema=Count)
    assert (outcome.status, outcome.value) == ("completed", Count(words=3))
    assert len(prompts) == 2
    assert "the task" in prompts[1]
    assert '"many"' in prompts[1]


def test_text_before_a_timeout_is_a_partial_result(delegate):
    async def slow(request):
        yield "half of it"
        await asyncio.Event().wait()

    outcome, _ = delegate(slow, timeout=2.0)
    assert (outcome.status, outcome.errors[0].type, outcome.report) == ("partial", "timeout", "half of it")
    # The limit of the task, and not the rest of it that the function had.
    assert outcome.errors[0].message.startswith("The time limit of 2 s was ")


def test_the_text_of_a_turn_is_bounded():
    async def talkative(_request):
        yield "first "
        for _ in range(100):
            yield "x" * 10_000
        yield " last"

    async def main():
        request = BackendRequest(session_id="sess_1_aaaaaa", prompt="the task", workspace="/")
        return await FunctionBackend("python:mine", talkative).run(request, lambda _event: None)

    result = asyncio.run(main())
    assert result.text.startswith("first x")
    assert result.text.endswith("x last")
    assert "bytes left out" in result.text
    assert len(result.text) < 500_000


def test_an_exception_is_a_failed_outcome_with_its_name(delegate):
    async def broken(request):
        raise KeyError("no such customer")

    outcome, _ = delegate(broken)
    assert outcome.status == "failed"
    assert "python:mine raised KeyError" in outcome.errors[0].message
    assert "no such customer" in outcome.errors[0].message


def test_a_timeout_of_the_functions_own_is_no_limit_of_ours(delegate):
    async def gives_up(request):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    outcome, _ = delegate(gives_up, timeout=60)
    assert (outcome.status, "raised TimeoutError" in outcome.errors[0].message) == ("failed", True)


def test_a_question_blocks_and_the_answer_goes_on(tmp_path):
    async def asks(request):
        return "Blue it is." if "blue" in request.prompt else "Which colour?\n[AWAITING_HUMAN_INPUT]"

    async def main():
        async with Deputy("offline:scout", agents={"asks": asks}, workspace=tmp_path, home=tmp_path / "home") as deputy:
            [outcome] = await deputy.delegate([Task(label="t", prompt="paint", agent="asks")])
            assert (outcome.status, outcome.question) == ("blocked", "Which colour?")
            return await deputy.resume(outcome.session_id, "blue")

    outcome = asyncio.run(main())
    assert (outcome.status, outcome.report) == ("completed", "Blue it is.")


def test_a_cancel_reaches_the_function(tmp_path):
    stopped = asyncio.Event()

    async def main():
        started = asyncio.Event()

        async def slow(request):
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with Deputy("offline:scout", agents={"slow": slow}, workspace=tmp_path, home=tmp_path / "home") as deputy:
            run = await deputy.start([Task(label="t", prompt="wait", agent="slow")])
            await started.wait()
            await deputy.cancel(run)
            [result] = await deputy.results(run)
            return result.outcome.status

    assert asyncio.run(main()) == "cancelled"
    assert stopped.is_set()


def test_a_parent_agent_delegates_to_a_function_by_its_name(tmp_path):
    script = ModelScript(
        conversations=(
            talk(turn("", call("Delegate", tasks=[{"label": "t", "prompt": "hello", "agent": "mine"}])), turn("Done.")),
        )
    )
    heard = []

    async def mine(request):
        heard.append(request.prompt)
        return "heard"

    async def main():
        models = {"parent": ScriptModel(script, name="parent")}
        async with Deputy(
            "parent", models=models, agents={"mine": mine}, workspace=tmp_path, home=tmp_path / "home"
        ) as deputy:
            return await deputy.run("go")

    assert asyncio.run(main()).report == "Done."
    assert len(heard) == 1


def test_a_function_is_no_parent_agent(tmp_path):
    async def main():
        async with Deputy("python:mine", agents={"mine": echo}, workspace=tmp_path, home=tmp_path / "home") as deputy:
            await deputy.run("go")

    with pytest.raises(UsageError, match="name a model for a parent agent"):
        asyncio.run(main())


def test_a_cost_cap_is_refused_for_a_function_whose_cost_is_unknown(delegate):
    with pytest.raises(UsageError, match=r"budget\.cost"):
        delegate(echo, budget=Budget(cost=0.5))


class Called:
    async def __call__(self, request):
        return "called"


def sync(request):
    return "no"


@pytest.mark.parametrize(
    ("value", "is_one"),
    [(echo, True), (partial(echo), True), (Called(), True), (Called().__call__, True), (sync, False), ("x", False)],
)
def test_only_async_callables_are_functions(value, is_one):
    assert is_agent_function(value) is is_one


@pytest.mark.parametrize("agents", [{"a b": echo}, {"": echo}, {"x": sync}, [echo]])
def test_wrong_functions_are_refused_when_the_options_are_made(agents):
    with pytest.raises(UsageError, match="async functions"):
        Deputy("offline:scout", agents=agents)
