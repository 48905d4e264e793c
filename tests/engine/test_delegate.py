import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.conversation import TokenUsage
from deputy.core.effective_settings import EffectiveSettings
from deputy.core.events import ResumeChanges
from deputy.core.guard import Policy
from deputy.core.limits import Budget
from deputy.core.outcome import Blocked, Cancelled, Completed, Failed, Partial, Rejected
from deputy.core.task import Task
from deputy.testing import ProviderServer


def tokens(given: int, taken: int) -> TokenUsage:
    return TokenUsage(input_tokens=given, output_tokens=taken)


def tasks(*labels: str, **more: Any) -> list[Task]:
    return [Task(label=label, prompt=f"work of {label}", **more) for label in labels]


@pytest.mark.rule("delegate.order")
def test_results_stand_in_the_order_of_the_tasks_whatever_finishes_first(house: House):
    house.script(
        talk(turn("slow", delay_seconds=0.2), when="work of one"),
        talk(turn("middle", delay_seconds=0.1), when="work of two"),
        talk(turn("fast"), when="work of three"),
    )
    outcomes = asyncio.run(house.delegate(*tasks("one", "two", "three"), concurrency=3))
    assert [outcome.report for outcome in outcomes] == ["slow", "middle", "fast"]
    done = [seen.label for seen in house.seen if seen.event == "completed"]
    assert done == ["three", "two", "one"]


@pytest.mark.rule("delegate.order")
def test_one_failing_child_never_stops_the_others(house: House):
    house.script(
        talk(turn("never", faults=("bad_api_key",)), when="work of one"),
        talk(turn("fine"), when="work of two"),
        strict=False,
    )
    failed, fine = asyncio.run(house.delegate(*tasks("one", "two")))
    assert isinstance(failed, Failed)
    assert isinstance(fine, Completed)
    assert isinstance(house.whole, Partial)
    assert house.whole.errors[0].session_id == failed.session_id


def test_no_more_run_at_once_than_the_concurrency_allows(house: House):
    house.script(talk(turn("ok", delay_seconds=0.02), times=6))
    asyncio.run(house.delegate(*tasks(*"abcdef"), concurrency=2))
    live = most = 0
    for seen in house.seen:
        live += {"started": 1, "completed": -1}.get(seen.event, 0)
        most = max(most, live)
    assert most == 2


@pytest.mark.rule("guard.quota")
def test_the_spawn_quota_refuses_before_anything_is_spent(house: House):
    with ProviderServer(turn("ok")) as provider:
        house.use(provider)
        first, second = asyncio.run(house.delegate(*tasks("one", "two"), concurrency=1, policy=Policy(max_spawns=1)))
    assert isinstance(first, Completed)
    assert isinstance(second, Rejected)
    assert (second.code, second.usage.requests, len(provider.asked)) == ("SPAWN_QUOTA", 0, 1)


@pytest.mark.rule("guard.quota")
@pytest.mark.parametrize(
    ("policy", "statuses"),
    [
        (None, ["completed", "rejected"]),
        (Policy(max_live=4), ["completed", "rejected"]),
        (Policy(max_spawns=2), ["completed", "completed"]),
    ],
)
def test_the_users_spawn_quota_holds_unless_the_program_says_another(house: House, policy, statuses):
    house.script(talk(turn("ok"), times=2), strict=False)
    given = {"policy": policy, "rules": EffectiveSettings(max_spawns=1)}
    outcomes = asyncio.run(house.delegate(*tasks("one", "two"), concurrency=1, **given))
    assert [outcome.status for outcome in outcomes] == statuses


@pytest.mark.rule("time.partial")
def test_a_deadline_returns_the_notes_and_what_was_said_so_far(house: House):
    house.script(talk(turn("So far.", call("Note", content="seen")), turn("never", delay_seconds=60)))
    outcome = house.one(Task(label="scout", prompt="Look.", timeout=0.5))
    assert isinstance(outcome, Partial)
    (error,) = outcome.errors
    assert (error.type, error.code, error.recoverable) == ("timeout", "TIMEOUT", True)
    assert outcome.summary == "Partial: The time limit of 0.5 s was nearly reached."
    assert error.recommendation == f"Use what was found, or continue with: deputy resume {outcome.session_id}"
    assert (outcome.notes, outcome.report) == (("seen",), "So far.")
    assert outcome.next_steps == f"deputy resume {outcome.session_id}"


@pytest.mark.rule("time.handin")
def test_at_the_soft_limit_it_hands_in_a_report_of_its_own(house: House):
    house.script(talk(turn("", call("Run", command="sleep 60")), turn("What I have.")))
    outcome = house.one(Task(label="scout", prompt="Look.", timeout=1.0, tools=("Run",)))
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].code, outcome.errors[0].message) == (
        "TIMEOUT",
        "The time limit of 1 s was nearly reached.",
    )
    assert outcome.report == "What I have."


@pytest.mark.rule("time.handin")
def test_the_subagent_gets_its_own_limit_and_the_caller_those_of_its_subagents(house: House):
    (house.workspace / "a.txt").write_text("the same\n")
    with ProviderServer(*[turn("", call("Read", path="a.txt"))] * 8, turn("All I know.")) as provider:
        house.use(provider)
        outcome = house.one()
    assert outcome.summary == "Partial: The same call had the same result 8 times."
    assert "You repeated yourself." in str(provider.asked[-1].body["messages"][-1])


@pytest.mark.rule("budget")
@pytest.mark.parametrize(
    ("budget", "turns"), [(Budget(tokens=10_000), 4), (Budget(requests=2), 1), (Budget(requests=5), 4)]
)
def test_a_spent_budget_hands_in_and_spends_no_more(house: House, budget: Budget, turns: int):
    work = [turn("", call("Glob", pattern=f"*{n}"), usage=tokens(1000, 100)) for n in range(turns)]
    house.script(talk(*work, turn("What I have.", usage=tokens(1000, 100))))
    outcome = house.one(Task(label="scout", prompt="Look.", budget=budget, max_output_tokens=500))
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].type, outcome.report) == ("budget", "What I have.")
    assert outcome.usage.requests == turns + 1
    assert outcome.usage.input + outcome.usage.output <= 10_000


@pytest.mark.rule("budget")
def test_a_budget_in_dollars_keeps_its_last_turn_too(house: House):
    work = [turn("", call("Glob", pattern=f"*{n}"), usage=tokens(2000, 200)) for n in range(3)]
    with ProviderServer(*work, turn("What I have.", usage=tokens(2000, 200))) as provider:
        house.use(provider)
        task = Task(label="scout", prompt="Look.", budget=Budget(cost=0.1), max_output_tokens=500)
        outcome = house.one(task)
    assert (outcome.errors[0].message, outcome.report) == ("The budget of $0.10 is spent.", "What I have.")
    assert 0 < (outcome.usage.cost or 0) <= 0.1


@pytest.mark.rule("resume.progress")
@pytest.mark.parametrize(
    ("budget", "output", "left"),
    [(Budget(cost=0.000001), 500, "under $0.0001"), (Budget(tokens=900), 4096, "900 tokens")],
)
def test_a_budget_too_small_for_one_request_is_continued_with_one_that_is_enough(
    house: House, budget: Budget, output: int, left: str
):
    with ProviderServer(turn("Found.", usage=tokens(800, 300))) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="Look.", budget=budget, max_output_tokens=output))
        message = outcome.errors[0].message
        assert message.startswith("The budget is not enough: the ")
        assert f"has {left} left, and this needs up to " in message
        resource, _, cap = outcome.next_steps.partition(" --budget ")[2].partition("=")
        more = Budget(cost=float(cap)) if resource == "cost" else Budget(tokens=int(cap))
        done = house.resume(outcome.session_id, changes=ResumeChanges(budget=more))
    assert (done.status, done.report) == ("completed", "Found.")


@pytest.mark.rule("budget")
def test_a_budget_that_is_used_for_the_most_part_is_reported_once(house: House):
    work = [turn("", call("Glob", pattern=f"*{n}")) for n in range(19)]
    with ProviderServer(*work, turn("What I have.")) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="Look.", budget=Budget(requests=20)))
    assert (outcome.errors[0].message, outcome.report) == ("The budget of 20 requests is spent.", "What I have.")
    output = [str(asked.body).count("of your budget") for asked in provider.asked]
    assert output == [0] * 16 + [1] * 4
    assert "You have used 16 requests of 20 requests of your budget" in str(provider.asked[16].body["messages"][-1])


@pytest.mark.rule("budget")
def test_siblings_share_the_budget_of_the_tree(house: House):
    spend = turn("done", usage=tokens(3000, 100))
    house.script(talk(spend, times=2))
    labels = tasks("one", "two", "three", "four", max_output_tokens=200)
    outcomes = asyncio.run(house.delegate(*labels, concurrency=1, budget=Budget(tokens=7000)))
    assert sum(outcome.usage.input + outcome.usage.output for outcome in outcomes) <= 7000
    assert [type(outcome) for outcome in outcomes][:2] == [Completed, Completed]
    assert outcomes[-1].errors[0].type == "budget"


@pytest.mark.rule("delegate.cancel")
def test_a_cancelled_call_stops_the_whole_subtree_and_keeps_what_was_found(house: House):
    house.script(talk(turn("Begun.", call("Note", content="seen")), turn("never", delay_seconds=600), times=3))

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, *tasks("one", "two", "three"), concurrency=3)
            await house.until(lambda: sum(seen.event == "note" for seen in house.seen) == 3)
            await runtime.engine.cancel(run)
            whole = await runtime.engine.result(run)
            below = await runtime.journal.descendants(run)
            return whole, [await runtime.engine.outcome(state.run, 0) for state in below]

    whole, children = asyncio.run(go())
    assert isinstance(whole, Cancelled)
    assert [type(child) for child in children] == [Cancelled] * 3
    assert [child.notes for child in children] == [("seen",)] * 3
    assert all(child.usage.requests == 1 for child in children)


@pytest.mark.rule("contract.repair")
def test_a_return_that_fails_is_sent_back_once_with_its_problems(house: House):
    with ProviderServer(turn("plain text"), turn("still text")) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="Look.", return_format="json"))
    assert isinstance(outcome, Failed)
    assert (outcome.errors[0].code, outcome.report) == ("INVALID_RETURN", "still text")
    assert "Return is not valid JSON" in str(provider.asked[1].body)
    assert outcome.errors[0].message.startswith("The return of the task 'scout' breaks the contract")


def test_the_question_of_a_blocked_return_is_its_blocker_not_its_summary(house: House):
    blocker = {"type": "question", "message": "Which database?", "recoverable": True, "recommendation": "Name one."}
    returned = {
        "status": "blocked",
        "summary": "Half of the plan is written.",
        "artifacts": [],
        "metadata": {"session_id": "{session_id}", "agent_type": "task:scout"},
        "errors": [blocker],
    }
    house.script(talk(turn(msgspec.json.encode(returned).decode())))
    outcome = house.one(Task(label="scout", prompt="Plan.", return_format="json"))
    assert isinstance(outcome, Blocked)
    assert (outcome.question, outcome.summary) == ("Which database?", "Half of the plan is written.")
    assert outcome.next_steps == f'deputy resume {outcome.session_id} --answer "…"'


@pytest.mark.rule("contract.ask")
@pytest.mark.rule("contract.fill")
def test_a_return_without_metadata_that_we_know_is_filled_in_and_each_new_problem_is_repaired(house: House):
    form = '{"status": "completed", "summary": "%s", "artifacts": []}'
    with ProviderServer(turn("x"), turn(form % ""), turn(form % "Done.")) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="Look.", return_format="json"))
    assert isinstance(outcome, Completed)
    assert outcome.summary == "Done."
    asked = str(provider.asked[0].body["messages"])
    assert "## The form of your answer" in asked
    assert '"metadata"' not in asked
    repairs = [str(request.body["messages"][-1]) for request in provider.asked[1:]]
    assert "Return is not valid JSON" in repairs[0]
    assert "Summary cannot be empty" in repairs[1]
    assert not any("metadata" in repair for repair in repairs)


def test_a_value_of_the_callers_own_schema_is_accepted_or_repaired(house: House):
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    house.script(talk(turn('{"count": "three"}'), turn('```json\n{"count": 3}\n```')))
    outcome = house.one(Task(label="scout", prompt="Count.", schema=schema))
    assert isinstance(outcome, Completed)
    assert msgspec.json.decode(outcome.report.strip("`json\n")) == {"count": 3}


@pytest.mark.rule("resume")
def test_a_resumed_run_has_the_time_limit_it_had_before(house: House):
    house.script(talk(turn("Which?\n[AWAITING_HUMAN_INPUT]"), turn("Done.")))
    outcome = house.one(Task(label="scout", prompt="Look.", timeout=50.0))
    resumed = house.resume(outcome.session_id, "this one")
    assert isinstance(resumed, Completed)
    assert resumed.lineage.deadline is not None
    assert outcome.lineage.deadline is not None
    assert resumed.lineage.deadline >= outcome.lineage.deadline
