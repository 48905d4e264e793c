"""Tool calls and subtask requests that a model writes as text, from a server that speaks Chat Completions."""

import json

import pytest
from tests.core.test_text_calls import SPELLINGS
from tests.support.house import House
from tests.support.scripts import call, turn

from deputy.core.events import ModelCallEnded
from deputy.core.outcome import Completed, Failed, Outcome
from deputy.core.serialize import task_result_dict
from deputy.core.task import Task
from deputy.testing import ProviderServer

MODEL = "llamacpp:qwen3-coder"
LOCAL = (
    "fenced json",
    "hermes",
    "qwen coder",
    "llama",
    "mistral",
    "mistral, new",
    "functionary 3",
    "deepseek",
    "gemma",
)
READ = SPELLINGS["hermes"]
CONTINUATION = json.dumps(
    {
        "content": "",
        "status": "CONTINUATION",
        "notes": {"subtask_request": {"type": "check", "description": "Check it."}},
    }
)


def serve(house: House, *texts: str, tools: tuple[str, ...] | None = None, **more) -> tuple[Outcome, list]:
    """The outcome of a task whose model writes these messages, and the messages of the last request."""
    (house.workspace / "a.txt").write_text("the secret word is plum\n")
    with ProviderServer(*(text if not isinstance(text, str) else turn(text) for text in texts)) as provider:
        house.use(provider, MODEL)
        outcome = house.one(Task(label="scout", prompt="Look.", tools=tools, **more))
    return outcome, provider.asked[-1].body["messages"]


@pytest.mark.rule("honest.calls")
@pytest.mark.parametrize("spelling", LOCAL)
def test_one_call_to_a_reading_tool_is_executed_and_recorded_as_salvaged(house: House, spelling: str):
    outcome, messages = serve(house, f"<think>I read it.</think>\n{SPELLINGS[spelling]}", "The word is plum.")
    assert isinstance(outcome, Completed), outcome
    assert outcome.report == "The word is plum."
    (written,) = messages[-2]["tool_calls"]
    assert (written["function"]["name"], json.loads(written["function"]["arguments"])) == ("Read", {"path": "a.txt"})
    assert (messages[-1]["role"], messages[-1]["tool_call_id"]) == ("tool", written["id"])
    assert "the secret word is plum" in messages[-1]["content"]
    ended = [one.event for one in house.records(outcome.session_id) if isinstance(one.event, ModelCallEnded)]
    assert SPELLINGS[spelling] in ended[0].salvaged
    assert ended[1].salvaged == ""
    assert outcome.warnings == ("1 tool call was written as text by the model, and executed (salvaged).",)


@pytest.mark.rule("honest.calls")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<tool_call>{"name": "Read", "arguments": {"file": "a.txt"}}</tool_call>', "Its arguments are not valid: "),
        (
            '<tool_call>{"name": "search", "arguments": {}}</tool_call>',
            "There is no tool 'search' here. The tools are: Read, ",
        ),
        ('{"name": "Edit", "arguments": {"path": "a.txt"}}', "There is no tool 'Edit' here. The tools are: Read, "),
        (f"{READ}\n{READ}", "It has 2 calls; only one can be read from text."),
        (f"I read it now.\n{READ}", "There is other text beside it."),
        ('<tool_call>{"name": "Read", "arguments": {"path": }</tool_call>', "It cannot be read."),
    ],
)
def test_any_other_call_is_sent_back_once_with_the_reason_and_the_form(house: House, text: str, reason: str):
    outcome, messages = serve(house, text, text)
    assert isinstance(outcome, Failed)
    (error,) = outcome.errors
    assert (error.code, error.recoverable) == ("TOOL_CALL_AS_TEXT", False)
    assert reason in error.message
    assert messages[-1]["role"] == "user"
    assert f"Nothing was run. {reason}" in messages[-1]["content"]
    assert "The arguments of Read are: path, offset (optional)." in messages[-1]["content"]
    assert "<string>" not in messages[-1]["content"]


@pytest.mark.rule("honest.calls")
@pytest.mark.parametrize(
    "text",
    [
        f"I read it.\n{READ}\nThe word is pear.",
        f"{READ}\n{READ}",
        f"{'I explain the next step. ' * 30}\n{READ}\n{'The word is pear. ' * 30}",
    ],
    ids=["text", "two calls", "long text"],
)
def test_a_small_model_that_must_look_has_its_first_call_executed_whatever_is_beside_it(house: House, text: str):
    (house.workspace / "a.txt").write_text("the secret word is plum\n")
    with ProviderServer(turn(text), turn("The word is plum.")) as provider:
        house.use(provider, MODEL)
        outcome = house.one(Task(label="scout", prompt="Which word is in a.txt?"))
    assert (outcome.status, outcome.report) == ("completed", "The word is plum.")
    *_, written, result = provider.asked[-1].body["messages"]
    assert len(written["tool_calls"]) == 1
    assert "pear" not in str(written)
    assert "the secret word is plum" in result["content"]


@pytest.mark.rule("honest.calls")
@pytest.mark.parametrize("quoted", ["a.txt", "b.txt"])
def test_a_report_of_a_small_model_that_quotes_a_call_ends_the_task(house: House, quoted: str):
    line = json.dumps({"name": "Read", "arguments": {"path": quoted}})
    (house.workspace / "a.txt").write_text(f"{line}\n")
    report = turn(f"The file a.txt has this call:\n{line}")
    with ProviderServer(turn("", call("Read", path="a.txt")), *[report] * 4, strict=False) as provider:
        house.use(provider, MODEL)
        outcome = house.one(Task(label="scout", prompt="Which tool call is in a.txt?"))
    assert (outcome.status, outcome.report) == ("completed", report.text)
    # The quoted call is executed until its result is a repeated one; then the model must answer.
    choices = [request.body["tool_choice"] for request in provider.asked]
    assert choices == ["auto"] * (2 if quoted == "a.txt" else 3) + ["none"]


@pytest.mark.rule("honest.calls")
def test_a_small_model_that_must_answer_and_writes_only_a_call_is_told_once_to_answer(house: House):
    (house.workspace / "a.txt").write_text("the secret word is plum\n")
    look = turn("", call("Read", path="a.txt"))
    for last, status in ((turn("The word is plum."), "completed"), (turn(READ), "failed")):
        with ProviderServer(look, look, turn(READ), last) as provider:
            house.use(provider, MODEL)
            outcome = house.one(Task(label="scout", prompt="Which word is in a.txt?"))
        assert outcome.status == status
        words = provider.asked[-1].body["messages"][-1]["content"]
        assert words == "Answer now from the results above, without another call. The task is: Which word is in a.txt?"
        assert [request.body["tool_choice"] for request in provider.asked] == ["auto", "auto", "none", "none"]
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "TOOL_CALL_AS_TEXT"
    assert "Its turn could not call tools." in outcome.errors[0].message


@pytest.mark.rule("honest.calls")
def test_a_call_that_writes_is_never_executed_from_text(house: House):
    text = '<tool_call>{"name": "Write", "arguments": {"path": "b.txt", "content": "x"}}</tool_call>'
    outcome, messages = serve(house, text, turn("", call("Read", path="a.txt")), text, "Done.", tools=("Read", "Write"))
    assert isinstance(outcome, Completed)
    assert not (house.workspace / "b.txt").exists()
    assert "Write does more than read, so it is never run from text." in messages[-1]["content"]
    assert "The arguments of Read are: path, offset (optional)." in messages[-1]["content"]


def test_an_agent_without_a_reading_tool_is_not_told_to_write_a_call(house: House):
    text = '<tool_call>{"name": "Write", "arguments": {"path": "b.txt", "content": "x"}}</tool_call>'
    outcome, messages = serve(house, text, "I could not write it.", tools=("Write",))
    assert outcome.report == "I could not write it."
    assert (
        "If you cannot call tools there, answer with your report: you have no tool that only reads."
        in messages[-1]["content"]
    )
    assert "The arguments of" not in messages[-1]["content"]


@pytest.mark.rule("honest.calls")
def test_a_call_that_a_longer_answer_quotes_is_text(house: House):
    report = f"The file holds a call, which I did not follow. {'It has many lines. ' * 30}\n\n{READ}\n"
    outcome, _ = serve(house, report)
    assert isinstance(outcome, Completed)
    assert outcome.report == report
    assert outcome.usage.requests == 1


@pytest.mark.rule("honest.calls")
def test_a_long_answer_of_a_small_model_with_a_call_that_cannot_be_executed_is_a_report(house: House):
    write = '<tool_call>{"name": "Write", "arguments": {"path": "b.txt", "content": "x"}}</tool_call>'
    report = f"{'The file holds a call, which I did not follow. ' * 20}\n{write}"
    (house.workspace / "a.txt").write_text("the secret word is plum\n")
    with ProviderServer(turn("", call("Read", path="a.txt")), turn(report)) as provider:
        house.use(provider, MODEL)
        outcome = house.one(Task(label="scout", prompt="Which word is in a.txt?"))
    assert (outcome.status, outcome.report) == ("completed", report)
    assert not (house.workspace / "b.txt").exists()


@pytest.mark.rule("honest.calls")
def test_a_schema_of_the_caller_makes_json_an_answer(house: House):
    text = '{"name": "Read", "arguments": {"path": "a.txt"}}'
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}}}
    outcome, _ = serve(house, text, schema=schema)
    assert isinstance(outcome, Completed)
    assert json.loads(outcome.report)["name"] == "Read"


@pytest.mark.rule("honest.calls")
def test_thinking_is_no_part_of_a_report_and_nothing_else_is_no_answer(house: House):
    outcome, _ = serve(house, "<think>\nI wonder.\n</think>\n\nThe word is plum.")
    assert (outcome.report, outcome.summary) == ("The word is plum.", "The word is plum.")
    (house.workspace / "a.txt").unlink()
    with ProviderServer(turn("<think>I wonder."), turn("<think>Still.")) as provider:
        house.use(provider, MODEL)
        failed = house.one(Task(label="other", prompt="Look."))
    assert isinstance(failed, Failed)
    assert failed.errors[0].code == "EMPTY_REPLY"
    assert "Continue: call a tool or report." in str(provider.asked[1].body["messages"][-1])


@pytest.mark.rule("honest.calls")
def test_a_continuation_without_the_grant_is_sent_back_once(house: House):
    outcome, messages = serve(house, CONTINUATION, CONTINUATION)
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].message == "The task requested subtasks, but it was not granted Subtask."
    assert task_result_dict(outcome)["notes"]["error"]["reason"] == "input_validation_failure"
    assert messages[-1]["content"].startswith("You asked for a subtask, but you cannot have subtasks here.")


def test_a_continuation_without_the_grant_may_be_corrected(house: House):
    outcome, _ = serve(house, CONTINUATION, "Checked it myself.")
    assert isinstance(outcome, Completed)
    assert outcome.report == "Checked it myself."


def test_a_continuation_that_a_longer_answer_quotes_is_text(house: House):
    report = f"{'The protocol has a form for requests. ' * 20}\n\n```json\n{CONTINUATION}\n```"
    outcome, _ = serve(house, report)
    assert (outcome.status, outcome.report) == ("completed", report)
