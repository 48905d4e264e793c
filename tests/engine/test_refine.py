"""The director–evaluator loop as a library call."""

import asyncio
import json
import os
from typing import Any

import msgspec
import pytest
from tests.support.house import House, house
from tests.support.scripts import talk, turn

from deputy import AgentEvaluator, Budget, Deputy, ScriptEvaluator
from deputy.core.conversation import TokenUsage
from deputy.core.errors import UsageError
from deputy.core.events import Requested
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Completed, Partial
from deputy.core.refinement import refinement_dict, refinement_markdown
from deputy.testing import ProviderServer

__all__ = ["house"]

DIRECTOR, JUDGE = "An evaluator judges your work", "Judge whether this work"


def refine(
    house: House, evaluator: Any, *, budget: Budget | None = None, fallback: bool | None = None, **more: Any
) -> Any:
    async def go() -> Any:
        async with Deputy(
            house.model,
            models=house.given,
            workspace=house.workspace,
            home=house.home,
            budget=budget,
            fallback=fallback,
        ) as deputy:
            return await deputy.refine("Count to three.", evaluator, **more)

    return asyncio.run(go())


def script(house: House, text: str, name: str = "check.sh") -> ScriptEvaluator:
    path = house.workspace / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return ScriptEvaluator(argv=(f"./{name}",))


def verdict(success: bool, feedback: str = "", score: float | None = None) -> str:
    return json.dumps({"success": success, "feedback": feedback, **({} if score is None else {"score": score})})


@pytest.mark.rule("refine")
def test_feedback_goes_back_into_the_directors_own_conversation_until_it_is_accepted(house: House):
    made = talk(turn("one two"), turn("one two three"), when=DIRECTOR)
    judge = talk(turn(verdict(False, "Three is missing.")), when="one two\n")
    fine = talk(turn(verdict(True, "Good.")), when="one two three\n")
    with ProviderServer(ModelScript(conversations=(made, fine, judge))) as provider:
        house.use(provider)
        refined = refine(house, "It counts to three.", fallback=False)
    assert isinstance(refined.outcome, Completed)
    for made_by in (refined.rounds[0].session_id, refined.rounds[0].evaluation_id):
        [requested] = [one.event for one in house.records(made_by) if isinstance(one.event, Requested)]
        assert not requested.options.routing.falls_back
    assert (refined.outcome.report, refined.ending, refined.best.number) == ("one two three", "success", 2)
    assert [one.verdict.feedback for one in refined.rounds] == ["Three is missing.", "Good."]
    assert refined.rounds[0].session_id == refined.rounds[1].session_id
    assert refined.rounds[0].evaluation_id != refined.rounds[1].evaluation_id
    second = [asked for asked in provider.asked if DIRECTOR in asked.opening][1]
    assert [message["role"] for message in second.body["messages"]] == ["user", "assistant", "user"]
    output = second.body["messages"][-1]["content"][0]["text"]
    assert output.startswith("The evaluator did not accept your work.")
    assert "Three is missing." in output


@pytest.mark.rule("refine")
@pytest.mark.rule("subtask.kinds")
def test_a_script_judges_by_its_exit_code_or_by_json_and_both_forms_tell_every_round(house: House):
    evaluator = script(
        house,
        """test "$(wc -w)" -ge 3 && exit; echo '{"success": true, "feedback": "short", "score": 0.5}'; exit 1""",
    )
    house.script(talk(turn("one two"), turn("one two three"), when=DIRECTOR))
    refined = refine(house, evaluator)
    assert refined.ending == "success"
    form = json.loads(msgspec.json.encode(refinement_dict(refined.rounds, refined.ending)))
    first = form["rounds"][0]
    assert (form["ending"], form["best"], first["content"]) == ("success", 2, "one two")
    assert first["evaluation"]["status"] == "COMPLETE"
    notes = first["evaluation"]["notes"]
    assert (notes["success"], notes["feedback"], notes["score"]) == (False, "short", 0.5)
    assert notes["script"]["exit_code"] == 1
    shown = refinement_markdown(refined.rounds, refined.ending)
    assert shown.startswith("## Refinement: accepted after 2 rounds\n\n### Round 1 ✗ not accepted (score 0.5)\n\nshort")


@pytest.mark.rule("refine")
def test_it_stops_at_the_limit_and_keeps_the_best_round(house: House):
    made = talk(*(turn(f"try {n}") for n in range(5)), when=DIRECTOR)
    judges = [
        talk(turn(verdict(False, "no", score)), when=f"try {n}\n") for n, score in enumerate((0.2, 0.9, 0.1, 0.3, 0.4))
    ]
    house.script(made, *judges)
    refined = refine(house, AgentEvaluator(criteria="x"))
    assert isinstance(refined.outcome, Partial)
    assert (refined.ending, len(refined.rounds), refined.best.number) == ("limit", 5, 2)
    assert refined.outcome.report == "try 1"
    assert refined.outcome.errors[0].code == "ROUNDS_SPENT"


@pytest.mark.rule("refine")
def test_it_stops_when_nothing_changes(house: House):
    house.script(talk(turn("same"), turn(" same\n"), when=DIRECTOR))
    refined = refine(house, script(house, "exit 1"))
    assert (refined.ending, len(refined.rounds)) == ("no_change", 2)
    assert refined.outcome.errors[0].code == "NO_CHANGE"


@pytest.mark.rule("refine")
def test_the_budget_is_that_of_the_whole_loop(house: House):
    dear = TokenUsage(input_tokens=4000, output_tokens=1000)
    made = talk(*(turn(f"try {n}", usage=dear) for n in range(9)), when=DIRECTOR)
    house.script(made, strict=False)
    refined = refine(house, script(house, "exit 1"), budget=Budget(tokens=30_000), rounds=9)
    assert isinstance(refined.outcome, Partial)
    assert len(refined.rounds) < 5
    assert refined.outcome.usage.input + refined.outcome.usage.output <= 30_000
    assert refined.outcome.errors[0].type == "budget"


@pytest.mark.rule("refine")
def test_a_script_that_hangs_or_is_gone_is_no_success(house: House):
    house.script(talk(turn("same"), turn("other"), turn("other"), when=DIRECTOR, times=2))
    hanging = script(house, "sleep 600")
    refined = refine(house, ScriptEvaluator(argv=hanging.argv, seconds=0.5))
    assert refined.rounds[0].verdict.script.exit_code == 124
    assert "stopped: it took longer than 0.5 s" in refined.rounds[0].verdict.feedback
    refined = refine(house, script(house, 'rm "$0"; exit 1', "going.sh"))
    assert [one.verdict.script.exit_code for one in refined.rounds] == [1, 127, 127]


@pytest.mark.rule("refine")
@pytest.mark.parametrize(
    ("name", "content", "mode", "why"),
    [
        ("./nowhere", None, 0, "there is no such program"),
        ("nowhere-on-the-path", None, 0, "there is no such program"),
        ("./check", "#!/bin/sh\n", 0o644, "it may not be executed"),
        ("./check", "#!/no/such/shell\n", 0o755, "the program that its first line names is not there"),
        ("./check", "#!", 0o755, "the program that its first line names is not there"),
        ("./check", "exit 0\n", 0o755, "a text without a first line that says what runs it"),
        ("./check", "", 0o755, "a text without a first line that says what runs it"),
    ],
)
def test_a_script_that_cannot_start_is_refused_before_anything_is_spent(
    house: House, name: str, content: str | None, mode: int, why: str
):
    if content is not None:
        (house.workspace / name).write_text(content)
        (house.workspace / name).chmod(mode)
    with pytest.raises(UsageError, match=why):
        refine(house, ScriptEvaluator(argv=(name,)))


def test_a_tool_that_there_is_not_is_refused_before_anything_is_spent(house: House):
    with pytest.raises(UsageError, match="tools: found 'Nope'; unknown tool; known tools: Ask, "):
        refine(house, "x", tools=["Read", "Nope"])


@pytest.mark.rule("refine")
def test_a_loop_that_ended_goes_on_with_a_further_word(house: House):
    house.script(talk(turn("one"), turn("two"), turn("three"), when=DIRECTOR))
    evaluator = script(house, "grep -q three")
    refined = refine(house, evaluator, rounds=2)
    assert refined.ending == "limit"

    async def go_on() -> Any:
        async with Deputy(house.model, models=house.given, workspace=house.workspace, home=house.home) as deputy:
            await deputy.resume_run(refined.outcome.session_id, "It ends with three.")
            return await deputy.refined(refined.outcome.session_id)

    again = asyncio.run(go_on())
    assert (again.ending, [one.work for one in again.rounds]) == ("success", ["one", "two", "three"])


@pytest.mark.rule("refine")
@pytest.mark.rule("resume")
@pytest.mark.parametrize(("stopped_over", "word"), [("one", None), ("two", None), ("one", "It is two.")])
def test_what_was_made_when_the_loop_was_stopped_is_judged_when_it_goes_on(
    house: House, stopped_over: str, word: str | None
):
    made = talk(turn("one"), turn("two"), when=DIRECTOR)
    os.mkfifo(house.workspace / "judging")
    judging = f'work=$(cat); test -p judging && test "$work" = {stopped_over} && echo > judging && sleep 600'
    evaluator = script(house, f'{judging}; test "$work" = two')

    async def stopped_and_resumed() -> Any:
        async with Deputy(house.model, models=house.given, workspace=house.workspace, home=house.home) as deputy:
            session_id = await deputy.start_refining("Count to three.", evaluator)
            await asyncio.to_thread((house.workspace / "judging").read_text)
            await deputy.cancel(session_id)
            await deputy.refined(session_id)
            (house.workspace / "judging").unlink()
            await deputy.resume_run(session_id, word)
            return await deputy.refined(session_id)

    with ProviderServer(ModelScript(conversations=(made,))) as provider:
        house.use(provider)
        refined = asyncio.run(stopped_and_resumed())
    assert refined.ending == "success"
    # Who speaks to the director wants something else than what it has made.
    assert [one.work for one in refined.rounds] == (["one", "two"] if word is None else ["two"])
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    "bad", [{"rounds": 0}, {"rounds": 51}, {"evaluator": " "}, {"evaluator": ScriptEvaluator(argv=())}]
)
def test_what_cannot_be_judged_is_refused(house: House, bad: dict):
    with pytest.raises(UsageError):
        refine(house, bad.pop("evaluator", "x"), **bad)
