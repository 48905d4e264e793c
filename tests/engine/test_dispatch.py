"""Runs that are refused, cancelled or resumed: each ends once, tells what was used, and goes on where it stopped."""

import asyncio
import json
import os
from contextlib import suppress

import pytest
from tests.support.house import House, approve
from tests.support.scripts import call, talk, turn

from deputy.core.approval import resume_request
from deputy.core.contract.evidence import CLOCK_STEP_SECONDS
from deputy.core.events import AdmissionRefused, ModelCallEnded, Record, ResumeChanges
from deputy.core.guard import Policy
from deputy.core.limits import Budget
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Blocked, Cancelled, Completed, Partial, Rejected
from deputy.core.task import Task
from deputy.journal.registry import show_run
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.transcript import transcribe
from deputy.testing import ProviderServer
from deputy.tools.function_tool import as_tool

REQUEST = resume_request("scout", "blue", model="m", budget=Budget(), tools=())


def tasks(*labels: str) -> list[Task]:
    return [Task(label=label, prompt=f"work of {label}") for label in labels]


@pytest.mark.rule("resume")
def test_a_resumed_subagent_is_asked_to_continue_and_gets_its_task_once(house: House):
    with ProviderServer(*[turn("more ", stop="length")] * 4, turn("Done.")) as provider:
        house.use(provider)
        outcome = house.one(*tasks("scout"))
        assert isinstance(outcome, Partial)
        assert isinstance(house.resume(outcome.session_id), Completed)
    messages = provider.asked[-1].body["messages"]
    assert messages[-1]["role"] == "user"
    assert str(messages).count("work of scout") == 1


def test_a_cancelled_call_tells_what_its_subagents_used(house: House):
    house.script(talk(turn("Begun.", call("Note", content="seen")), turn("never", delay_seconds=600), times=2))

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, *tasks("one", "two"))
            await house.until(lambda: sum(seen.event == "note" for seen in house.seen) == 2)
            await runtime.engine.cancel(run)
            return await runtime.engine.result(run)

    whole = asyncio.run(go())
    assert isinstance(whole, Cancelled)
    assert whole.usage.requests == 2


def test_a_call_whose_subagents_were_cancelled_names_the_command_that_continues_it(house: House):
    house.script(talk(turn("Begun.", call("Note", content="seen")), turn("never", delay_seconds=600)))

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, *tasks("one"))
            await house.until(lambda: any(seen.event == "note" for seen in house.seen))
            await runtime.engine.cancel(next(seen.session_id for seen in house.seen if seen.event == "note"))
            return run, await runtime.engine.result(run)

    run, whole = asyncio.run(go())
    assert whole.next_steps == f"Continue those that did not complete: deputy resume {run}"


def test_a_refusal_is_written_once(house: House):
    house.script(talk(turn("Fine.")))
    outcomes = asyncio.run(house.delegate(*tasks("one", "two"), concurrency=1, policy=Policy(max_spawns=1)))
    refused = outcomes[1]
    assert isinstance(refused, Rejected)
    reader = SqliteQueries.open(house.home)
    assert reader is not None
    with reader:
        records = [one for one in reader.records(refused.session_id) if isinstance(one, Record)]
    assert sum(isinstance(record.event, AdmissionRefused) for record in records) == 1


@pytest.mark.rule("contract.evidence")
def test_what_an_earlier_round_wrote_is_evidence_in_a_later_one(house: House):
    begun = turn("Which one?\n[AWAITING_HUMAN_INPUT]")
    house.script(talk(begun))
    outcome = house.one(Task(label="scout", prompt="Write.", return_format="json"))
    assert isinstance(outcome, Blocked)
    report = house.workspace / "report.md"
    report.write_text("found\n")
    # As early as the first round could have written it, which is before the second began.
    first = house.records(outcome.session_id)[0].at - CLOCK_STEP_SECONDS / 2
    os.utime(report, (first, first))
    returned = {
        "status": "completed",
        "summary": "Written.",
        "artifacts": [{"type": "report", "path": "report.md"}],
        "metadata": {"session_id": outcome.session_id, "agent_type": "scout"},
    }
    house.script(talk(begun, turn(json.dumps(returned))), strict=False)
    assert isinstance(house.resume(outcome.session_id, "The left one."), Completed)


@pytest.mark.rule("resume")
def test_files_before_a_task_are_read_once_however_often_its_run_is_taken_up(house: House):
    notes = house.workspace / "notes.txt"
    notes.write_text("as it was\n")
    task = Task(label="scout", prompt="Look.", context=("notes.txt",), tools=("Run",), isolation="none")

    async def go():
        async with house.open(approval="ask") as runtime:
            run = await house.begin(runtime, task)
            await house.until(lambda: any(seen.event == "waiting" for seen in house.seen))
            (child,) = await runtime.journal.descendants(run)
        notes.write_text("as it is now\n")
        async with house.open(approval="ask") as runtime:
            await runtime.engine.ensure_running(run)
            await approve(runtime, child.run, "no")
            await runtime.engine.result(run)

    with ProviderServer(turn("", call("Run", command="true")), turn("done")) as provider:
        house.use(provider)
        asyncio.run(go())
    assert all("as it was" in str(asked.body) for asked in provider.asked)
    assert "as it is now" not in str(provider.asked[-1].body)


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("way", ["Ask", "marker"])
@pytest.mark.parametrize("ending", ["denied", "not answered in time", "cancelled"])
def test_the_answer_to_a_round_that_was_not_approved_is_never_sent(house: House, way: str, ending: str):
    asks = turn("", call("Ask", question="Which?")) if way == "Ask" else turn("Which?\n[AWAITING_HUMAN_INPUT]")

    async def go(run: str):
        async with house.open() as runtime:
            engine = runtime.engine
            await engine.resume(
                run, "blue", request=REQUEST, approval_timeout_seconds=0.01 if "time" in ending else None
            )
            if ending == "denied":
                await approve(runtime, run, "no")
            elif ending == "cancelled":
                await engine.cancel(run)
            await engine.result(run)
            await engine.resume(run, "green", request=REQUEST)
            await approve(runtime, run)
            return await engine.result(run)

    with ProviderServer(asks, turn("Done.")) as provider:
        house.use(provider)
        blocked = house.one(*tasks("scout"))
        assert isinstance(asyncio.run(go(blocked.session_id)), Completed)
    last = str(provider.asked[-1].body)
    assert "green" in last
    assert "blue" not in last
    transcript = transcribe(house.records(blocked.session_id))
    assert transcript is not None
    output = [(one.role, one.content) for one in transcript.messages]
    assert output[-2:] == [("tool" if way == "Ask" else "user", "green"), ("assistant", "Done.")]
    assert {content for _, content in output}.isdisjoint({"blue", "true", "false"})


@pytest.mark.rule("transcript")
def test_what_waits_for_approval_stands_in_no_transcript_yet(house: House):
    house.script(talk(turn("Which?\n[AWAITING_HUMAN_INPUT]")))
    blocked = house.one(*tasks("scout"))

    async def go():
        async with house.open() as runtime:
            await runtime.engine.resume(blocked.session_id, "blue", request=REQUEST)
            await house.until(lambda: house.seen[-1].event == "waiting")

    asyncio.run(go())
    transcript = transcribe(house.records(blocked.session_id))
    assert transcript is not None
    assert [one.role for one in transcript.messages] == ["user", "assistant"]


@pytest.mark.rule("transcript")
def test_an_answer_to_a_question_stands_once_in_a_transcript_and_an_approval_not_at_all(house: House):
    asks = turn("", call("Ask", question="Which?"), call("Run", command="true"))
    house.script(talk(asks, turn("More?\n[AWAITING_HUMAN_INPUT]"), turn("Done.")))

    async def go():
        async with house.open(approval="ask", can_ask=True) as runtime:
            run = await house.start_parent(runtime, "Go.")
            for number, (topic, body) in enumerate((("answer", "left"), ("approval", True), ("answer", "no more")), 1):
                await house.until(lambda number=number: waits(house) == number)
                if topic == "approval":
                    await approve(runtime, run)
                else:
                    await runtime.engine.send(run, topic, body)
            return await runtime.engine.result(run)

    transcript = transcribe(house.records(asyncio.run(go()).session_id))
    assert transcript is not None
    output = [(one.role, one.content) for one in transcript.messages]
    assert [content for role, content in output if role == "user"] == ["Go.", "no more"]
    assert sum("left" in content for _, content in output) == 1


def waits(house: House) -> int:
    return sum(seen.event == "waiting" for seen in house.seen)


# --- what is counted --------------------------------------------------------------------------------------------------


@pytest.mark.rule("budget")
def test_a_budget_of_spawns_is_kept_by_the_whole_tree(house: House):
    house.script(talk(turn("Fine."), times=2))
    outcomes = asyncio.run(house.delegate(*tasks("one", "two", "three"), concurrency=1, budget=Budget(spawns=2)))
    assert [outcome.status for outcome in outcomes] == ["completed", "completed", "rejected"]
    assert outcomes[2].errors[0].code == "SPAWN_BUDGET"


def test_nothing_is_counted_of_a_tree_that_is_over(house: House):
    house.script(talk(turn("Fine."), times=3))

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, *tasks("one", "two", "three"))
            await runtime.engine.result(run)
            services = runtime.services
            return services.budgets.spawned, services._live, services._on_provider, services._in_tree

    assert not any(asyncio.run(go()))


def test_a_parents_outcome_tells_what_its_whole_tree_used_and_the_registry_says_the_same(house: House):
    asked = {"tasks": [{"label": "one", "prompt": "work of one"}, {"label": "two", "prompt": "work of two"}]}
    house.script(
        talk(turn("", call("Delegate", **asked)), turn("All done."), when="Do it."),
        talk(turn("Found."), when="work of", times=2),
    )
    outcome = asyncio.run(house.run("Do it."))
    assert (outcome.status, outcome.usage.requests) == ("completed", 4)
    reader = SqliteQueries.open(house.home)
    assert reader is not None
    with reader:
        form = show_run(reader, outcome.session_id)
    assert form is not None
    assert form["usage"] == form["outcome"]["usage"]
    assert (form["usage"]["requests"], form["own_usage"]["requests"]) == (4, 2)


def test_a_call_that_is_stopped_under_way_says_what_is_known_of_its_use(house: House):
    house.script(talk(turn("never", delay_seconds=600)), strict=False)

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, *tasks("one"))
            child = ""
            while not child:
                below = await runtime.journal.descendants(run)
                child = next((state.run for state in below if "model:0" in state.under_way), "")
            await runtime.engine.cancel(run)
            await runtime.engine.result(run)
            return await runtime.engine.result(child)

    outcome = asyncio.run(go())
    assert isinstance(outcome, Cancelled)
    assert outcome.summary.endswith("The usage of the interrupted call is unknown.")
    last = [record.event for record in house.records(outcome.session_id) if isinstance(record.event, ModelCallEnded)]
    errors = [event.error for event in last if event.error is not None]
    assert [error.type for error in errors] == ["cancelled"]
    assert "tokens were sent" in errors[0].message


@pytest.mark.rule("delegate.cancel")
def test_nothing_begins_after_a_cancel_that_a_tool_swallowed(house: House):
    house.script(talk(turn("", call("hold_on")), turn("never asked")), strict=False)

    async def go():
        begun, released = asyncio.Event(), asyncio.Event()

        async def hold_on() -> str:
            """Go on, whoever wants it to stop."""
            begun.set()
            while not released.is_set():
                with suppress(asyncio.CancelledError):
                    await released.wait()
            return "let go"

        async with house.open(tools=[as_tool(hold_on)]) as runtime:
            run = await house.begin(
                runtime, Task(label="one", prompt="x", tools=("hold_on",)), tools=frozenset({"hold_on"})
            )
            await begun.wait()
            await runtime.engine.cancel(run)
            released.set()
            await runtime.engine.result(run)
            (child,) = await runtime.journal.descendants(run)
            return await runtime.engine.result(child.run)

    outcome = asyncio.run(go())
    assert isinstance(outcome, Cancelled)
    assert outcome.usage.requests == 1


@pytest.mark.rule("resume.progress")
def test_after_a_full_context_a_resume_starts_a_new_conversation_from_what_is_known(house: House):
    begun = talk(
        turn("", call("Note", content="the first half is fine")),
        turn("", call("Glob", pattern="OLD*")),
        turn("Half of it is checked.", faults=("context_exhausted",)),
    )
    going_on = talk(
        turn("", call("Glob", pattern="NEW*")), turn("more", stop="length"), *[turn("more", stop="length")] * 3,
        turn("All is checked."), when="whose context is full",
    )  # fmt: skip
    with ProviderServer(ModelScript(conversations=(going_on, begun)), strict=False) as provider:
        house.use(provider)
        full = house.one(Task(label="scout", prompt="Check all."))
        assert (full.status, full.errors[0].type, full.next_steps) == (
            "partial", "context_exhausted", f"deputy resume {full.session_id}",
        )  # fmt: skip
        cut = house.resume(full.session_id, "Look at the tests too.")
        assert cut.errors[0].code == "OUTPUT_LIMIT"
        done = house.resume(full.session_id)
    assert (done.status, done.report) == ("completed", "All is checked.")
    first, last = provider.asked[4].body, provider.asked[-1].body
    assert first["tools"]
    (opening,) = first["messages"]
    for words in ("Check all.", "the first half is fine", "Half of it is checked.", "Look at the tests too."):
        assert words in json.dumps(opening)
    # A later round continues the new conversation, not the full one.
    assert "NEW*" in json.dumps(last)
    assert "OLD*" not in json.dumps(last)


@pytest.mark.rule("resume.progress")
def test_a_spent_budget_is_replaced_by_a_resume_for_this_round_and_later_ones(house: House):
    work = [turn("", call("Glob", pattern=f"*{n}")) for n in range(3)]
    house.script(talk(work[0], turn("Some."), *work[1:], turn("More."), turn("All.")))
    some = house.one(Task(label="scout", prompt="Look.", budget=Budget(requests=2)))
    assert some.next_steps == f"deputy resume {some.session_id} --budget requests=4"
    assert some.next_steps in some.errors[0].recommendation
    more = house.resume(some.session_id, changes=ResumeChanges(budget=Budget(requests=5)))
    assert (more.status, more.report, more.usage.requests) == ("partial", "More.", 5)
    assert more.next_steps == f"deputy resume {some.session_id} --budget requests=10"
    done = house.resume(some.session_id, changes=ResumeChanges(budget=Budget(requests=10)))
    assert (done.status, done.report) == ("completed", "All.")


@pytest.mark.rule("resume.progress")
def test_an_unusable_model_is_replaced_in_a_run_and_in_the_tasks_of_a_call(house: House):
    house.script(talk(turn("never", faults=("bad_api_key",)), times=2), strict=False)
    bad = house.model
    house.model = "script:good"
    house.script(talk(turn("Done."), times=2))
    good, house.model = house.model, bad
    failed = house.one(Task(label="scout", prompt="Look."))
    assert failed.status == "failed"
    call = house.whole.session_id
    done = house.resume(failed.session_id, changes=ResumeChanges(model=good))
    assert (done.status, done.report, done.model) == ("completed", "Done.", good)
    again = house.one(Task(label="scout", prompt="Look."))
    call = house.whole.session_id
    whole = house.resume(call, changes=ResumeChanges(model=good))
    assert (again.status, whole.status) == ("failed", "completed")


@pytest.mark.rule("resume.progress")
def test_who_repeated_itself_is_resumed_with_a_message(house: House):
    (house.workspace / "a.txt").write_text("the same\n")
    house.script(talk(*[turn("", call("Read", path="a.txt"))] * 8, turn("All I know.")))
    outcome = house.one()
    assert outcome.next_steps == f'deputy resume {outcome.session_id} --answer "what to do differently"'
