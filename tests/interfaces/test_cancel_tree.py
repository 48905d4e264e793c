"""Stopping what ended with a question: it ends as cancelled, the question is withdrawn, and it can be resumed."""

import asyncio
import json

import pytest

from deputy import Deputy, Task
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

ASK = {"calls": [{"name": "Ask", "arguments": {"question": "Which colour?"}}]}
ASKS = {"when": "choose", "turns": [ASK, {"text": "Blue, then."}]}
STUCK = {"when": "wait", "turns": [{"text": "never", "delay_seconds": 60}]}


@pytest.fixture
def place(house):
    return {"workspace": house.workspace, "home": house.home}


def tasks(*prompts: str) -> list[Task]:
    return [Task(label=f"{prompt}-{number}", prompt=prompt) for number, prompt in enumerate(prompts)]


def statuses(house, call: str) -> list[str]:
    with SqliteQueries.open(house.home) as reader:
        return [state.status for state in reader.children(call)]


@pytest.mark.rule("delegate.cancel")
@pytest.mark.rule("outcome.total")
def test_a_blocked_call_and_its_tasks_end_as_cancelled_and_keep_what_they_used(house, place):
    model = house.script("m", {**ASKS, "times": 2})

    async def go():
        async with Deputy(model, **place) as deputy:
            call = await deputy.start(tasks("choose", "choose"))
            before = await deputy.results(call)
            stopped = [await deputy.cancel(call), await deputy.cancel(call)]
            return stopped, before, await deputy.results(call), await deputy.outcome(call), await deputy.questions(call)

    stopped, before, after, whole, asked = asyncio.run(go())
    assert stopped == [True, False]
    assert [result.outcome.status for result in before] == ["blocked"] * 2
    assert [result.outcome.status for result in after] == ["cancelled"] * 2
    assert [result.outcome.usage for result in after] == [result.outcome.usage for result in before]
    assert (whole.status, whole.usage.requests, asked) == ("cancelled", 2, ())


@pytest.mark.rule("outcome.total")
def test_asking_for_the_results_of_a_blocked_call_drops_no_question(house, place):
    model = house.script("m", ASKS)

    async def go():
        async with Deputy(model, **place) as deputy:
            call = await deputy.start(tasks("choose"))
            await deputy.results(call)
            await deputy.results(call)
            return await deputy.questions(call)

    assert [question.text for question in asyncio.run(go())] == ["Which colour?"]


@pytest.mark.rule("delegate.cancel")
def test_a_call_waits_for_nothing_when_the_last_task_that_asks_is_stopped(house, place):
    model = house.script("m", {**ASKS, "times": 2})

    async def go():
        async with Deputy(model, **place) as deputy:
            call = await deputy.start(tasks("choose", "choose"))
            ids = [result.outcome.session_id for result in await deputy.results(call)]
            await deputy.cancel(ids[0])
            between = (await deputy.state(call)).status
            await deputy.cancel(ids[1])
            return between, (await deputy.outcome(call)).status

    assert asyncio.run(go()) == ("blocked", "cancelled")


async def _by_the_library(house, deputy, call):
    await deputy.cancel(call)


async def _from_elsewhere(house, deputy, call):
    await asyncio.to_thread(house.run, "cancel", call)


async def _by_the_task(house, deputy, call):
    with SqliteQueries.open(house.home) as reader:
        children = [state.run for state in reader.children(call)]
    for child in children:
        await deputy.cancel(child)
    await deputy.results(call)
    await deputy.cancel(call)


@pytest.mark.rule("resume")
@pytest.mark.parametrize("is_asked", [True, False], ids=["with a person to ask", "without"])
@pytest.mark.parametrize("stop", [_by_the_library, _from_elsewhere, _by_the_task])
def test_however_a_call_with_a_question_was_stopped_it_goes_on_without_an_answer(house, place, stop, is_asked):
    model = house.script("m", ASKS, STUCK)

    async def never(question):
        await asyncio.Event().wait()

    async def go():
        asked = asyncio.Event()

        def watch(progress):
            if progress.label == "choose-0" and progress.event in ("waiting", "completed"):
                asked.set()

        options = {"answer": never, "approval": "granted"} if is_asked else {}
        async with Deputy(model, watch=watch, **place, **options) as deputy:
            call = await deputy.start(tasks("choose", "wait"))
            await asked.wait()
            if is_asked:
                while not await deputy.questions(call):  # noqa: ASYNC110  it is in the journal
                    await asyncio.sleep(0)
            await stop(house, deputy, call)
            await deputy.outcome(call)
        return call

    call = asyncio.run(go())
    assert statuses(house, call) == ["cancelled"] * 2
    house.script("m", ASKS, {"when": "wait", "turns": [{"text": "Waited."}]})
    output = house.run("resume", call, "--json")
    assert output.returncode == 0, output.stderr
    results = json.loads(output.stdout)["results"]
    assert [result["report"] for result in results] == ["Blue, then.", "Waited."]


@pytest.mark.rule("resume")
def test_what_is_said_to_a_task_whose_question_was_dropped_is_its_answer(house, place):
    model = house.script("m", ASKS)

    async def go():
        async with Deputy(model, **place) as deputy:
            call = await deputy.start(tasks("choose"))
            await deputy.results(call)
            await deputy.cancel(call)
            whole = await deputy.resume(call, "blue")
            return whole.status, (await deputy.results(call))[0].outcome.session_id

    status, child = asyncio.run(go())
    assert status == "completed"
    messages = json.loads(house.run("transcript", child, "--json").stdout)["messages"]
    assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant"]
    assert "blue" in messages[2]["content"]


@pytest.mark.rule("delegate.cancel")
def test_cancel_at_the_command_line_ends_a_blocked_run_and_what_is_left_of_one_that_ended(house):
    model = house.script("m", ASKS, {"when": "work", "turns": [{"text": "Worked."}]})
    run = house.run("delegate", "-t", "a=choose", "--model", model, "--yes", "--json")
    assert run.returncode == 5
    call = json.loads(house.run("ps", "--json").stdout)["delegations"][0]["session_id"]
    stopped = house.run("cancel", call, "--json")
    assert (stopped.returncode, json.loads(stopped.stdout)["status"]) == (0, "cancelled")
    assert json.loads(house.run("ps", "--json").stdout)["delegations"] == []
    again = house.run("cancel", call)
    assert (again.returncode, "had already ended: cancelled" in again.stderr) == (3, True)

    run = house.run("delegate", "-t", "a=choose", "-t", "b=work", "--model", model, "--yes", "--json")
    assert run.returncode == 4
    call = json.loads(house.run("ps", "--json").stdout)["delegations"][0]["session_id"]
    stopped = house.run("cancel", call)
    assert (stopped.returncode, stopped.stderr.splitlines()[-1]) == (
        0,
        f"deputy: {call} had already ended: partial; the runs below it are cancelled",
    )
    assert json.loads(house.run("ps", "--json").stdout)["delegations"] == []
