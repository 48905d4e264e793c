import json
import signal

import pytest
from click.testing import CliRunner
from msgspec import structs

from deputy.core.conversation import TokenUsage
from deputy.core.errors import UsageError
from deputy.core.outcome import Blocked, Cancelled, Completed, Failed, Partial, Rejected
from deputy.core.request import Lineage
from deputy.interfaces.cli.commands.delegate import command
from deputy.interfaces.cli.console import exit_code
from deputy.testing import ModelScript, ProviderServer, ScriptedCall, ScriptedConversation, ScriptedTurn

MODEL = "anthropic:claude-sonnet-4-5"
NOTE = ScriptedCall(name="Note", arguments={"content": "The first finding."})


def answering(*turns: ScriptedTurn, when: str = "", times: int = 1) -> ScriptedConversation:
    turns = tuple(structs.replace(turn, usage=TokenUsage(input_tokens=1000, output_tokens=20)) for turn in turns)
    return ScriptedConversation(turns=turns, when=when, times=times)


def provider(*conversations: ScriptedConversation, strict: bool = True) -> ProviderServer:
    return ProviderServer(ModelScript(conversations=conversations), strict=strict)


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("delegate.markdown")
@pytest.mark.rule("cost.unit")
def test_results_are_markdown_on_standard_output_and_progress_is_on_standard_error(house):
    late = answering(ScriptedTurn(text="Late, and first in order.", delay_seconds=0.3), when="first thing")
    with provider(late, answering(ScriptedTurn(text="Soon.", calls=()), when="second thing")) as server:
        run = house.run(
            "delegate",
            "-t",
            "a=the first thing",
            "-t",
            "b=the second thing",
            "--model",
            MODEL,
            "--yes",
            **server.environ,
        )
    assert run.returncode == 0, run.stderr
    assert run.stdout == (
        "## Subagents: 2 completed of 2\n\n**Total usage**: in=2,000 out=40 cost=$0.0066\n\n"
        f"### [a] ✓\n\n**Model**: {MODEL}\n\n**Usage**: in=1,000 out=20 cost=$0.0033\n\nLate, and first in order.\n\n"
        f"### [b] ✓\n\n**Model**: {MODEL}\n\n**Usage**: in=1,000 out=20 cost=$0.0033\n\nSoon.\n"
    )
    lines = run.stderr.splitlines()
    assert lines[0] == "Delegate [2 subagents]"
    [ended] = [line for line in lines if line.startswith("[b] ✓ completed (in=1k out=20)")]
    assert ended.endswith(f" {MODEL}")
    assert lines[-1].startswith("total  2 completed · in=2k out=40 ·")
    assert lines[-1].endswith(" · $0.0066")


def test_a_task_may_name_subtask_among_its_tools(house):
    wanted = {"requests": [{"type": "check", "description": "Check the sum."}]}
    asks = ScriptedTurn(calls=(ScriptedCall(name="Subtask", arguments=wanted),))
    child = answering(ScriptedTurn(text="Right."), when="Check the sum.")
    with provider(child, answering(asks, ScriptedTurn(text="Checked."))) as server:
        named = ("--tools", "Read,Subtask", "--model", MODEL, "--yes")
        run = house.run("delegate", "-t", "a=the work", *named, **server.environ)
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("Checked.\n")


@pytest.mark.rule("delegate.json")
def test_json_has_the_counts_and_every_result_and_a_mix_is_exit_code_four(house):
    refused = answering(ScriptedTurn(faults=("bad_request",)), when="break")
    with provider(refused, answering(ScriptedTurn(text="Fine."), when="work"), strict=False) as server:
        run = house.run(
            "delegate", "-t", "a=break it", "-t", "b=work", "--model", MODEL, "-y", "--json", **server.environ
        )
    assert run.returncode == 4
    form = json.loads(run.stdout)
    assert (form["completed"], form["partial"], form["failed"], form["total"]) == (1, 0, 1, 2)
    assert [(one["label"], one["status"]) for one in form["results"]] == [("a", "error"), ("b", "ok")]
    assert form["results"][0]["error"]["type"]
    assert form["results"][1]["report"] == "Fine."


@pytest.mark.rule("delegate.events")
def test_events_are_json_lines_in_order_and_end_with_the_result(house):
    turns = (ScriptedTurn(text="I look.", calls=(NOTE,)), ScriptedTurn(text="Done."))
    with provider(answering(*turns)) as server:
        run = house.run("delegate", "-t", "a=look", "--model", MODEL, "--yes", "--events", "-", **server.environ)
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    kinds = [event["event"] for event in events]
    assert kinds[0] == "opened"
    assert kinds[-1] == "result"
    output = {event["event"]: event for event in events}
    assert output["started"] | {"index": 0, "total": 1, "label": "a"} == output["started"]
    assert output["note"]["content"] == "The first finding."
    assert (output["tokens"]["input"], output["tokens"]["output"]) == (2000, 40)
    assert output["completed"]["status"] == "completed"
    assert output["result"]["results"][0]["report"] == "Done."


def test_tasks_come_from_a_file_or_standard_input_too(house):
    (house.workspace / "plan.txt").write_text("plan: win\n")
    call = {"tasks": [{"label": "a", "prompt": "x", "context": ["plan.txt"]}], "concurrency": 1, "return": "json"}
    with provider(answering(ScriptedTurn(text="Won."))) as server:
        run = house.run("delegate", "--tasks", "-", "--model", MODEL, "-y", stdin=json.dumps(call), **server.environ)
        assert json.loads(run.stdout)["completed"] == 1
        assert all("plan: win" in asked.opening for asked in server.asked)


def test_a_prompt_needs_no_label_and_an_equals_sign_within_it_makes_none(house):
    prompts = ("Where are passwords checked?", "Why is x=1 set?", "Where are passwords checked?")
    labelled = ("-t", "mine=Look at y=2.", "-t", "Say why a==b.", "-t", "x==1 is odd", "-t", "=")
    run = house.run("delegate", *prompts, *labelled, "--json", "--model", "offline:scout")
    assert run.returncode == 6, run.stderr
    labels = [one["label"] for one in json.loads(run.stdout)["results"]]
    made = ["where-passwords-checked", "why-is-x-1-set", "where-passwords-checked-2"]
    assert labels == [*made, "mine", "say-why-a-b", "x-1-is-odd", "task"]
    assert "task 2 prompt: Why is x=1 set?" in run.stderr
    assert "task 4 prompt: Look at y=2." in run.stderr
    assert "task 6 prompt: x==1 is odd" in run.stderr


NO_MODEL = {"DEPUTY_MODEL": ""}


@pytest.mark.rule("honest.model")
@pytest.mark.parametrize("chosen", [("--model", "offline:scout"), ()])
def test_the_scout_completes_when_it_was_chosen_and_is_named_as_the_model(house, chosen):
    (house.workspace / "lamp.py").write_text("def light_lamp():\n    pass\n")
    env = NO_MODEL if chosen else {"DEPUTY_MODEL": "offline:scout"}
    run = house.run("delegate", "-t", "a=Where is light_lamp?", "--yes", "--json", *chosen, **env)
    assert run.returncode == 0, run.stderr
    [result] = json.loads(run.stdout)["results"]
    assert (result["status"], result["model"]) == ("ok", "offline:scout")
    assert "offline scout: no model was asked" in result["report"]
    assert "lamp.py:1" in result["report"]


@pytest.mark.rule("honest.model")
@pytest.mark.parametrize("limit", [(), ("--budget", "0.50")])
def test_at_a_terminal_the_scout_helps_without_a_model_but_the_task_is_only_partial(house, limit):
    (house.workspace / "lamp.py").write_text("def light_lamp():\n    pass\n")
    terminal = house.terminal("delegate", "-t", "a=Where is light_lamp?", "--yes", *limit, **NO_MODEL)
    assert terminal.end() == 4
    assert "partial (no model)" in terminal.text
    assert "Findings so far" in terminal.text, "nothing was exhausted"
    assert "No model is configured" in terminal.text
    assert "ANTHROPIC_API_KEY" in terminal.text
    assert "deputy resume" not in terminal.text, "a resumed scout finds the same"
    assert "(offline:scout)" in house.run("ps", "--all").stdout
    [call, task] = json.loads(house.run("ps", "--all", "--json").stdout)["delegations"]
    assert (call["status"], task["status"], task["model"]) == ("partial", "partial", "offline:scout")
    shown = json.loads(house.run("show", task["session_id"], "--json").stdout)
    assert shown["outcome"]["errors"][0]["code"] == "NO_MODEL"


@pytest.mark.rule("honest.model")
@pytest.mark.parametrize(
    ("command", "stdin"),
    [
        (("delegate", "-t", "a=x", "--yes"), ""),
        (("run", "x", "--yes"), ""),
        (("exec", "-", "--yes"), "Please use a subagent to review src/auth.py"),
        (("refine", "x", "--yes"), ""),
        (("research", "1", "--yes"), ""),
        (("meta", "x", "--yes"), ""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_without_a_model_nothing_is_started_and_the_message_says_what_to_set(house, command, stdin):
    if command[0] == "research":
        assert house.run("task", "add", "x").returncode == 0
    run = house.run(*command, stdin=stdin, **NO_MODEL)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("deputy: Cannot spawn subagents: no model is configured. Set the key of a provider")
    assert json.loads(house.run("ps", "--all", "--json").stdout) == {"delegations": []}


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ([Completed, Completed], 0),
        ([Completed, Failed], 4),
        ([Partial], 4),
        ([Partial, Blocked], 4),
        ([Failed, Failed], 1),
        ([Failed, Rejected], 1),
        ([Blocked], 5),
        ([Blocked, Failed], 5),
        ([Rejected], 6),
        ([Cancelled], 130),
    ],
)
def test_the_exit_code_says_how_it_went(kinds, code):
    from deputy.core.errors import Error

    error = Error(type="execution", message="m", recoverable=True, recommendation="r")
    outcomes = [
        kind(lineage=Lineage.root("s"), summary="s", errors=() if kind in (Completed, Cancelled) else (error,))
        for kind in kinds
    ]
    assert exit_code(outcomes) == code


# --- refusals, before anything is spent -------------------------------------------------------------------------------


@pytest.mark.rule("delegate.schema")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ([], "PROMPT"),
        ([" "], "tasks[0].prompt"),
        (["-t", "a= "], "tasks[0].prompt"),
        (["-t", f"{'a' * 33}=x"], "tasks[0].label"),
        (["-t", "a=x", "--concurrency", "9"], "concurrency"),
        (["-t", "a=x", "--concurrency", "0"], "concurrency"),
        (["-t", "a=x"] + ["--context", "README.md"] * 11, "tasks[0].context"),
        (["-t", "a=x"] * 65, "tasks"),
    ],
)
def test_bad_arguments_name_the_field(arguments, field):
    failure = CliRunner().invoke(command, [*arguments, "--yes"]).exception
    assert isinstance(failure, UsageError)
    assert failure.field == field


def test_one_problem_is_one_sentence(house):
    run = house.run("delegate", "-t", "a=x", "--concurrency", "9", "--yes")
    most = "it must be at most 8, or raise [limits] concurrency in your config"
    assert run.stderr == f"deputy: concurrency is 9; {most}\n"


def limited(house, own: str, project: str = "") -> None:
    """Settings of the user and the project."""
    house.env["HOME"] = str(house.workspace.parent)
    (house.workspace.parent / ".config" / "deputy").mkdir(parents=True)
    (house.workspace.parent / ".config" / "deputy" / "config.toml").write_text(f"[limits]\n{own}\n")
    (house.workspace / "deputy.toml").write_text(f"[limits]\n{project}\n")


def test_a_person_may_give_more_tasks_than_a_model_and_they_do_not_count_as_spawned(house):
    limited(house, "max_spawns = 3\nconcurrency = 5")
    tasks = [{"label": f"t{number}", "prompt": "look"} for number in range(12)]
    model = house.script("s", {"times": 12, "turns": [{"text": "Seen."}]})
    run = house.run("delegate", "--tasks", "-", "--model", model, "--yes", stdin=json.dumps(tasks))
    assert run.returncode == 0, run.stderr
    assert "## Subagents: 12 completed of 12" in run.stdout
    assert run.stderr.startswith("12 tasks, 5 at once. Your limits: 64 tasks, 5 at once.\n")


@pytest.mark.parametrize(("own", "project", "most"), [(3, 9, 3), (9, 3, 3)])
def test_a_project_can_only_lower_the_number_of_tasks(house, own, project, most):
    limited(house, f"tasks = {own}", f"tasks = {project}")
    run = house.run("delegate", *"abcd", "--yes", "--model", "offline:scout")
    assert run.returncode == 2
    assert run.stderr.startswith(f"deputy: tasks has 4; at most {most} are allowed: split it, or raise [limits] tasks")
    assert house.run("delegate", *"abc", "--yes", "--model", "offline:scout").returncode == 0


def test_a_tasks_file_names_every_problem_at_once(house):
    call = {"tasks": [{"label": "", "prompt": "x", "colour": 1}], "return": "xml"}
    run = house.run("delegate", "--tasks", "-", "--yes", stdin=json.dumps(call))
    assert run.returncode == 2
    for field in ("tasks[0].label", "tasks[0].colour", "return"):
        assert field in run.stderr
    assert not house.home.exists(), "nothing was even opened"


@pytest.mark.rule("budget")
def test_a_cap_on_cost_that_cannot_be_kept_is_refused_before_asking(house):
    call = [{"label": "a", "prompt": "x"}, {"label": "b", "prompt": "x", "budget": {"cost": 0.5}}]
    run = house.run("delegate", "--tasks", "-", "--model", house.script("none"), stdin=json.dumps(call))
    assert run.returncode == 2
    assert "tasks[1].budget.cost: found $0.50; no price is known for script:" in run.stderr
    assert "Start 2 subagents" not in run.stderr


@pytest.mark.rule("budget")
def test_the_budget_option_caps_all_tasks_together_and_the_approval_shows_it(house):
    noting = {"calls": [{"name": "Note", "arguments": {"content": "Found."}}]}
    model = house.script("two", {"times": 2, "turns": [noting, {"text": "Done."}]})
    tasks = ("-t", "a=x", "-t", "b=y", "--concurrency", "1")
    run = house.run("delegate", *tasks, "--model", model, "--budget", "requests=3", "--yes", "--json")
    form = json.loads(run.stdout)
    assert [one["status"] for one in form["results"]] == ["ok", "partial"], run.stderr
    assert form["results"][1]["error"]["type"] == "budget"
    with provider() as server:
        asked = house.run("delegate", *tasks, "--model", MODEL, "--budget", "0.25", **server.environ)
    assert "  cost: at most $0.25" in asked.stderr


def test_the_options_give_tools_and_a_time_limit_to_tasks_that_name_none(house):
    call = json.dumps([{"label": "a", "prompt": "x"}, {"label": "b", "prompt": "x", "tools": ["Glob"], "timeout": 7}])
    given = ("--tools", "Read,Write", "--timeout", "90")
    run = house.run("delegate", "--tasks", "-", "--model", "offline:scout", *given, stdin=call)
    assert run.returncode == 6
    shown = [line.strip() for line in run.stderr.splitlines()]
    assert [line for line in shown if " tools: " in line] == ["task 1 tools: Read, Write", "task 2 tools: Glob"]
    also = house.run("delegate", "-t", "a=x", "--model", "offline:scout", "--allow", "Write", "--allow", "Edit")
    assert "task 1 tools: Edit, Glob, Grep, Read, WebFetch, WebSearch, Write\n" in also.stderr
    assert [line.partition(", ")[0] for line in shown if " limits: " in line] == [
        "task 1 limits: at most 90 s",
        "task 2 limits: at most 7 s",
    ]


@pytest.mark.rule("delegate.approve")
def test_without_a_person_to_ask_it_is_refused_and_nothing_is_spent(house):
    with provider() as server:
        run = house.run("delegate", "-t", "a=use it", "-t", "b=x" * 80, "--model", MODEL, **server.environ)
        assert server.asked == []
    assert (run.returncode, run.stdout) == (6, "")
    shown = run.stderr.splitlines()
    assert shown[:2] == [
        "Start 2 subagents · risk: medium",
        "  cost: unlimited (set a budget to limit it)",
    ]
    assert "  task 1 prompt: use it" in shown
    assert f"  all tasks model: {MODEL}" in shown
    assert shown[-1].endswith("no terminal to ask at; pass --yes to approve")


def test_a_schema_that_is_wrong_is_reported_with_the_task_that_has_it(house):
    right = {"label": "a", "prompt": "x"}
    tasks = json.dumps([right, {**right, "schema": {"type": "objekt"}}])
    run = house.run("delegate", "--tasks", "-", "--yes", "--model", "offline:scout", stdin=tasks)
    assert (run.returncode, run.stdout) == (2, "")
    assert "deputy: tasks[1].schema.type: found 'objekt'" in run.stderr


def test_a_call_without_tasks_says_how_to_give_one(house):
    run = house.run("delegate", "--yes")
    assert run.returncode == 2
    assert run.stderr.startswith("deputy: PROMPT: found no task; give at least one")


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("form", [["--json"], ["--return", "json"], ["--events", "-"]])
def test_json_output_says_that_it_was_not_approved(house, form):
    run = house.run("delegate", "-t", "a=x", "-t", "b=y", "--model", "offline:scout", *form)
    assert run.returncode == 6
    output = json.loads(run.stdout)
    assert (output["completed"], output["failed"], output["rejected"], output["total"]) == (0, 0, 2, 2)
    assert [(one["label"], one["status"]) for one in output["results"]] == [("a", "rejected"), ("b", "rejected")]
    assert {one["error"]["code"] for one in output["results"]} == {"NOT_APPROVED"}
    assert json.loads(house.run("ps", "--all", "--json").stdout) == {"delegations": []}, "nothing was started"


@pytest.mark.rule("delegate.key")
def test_a_missing_key_is_reported_before_asking(house):
    run = house.run("delegate", "-t", "a=x", "--model", MODEL)
    assert run.returncode == 2
    assert "Cannot spawn subagents: no API key for provider anthropic" in run.stderr
    assert "Start 1" not in run.stderr


# --- at a terminal ----------------------------------------------------------------------------------------------------


def test_a_person_is_asked_and_sees_the_subagents_work(house):
    turns = (ScriptedTurn(calls=(NOTE,)), ScriptedTurn(text="# Report\n\nAll *well*. [/bold]\x1b[31m"))
    with provider(answering(*turns)) as server:
        terminal = house.terminal("delegate", "-t", "look=see", "--model", MODEL, **server.environ)
        terminal.until("Go ahead? [y/N/d] ")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert "  task 1 prompt: see\r\n" in terminal.text
    assert "Delegate [1 subagent]" in terminal.text
    assert "[look] ✓ completed (in=2k out=40)" in terminal.text
    assert "\x1b[32m" in terminal.shown, "there is colour"
    assert "All well. [/bold] " in terminal.text, "Markdown is rendered, and nothing in it is obeyed"
    assert terminal.shown.count("\x1b[?25l") == terminal.shown.count("\x1b[?25h"), "the cursor is back"


def test_anything_but_yes_is_no(house):
    with provider() as server:
        terminal = house.terminal("delegate", "-t", "a=x", "--model", MODEL, **server.environ)
        terminal.until("Go ahead? [y/N/")
        terminal.type("\n")
        assert terminal.end() == 6
        assert server.asked == []


def test_a_narrow_terminal_without_colour_has_whole_lines(house):
    with provider(answering(ScriptedTurn(text="Fine."))) as server:
        prompt = "a-label-that-is-long=x"
        terminal = house.terminal(
            "delegate", "-t", prompt, "--model", MODEL, "--yes", columns=30, NO_COLOR="1", **server.environ
        )
        assert terminal.end() == 0
    assert "\x1b[32m" not in terminal.shown
    assert "[a-label-that-is-long] ✓ com…" in terminal.text


# --- questions --------------------------------------------------------------------------------------------------------


def asking(when: str, question: str) -> dict:
    ask = {"name": "Ask", "arguments": {"question": question}}
    return {"when": when, "turns": [{"calls": [ask]}, {"text": f"Done with {when}."}]}


@pytest.mark.rule("escalate")
def test_questions_of_subagents_are_asked_one_after_another_while_others_go_on(house):
    others = {"when": "gamma", "turns": [{"text": "Gamma is done.", "delay_seconds": 0.3}]}
    model = house.script("ask", asking("alpha", "Which colour?"), asking("beta", "Which size?"), others)
    tasks = ("-t", "a=alpha", "-t", "b=beta", "-t", "g=gamma", "--concurrency", "3")
    terminal = house.terminal("delegate", *tasks, "--model", model, "--yes")
    terminal.until("?\r\n> ")
    terminal.watched_until(lambda: "completed" in house.run("ps", "--all").stdout)
    assert terminal.text.count("?\r\n> ") == 1, "the other question waits"
    answers = {"[a] asks: Which colour?\r\n> ": "red\n", "[b] asks: Which size?\r\n> ": "big\n"}
    first = next(question for question in answers if question in terminal.text)
    terminal.type(answers.pop(first))
    [(second, answer)] = answers.items()
    terminal.until(second)
    terminal.type(answer)
    assert terminal.end() == 0
    assert "Subagents: 3 completed of 3" in terminal.text
    output = house.run(
        "transcript", json.loads(house.run("ps", "--all", "--json").stdout)["delegations"][1]["session_id"]
    )
    assert "red" in output.stdout


@pytest.mark.rule("escalate")
def test_without_a_person_to_ask_it_is_blocked_and_says_how_to_answer(house):
    model = house.script("ask", asking("alpha", "Which colour?"))
    run = house.run("delegate", "-t", "a=alpha", "--model", model, "--yes")
    assert run.returncode == 5
    assert run.stdout.count("Which colour?") == 1
    [waiting] = [one for one in json.loads(house.run("ps", "--json").stdout)["delegations"] if one["parent"]]
    assert (waiting["status"], waiting["question"]) == ("blocked", "Which colour?")
    assert f'deputy resume {waiting["session_id"]} --answer "…"' in run.stderr
    answered = house.run("resume", waiting["parent"], "--answer", "red", "--json")
    form = json.loads(answered.stdout)
    assert (answered.returncode, form["status"], form["session_id"]) == (0, "completed", waiting["parent"])
    assert [(one["label"], one["status"]) for one in form["results"]] == [("a", "ok")]
    assert json.loads(house.run("ps", "--json").stdout)["delegations"] == []


# --- configuration ----------------------------------------------------------------------------------------------------


def configured(house, text: str) -> dict[str, str]:
    folder = house.workspace.parent / "person/.config/deputy"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)
    return {"HOME": str(house.workspace.parent / "person")}


@pytest.mark.rule("delegate.approve")
def test_the_configuration_may_allow_it_and_name_the_model(house):
    model = house.script("one", {"turns": [{"text": "Done."}]})
    env = configured(house, f'[models]\ndefault = "{model}"\n[approval]\npolicy = "allow"\n')
    run = house.run("delegate", "-t", "a=x", **env, **NO_MODEL)
    assert (run.returncode, "Done." in run.stdout) == (0, True), run.stderr


@pytest.mark.rule("delegate.approve")
def test_the_configuration_may_refuse_it_and_the_flag_wins(house):
    model = house.script("one", {"turns": [{"text": "Done."}]})
    env = configured(house, '[approval]\npolicy = "refuse"\n')
    terminal = house.terminal("delegate", "-t", "a=x", "--model", model, **env)
    assert terminal.end() == 6
    assert "your configuration refuses it; pass --yes to approve" in terminal.text
    assert house.run("delegate", "-t", "a=x", "--model", model, "--yes", **env).returncode == 0


def test_wrong_settings_are_reported_before_anything_is_done(house):
    (house.workspace / "deputy.toml").write_text("[limits]\nrepairs = 7\n")
    run = house.run("delegate", "-t", "a=x", "--yes")
    assert run.returncode == 2
    assert run.stderr == "deputy: deputy.toml: limits.repairs: found 7; must be a whole number from 0 to 2\n"
    assert not house.home.exists()


# --- what subagents are given -----------------------------------------------------------------------------------------


@pytest.mark.rule("context.files")
def test_a_file_of_a_task_in_a_tasks_file_that_does_not_exist_stops_before_anything_is_spent(house):
    (house.workspace / "there.txt").write_text("x")
    tasks = [{"label": name, "prompt": "x", "context": [f"{name}.txt"]} for name in ("there", "their")]
    run = house.run("delegate", "--tasks", "-", "--yes", "--model", "offline:scout", stdin=json.dumps(tasks))
    found = "deputy: tasks[1].context: found 'their.txt'; their.txt does not exist. Name a file of the workspace\n"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", found)
    assert not house.home.exists()


@pytest.mark.parametrize("command", [("delegate", "--yes"), ("ask",)])
def test_a_file_of_context_that_does_not_exist_stops_before_anything_is_spent(house, command):
    (house.workspace / "there.txt").write_text("x")
    run = house.run(*command, "x", "--context", "there.txt", "--context", "their.txt", "--model", "offline:scout")
    assert run.returncode == 2
    found = "deputy: --context: found 'their.txt'; their.txt does not exist. Name a file of the workspace\n"
    assert (run.stdout, run.stderr) == ("", found)
    assert not house.home.exists()


def test_a_path_of_context_that_is_a_secret_is_not_said_again(house):
    secret = f"ghp_{'a1b2c3' * 6}"
    run = house.run("delegate", "-t", "a=x", "--context", secret, "--model", "offline:scout")
    assert "--context: found" in run.stderr
    assert secret not in run.stderr + run.stdout


def test_subagents_do_not_see_where_their_work_is_recorded(house):
    (house.workspace / "lamp.py").write_text("def light_lamp():\n    pass\n")
    home = str(house.workspace / "state")
    run = house.run("delegate", "-t", "a=Where is light_lamp?", "--yes", "--events", "events.jsonl", DEPUTY_HOME=home)
    again = house.run("delegate", "-t", "a=Where is light_lamp?", "--yes", "--events", "events.jsonl", DEPUTY_HOME=home)
    assert "lamp.py:1" in again.stdout
    for output in (run.stdout, again.stdout):
        assert "state/" not in output
        assert "events.jsonl" not in output


# --- stopping ---------------------------------------------------------------------------------------------------------


def hanging() -> ScriptedConversation:
    return answering(ScriptedTurn(text="x", calls=(NOTE,)), ScriptedTurn(text="never", faults=("silent",)), times=2)


@pytest.mark.rule("delegate.cancel")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_all_and_every_outcome_is_recorded(house, number):
    with provider(hanging(), strict=False) as server:
        child = house.start(
            "delegate", "-t", "a=x", "-t", "b=x", "--model", MODEL, "--yes", "--events", "-", **server.environ
        )
        events = []
        for line in child.stdout:
            events.append(json.loads(line))
            if [event["event"] for event in events].count("note") == 2:
                break
        child.send_signal(number)
        events += [json.loads(line) for line in child.stdout]
        assert child.wait(10) == 130
    result = events[-1]
    assert result["session_id"] == events[0]["session_id"], "what all of it is resumed by"
    assert [one["status"] for one in result["results"]] == ["cancelled", "cancelled"]
    assert [one["scratchpad"] for one in result["results"]] == ["The first finding."] * 2
    assert [event["status"] for event in events if event["event"] == "completed"] == ["cancelled"] * 2
    shown = json.loads(house.run("show", result["results"][0]["session_id"], "--json").stdout)
    assert shown["outcome"]["status"] == "cancelled"
    assert house.run("watch").returncode == 3, "nothing is left running"


@pytest.mark.rule("delegate.cancel")
@pytest.mark.parametrize("shown", ["✎ The first finding.", "asks: Which one?"])
def test_closing_the_terminal_cancels_all_and_every_outcome_is_recorded(house, shown):
    ask = ScriptedCall(name="Ask", arguments={"question": "Which one?"})
    scripts = (answering(ScriptedTurn(calls=(ask,)), when="choose"), hanging())
    with provider(*scripts, strict=False) as server:
        prompt = "choose" if "asks" in shown else "x"
        terminal = house.terminal("delegate", "-t", f"a={prompt}", "--model", MODEL, "--yes", **server.environ)
        terminal.until(shown)
        terminal.close()
        assert terminal.process.wait(10) == 130
    ended = json.loads(house.run("ps", "--all", "--json").stdout)["delegations"]
    assert [one["status"] for one in ended] == ["cancelled", "cancelled"]


def test_a_process_that_ignores_the_hangup_outlives_its_terminal(house):
    with provider(
        answering(ScriptedTurn(text="x", calls=(NOTE,)), ScriptedTurn(text="Done.", delay_seconds=1))
    ) as server:
        arguments = ("delegate", "-t", "a=x", "--model", MODEL, "--yes", "--events", "-")
        child = house.start(*arguments, ignores=signal.SIGHUP, **server.environ)
        while json.loads(child.stdout.readline())["event"] != "note":
            pass
        child.send_signal(signal.SIGHUP)
        child.stdout.read()
        assert child.wait(10) == 0


@pytest.mark.rule("escalate")
@pytest.mark.parametrize("turn", [ScriptedTurn(text="Which one?\n[AWAITING_HUMAN_INPUT]"), None])
def test_the_end_of_input_at_a_question_leaves_it_blocked(house, turn):
    ask = ScriptedCall(name="Ask", arguments={"question": "Which one?"})
    asking = turn or ScriptedTurn(calls=(ask,))
    with provider(answering(asking, ScriptedTurn(text="The second, then."))) as server:
        terminal = house.terminal("delegate", "-t", "a=choose", "--model", MODEL, "--yes", **server.environ)
        terminal.until("asks: Which one?\r\n> ")
        terminal.type("\x04")
        assert terminal.end() == 5
        assert "deputy resume" in terminal.text
        run = json.loads(house.run("ps", "--json").stdout)["delegations"][-1]["session_id"]
        again = house.terminal("resume", run, **server.environ)
        again.until("asks: Which one?\r\n> ")
        again.type("\x04")
        assert again.end() == 2
        assert "the run waits for an answer" in " ".join(again.text.split())
        done = house.run("resume", run, "--answer", "the second", "--json", **server.environ)
        assert json.loads(done.stdout)["report"] == "The second, then."
        assert "the second" in str(server.asked[-1].body)
    said = json.loads(house.run("transcript", run, "--json").stdout)["messages"]
    assert "false" not in [one["content"] for one in said]


def test_the_end_of_input_at_an_approval_refuses(house):
    with provider() as server:
        terminal = house.terminal("delegate", "-t", "a=x", "--model", MODEL, **server.environ)
        terminal.until("Go ahead? [y/N/")
        terminal.type("y\x04\x04")
        assert terminal.end() == 6


def test_ctrl_c_at_the_question_starts_nothing(house):
    with provider() as server:
        terminal = house.terminal("delegate", "-t", "a=x", "--model", MODEL, **server.environ)
        terminal.until("Go ahead? [y/N/")
        terminal.type("\x03")
        assert terminal.end() == 130


def test_a_second_ctrl_c_exits_at_once_and_gives_the_cursor_back(house):
    with provider(hanging(), strict=False) as server:
        terminal = house.terminal("delegate", "-t", "a=x", "--model", MODEL, "--yes", **server.environ)
        terminal.until("✎ The first finding.")
        terminal.type("\x03\x03")
        assert terminal.end() == 130
    assert terminal.shown.count("\x1b[?25l") <= terminal.shown.count("\x1b[?25h")


def loading(house, server, **env: str):
    """A delegation that never gets an answer, on a terminal that shows which modules are loaded."""
    env = {"PYTHONPROFILEIMPORTTIME": "1", **server.environ, **env}
    return house.terminal("delegate", "-t", "a=x", "--model", MODEL, "--yes", **env)


def test_the_first_request_is_on_the_wire_before_the_painter_is_loaded(house, tmp_path):
    # With the longest wait, only a sign of the request has the painter loaded, and none ever comes.
    (tmp_path / "sitecustomize.py").write_text(
        "import deputy.interfaces.view.renderers as painters\npainters.MAX_WAIT_SECONDS = 600\n"
    )
    with provider(answering(ScriptedTurn(text="x", faults=("no_headers",))), strict=False) as server:
        terminal = loading(house, server, PYTHONPATH=str(tmp_path))
        before = terminal.watched_until(lambda: server.asked)
    assert "deputy.models.wire_model" in before
    assert "rich" not in before


def test_the_painter_is_loaded_in_a_moment_when_nothing_is_heard_of_the_request(house):
    with provider(answering(ScriptedTurn(text="x", faults=("no_headers",))), strict=False) as server:
        loading(house, server).until("rich.text")


def test_a_secret_in_a_label_stands_in_no_event_and_names_no_file(house, tmp_path):
    events = tmp_path / "events"
    secret = "Tr0ub4dor&3xyz"
    run = house.run("delegate", "-y", "-t", f"password: {secret}=Where is it?", "--events", str(events))
    assert run.returncode == 0, run.stderr
    output = [events.read_text(), run.stderr, *(path.name for path in house.home.rglob("*"))]
    files = [path for path in house.home.rglob("*") if path.is_file() and not path.name.startswith("journal.")]
    output += [path.read_bytes().decode(errors="replace") for path in files]
    assert any(path.name.endswith(".transcript.json") for path in files)
    assert not [text for text in output if "Tr0ub4dor" in text]


# --- what is wrong with a file of tasks -------------------------------------------------------------------------------


@pytest.mark.rule("delegate.schema")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "--tasks: found 'tasks.json'; cannot read it: No such file or directory"),
        ("[]", "--tasks: found 'tasks.json'; the file has no task"),
        ('{"tasks": []}', "--tasks: found 'tasks.json'; the file has no task"),
        ("nonsense", "--tasks: found 'tasks.json'; it is not JSON"),
        ('[{"label": "a", "prompt": "x", "tools": ["Nope"]}]', "tasks[0].tools: found 'Nope'; unknown tool"),
    ],
)
def test_what_is_wrong_with_a_file_of_tasks_is_reported_before_asking(house, content, said):
    if content is not None:
        (house.workspace / "tasks.json").write_text(content)
    run = house.run("delegate", "--tasks", "tasks.json", "--model", "offline:scout")
    assert (run.returncode, run.stdout) == (2, "")
    assert said in run.stderr
    assert "Start 1" not in run.stderr
