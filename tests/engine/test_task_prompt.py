"""What a subagent is given beside its task: where it stands, files, a model that thinks, a form to hold to."""

import asyncio
import json
import os

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.events import Requested
from deputy.core.limits import Budget
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Completed, Failed, Partial
from deputy.core.request import Grant, GrantRequest, Lineage, Request, task_hop
from deputy.core.task import Task, TaskOptions
from deputy.testing import ProviderServer
from deputy.testing.faults import answers

SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
COUNT = Task(label="scout", prompt="Count.", schema=SCHEMA)
REFUSED = {"error": {"message": "Unknown parameter: 'output_config.format'.", "type": "invalid_request_error"}}


@pytest.mark.rule("context.object")
def test_a_subagent_gets_its_place_in_the_tree(house: House):
    with ProviderServer(turn("ok")) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="Look.", timeout=90.0))
    output = provider.asked[0].body["messages"][0]["content"][0]["text"]
    context = json.loads(output[output.rindex('{"session_id"') :])
    assert context["session_id"] == outcome.session_id
    assert (context["delegation_depth"], context["delegation_path"], context["caller"]) == (
        1,
        ["orchestrator"],
        "orchestrator",
    )
    assert (context["timeout"], context["deadline"][:2]) == (90.0, "20")


@pytest.mark.rule("prompt.prefix")
@pytest.mark.rule("note")
def test_siblings_have_the_same_tools_and_system_prompt_and_their_own_data_in_the_first_message(house: House):
    tasks = [Task(label=f"part-{number}", prompt=f"Look at part {number}.", timeout=90.0) for number in range(3)]
    with ProviderServer(*[turn("ok")] * 3, strict=False) as provider:
        house.use(provider)
        outcomes = asyncio.run(house.delegate(*tasks, concurrency=3))
    bodies = [request.body for request in provider.asked]
    assert len({json.dumps((body["tools"], body["system"])) for body in bodies}) == 1
    firsts = [body["messages"][0]["content"][0]["text"] for body in bodies]
    for task, outcome in zip(tasks, outcomes, strict=True):
        (first,) = (text for text in firsts if text.startswith(task.prompt))
        data = json.loads(first[first.index('{"session_id"') :])
        assert data["session_id"] == outcome.session_id
        assert data["scratchpad"].endswith(f"{outcome.session_id}.scratch.md")
        assert (data["delegation_path"], data["deadline"][:2]) == (["orchestrator"], "20")


@pytest.mark.rule("text.model")
def test_a_model_named_by_an_alias_with_thinking_thinks(house: House):
    with ProviderServer(turn("ok")) as provider:
        house.use(provider)
        house.one(Task(label="scout", prompt="Look.", model="sonnet-thinking", max_output_tokens=16_000))
    assert provider.asked[0].body["thinking"]["type"] in ("enabled", "adaptive")


@pytest.mark.rule("delegate.provenance")
def test_children_of_a_model_that_thinks_think_too(house: House):
    tasks = [{"label": "one", "prompt": "the work of one", "max_output_tokens": 16_000}]
    conversations = (
        talk(turn("", call("Delegate", tasks=tasks)), turn("Done."), when="You work for a person"),
        talk(turn("one"), when="the work of one"),
    )
    with ProviderServer(ModelScript(conversations=conversations)) as provider:
        house.use(provider, "sonnet-thinking")
        asyncio.run(house.run("Do it."))
    assert "the work of one" in str(provider.asked[1].body["messages"])
    assert provider.asked[1].body["thinking"]


# --- structured output ------------------------------------------------------------------------------------------------


@pytest.mark.rule("contract.ask")
@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("anthropic:claude-sonnet-4-5", "output_config"),
        ("openai:gpt-5.2", "text"),
    ],
)
def test_the_provider_is_held_to_the_form_beside_the_tools_where_it_takes_both(house: House, model, field):
    (house.workspace / "a.txt").write_text("hello\n")
    with ProviderServer(turn("", call("Read", path="a.txt")), turn('{"count": 1}')) as provider:
        house.use(provider, model)
        outcome = house.one(COUNT)
    assert isinstance(outcome, Completed)
    assert all("count" in json.dumps(asked.body[field]) and asked.body["tools"] for asked in provider.asked)


@pytest.mark.rule("contract.ask")
@pytest.mark.parametrize("model", ["google:gemini-3-pro", "ollama:qwen3", "openai-chat:at-another-address"])
def test_a_provider_that_takes_only_one_has_tools_for_the_work_and_the_form_for_the_repair(house: House, model):
    (house.workspace / "a.txt").write_text("hello\n")
    work = (turn("", call("Read", path="a.txt")), turn("About one."), turn('{"count": 1}'))
    with ProviderServer(*work) as provider:
        house.use(provider, model)
        outcome = house.one(COUNT)
    assert isinstance(outcome, Completed)
    has_tools = ["tools" in asked.body for asked in provider.asked]
    has_form = [SCHEMA in forms_of(asked.body) for asked in provider.asked]
    assert (has_tools, has_form) == ([True, True, False], [False, False, True])


def forms_of(body: dict) -> list:
    """The schemas that a request holds the answer to, as Gemini and Chat Completions have them."""
    chat = body.get("response_format", {}).get("json_schema", {}).get("schema")
    return [body.get("generationConfig", {}).get("responseJsonSchema"), chat]


@pytest.mark.rule("contract.ask")
def test_a_return_is_held_to_the_form_of_the_contract_and_plain_text_to_none(house: House):
    conversations = (talk(turn("x"), turn("x"), when="in a form"), talk(turn("ok"), when="Look around"))
    with ProviderServer(ModelScript(conversations=conversations)) as provider:
        house.use(provider)
        house.one(Task(label="scout", prompt="Look, in a form.", return_format="json"))
        house.one()
    formats = [asked.body.get("output_config", {}).get("format") for asked in provider.asked]
    assert "next_steps" in json.dumps(formats[0])
    assert formats[2] is None


@pytest.mark.rule("contract.ask")
def test_a_server_that_does_not_know_the_field_is_asked_without_it_from_then_on(house: House):
    conversation = talk(turn('{"count": 1}', faults=("unknown_field",)))
    again = talk(turn('{"count": 2}'), when="Once more")
    with ProviderServer(
        ModelScript(conversations=(again, conversation)), faults={"unknown_field": answers(400, REFUSED)}
    ) as provider:
        house.use(provider)
        more = Task(label="two", prompt="Once more: count.", schema=SCHEMA)
        outcomes = asyncio.run(house.delegate(COUNT, more, concurrency=1))
    assert [type(outcome) for outcome in outcomes] == [Completed, Completed]
    assert ["format" in asked.body.get("output_config", {}) for asked in provider.asked] == [True, False, False]
    assert outcomes[0].usage.requests == 1


@pytest.mark.rule("contract.ask")
def test_another_refusal_is_not_taken_for_one_of_the_form(house: House):
    refused = answers(400, {"error": {"message": "max_tokens is too large", "type": "invalid_request_error"}})
    with ProviderServer(turn("", faults=("other",)), faults={"other": refused}, strict=False) as provider:
        house.use(provider)
        outcome = house.one(COUNT)
    assert isinstance(outcome, Failed)
    assert len(provider.asked) == 1


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("context.files")
def test_a_wrong_path_is_named_in_place_and_told_to_the_person(house: House):
    (house.workspace / "a.md").write_text("hello")
    house.script(talk(turn("ok"), when="(not included: nowhere.md does not exist.)"))
    outcome = house.one(Task(label="scout", prompt="Look.", context=("a.md", "nowhere.md")))
    assert isinstance(outcome, Completed)
    warning = "The context file nowhere.md is not included: nowhere.md does not exist."
    assert outcome.warnings == (warning,)
    assert [seen.content for seen in house.seen if seen.event == "warning"] == [warning]
    assert f"**Warning:** {warning}" in house.whole.report


def asked_for(house: House, options: TaskOptions, **more) -> object:
    """The outcome of a delegation that a program asks for with terms of its own."""

    async def go():
        async with house.open() as runtime:
            run = await runtime.engine.new_id()
            request = Request(
                session_id=run,
                target=task_hop("scout"),
                prompt="Look.",
                caller=Lineage.root("sess_1_caller"),
                caller_grant=Grant(tools=frozenset({"Read", "Run"})),
                **more,
            )
            await runtime.engine.submit(
                run, Requested(request=request, label="scout", model=house.model, options=options)
            )
            return await runtime.engine.result(run)

    return asyncio.run(go())


@pytest.mark.rule("guard.subset")
def test_a_context_file_outside_the_granted_paths_is_not_read(house: House):
    (house.workspace / "docs").mkdir()
    (house.workspace / "docs" / "a.md").write_text("allowed")
    (house.workspace / "b.md").write_text("CANARY")
    with ProviderServer(turn("ok")) as provider:
        house.use(provider)
        outcome = asked_for(house, TaskOptions(context=("docs/a.md", "b.md")), wanted=GrantRequest(paths=("docs",)))
    assert isinstance(outcome, Completed)
    assert "allowed" in str(provider.asked[0].body)
    assert "CANARY" not in str(provider.asked[0].body)
    assert "b.md is not among the granted paths" in outcome.warnings[0]


# --- limits that others set -------------------------------------------------------------------------------------------


@pytest.mark.rule("time.inherit")
@pytest.mark.rule("time.handin")
def test_a_deadline_that_was_inherited_leaves_time_to_hand_in(house: House):
    house.script(talk(turn("Begun.", call("Run", command="sleep 60")), turn("What I have.")))

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, Task(label="scout", prompt="Look.", tools=("Run",)), seconds=7.0)
            whole = await runtime.engine.result(run)
            (child,) = await runtime.journal.descendants(run)
            return whole, await runtime.engine.outcome(child.run, 0)

    _, outcome = asyncio.run(go())
    assert isinstance(outcome, Partial)
    assert (outcome.report, outcome.errors[0].code) == ("What I have.", "TIMEOUT")
    assert outcome.errors[0].message == "The time limit inherited from the caller was nearly reached."


@pytest.mark.rule("budget")
def test_the_budget_of_the_tree_is_warned_of_and_handed_in_at_like_its_own(house: House):
    def work(name: str, turns: int):
        return [turn("", call("Glob", pattern=f"{name}{n}")) for n in range(turns)]

    conversations = (
        talk(*work("a", 8), turn("First done."), when="work of one"),
        talk(*work("b", 10), turn("What I have."), when="work of two"),
    )
    tasks = [Task(label=label, prompt=f"work of {label}") for label in ("one", "two")]
    with ProviderServer(ModelScript(conversations=conversations)) as provider:
        house.use(provider)
        first, second = asyncio.run(house.delegate(*tasks, concurrency=1, budget=Budget(requests=20)))
    assert isinstance(first, Completed)
    assert isinstance(second, Partial)
    assert (second.errors[0].message, second.report) == ("The budget of 20 requests is spent.", "What I have.")
    output = [str(asked.body).count("of your budget") for asked in provider.asked]
    assert output == [0] * 16 + [1] * 4
    text = "You and other subagents have used 16 requests of 20 requests of your budget"
    assert text in str(provider.asked[16].body["messages"][-1])


@pytest.mark.rule("context.window")
def test_a_window_that_the_provider_told_is_still_known_after_a_resume(house: House):
    full = answers(400, {"error": {"message": "prompt is too long: 9000 tokens > 2000 maximum", "type": "x"}})
    with ProviderServer(
        turn("", call("Glob", pattern="*")), turn("", faults=("full", "full")), turn("All."),
        faults={"full": full}, strict=False,
    ) as provider:  # fmt: skip
        house.use(provider, "anthropic:unknown-model")
        outcome = house.one()
        assert isinstance(outcome, Partial)
        asked = len(provider.asked)
        resumed = house.resume(outcome.session_id, "x" * 8000)
    assert isinstance(resumed, Partial)
    assert resumed.errors[0].message == "The context of 2,000 tokens is full."
    assert all(one.body["tool_choice"] == {"type": "none"} for one in provider.asked[asked:])


# --- evidence and what is left ----------------------------------------------------------------------------------------


@pytest.mark.rule("contract.check")
def test_an_artifact_may_be_named_by_its_absolute_path_in_the_workspace(house: House):
    path = str(house.workspace.resolve() / "a.md")
    form = {"status": "completed", "summary": "Done.", "artifacts": [{"type": "report", "path": path}]}
    house.script(talk(turn("", call("Write", path="a.md", content="x")), turn(json.dumps(form))))
    outcome = house.one(Task(label="scout", prompt="Write.", return_format="json", tools=("Write",)))
    assert isinstance(outcome, Completed)
    assert outcome.artifacts[0].path == path


@pytest.mark.rule("time.partial")
def test_files_named_in_notes_and_in_the_work_folder_are_artifacts_of_a_timeout(house: House):
    command = "mkdir -p out work; echo x > out/a.md; echo y > work/b.md; echo z > c.md"
    note = "Wrote out/a.md:1 and old.md, not gone.md"
    house.script(
        talk(turn("", call("Run", command=command), call("Note", content=note)), turn("never", delay_seconds=60))
    )
    (house.workspace / "old.md").write_text("old")
    os.utime(house.workspace / "old.md", (1, 1))
    wanted = GrantRequest(tools=frozenset({"Run"}))
    outcome = asked_for(house, TaskOptions(folder="work"), wanted=wanted, seconds=3.0)
    assert isinstance(outcome, Partial)
    assert [artifact.path for artifact in outcome.artifacts] == ["work/b.md", "out/a.md"]


@pytest.mark.rule("context.object")
def test_a_child_without_a_limit_of_its_own_is_shown_the_time_that_its_caller_leaves_it(house: House):
    async def go(provider: ProviderServer) -> None:
        async with house.open() as runtime:
            run = await house.begin(runtime, Task(label="scout", prompt="Look."), seconds=1000.0)
            await runtime.engine.result(run)

    with ProviderServer(turn("ok")) as provider:
        house.use(provider)
        asyncio.run(go(provider))
    output = provider.asked[0].body["messages"][0]["content"][0]["text"]
    context = json.loads(output[output.rindex('{"session_id"') :])
    # A tenth of the caller's time is kept for the caller.
    assert 800.0 < context["timeout"] <= 900.0


# --- project notes ----------------------------------------------------------------------------------------------------


def first_messages(house: House, task: Task | None = None, **options) -> tuple[str, str]:
    """The system prompt and the first user message of a subagent, without the data of the run at its end."""
    with ProviderServer(turn("ok"), strict=task is None) as provider:
        house.use(provider)
        house.one(task or Task(label="scout", prompt="Look around."), **options)
    body = provider.asked[0].body
    return str(body["system"]), body["messages"][0]["content"][0]["text"].partition("\n\nThis run, if you need it: ")[0]


@pytest.mark.rule("context.notes")
def test_the_notes_of_a_trusted_project_stand_below_the_task(house: House):
    (house.workspace / "CLAUDE.md").write_text("Old notes.")
    (house.workspace / "AGENTS.md").write_text("Use {tabs}, run `make test`.\n")
    system, text = first_messages(house, trusts_project=True)
    assert text.startswith("Look around.\n\n# Project notes\n\nFrom AGENTS.md of this project.")
    assert text.endswith("\n\nUse {tabs}, run `make test`.")
    assert "make test" not in system
    (house.workspace / "AGENTS.md").unlink()
    assert first_messages(house, trusts_project=True)[1].endswith("Old notes.")


@pytest.mark.rule("context.notes")
def test_without_trust_a_file_or_the_setting_the_task_stands_alone(house: House, tmp_path, monkeypatch):
    assert first_messages(house, trusts_project=True)[1] == "Look around."
    (house.workspace / "AGENTS.md").write_text("Use tabs.")
    assert first_messages(house)[1] == "Look around."
    config = tmp_path / "person/.config/deputy/config.toml"
    config.parent.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    config.write_text(f'[agents]\ntrusted = ["{house.workspace}"]\n')
    assert "Use tabs." in first_messages(house)[1]
    config.write_text(f'[agents]\ntrusted = ["{house.workspace}"]\nnotes = false\n')
    assert first_messages(house)[1] == "Look around."


@pytest.mark.rule("context.notes")
def test_long_notes_are_cut_and_say_where_the_rest_is(house: House):
    (house.workspace / "AGENTS.md").write_text("Rule.\n" * 5000)
    text = first_messages(house, trusts_project=True)[1]
    assert len(text) < 8_400
    assert text.endswith("(The rest is left out; Read AGENTS.md for all of it.)")


@pytest.mark.rule("context.notes")
def test_the_form_of_the_answer_stays_last_and_files_first(house: House):
    (house.workspace / "AGENTS.md").write_text("Use tabs.")
    (house.workspace / "a.txt").write_text("inside a")
    task = Task(label="scout", prompt="Look around.", context=("a.txt",), return_format="json")
    text = first_messages(house, task, trusts_project=True)[1]
    places = [text.index(part) for part in ("inside a", "Look around.", "Use tabs.", '"status"')]
    assert places == sorted(places)
    own = Task(label="scout", prompt="Look around.", context=("AGENTS.md",))
    assert first_messages(house, own, trusts_project=True)[1].count("Use tabs.") == 1


@pytest.mark.rule("context.notes")
def test_notes_that_lead_out_of_the_workspace_are_not_read(house: House, tmp_path):
    (tmp_path / "secret").write_text("a secret")
    (house.workspace / "AGENTS.md").symlink_to(tmp_path / "secret")
    assert first_messages(house, trusts_project=True)[1] == "Look around."


@pytest.mark.rule("context.notes")
def test_a_parent_gets_the_notes_too_and_a_resumed_run_keeps_those_it_had(house: House):
    (house.workspace / "AGENTS.md").write_text("Use tabs.")
    with ProviderServer(turn("First."), turn("Second.")) as provider:
        house.use(provider)
        outcome = asyncio.run(house.run("Do it.", trusts_project=True))
        (house.workspace / "AGENTS.md").write_text("Use spaces.")
        house.resume(outcome.session_id, "Go on.")
    sent = [body["messages"][0]["content"][0]["text"] for body in (one.body for one in provider.asked)]
    assert sent[0].startswith("Do it.\n\n# Project notes")
    assert sent[0].endswith("Use tabs.")
    assert sent[1] == sent[0]
