"""Going on with a call of tasks: who asks is answered, the rest works again, and the call stays within its bounds."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from deputy import Deputy, Task
from deputy.core.errors import UsageError
from deputy.core.events import QuestionAnswered
from deputy.core.limits import Budget
from deputy.core.request import timestamp
from deputy.interfaces import resume_policy
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

ASK = {"calls": [{"name": "Ask", "arguments": {"question": "Which colour?"}}]}


@pytest.fixture
def place(house):
    return {"workspace": house.workspace, "home": house.home}


def tasks(*labels: str) -> list[Task]:
    return [Task(label=label, prompt=f"work of {label}") for label in labels]


def asks_then(label: str, *more: str) -> dict:
    return {"when": f"work of {label}", "turns": [ASK, *({"text": text} for text in more)]}


async def called(deputy: Deputy, *labels: str, concurrency: int = 2) -> tuple[str, dict[str, str]]:
    """A call of these tasks that has ended, and the session ids of its tasks by their labels."""
    call = await deputy.start(tasks(*labels), concurrency=concurrency)
    results = await deputy.results(call)
    return call, {result.label: result.outcome.session_id for result in results}


@pytest.mark.rule("resume")
def test_an_answer_to_a_call_reaches_the_one_task_that_asks(house, place):
    model = house.script(
        "m", asks_then("one", "Blue, then."), {"when": "work of two", "turns": [{"text": "Quick."}], "times": 1}
    )

    async def go():
        async with Deputy(model, **place) as deputy:
            call, _ = await called(deputy, "one", "two")
            before = await deputy.outcome(call)
            return before, await deputy.resume(call, "blue"), await deputy.results(call)

    before, after, results = asyncio.run(go())
    assert (before.status, after.status) == ("partial", "completed")
    assert [result.outcome.report for result in results] == ["Blue, then.", "Quick."]
    assert "Blue, then." in after.report


@pytest.mark.rule("resume")
@pytest.mark.parametrize("answer", [None, "blue"])
def test_a_call_whose_tasks_ask_says_which_asks_what_and_how_each_is_answered(house, place, answer):
    model = house.script("m", asks_then("one", "x"), asks_then("two", "y"))

    async def go():
        async with Deputy(model, **place) as deputy:
            call, ids = await called(deputy, "one", "two")
            with pytest.raises(UsageError) as refused:
                await deputy.resume_run(call, answer)
            assert not (await deputy.state(call)).is_live
            answered = await deputy.resume(call, {ids["one"]: "red", ids["two"]: "blue"})
            return str(refused.value), ids, answered

    output, ids, answered = asyncio.run(go())
    assert all(
        f'[{label}] asks: Which colour? — deputy resume {run} --answer "…"' in output for label, run in ids.items()
    )
    assert answered.status == "completed"


@pytest.mark.rule("resume")
def test_answers_must_be_for_all_questions_and_no_others(house, place):
    model = house.script("m", asks_then("one", "x"), asks_then("two", "y"))

    async def go():
        async with Deputy(model, **place) as deputy:
            call, ids = await called(deputy, "one", "two")
            for answers in ({"sess_1_nobody": "red"}, {ids["one"]: "red"}):
                with pytest.raises(UsageError):
                    await deputy.resume_run(call, answers)

    asyncio.run(go())


@pytest.mark.rule("resume")
def test_a_task_resumed_by_itself_brings_its_call_up_to_date(house, place):
    model = house.script("m", asks_then("one", "Blue, then."), {"when": "work of two", "turns": [{"text": "Quick."}]})

    async def go():
        async with Deputy(model, **place) as deputy:
            call, ids = await called(deputy, "one", "two")
            await deputy.resume(ids["one"], "blue")
            state = await deputy.state(call)
            return state, await deputy.outcome(call)

    state, whole = asyncio.run(go())
    assert (state.round, whole.status) == (1, "completed")
    assert "Blue, then." in whole.report
    assert state.is_delivered
    assert whole.usage.requests == 3


@pytest.mark.rule("resume")
def test_tasks_resumed_together_bring_their_call_up_to_date_once(house, place):
    model = house.script("m", asks_then("one", "Blue, then."), asks_then("two", "Red, then."))

    async def go():
        async with Deputy(model, **place) as deputy, asyncio.timeout(60):
            call, ids = await called(deputy, "one", "two")
            ended = await asyncio.gather(deputy.resume(ids["one"], "blue"), deputy.resume(ids["two"], "red"))
            await asyncio.gather(*(resume_policy.finish_caller(deputy._runtime, run) for run in ids.values()))
            return ended, await deputy.outcome(call)

    ended, whole = asyncio.run(go())
    assert [outcome.status for outcome in (*ended, whole)] == ["completed"] * 3


@pytest.mark.rule("resume")
def test_a_completed_run_goes_on_with_a_further_message(house, place):
    model = house.script("m", {"turns": [{"text": "Done."}, {"text": "More."}]})

    async def go():
        async with Deputy(model, **place) as deputy:
            call, ids = await called(deputy, "one")
            with pytest.raises(UsageError, match="by its own id"):
                await deputy.resume_run(call, "And the rest?")
            return await deputy.resume(ids["one"], "And the rest?")

    assert asyncio.run(go()).report == "More."


@pytest.mark.rule("resume")
@pytest.mark.rule("budget")
def test_a_resumed_call_keeps_its_concurrency_and_the_budget_of_its_tree(house, place):
    labels = [f"t{number}" for number in range(6)]
    model = house.script("m", {"turns": [ASK, {"text": "Done.", "delay_seconds": 0.05}], "times": 6})
    at_work: set[str] = set()
    most: list[int] = []

    def watch(progress):
        if progress.event == "started":
            at_work.add(progress.session_id)
        elif progress.event == "completed":
            at_work.discard(progress.session_id)
        most.append(len(at_work))

    async def go():
        async with Deputy(model, budget=Budget(requests=9), watch=watch, **place) as deputy:
            call, ids = await called(deputy, *labels)
            most.clear()
            return await deputy.resume(call, dict.fromkeys(ids.values(), "blue"))

    whole = asyncio.run(go())
    assert max(most) == 2
    assert whole.usage.requests <= 9
    assert whole.status == "partial"


@pytest.mark.rule("resume")
def test_a_run_is_resumed_where_it_worked(house, tmp_path, monkeypatch):
    (house.workspace / "plan.txt").write_text("win\n")
    model = house.script("m", asks_then("one", "Blue, then."))
    run = house.run("delegate", "-t", "one=work of one", "--yes", "--model", model, "--json")
    assert run.returncode == 5, run.stderr
    with SqliteQueries.open(house.home) as reader:
        (child,) = [state for state in reader.ended(10) if state.parent]
        assert reader.state(child.parent).workspace == str(house.workspace)
    read = {"calls": [{"name": "Read", "arguments": {"path": "plan.txt"}}]}
    turns = [ASK, read, {"text": "Read."}]
    house.script("m", {"turns": turns})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    async def go_on_here():
        async with Deputy(home=house.home) as deputy:
            await deputy.resume_run(child.run, "blue")

    with pytest.raises(UsageError, match=str(house.workspace)):
        asyncio.run(go_on_here())
    house.workspace, there = elsewhere, house.workspace
    assert house.run("resume", child.run, "--answer", "blue").returncode == 0
    with SqliteQueries.open(house.home) as reader:
        output = b"".join(
            bytes(record.event.message)
            for record in reader.records(child.run)
            if "tool:" in record.key and not record.key.endswith(".begun")
        )
    assert b"win" in output
    there.rename(tmp_path / "moved")
    gone = house.run("resume", child.run, "--answer", "more")
    assert (gone.returncode, "--workspace" in gone.stderr) == (2, True)


def test_a_folder_is_recorded_whole(house, place, monkeypatch):
    monkeypatch.chdir(house.workspace.parent)

    async def go():
        async with Deputy(
            house.script("m", {"turns": [{"text": "x"}]}), workspace=house.workspace.name, home=house.home
        ) as deputy:
            call, _ = await called(deputy, "one")
            return (await deputy.state(call)).workspace

    assert Path(asyncio.run(go())) == house.workspace


@pytest.mark.rule("resume")
@pytest.mark.parametrize(("answer", "ran", "report"), [("yes", True, "Ran."), ("no", False, "Left it.")])
def test_an_answer_to_an_interrupted_call_reaches_the_task_that_waits(house, place, answer, ran, report):
    # What it says then depends on what it was told: nothing has run without a yes.
    mark = house.workspace.parent / "ran"
    turns = [{"calls": [{"name": "Run", "arguments": {"command": f"touch {mark}"}}]}, {"text": report}]
    model = house.script("m", {"turns": turns})
    output = asyncio.Event()

    async def never(question):
        output.set()
        await asyncio.Event().wait()

    async def interrupted():
        async with Deputy(model, answer=never, **place) as deputy:
            call = await deputy.start([Task(label="one", prompt="x", tools=("Run",), isolation="none")])
            await output.wait()
            return call

    async def later(call):
        # Nothing is asked or granted here: what was asked before is answered by the resume.
        async with Deputy(model, approval="refuse", **place) as deputy:
            with pytest.raises(UsageError, match=r"\[one\] asks: Use Run: touch .* \(risk: .*deputy approve sess_"):
                await deputy.resume_run(call)
            assert not mark.exists()
            with pytest.raises(
                UsageError, match=r"waits for approval, which no text can give: run `deputy approve sess_"
            ):
                await deputy.resume(call, "yes")
            asking = await deputy.asking(call)
            assert await deputy.approve(call, answer, digest=asking.digest)
            return await deputy.resume(call)

    outcome = asyncio.run(later(asyncio.run(interrupted())))
    assert (outcome.status, mark.exists()) == ("completed", ran)
    assert report in outcome.report


def runner(house, mark: Path, *labels: str) -> tuple[str, list[Task]]:
    """A model of which every task touches a file of its own, and the tasks."""
    touch = {label: {"name": "Run", "arguments": {"command": f"touch {mark}-{label}"}} for label in labels}
    model = house.script(
        "m", *({"when": f"of {one}", "turns": [{"calls": [touch[one]]}, {"text": "x"}], "times": 9} for one in labels)
    )
    return model, [Task(label=one, prompt=f"of {one}", tools=("Run",), isolation="none") for one in labels]


@pytest.mark.rule("resume")
@pytest.mark.parametrize("is_taken", [False, True])
def test_where_one_answer_comes_too_late_the_others_count(house, place, is_taken):
    mark = house.workspace.parent / "ran"
    model, wanted = runner(house, mark, "one", "two")
    asked: set[str] = set()
    both = asyncio.Event()

    async def never(question):
        asked.add(question.session_id)
        if len(asked) == 2:
            both.set()
        await asyncio.Event().wait()

    async def interrupted():
        async with Deputy(model, answer=never, **place) as deputy:
            call = await deputy.start(wanted)
            await both.wait()
            return call

    async def later(call):
        async with Deputy(model, approval="refuse", **place) as deputy:
            one, two = sorted([await deputy.state(run) for run in asked], key=lambda state: state.label)
            await deputy.approve(two.run, "no")
            while is_taken and (await deputy.state(two.run)).waits:  # noqa: ASYNC110  it is in the journal
                await asyncio.sleep(0.01)
            asking = await deputy.asking(one.run)
            assert await deputy.approve(one.run, digest=asking.digest)
            assert not await deputy.approve(two.run, digest=asking.digest)
            await deputy.resume(call)

    asyncio.run(later(asyncio.run(interrupted())))
    assert [Path(f"{mark}-{label}").exists() for label in ("one", "two")] == [True, False]


def test_what_is_left_of_a_call_is_also_what_never_began(house, place):
    model, wanted = runner(house, house.workspace.parent / "ran", "one", "two", "three")
    asked = asyncio.Event()

    async def never(question):
        asked.set()
        await asyncio.Event().wait()

    async def interrupted():
        async with Deputy(model, answer=never, **place) as deputy:
            call = await deputy.start(wanted, concurrency=1)
            await asked.wait()
            return call

    async def left(call):
        async with Deputy(model, **place) as deputy:
            return tuple(label for label, _ in await deputy.unfinished(call))

    assert asyncio.run(left(asyncio.run(interrupted()))) == ("one", "two", "three")


def test_a_question_that_was_answered_meanwhile_is_not_asked_again(house, place):
    model, wanted = runner(house, house.workspace.parent / "ran", "one")
    asked = asyncio.Event()
    said = asyncio.Event()

    async def late(question):
        asked.set()
        await said.wait()
        return True

    async def go():
        async with Deputy(model, answer=late, **place) as deputy:
            call = await deputy.start(wanted)
            await asked.wait()
            (question,) = await deputy.questions(call)
            seen = await deputy.state(question.session_id)
            said.set()
            await deputy.outcome(call)
            return await resume_policy.questions(deputy._runtime, seen)

    assert asyncio.run(go()) == ()


@pytest.mark.rule("resume")
def test_a_refused_process_approves_nothing_of_a_run_in_another_process(house, place):
    mark = house.workspace.parent / "ran"
    model, wanted = runner(house, mark, "one")
    asked = asyncio.Event()
    said = asyncio.Event()

    async def late(question):
        asked.set()
        await said.wait()
        return False

    async def go():
        async with Deputy(model, answer=late, **place) as deputy:
            call = await deputy.start(wanted)
            await asked.wait()
            refused = await asyncio.to_thread(house.run, "resume", call, "--yes")
            said.set()
            (result,) = await deputy.results(call)
            records = await deputy._runtime.journal.records(result.outcome.session_id)
            return refused, [bytes(one.event.body) for one in records if isinstance(one.event, QuestionAnswered)]

    refused, answers = asyncio.run(go())
    assert (refused.returncode, "another process is running it" in refused.stderr) == (2, True), refused
    assert [json.loads(answer)["choice"] for answer in answers] == ["no"]
    assert not Path(f"{mark}-one").exists()


def test_an_answer_to_an_interrupted_call_that_asks_nothing_is_refused_and_not_lost_silently(house, place):
    begun = asyncio.Event()
    model = house.script("m", {"turns": [{"text": "Done.", "delay_seconds": 0.5}], "times": 2})

    async def interrupted():
        async with Deputy(model, watch=lambda _: begun.set(), **place) as deputy:
            call = await deputy.start(tasks("one"))
            await begun.wait()
            return call

    async def later(call):
        async with Deputy(model, **place) as deputy:
            with pytest.raises(UsageError, match="asks nothing"):
                await deputy.resume_run(call, "blue")
            return await deputy.resume(call)

    assert asyncio.run(later(asyncio.run(interrupted()))).status == "completed"


@pytest.mark.rule("recover")
@pytest.mark.parametrize("by_call", [True, False])
def test_one_resume_continues_what_timed_out_without_a_process(house, place, by_call):
    begun = asyncio.Event()
    model = house.script(
        "m",
        {"when": "work of one", "turns": [{"text": "One.", "delay_seconds": 0.5}], "times": 2},
        {"when": "work of two", "turns": [{"text": "Two."}], "times": 1},
    )

    async def interrupted():
        async with Deputy(model, watch=lambda output: output.label == "one" and begun.set(), **place) as deputy:
            call = await deputy.start([Task(label="one", prompt="work of one", timeout=1.0), *tasks("two")])
            await begun.wait()
            return call

    async def later(run):
        async with Deputy(model, **place) as deputy:
            return await deputy.resume(run)

    call = asyncio.run(interrupted())
    with SqliteQueries.open(house.home) as reader:
        late = next(one for one in reader.descendants(call) if one.label == "one")
    while time.time() < late.lineage.deadline:
        time.sleep(0.01)
    outcome = asyncio.run(later(call if by_call else late.run))
    assert (outcome.status, "One." in outcome.report) == ("completed", True)


@pytest.mark.rule("registry.entry")
def test_a_run_that_goes_on_began_when_it_first_did(house, place):
    model = house.script("m", asks_then("one", "Blue, then."))

    async def go():
        async with Deputy(model, **place) as deputy:
            _, ids = await called(deputy, "one")
            before = await deputy.state(ids["one"])
            await deputy.resume(ids["one"], "blue")
            return before, await deputy.state(ids["one"])

    before, after = asyncio.run(go())
    assert (before.began_at, before.resumed_at) == (before.started_at, None)
    assert after.began_at == before.started_at < after.resumed_at < after.started_at
    shown = json.loads(house.run("show", after.run, "--json").stdout)
    assert shown["started_at"] == timestamp(before.started_at)
    assert shown["resumed_at"] == timestamp(after.resumed_at)
    said = json.loads(house.run("transcript", after.run, "--json").stdout)
    assert said["started_at"] == timestamp(before.started_at)
