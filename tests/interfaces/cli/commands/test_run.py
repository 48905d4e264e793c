import json
import re

import pytest
from tests.support.command_house import entries, until

DELEGATE = {
    "name": "Delegate",
    "arguments": {"tasks": [{"label": "a", "prompt": "first"}, {"label": "b", "prompt": "x"}]},
}
RUN = {"name": "Run", "arguments": {"command": "echo hello > made.txt"}}


def parent(house) -> str:
    return house.script(
        "parent",
        {"when": "You are a subagent", "times": 2, "turns": [{"text": "Sub report."}]},
        {
            "turns": [
                {"text": "First I delegate.\n", "calls": [DELEGATE]},
                {"text": "Now I run it.", "calls": [RUN]},
                {"text": "It is **done**. \x1b[31m"},
            ]
        },
    )


def test_it_asks_before_it_spends_and_before_it_runs_and_streams_its_answer(house):
    terminal = house.terminal("run", "do it", "--model", parent(house))
    terminal.until("First I delegate.")
    terminal.until("Start 2 subagents · risk: medium\r\n")
    terminal.until("Go ahead? [y/N/d] ")
    terminal.type("y\n")
    terminal.until("Now I run it.")
    terminal.until("  command: echo hello > made.txt\r\n")
    terminal.until("Go ahead? [y/N/a/d] ")
    assert not (house.workspace / "made.txt").exists()
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (house.workspace / "made.txt").read_text() == "hello\n"
    assert "[a] ✓ completed" in terminal.text
    assert "It is done. " in terminal.text
    assert terminal.text.count("→ Run") == 1
    assert terminal.text.count("Start 2 subagents") == 1


def test_a_no_is_reported_to_the_agent_and_nothing_is_done(house):
    terminal = house.terminal("run", "do it", "--model", parent(house))
    for _ in range(2):
        terminal.until("Go ahead? [y/N/")
        terminal.until("] ", after="Go ahead? ")
        terminal.type("n\n")
        terminal.shown = ""
    assert terminal.end() == 0
    assert not (house.workspace / "made.txt").exists()
    assert "Delegate [" not in terminal.text


def test_without_a_person_to_ask_it_is_refused_unless_an_option_approves_it(house):
    run = house.run("run", "--json", "--model", parent(house), stdin="do it")
    outcome = json.loads(run.stdout)
    assert (run.returncode, outcome["status"], outcome["report"]) == (0, "completed", "It is **done**. \x1b[31m")
    assert not (house.workspace / "made.txt").exists()
    output = run.stderr.splitlines()
    assert output[:2] == [f"deputy: warning: {warning}" for warning in outcome["warnings"]]
    assert "Run echo hello > made.txt was refused: it needs approval, and no person could be asked." in output[1]
    assert "Delegate of 2 tasks was refused" in output[0]
    assert "to allow such calls, pass --yes" in output[2]
    run = house.run("run", "do it", "--model", parent(house))
    assert (run.returncode, run.stderr.splitlines()[-3:]) == (0, output)
    run = house.run("run", "do it", "--yes", "--model", parent(house))
    assert "to allow such calls" not in run.stderr
    assert (run.returncode, run.stdout) == (0, "It is **done**. \n")
    assert "[b] ✓ completed" in run.stderr
    assert (house.workspace / "made.txt").exists()


def test_a_question_of_the_agent_is_simply_asked(house):
    ask = {"name": "Ask", "arguments": {"question": "Red or blue?"}}
    task = {"name": "Delegate", "arguments": {"tasks": [{"label": "painter", "prompt": "paint"}]}}
    model = house.script(
        "ask",
        {"when": "You are a subagent", "turns": [{"calls": [ask]}, {"text": "Painted."}]},
        {"turns": [{"calls": [task]}, {"text": "All painted."}]},
    )
    terminal = house.terminal("run", "paint", "--model", model)
    terminal.until("Go ahead? [y/N/")
    terminal.type("y\n")
    terminal.until("[painter] asks: Red or blue?\r\n> ")
    terminal.type("blue\n")
    terminal.until("All painted.")
    assert terminal.end() == 0


def test_ctrl_c_cancels_it_while_it_asks(house):
    terminal = house.terminal("run", "do it", "--model", parent(house))
    terminal.until("Go ahead? [y/N/")
    terminal.type("\x03")
    assert terminal.end(seconds=10) == 130
    assert "cancelled" in terminal.text


def test_nothing_to_do_and_no_key_are_usage(house):
    assert house.run("run", stdin="  \n").returncode == 2
    refused = house.run("run", "x", "--model", "openai:gpt-5.2")
    assert refused.returncode == 2
    assert "no API key for provider openai" in refused.stderr


# --- what goes wrong on purpose is one line, at a terminal too --------------------------------------------------------


def test_a_missing_key_is_one_line_at_a_terminal_too(house):
    terminal = house.terminal("run", "--model", "openai:gpt-5.2", "hello")
    assert terminal.end() == 2
    assert "deputy: --model: found 'openai:gpt-5.2'; no API key for provider openai" in terminal.text
    assert "Traceback" not in terminal.text


def test_a_home_that_fails_while_the_view_is_open_is_one_line_at_a_terminal(house):
    house.home.write_text("a file, not a folder")
    terminal = house.terminal("run", "--model", parent(house), "hello")
    assert terminal.end() == 1
    assert f"deputy: {house.home}" in " ".join(terminal.text.split())
    assert "Traceback" not in terminal.text


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize(("option", "told"), [((), "report of one"), (("--deny",), "did not approve")])
def test_without_a_terminal_it_can_wait_for_an_answer_from_another(house, option, told):
    call = {"name": "Delegate", "arguments": {"tasks": [{"label": "one", "prompt": "the work of one"}]}}
    model = house.script(
        "waits",
        {"turns": [{"calls": [call]}, {"text": "Done."}], "when": "You work for a person"},
        {"turns": [{"text": "report of one"}], "when": "the work of one"},
    )
    process = house.start("run", "Do it.", "--wait", "--json", DEPUTY_MODEL=model)
    waiting = until(lambda: [entry for entry in entries(house) if entry["status"] == "waiting"])[0]
    assert waiting["question"] == "Start 1 subagent: one (risk: medium)"
    assert house.approve(waiting["session_id"], *option).returncode == 0
    process.communicate(timeout=60)
    assert told in house.run("transcript", waiting["session_id"]).stdout


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize(("first", "second"), [((), ("--deny",)), (("--deny",), ())])
def test_the_first_answer_counts_and_a_second_is_refused(house, first, second):
    model = house.script("waits", {"turns": [{"calls": [DELEGATE]}, {"text": "Done."}]})
    process = house.start("run", "Do it.", "--wait", "--json", DEPUTY_MODEL=model)
    run = until(lambda: [entry for entry in entries(house) if entry["status"] == "waiting"])[0]["session_id"]
    process.kill()
    process.wait()
    short = run[-6:-2]
    assert f"To approve or deny: deputy approve {short}" in house.run("ps").stderr
    assert house.approve(run, *first).returncode == 0
    assert house.run("ps").stderr == f"{short} is answered. To continue: deputy resume {short}\n"
    late = house.approve(run, *second)
    assert (late.returncode, late.stdout) == (3, "")
    assert f"not counted: another answer to {run} came first\n" in late.stderr
    late = house.approve(run, *second, "--json")
    assert (late.returncode, json.loads(late.stdout)["counts"]) == (3, False)
    # To say again what counts is no mistake.
    assert house.approve(run, *first).returncode == 0


@pytest.mark.rule("resume")
def test_what_waits_for_approval_is_answered_by_yes_or_no_and_by_nothing_else(house):
    model = house.script("waits", {"times": 2, "turns": [{"calls": [RUN]}, {"text": "Done."}]})
    process = house.start("run", "Do it.", "--wait", "--json", DEPUTY_MODEL=model)
    run = until(lambda: [entry for entry in entries(house) if entry["status"] == "waiting"])[0]["session_id"]
    process.kill()
    process.wait()
    for answer, output in (
        ("", "give an answer that is not blank"),
        (" ", "give an answer that is not blank"),
        ("sure", "deputy approve"),
        ("yes", "deputy approve"),
    ):
        refused = house.run("resume", run, "--answer", answer)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert output in refused.stderr
    assert not (house.workspace / "made.txt").exists()
    assert house.approve(run).returncode == 0
    resumed = house.run("resume", run)
    assert (resumed.returncode, resumed.stdout) == (0, "Done.\n")
    assert (house.workspace / "made.txt").exists()


def define(house, name: str, prompt: str) -> None:
    folder = house.workspace / ".deputy" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: d\ntools: Read\n---\n{prompt}\n")


def test_it_works_by_the_definition_of_an_agent(house):
    define(house, "poet", "You write verses.")
    model = house.script("poet", {"when": "You write verses.", "turns": [{"text": "A verse."}]})
    run = house.run("run", "write", "--agent", "poet", "--json", "--model", model)
    assert run.returncode == 0, run.stderr
    outcome = json.loads(run.stdout)
    assert (outcome["report"], outcome["delegation_path"]) == ("A verse.", ["orchestrator", "poet"])


def test_it_has_only_the_tools_the_time_and_the_budget_of_the_options(house):
    turns = [{"calls": [RUN]}, {"calls": [RUN]}, {"text": "Done."}]
    model = house.script("parent", {"turns": turns})
    run = house.run(
        *("run", "do it", "--model", model, "--json", "--yes"),
        *("--tools", "Read,Grep", "--timeout", "7", "--budget", "requests=2"),
    )
    outcome = json.loads(run.stdout)
    assert (outcome["status"], outcome["errors"][0]["type"]) == ("partial", "budget"), run.stderr
    assert not (house.workspace / "made.txt").exists()
    assert json.loads(house.run("show", outcome["session_id"], "--json").stdout)["timeout"] == 7
    unknown = house.run("run", "do it", "--model", model, "--tools", "Read,Nope")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "tools: found 'Nope'; unknown tool" in unknown.stderr


def test_what_could_not_be_kept_of_a_definition_is_reported_with_the_end_and_shown_later(house):
    define(house, "poet", "You are a poet.")
    path = house.workspace / ".deputy" / "agents" / "poet.md"
    path.write_text(path.read_text().replace("tools: Read\n", "tools: Read\nmodel: nobody-has-this\n"))
    model = house.script("poet", {"turns": [{"text": "A poem."}]})
    run = house.run("run", "write", "--agent", "poet", "--model", model)
    assert (run.returncode, run.stdout) == (0, "A poem.\n")
    assert run.stderr.count("deputy: warning: The model nobody-has-this of the definition") == 1
    page = house.run("show", entries(house)[0]["session_id"]).stdout
    assert "\nWARNINGS\n  - The model nobody-has-this of the definition" in page


def test_an_agent_that_there_is_not_is_usage_and_names_near_ones(house):
    define(house, "poet", "You write verses.")
    for command in (("run", "x"), ("delegate", "-t", "a=x", "--yes")):
        refused = house.run(*command, "--agent", "poett", "--model", house.script("none"))
        assert refused.returncode == 2
        assert "similar names: poet" in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.rule("delegate.cancel")
def test_stopping_it_says_how_to_resume(house):
    sleeping = {"name": "Run", "arguments": {"command": "sleep 600"}}
    model = house.script("slow", {"turns": [{"text": "I wait.", "calls": [sleeping]}]})
    terminal = house.terminal("run", "do it", "--yes", "--model", model)
    terminal.until("→ Run")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "deputy: to continue what is not complete: deputy resume sess_" in terminal.text


def test_what_the_parent_does_beside_its_subagents_leaves_no_half_picture(house):
    look = {"name": "Glob", "arguments": {"pattern": "*"}}
    model = house.script(
        "parent",
        {"when": "You are a subagent", "times": 2, "turns": [{"text": "Sub report.", "delay_seconds": 1}]},
        {"turns": [{"text": "I delegate.", "calls": [DELEGATE, look]}, {"text": "Done."}]},
    )
    terminal = house.terminal("run", "do it", "--yes", "--model", model)
    assert terminal.end() == 0
    screen = Screen(terminal.shown)
    assert [row for row in screen.rows if row.startswith("Delegate [")] == ["Delegate [2 subagents]"]
    assert sum(row.startswith("total ") for row in screen.rows) == 1
    assert sum(row.startswith("[a] ") for row in screen.rows) == 1
    assert "→ Glob *" in screen.rows
    assert screen.rows[-2:] != ["", ""]


class Screen:
    """What stands on a terminal in the end: lines, and a cursor that goes up and erases."""

    def __init__(self, shown: str) -> None:
        self.rows = [""]
        row = column = 0
        for escape, letter in re.findall(r"\x1b\[([0-9;?]*[A-Za-z])|([^\x1b])", shown):
            if escape.endswith("A"):
                row -= int(escape[:-1] or 1)
            elif escape == "K":
                self.rows[row] = self.rows[row][:column]
            elif escape == "J":
                self.rows[row:] = [self.rows[row][:column]]
            elif letter == "\r":
                column = 0
            elif letter == "\n":
                row += 1
                self.rows += [""] * (row + 1 - len(self.rows))
            elif letter:
                self.rows[row] = self.rows[row].ljust(column)[:column] + letter + self.rows[row][column + 1 :]
                column += 1


@pytest.mark.rule("delegate.view")
def test_enter_does_not_tear_what_is_shown_and_a_question_shows_what_is_typed(house):
    look = {"name": "Glob", "arguments": {"pattern": "*"}}
    ask = {"name": "Ask", "arguments": {"question": "Which one?"}}
    turns = [{"text": "I look.", "calls": [look]}, {"calls": [ask], "delay_seconds": 0.5}, {"text": "Done."}]
    turns[2]["delay_seconds"] = 1
    terminal = house.terminal("run", "Do it.", "--model", house.script("s", {"turns": turns}))
    terminal.until("→ Glob")
    terminal.type("\n\n\nabc\n")
    terminal.until("> ")
    terminal.type("the first\n")
    terminal.watched_until(lambda: entries(house)[0]["status"] == "running")
    terminal.type("\n\n\nxyz\n")
    assert terminal.end() == 0
    text = terminal.text.replace("\r", "")
    assert "> the first\n" in text
    assert "abc" not in text
    assert "xyz" not in text
    assert "\n\n\n" not in text, text
