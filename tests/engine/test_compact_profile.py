"""Small local models get a short prompt, a listing and few tools, and are held to what they have read."""

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.model_script import ModelScript, ScriptedTurn
from deputy.core.outcome import Completed, Failed, Partial
from deputy.core.task import Task
from deputy.models.catalog import read_catalog
from deputy.models.factory import ModelFactory
from deputy.testing import ProviderServer

LOCAL = "llamacpp:small"
TASK = Task(label="scout", prompt="Which port is set in config.toml?")


@pytest.fixture
def project(house: House) -> House:
    (house.workspace / "config.toml").write_text("port = 8417\n")
    return house


def nudged(first: ScriptedTurn, *later: ScriptedTurn) -> ModelScript:
    """The first answer, and the turns of the new conversation that asks for a look."""
    return ModelScript(conversations=(talk(*later, when="You have not looked at any file yet."), talk(first)))


def asked(provider: ProviderServer) -> list[dict]:
    return [request.body for request in provider.asked]


@pytest.mark.rule("prompt.compact")
def test_a_local_model_gets_the_short_prompt_the_listing_and_two_tools(project: House):
    with ProviderServer(turn("", call("Grep", pattern="PORT")), turn("It is 8417.")) as provider:
        project.use(provider, LOCAL)
        outcome = project.one(TASK)
    assert isinstance(outcome, Completed)
    first, second = asked(provider)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["Read", "Grep"]
    fields = [list(tool["function"]["parameters"]["properties"]) for tool in first["tools"]]
    assert fields == [["path", "offset"], ["pattern", "path"]]
    system, task = (message["content"] for message in first["messages"])
    assert system.startswith(
        "You answer one task about the files of a project. Your tools: Read, Grep. Read shows a file. "
        "Grep finds a word in all files.\n\nYou know nothing about this project until you have looked. "
        "Never guess a file name or a value.\nFirst call a tool. When a tool result shows the answer"
    )
    assert task.startswith("Files of the project:\n[data from Glob ")
    assert "config.toml\n" in task
    assert task.endswith("Which port is set in config.toml?")
    result = second["messages"][-1]["content"]
    # The case of a word does not matter here, and the task is near when the model answers.
    assert "config.toml:1:port = 8417" in result
    assert result.endswith("The task is: Which port is set in config.toml?")


@pytest.mark.rule("prompt.compact")
@pytest.mark.rule("context.notes")
@pytest.mark.parametrize(
    "more", [{}, {"context": ("config.toml",)}, {"tools": ("Read",)}], ids=["listing", "files", "tools"]
)
def test_a_small_model_gets_no_project_notes(project: House, more: dict):
    (project.workspace / "AGENTS.md").write_text("Run `make test`.")
    with ProviderServer(turn("ok")) as provider:
        project.use(provider, LOCAL)
        project.one(Task(label="scout", prompt="Say ok.", **more), trusts_project=True)
    text = asked(provider)[0]["messages"][-1]["content"]
    assert "make test" not in text
    assert "Say ok." in text


@pytest.mark.rule("prompt.compact")
def test_an_empty_workspace_has_no_listing(house: House):
    with ProviderServer(turn("ok")) as provider:
        house.use(provider, LOCAL)
        house.one(Task(label="scout", prompt="Say ok."))
    assert asked(provider)[0]["messages"][-1]["content"] == "Say ok."


@pytest.mark.rule("prompt.compact")
def test_tools_that_a_task_names_are_offered(project: House):
    with ProviderServer(turn("ok")) as provider:
        project.use(provider, LOCAL)
        project.one(Task(label="scout", prompt="Look.", tools=("Glob",)))
    (request,) = asked(provider)
    assert [tool["function"]["name"] for tool in request["tools"]] == ["Glob"]
    system = request["messages"][0]["content"]
    assert system.startswith("You answer one task about the files of a project. Your tools: Glob.\n\n")
    assert "\nFirst call a tool. When a tool result" in system


@pytest.mark.rule("prompt.compact")
def test_without_tools_the_prompt_does_not_ask_for_a_call(project: House):
    with ProviderServer(turn("ok")) as provider:
        project.use(provider, LOCAL)
        project.one(Task(label="scout", prompt="Say ok.", tools=()))
    system = asked(provider)[0]["messages"][0]["content"]
    assert "Your tools: none.\n" in system
    assert "\nWhen a tool result" in system


@pytest.mark.rule("prompt.compact")
@pytest.mark.parametrize(
    ("name", "profile", "window", "is_compact"),
    [
        ("ollama:m", None, None, True),
        ("ollama:m", None, 32768, True),
        ("ollama:m", "full", 32768, False),
        ("ollama:qwen3:32b", None, None, True),
        ("ollama:qwen3:32b", None, 8192, True),
        ("ollama:qwen3:32b", None, 16384, False),
        ("ollama:qwen3:32b", "compact", 16384, True),
        ("lmstudio:Llama-3.3-70B-Instruct", None, 32768, False),
        ("vllm:qwen2.5-coder-1.5b-instruct", None, 32768, True),
        ("ollama:qwen3:14b", None, 32768, True),
        ("groq:m", None, None, False),
        ("groq:m", "compact", None, True),
        ("groq:m", None, 8192, True),
        ("groq:m", None, 16384, False),
        ("anthropic:claude-sonnet-4-5", None, None, False),
        ("offline:scout", None, None, False),
    ],
)
def test_small_local_models_and_small_windows_are_compact_unless_the_settings_say_otherwise(
    name, profile, window, is_compact
):
    provider, _, model = name.partition(":")
    entries = {provider: {"models": {model: {"profile": profile}}}} if profile else {}
    catalog = read_catalog({"providers": entries})
    assert ModelFactory(environ={}, catalog=catalog).is_compact(name, window) is is_compact


@pytest.mark.rule("prompt.compact")
def test_a_large_local_model_with_a_large_window_gets_the_full_prompt(project: House):
    with ProviderServer(turn("ok"), models=("m-32b",)) as provider:
        project.use(provider, "llamacpp:m-32b")
        project.one(Task(label="scout", prompt="Say ok."), window=32_768)
    assert "Glob" in [tool["function"]["name"] for tool in asked(provider)[0]["tools"]]


@pytest.mark.rule("prompt.compact")
def test_a_repeated_call_is_followed_by_a_turn_that_must_answer(project: House):
    again = turn("", call("Grep", pattern="port"))
    with ProviderServer(again, again, turn("It is 8417.")) as provider:
        project.use(provider, LOCAL)
        outcome = project.one(TASK)
    assert outcome.report == "It is 8417."
    assert [body["tool_choice"] for body in asked(provider)] == ["auto", "auto", "none"]


@pytest.mark.rule("honest.look")
def test_a_report_without_a_look_is_nudged_once_and_then_partial(project: House):
    with ProviderServer(nudged(turn("It is 80."), turn("It is 80."))) as provider:
        project.use(provider, LOCAL)
        outcome = project.one(TASK)
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].code, outcome.report) == ("NOTHING_READ", "It is 80.")
    nudge = asked(provider)[1]["messages"][-1]["content"]
    assert "You have not looked at any file yet. Call a tool now" in nudge
    assert nudge.endswith("The arguments of Read are: path, offset (optional).")


@pytest.mark.rule("honest.look")
def test_after_the_nudge_the_model_may_look_and_answer(project: House):
    script = nudged(turn("It is 80."), turn("", call("Read", path="config.toml")), turn("It is 8417."))
    with ProviderServer(script) as provider:
        project.use(provider, LOCAL)
        outcome = project.one(TASK)
    assert (outcome.status, outcome.report, outcome.warnings) == ("completed", "It is 8417.", ())
    # A small model repeats its first answer if it sees it.
    first, second, third = (body["messages"] for body in asked(provider))
    assert second[-1]["content"].startswith(first[-1]["content"])
    assert [message["role"] for message in third] == ["system", "user", "assistant", "tool"]


@pytest.mark.rule("honest.look")
@pytest.mark.parametrize(
    "first", [turn("It is ", stop="length"), turn("<think>I wonder.</think>")], ids=["cut", "empty"]
)
def test_an_answer_in_several_turns_is_dropped_too(project: House, first: ScriptedTurn):
    later = (turn("", call("Read", path="config.toml")), turn("It is 8417."))
    script = ModelScript(
        conversations=(talk(*later, when="You have not looked at any file yet."), talk(first, turn("80.")))
    )
    with ProviderServer(script) as provider:
        project.use(provider, LOCAL)
        outcome = project.one(TASK)
    assert (outcome.status, outcome.report) == ("completed", "It is 8417.")
    task, *_, nudge, _ = (body["messages"] for body in asked(provider))
    assert nudge[-1]["content"].startswith(task[-1]["content"])
    assert [message["role"] for message in nudge] == ["system", "user"]


@pytest.mark.rule("honest.look")
def test_the_answer_of_a_person_before_the_nudge_stays_in_the_conversation(project: House):
    later = (turn("It is 80."), turn("", call("Read", path="config.toml")), turn("It is 8417."))
    with ProviderServer(turn("Which one?\n\n[AWAITING_HUMAN_INPUT]"), *later) as provider:
        project.use(provider, LOCAL)
        outcome = project.resume(project.one(TASK).session_id, "The one of the server.")
    assert (outcome.status, outcome.report) == ("completed", "It is 8417.")
    assert "The one of the server." in [message["content"] for message in asked(provider)[2]["messages"]]


@pytest.mark.rule("honest.look")
def test_a_call_that_failed_before_the_nudge_stays_in_the_conversation(project: House):
    script = (turn("", call("Read", path="port.toml")), turn("It is 80."), turn("", call("Read", path="config.toml")))
    with ProviderServer(*script, turn("It is 8417.")) as provider:
        project.use(provider, LOCAL)
        outcome = project.one(TASK)
    assert (outcome.status, outcome.report) == ("completed", "It is 8417.")
    roles = [message["role"] for message in asked(provider)[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.rule("honest.look")
def test_another_model_that_looks_at_nothing_ends_with_a_warning(project: House):
    with ProviderServer(turn("It is 80."), turn("It is 80.")) as provider:
        project.use(provider)
        outcome = project.one(TASK)
    assert outcome.status == "completed"
    assert "looked at no file" in outcome.warnings[0]


@pytest.mark.rule("honest.look")
def test_a_task_about_something_else_or_with_its_files_needs_no_look(project: House):
    tasks = (Task(label="a", prompt="What is a port?"), Task(label="b", prompt=TASK.prompt, context=("config.toml",)))
    for task in tasks:
        with ProviderServer(turn("A number.")) as provider:
            project.use(provider, LOCAL)
            assert project.one(task).status == "completed"


@pytest.mark.rule("context.window")
def test_a_first_request_that_does_not_fit_fails_with_the_numbers_and_the_option(project: House):
    with ProviderServer(models=("small",), strict=False) as provider:
        project.use(provider, LOCAL)
        outcome = project.one(Task(label="scout", prompt="word " * 4_000), window=4096)
    assert isinstance(outcome, Failed)
    error = outcome.errors[0]
    assert error.code == "PROMPT_TOO_LONG"
    assert "tokens; its context window has 4,096." in error.message
    assert "Start llama-server with -c " in error.recommendation
    assert not [request for request in provider.asked if request.path.endswith("/chat/completions")]
