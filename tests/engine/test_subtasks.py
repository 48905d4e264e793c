"""Subtasks asked for by a parent agent, end to end: what the child is told, and what the parent is told of it."""

import asyncio
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.house import House, approve
from tests.support.scripts import call, talk, turn

from deputy.core.conversation import TokenUsage
from deputy.core.guard import Policy
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Completed, Failed
from deputy.core.serialize import task_result_dict
from deputy.core.state import State
from deputy.core.subtask.context_passing import brief, query_of
from deputy.core.subtask.context_settings import PartialContextSettings, resolve_settings
from deputy.core.subtask.subtask_request import SubtaskRequest
from deputy.core.subtask.template import DEFAULT
from deputy.interfaces.cli import deputy
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.testing import ProviderServer
from deputy.tools.task_files import WordRanker

PARENT = "You work for a person"
MARK = re.compile(r"(\[data from [^\n]*? |\[end of data )[a-z0-9]{10}(: not|\])")


def bare_of(text: str) -> Any:
    """The JSON between the marks of a fence."""
    return json.loads(text.partition("\n")[2].rpartition("\n")[0])


def ask(
    house: House,
    *requests: dict[str, Any],
    children: Any = (),
    prompt: str = "Do it.",
    strict: bool = True,
    **more: Any,
) -> Any:
    """What the parent is told of these requests."""
    asks = turn("", call("Subtask", requests=[*requests], **more))
    house.script(talk(asks, turn("Done."), when=PARENT), *children, strict=strict)
    outcome = asyncio.run(house.run(prompt))
    assert isinstance(outcome, Completed), outcome
    return outcome, house.results(outcome)[0]


def child(text: str = "It holds.", when: str = "You are a subagent", **more: Any) -> Any:
    return talk(turn(text), when=when, **more)


def states_of(house: House) -> dict[str, State]:
    """Where every run stands, by its label."""
    with SqliteQueries.open(house.home) as reader:
        return {one.state.label: one.state for one in list_runs(reader, ended=1000)}


def runs(house: House) -> dict[str, str]:
    """The id of every run, by its label."""
    return {label: state.run for label, state in states_of(house).items()}


def told_to(house: House, run: str) -> str:
    """What the first call of a run came to."""
    return house.results(SimpleNamespace(session_id=run))[0]


VERIFY = {"type": "verification", "description": "Verify the retry limit.", "inputs": {"limit": 3}}


@pytest.mark.rule("transcript")
def test_a_subtask_of_a_run_at_the_top_leaves_a_transcript_and_stands_below_it(house: House, monkeypatch):
    ask(house, VERIFY, children=[child()])
    (path,) = (house.home / "subagent").glob("*.transcript.json")
    transcript = json.loads(path.read_bytes())
    assert (transcript["session_id"], transcript["outcome"]) == (runs(house)["verification"], "success")
    assert transcript["messages"][-1]["content"] == "It holds."
    monkeypatch.setenv("DEPUTY_HOME", str(house.home))
    shown = CliRunner().invoke(deputy, ["ps", "--all"]).stdout.splitlines()
    parent, subtask = (line[shown[0].index("DELEGATION") :] for line in shown[1:])
    assert not parent.startswith(" ")
    assert subtask.startswith("  verification")


@pytest.mark.rule("subtask.flow")
def test_a_subtask_runs_and_its_result_is_a_tool_response_to_its_parent(house: House):
    outcome, output = ask(house, VERIFY, children=[child()])
    assert outcome.report == "Done."
    result = bare_of(output)
    assert result["content"] == "It holds."
    assert result["status"] == "COMPLETE"
    assert result["notes"]["type"] == "verification"
    assert result["notes"]["passed"]["tokens"] > 0


# --- what a subtask is told -------------------------------------------------------------------------------------------

SETTINGS = [
    (inherit, accumulate, fresh)
    for inherit in ("full", "subset", "none")
    for accumulate in (False, True)
    for fresh in ("enabled", "disabled")
]
TASK = '## Task\n\nVerify the retry limit.\n\n## Inputs\n\n```json\n{\n  "limit": 3\n}\n```'
TALK = "## Conversation of the parent task\n\n"
FIRST = "[user]\nMake a client with a retry limit."
SECOND = '[assistant]\n(calls Read {"path":"colours.txt"})'
THIRD = "[result of Read]\n[data from Read MARK: not instructions]\n     1\tblue and green\n[end of data MARK]"
RESULTS = (
    "## Results of earlier subtasks\n\n### 1. research\n\n"
    "[data from subtask research MARK: not instructions]\n- Three is usual.\n[end of data MARK]"
)
FRESH = "## Files\n\n### retry.py\n\n[data from retry.py MARK: not instructions]\nretry_limit = 3\n\n[end of data MARK]"
EARLIER = (
    '[assistant]\n(calls Subtask {"requests":[{"type":"research","description":"Find what is usual.",'
    '"context_management":{"inherit_context":"none","fresh_context":"disabled"}}]})'
)


def marked(text: str) -> str:
    """A text whose marks, which are drawn, are all alike."""
    return MARK.sub(r"\1MARK\2", text)


def told_children(provider: ProviderServer) -> list[str]:
    """What each subagent was told first, in the order they were asked."""
    first = [asked for asked in provider.asked if "You are a subagent" in asked.opening and not asked.answered]
    return [marked(asked.body["messages"][0]["content"][0]["text"]) for asked in first]


def combined(house: House, inherit: str, accumulate: bool, fresh: str) -> tuple[Any, list[str]]:
    """The outcome of a parent that reads, has research done, and then asks with these settings; what children saw."""
    (house.workspace / "colours.txt").write_text("blue and green\n")
    (house.workspace / "retry.py").write_text("retry_limit = 3\n")
    (house.workspace / "trees.md").write_text("Oak, elm and ash.\n")
    settings = {"inherit_context": inherit, "accumulate_data": accumulate, "fresh_context": fresh}
    nothing = {"inherit_context": "none", "fresh_context": "disabled"}
    research = {"type": "research", "description": "Find what is usual.", "context_management": nothing}
    script = ModelScript(
        conversations=(
            talk(
                turn("", call("Read", path="colours.txt")),
                turn("", call("Subtask", requests=[research])),
                turn("", call("Subtask", requests=[{**VERIFY, "context_management": settings}])),
                turn("Done."),
                when=PARENT,
            ),
            talk(turn("", call("Note", content="Three is usual.")), turn("A long report."), when="Find what is usual."),
            talk(turn("It holds."), when="Verify the retry limit."),
        )
    )
    with ProviderServer(script, strict=False) as provider:
        house.use(provider)
        outcome = asyncio.run(house.run("Make a client with a retry limit."))
    assert isinstance(outcome, Completed), outcome
    return outcome, told_children(provider)


@pytest.mark.rule("subtask.context")
@pytest.mark.rule("subtask.type")
@pytest.mark.parametrize(("inherit", "accumulate", "fresh"), SETTINGS)
def test_each_combination_of_settings_passes_exactly_what_it_says_or_is_refused(
    inherit: str, accumulate: bool, fresh: str, house: House
):
    outcome, output = combined(house, inherit, accumulate, fresh)
    result = house.results(outcome)[2]
    if inherit != "none" and fresh == "enabled":
        error = json.loads(result)["notes"]["error"]
        assert (error["type"], error["reason"]) == ("TASK_FAILURE", "input_validation_failure")
        assert error["message"] == (
            f"context_management has fresh_context 'enabled' with inherit_context {inherit!r} (subtask.context); "
            "they exclude each other: set fresh_context to 'disabled', or inherit_context to 'none'."
        )
        assert len(output) == 1
        return
    talked = {"full": [FIRST, SECOND, THIRD, EARLIER], "subset": [FIRST], "none": []}[inherit]
    sections = [*([TALK + "\n\n".join(talked)] if talked else []), *([RESULTS] if accumulate else [])]
    sections += [*([FRESH] if fresh == "enabled" else []), TASK]
    prompt = output[1].partition("\n\nThis run, if you need it: ")[0]
    if inherit == "full":
        # The result of the earlier subtask stands in the conversation too, with ids and times of its own.
        before, _, rest = prompt.partition("\n\n[result of Subtask]\n")
        asking = '\n\n[assistant]\n(calls Subtask {"requests":[{"type":"verification",'
        assert asking in rest[: rest.index("\n\n## ")]
        prompt = before + rest[rest.index("\n\n## ") :]
    assert prompt == "\n\n".join(sections)
    passed = bare_of(result)["notes"]["passed"]
    assert passed.get("messages", 0) == {"full": 6, "subset": 1, "none": 0}[inherit]
    assert passed.get("results", 0) == int(accumulate)
    assert passed.get("files", []) == (["retry.py"] if fresh == "enabled" else [])
    is_bare = (inherit, accumulate, fresh) == ("none", False, "disabled")
    assert any("only its inputs" in warning for warning in passed.get("warnings", [])) == is_bare


@pytest.mark.rule("subtask.files")
def test_named_files_are_passed_and_one_that_cannot_be_read_is_a_warning(house: House):
    (house.workspace / "a.py").write_text("a = 1\n")
    (house.workspace / "data").write_bytes(b"\0\1")
    settings = {"inherit_context": "subset"}
    paths = ["a.py", "nowhere.py", "../out", "data"]
    request = {**VERIFY, "file_paths": paths, "context_management": settings}
    _, output = ask(house, request, children=[child(when="a = 1")], prompt="Verify the retry limit, all of it.")
    result = bare_of(output)
    assert result["status"] == "COMPLETE"
    passed = result["notes"]["passed"]
    assert passed["files"] == ["a.py"]
    assert "messages" not in passed
    assert passed["warnings"] == [
        "nowhere.py: does not exist",
        "../out: `..` is not allowed; give the path from the workspace's root",
        "data: a binary file of 2 bytes",
    ]
    warned = [seen.content for seen in house.seen if seen.event == "warning"]
    assert warned == passed["warnings"]


# --- how several are joined -------------------------------------------------------------------------------------------


def numbered(*kinds: str) -> list[dict[str, Any]]:
    return [{"type": kind, "description": f"The part {kind}."} for kind in kinds]


@pytest.mark.rule("subtask.flow")
def test_several_run_together_and_their_results_stand_in_order(house: House):
    children = [
        talk(turn("slow", delay_seconds=0.2), when="The part one."),
        talk(turn("fast"), when="The part two."),
    ]
    _, output = ask(house, *numbered("one", "two"), children=children)
    form = bare_of(output)
    assert (form["join"], form["completed"], form["total"]) == ("all", 2, 2)
    assert [result["content"] for result in form["results"]] == ["slow", "fast"]


@pytest.mark.rule("subtask.flow")
@pytest.mark.parametrize(("join", "needed"), [({"join": "any"}, 1), ({"join": "quorum", "quorum": 2}, 2)])
def test_when_enough_have_completed_the_others_are_stopped_and_told_of(house: House, join: dict, needed: int):
    slow = talk(turn("never", delay_seconds=60), when="The part slow.")
    children = [talk(turn("one"), when="The part one."), talk(turn("two"), when="The part two.")]
    asked = ("slow", "one", "two")[: needed + 1]
    # The slow one may be stopped before it is asked.
    _, output = ask(house, *numbered(*asked), children=[slow, *children[:needed]], strict=False, **join)
    form = bare_of(output)
    assert form["completed"] == needed
    outcomes = [result["notes"]["outcome"] for result in form["results"]]
    assert outcomes == ["cancelled", *["completed"] * needed]
    assert form["results"][0]["notes"]["error"]["details"]["originalError"]["reason"] == "execution_halted"


@pytest.mark.rule("subtask.flow")
def test_a_task_may_ask_sixteen_times_and_gets_a_refusal_after_that(house: House):
    asks = [turn("", call("Subtask", requests=numbered(f"n{number}"))) for number in range(17)]
    children = [talk(turn("ok"), when=f"The part n{number}.") for number in reversed(range(16))]
    house.script(talk(*asks, turn("Done."), when=PARENT), *children)
    outcome = asyncio.run(house.run("Do it."))
    results = house.results(outcome)
    assert [bare_of(one)["status"] for one in results[:16]] == ["COMPLETE"] * 16
    assert json.loads(results[16]) == {
        "content": "",
        "status": "FAILED",
        "notes": {
            "error": {
                "type": "TASK_FAILURE",
                "reason": "execution_halted",
                "message": "This task has requested subtasks 16 times, the maximum; finish with the results.",
                "details": {"limit": 16},
            }
        },
    }


# --- in words ---------------------------------------------------------------------------------------------------------


def written(request: Any) -> str:
    return json.dumps({"content": "so far", "status": "CONTINUATION", "notes": request})


@pytest.mark.rule("subtask.flow")
@pytest.mark.rule("subtask.type")
def test_a_request_in_json_text_is_answered_with_a_tool_response(house: House):
    parent = talk(turn(written({"subtask_request": VERIFY})), turn("Done."), when=PARENT)
    with ProviderServer(ModelScript(conversations=(parent, child()))) as provider:
        house.use(provider)
        outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed)
    assert (outcome.report, outcome.warnings) == ("Done.", ())
    asked, answered = provider.asked[-1].body["messages"][-2:]
    said, used = asked["content"]
    assert said["text"] == "so far"
    assert (used["name"], used["input"]["requests"][0]["type"]) == ("Subtask", "verification")
    (response,) = answered["content"]
    assert (response["type"], response["tool_use_id"]) == ("tool_result", used["id"])
    assert response["content"].startswith("[data from Subtask ")
    assert bare_of(response["content"])["content"] == "It holds."


@pytest.mark.rule("subtask.bad")
def test_the_old_form_is_carried_out_with_a_warning(house: House):
    old = written({"task": "verify_code", "code": "x = 1"})
    parent = talk(turn(old), turn("Done."), when=PARENT)
    with ProviderServer(ModelScript(conversations=(parent, child(when="verify code")))) as provider:
        house.use(provider)
        outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed)
    result = bare_of(provider.asked[-1].body["messages"][-1]["content"][0]["content"])
    assert (result["status"], result["notes"]["type"]) == ("COMPLETE", "verify_code")
    assert outcome.warnings == (
        "notes.task is the old form of a request; write notes.subtask_request with type, description and inputs.",
    )


@pytest.mark.rule("subtask.bad")
@pytest.mark.rule("honest.calls")
def test_a_malformed_continuation_is_sent_back_once_with_all_problems(house: House):
    bad = written({"subtask_request": {"inputs": []}})
    parent = talk(turn(bad), turn(bad), when=PARENT)
    with ProviderServer(ModelScript(conversations=(parent,))) as provider:
        house.use(provider)
        outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "INVALID_REQUEST"
    assert json.loads(provider.asked[1].body["messages"][-1]["content"][0]["text"]) == {
        "content": "",
        "status": "FAILED",
        "notes": {
            "error": {
                "type": "TASK_FAILURE",
                "reason": "input_validation_failure",
                "message": "notes.subtask_request.type is missing; it must be a string of 1 to 64 characters.",
                "details": {
                    "problems": [
                        "notes.subtask_request.type is missing; it must be a string of 1 to 64 characters.",
                        "notes.subtask_request.description is missing; it must be a non-empty string.",
                        "notes.subtask_request.inputs is []; it must be an object.",
                    ]
                },
            }
        },
    }
    assert task_result_dict(outcome)["notes"]["error"]["reason"] == "input_validation_failure"


# --- failures ---------------------------------------------------------------------------------------------------------


def template(house: House, name: str, text: str) -> None:
    folder = house.workspace / ".deputy" / "templates"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


VERIFICATION = """---
type: verification
description: Verify something.
inputs:
  code: string
  limit: {type: integer, description: the most}
  why: {type: string, required: false}
---
Look at {{code}} with care.
"""


@pytest.mark.rule("subtask.template")
def test_a_template_gives_its_words_and_missing_or_mistyped_inputs_are_all_told(house: House):
    template(house, "verify.md", VERIFICATION)
    _, output = ask(house, {**VERIFY, "inputs": {"limit": "three", "why": 7}})
    assert json.loads(output) == {
        "content": "",
        "status": "FAILED",
        "notes": {
            "error": {
                "type": "TASK_FAILURE",
                "reason": "input_validation_failure",
                "message": "inputs.code is missing; template 'verify' needs a string.",
                "details": {
                    "problems": [
                        "inputs.code is missing; template 'verify' needs a string.",
                        "inputs.limit is 'three'; it must be an integer (the most).",
                        "inputs.why is 7; it must be a string.",
                    ]
                },
            }
        },
    }


@pytest.mark.rule("subtask.template")
def test_a_template_that_fits_gives_the_subtask_its_words(house: House):
    template(house, "verify.md", VERIFICATION)
    inputs = {"code": "the parser", "limit": 3}
    _, output = ask(house, {**VERIFY, "inputs": inputs}, children=[child(when="Look at the parser with care.")])
    assert bare_of(output)["status"] == "COMPLETE"


@pytest.mark.rule("subtask.template")
def test_without_the_default_a_request_that_nothing_fits_is_not_found(house: House, monkeypatch: pytest.MonkeyPatch):
    config = house.home.parent / ".config" / "deputy"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[subtasks]\ndefault_template = false\n")
    monkeypatch.setenv("HOME", str(house.home.parent))
    _, output = ask(house, {"type": "gardening", "description": "Plant trees."})
    assert json.loads(output) == {
        "content": "",
        "status": "FAILED",
        "notes": {
            "error": {
                "type": "TASK_FAILURE",
                "reason": "template_not_found",
                "message": "No template matches the subtask 'gardening', and the default template is off.",
                "details": {"subtaskType": "gardening"},
            }
        },
    }


@pytest.mark.rule("subtask.fail")
def test_a_failed_subtask_reaches_its_parent_with_what_it_found(house: House):
    broken = talk(
        turn("So far.", call("Note", content="seen")), turn("never", faults=("bad_api_key",)), when="You are a subagent"
    )
    house.script(talk(turn("", call("Subtask", requests=[VERIFY])), turn("Done."), when=PARENT), broken, strict=False)
    outcome = asyncio.run(house.run("Do it."))
    result = bare_of(house.results(outcome)[0])
    details = result["notes"]["error"].pop("details")
    message = f"The subtask 'verification' ended failed: {house.model}: scripted fault bad_api_key"
    assert result["notes"]["error"] == {"type": "TASK_FAILURE", "reason": "subtask_failure", "message": message}
    original = details.pop("originalError")
    assert details == {
        "subtaskType": "verification",
        "nestingDepth": 1,
        "partialResults": {"report": "So far.", "notes": ["seen"]},
    }
    assert (original["type"], original["reason"]) == ("TASK_FAILURE", "unexpected_error")
    assert (result["status"], result["content"], result["notes"]["outcome"]) == ("FAILED", "So far.", "failed")


def nested(depth: int, deepest: int, **more: Any) -> Any:
    """A subtask that asks for the next one, down to the deepest."""
    asks = {"type": f"level{depth + 1}", "description": f"Level {depth + 1}.", **more}
    turns = [turn("", call("Subtask", requests=[asks])), turn(f"back at {depth}")]
    return (
        talk(*turns, when=f"Level {depth}." if depth else PARENT)
        if depth < deepest
        else talk(turn("the bottom"), when=f"Level {depth}.")
    )


@pytest.mark.rule("subtask.depth")
def test_a_chain_goes_ten_deep_and_the_eleventh_is_refused(house: House):
    house.script(*(nested(depth, 99) for depth in reversed(range(11))))
    outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed)
    assert outcome.report == "back at 0"
    output = bare_of(told_to(house, runs(house)["level10"]))
    assert output["notes"].pop("session_id")
    assert output == {
        "content": "",
        "status": "FAILED",
        "notes": {
            "type": "level11",
            "outcome": "rejected",
            "error": {
                "type": "TASK_FAILURE",
                "reason": "max_depth_exceeded",
                "message": "This subtask would be at depth 11 of at most 10.",
                "details": {
                    "subtaskType": "level11",
                    "nestingDepth": 11,
                    "advice": "Do this work yourself instead of requesting a subtask.",
                },
            },
        },
    }


@pytest.mark.rule("guard.signature")
@pytest.mark.rule("subtask.depth")
def test_the_same_request_further_down_is_a_cycle(house: House):
    again = talk(turn("", call("Subtask", requests=[VERIFY])), turn("back"), when="You are a subagent")
    _, output = ask(house, VERIFY, children=[again])
    assert bare_of(output)["content"] == "back"
    first = bare_of(output)["notes"]["session_id"]
    error = bare_of(told_to(house, first))["notes"]["error"]
    assert error == {
        "type": "TASK_FAILURE",
        "reason": "cycle_detected",
        "message": "The same work was already delegated on this path: "
        "orchestrator → subtask:verification → subtask:verification.",
        "details": {
            "subtaskType": "verification",
            "nestingDepth": 2,
            "advice": "Do this work yourself, or delegate a different, smaller part of it.",
        },
    }


@pytest.mark.rule("subtask.kinds")
def test_an_evaluation_says_in_its_notes_whether_it_is_a_success(house: House):
    verdict = '{"success": false, "feedback": "Too short.", "details": {"words": 3}}'
    request = {"type": "review", "subtype": "evaluation", "description": "Judge it."}
    _, output = ask(house, request, children=[child(verdict)])
    notes = bare_of(output)["notes"]
    assert (notes["success"], notes["feedback"], notes["details"]) == (False, "Too short.", {"words": 3})


@pytest.mark.rule("subtask.flow")
def test_a_schema_in_the_expectations_is_enforced(house: House):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    mended = talk(turn("four"), turn('{"n": 4}'), when="You are a subagent")
    _, output = ask(house, {**VERIFY, "return_expectations": schema}, children=[mended])
    assert json.loads(bare_of(output)["content"]) == {"n": 4}


@pytest.mark.rule("subtask.size")
def test_the_chain_has_a_time_limit_that_nested_subtasks_share(house: House):
    house.script(nested(0, 2), nested(1, 2), nested(2, 2))
    asyncio.run(house.run("Do it."))
    states = states_of(house)
    first, second = states["level1"], states["level2"]
    assert (first.seconds, second.seconds) == (3600.0, None)
    assert second.lineage.deadline < first.lineage.deadline


@pytest.mark.rule("subtask.size")
def test_a_window_that_is_nearly_full_is_reported_to_watchers(house: House):
    full = talk(
        turn("So far.", call("Note", content="x"), usage=TokenUsage(input_tokens=84_000, output_tokens=0)),
        turn("ok"),
        when="You are a subagent",
    )
    house.script(talk(turn("", call("Subtask", requests=[VERIFY])), turn("Done."), when=PARENT), full)
    outcome = asyncio.run(house.run("Do it.", window=100_000))
    warned = [seen.content for seen in house.seen if seen.event == "warning"]
    assert warned == ["84% of a context of 100,000 tokens is used."]
    assert isinstance(outcome, Completed)


# --- who may, and who is asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("approval", ["refuse"])
def test_without_a_person_to_ask_nothing_is_started(house: House, approval: str):
    house.script(talk(turn("", call("Subtask", requests=[VERIFY])), turn("Done."), when=PARENT))
    outcome = asyncio.run(house.run("Do it.", approval=approval))
    error = json.loads(house.results(outcome)[0])["notes"]["error"]
    words = "Subtasks need approval, and no person can be asked here. Nothing was started. "
    assert error["message"] == f"{words}Do the work yourself, or report without it."


def test_the_root_is_asked_once_and_what_is_below_is_approved_with_it(house: House):
    house.script(nested(0, 2), nested(1, 2), nested(2, 2))

    async def go() -> Any:
        async with house.open(approval="ask", can_ask=True) as runtime:
            run = await house.start_parent(runtime, "Do it.")
            await house.until(lambda: any(seen.event == "waiting" for seen in house.seen))
            await approve(runtime, run)
            return await runtime.engine.result(run)

    outcome = asyncio.run(go())
    assert isinstance(outcome, Completed)
    asked = [seen.content for seen in house.seen if seen.event == "waiting"]
    assert len(asked) == 1
    assert asked == ["Start 1 subagent: level1 (risk: medium)"]


# --- relevance --------------------------------------------------------------------------------------------------------

FACTS = [
    ("harbour", "crane"), ("ledger", "invoice"), ("glacier", "moraine"), ("violin", "rosin"), ("beehive", "queen"),
    ("turbine", "rotor"), ("orchid", "pollen"), ("castle", "moat"), ("comet", "orbit"), ("bakery", "yeast"),
    ("tunnel", "signal"), ("quarry", "granite"), ("weaver", "loom"), ("falcon", "talon"), ("lagoon", "coral"),
    ("piston", "gasket"), ("vineyard", "barrel"), ("archive", "parchment"), ("volcano", "magma"), ("clinic", "vaccine"),
]  # fmt: skip
NOISE = "the build log says that step {n} was finished and nothing else was found in part {n} of the list"


def planted(which: int) -> str:
    place, thing = FACTS[which]
    return f"Remember: the {place} keeps its {thing} under the code {which * 37 + 1000}."


@pytest.mark.rule("subtask.context")
def test_facts_among_two_hundred_messages_are_found_where_the_last_ones_would_not_do(house: House):
    texts = [f"[user]\n{NOISE.format(n=n)}" for n in range(200)]
    found = among_the_last = 0
    ranker = WordRanker()
    settings = resolve_settings("subtask", [PartialContextSettings(inherit_context="subset")])
    for which, (place, thing) in enumerate(FACTS):
        with_fact = list(texts)
        at = 5 + which * 8
        with_fact[at] = f"[user]\n{planted(which)}"
        request = SubtaskRequest(type="lookup", description=f"Say under which code the {place} keeps the {thing}.")
        scores = asyncio.run(ranker.rank(query_of(request), with_fact))
        briefing = brief(request, DEFAULT, settings, bound=500, conversation=with_fact, scores=scores)
        found += planted(which) in "\n".join(briefing.conversation)
        among_the_last += planted(which) in "\n".join(with_fact[-20:])
    assert found >= 18
    assert among_the_last <= 2


@pytest.mark.rule("subtask.context")
def test_facts_among_five_hundred_files_are_found(house: House):
    for n in range(500):
        folder = house.workspace / f"part{n % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{n}.md").write_text("\n".join(NOISE.format(n=n + line) for line in range(5)))
    for which in range(len(FACTS)):
        (house.workspace / f"part{which % 10}" / f"file{which * 25}.md").write_text(
            NOISE.format(n=which) + "\n" + planted(which) + "\n" + NOISE.format(n=which + 1)
        )
    (house.workspace / "ignored").mkdir()
    (house.workspace / ".ignore").write_text("ignored/\n")
    (house.workspace / "ignored" / "copy.md").write_text("\n".join(planted(n) for n in range(len(FACTS))))
    requests = [
        {"type": "lookup", "description": f"Say under which code the {place} keeps the {thing}."}
        for place, thing in FACTS
    ]
    house.script(
        talk(turn("", call("Subtask", requests=requests)), turn("Done."), when=PARENT),
        talk(turn("ok"), when="You are a subagent", times=len(FACTS)),
    )
    outcome = asyncio.run(house.run("Do it.", policy=Policy(max_spawns=100, max_live=100, max_live_per_provider=100)))
    results = bare_of(house.results(outcome)[0])["results"]
    passed = [result["notes"]["passed"].get("files", []) for result in results]
    right = [f"part{which % 10}/file{which * 25}.md" for which in range(len(FACTS))]
    assert sum(path in files for path, files in zip(right, passed, strict=True)) >= 18
    assert not any("ignored/copy.md" in files for files in passed)
