"""`deputy detect` and `deputy exec`, run as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from tests.support import fork_server
from tests.support.programs import FakePrograms, install_fake_programs

from deputy.core.model_script import ScriptedTurn

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "Intro.\n\nPlease delegate this to opus: check src/auth.py with the list in docs/list.md. Return a table.\n"
REQUEST = "Use a subagent to paint the fence.\n\n"


@pytest.fixture
def deputy(tmp_path: Path):
    def run(*arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        done = fork_server.run(
            [sys.executable, "-m", "deputy", "detect", *arguments],
            input=content,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def test_requests_are_described_for_people(deputy, tmp_path: Path) -> None:
    (tmp_path / "text.md").write_text(TEXT)
    done = deputy("text.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == [
        "1 request found; none was run",
        "",
        "1. user, line 3",
        "   model     opus → opus-5.5 (named in the text)",
        "   prompt    check src/auth.py with the list in docs/list.md. Return a table.",
        "   context   src/auth.py",
        "             docs/list.md",
        "             the list in docs/list.md",
        "   output    a table",
        "",
    ]


def test_several_requests_fit_eighty_columns(deputy) -> None:
    parts = f"<prompt>{'long ' * 50}</prompt>\n<system-instructions>{'x' * 200}</system-instructions>"
    done = deputy("-", stdin=f"<delegate>\n{parts}</delegate>\n" * 2)
    assert done.returncode == 0
    assert max(map(len, done.stdout.split("\n"))) <= 80
    assert "1. xml, lines 1-3" in done.stdout
    assert "2. xml, lines 4-6" in done.stdout
    assert "composer-1 (the default)" in done.stdout


def test_json_has_the_documented_form(deputy) -> None:
    done = deputy("--json", "-", stdin=TEXT)
    (request,) = msgspec.json.decode(done.stdout)["requests"]
    assert done.returncode == 0
    assert request.pop("normalized").startswith("## Escalation Protocol\n")
    assert request == {
        "pattern": "user",
        "model": "opus",
        "model_source": "explicit",
        "resolved_model": "opus-5.5",
        "prompt": "check src/auth.py with the list in docs/list.md. Return a table.",
        "system": None,
        "context": ["src/auth.py", "docs/list.md", "the list in docs/list.md"],
        "output": "a table",
        "degradation": None,
        "span": [8, len(TEXT) - 1],
    }


def test_normalized_prints_the_prompts_alone(deputy) -> None:
    done = deputy("--normalized", "-", stdin=REQUEST * 2)
    first, second = done.stdout.split("\n\n---\n\n")
    assert first.startswith("## Escalation Protocol")
    assert first.endswith("## Task\n\npaint the fence.")
    assert second == first + "\n"


@pytest.mark.parametrize("arguments", [(), ("--normalized",)])
def test_no_request_is_exit_code_three_and_said_on_stderr(deputy, arguments: tuple[str, ...]) -> None:
    done = deputy(*arguments, "-", stdin="Nothing here.")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "deputy: no delegation request in standard input\n"


def test_no_request_is_an_empty_list_in_json(deputy) -> None:
    done = deputy("--json", "-", stdin="How do I use a subagent?")
    assert done.returncode == 3
    assert msgspec.json.decode(done.stdout) == {"requests": []}


def test_an_unclear_request_says_so(deputy) -> None:
    assert "the text does not say what to do, so all of it is the prompt" in deputy("-", stdin="Delegate this.").stdout


def test_more_requests_than_the_limit_are_cut_and_that_is_said(deputy) -> None:
    done = deputy("--json", "-", stdin=REQUEST * 300)
    assert len(msgspec.json.decode(done.stdout)["requests"]) == 256
    assert done.stderr == "deputy: only the first 256 requests are shown\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.md",), "nowhere.md"),
        (("/",), "not a regular file"),
        ((), "Missing argument"),
        (("--what", "-"), "--what"),
    ],
)
def test_misuse_is_exit_code_two_and_one_clear_message(deputy, arguments: tuple[str, ...], said: str) -> None:
    done = deputy(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_settings_are_exit_code_two_and_name_the_key(deputy, tmp_path: Path) -> None:
    (tmp_path / "deputy.toml").write_text("[models]\nurl = 'x'\n")
    done = deputy("-", stdin=REQUEST)
    assert done.returncode == 2
    assert "deputy.toml: models.url: found a string; unknown key" in done.stderr


def test_settings_of_the_project_hold(deputy, tmp_path: Path) -> None:
    (tmp_path / "deputy.toml").write_text("[models]\ndefault = 'mine-1'\n")
    assert "mine-1 (the default)" in deputy("-", stdin=REQUEST).stdout


def test_bytes_that_are_no_text_and_escapes_do_no_harm(deputy) -> None:
    done = deputy("-", stdin=b"\xff\xfe Please use a subagent to paint \x1b[31mred\x1b[0m fences.\x00\n")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_help_has_examples(deputy) -> None:
    done = deputy("--help")
    assert done.returncode == 0
    assert "deputy detect workflow.md" in done.stdout
    assert max(map(len, done.stdout.split("\n"))) <= 80


def test_a_small_text_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = {
        "aiohttp",
        "rich",
        "sqlite3",
        "asyncio",
        "json",
        "tomllib",
        "html",
        "xml",
        "yaml",
        "difflib",
        "jsonschema_rs",
    }
    program = f"""
import sys
sys.argv = ["deputy", "detect", "-"]
from deputy.interfaces.cli import main
try:
    main()
finally:
    print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=TEXT,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.stderr == "[]\n"


# --- exec -------------------------------------------------------------------------------------------------------------

TWO = """\
Some words.

<delegate model="sonnet-4.5">
<prompt>Say what the parser does.</prompt>
</delegate>

<delegate model="gpt-5.2">
<prompt>Say what the printer does.</prompt>
</delegate>
"""
PROSE = """\
**Try to use Task tool to spawn a subprocess (model: sonnet-4.5):**

"Review the parser."

**Graceful degradation (no Task tool):** Read the file line by line.
"""


KINDS = {"acp": ("claude-agent-acp", "codex-acp"), "cli": ("claude", "codex")}


class Programs(NamedTuple):
    """Two providers' programs, spoken to in one way."""

    kind: str
    made: FakePrograms

    def play(self, *turns, of=0):
        self.made.play(KINDS[self.kind][of], turns)

    def calls(self, of=0):
        return self.made.calls(KINDS[self.kind][of])


@pytest.fixture(params=KINDS)
def programs(request, house, tmp_path):
    """By the protocol where they speak it, though their command lines are there too; else by those."""
    names = [*KINDS["cli"], *(KINDS["acp"] if request.param == "acp" else ())]
    made = Programs(request.param, install_fake_programs(tmp_path / "bin", names))
    house.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{house.env['PATH']}"
    made.play(ScriptedTurn(text="It parses."))
    made.play(ScriptedTurn(text="It prints."), of=1)
    return made


@pytest.mark.rule("cli")
def test_the_requests_of_a_text_run_in_its_order_on_whatever_is_installed(house, programs):
    done = house.run("exec", "-", "--yes", "--json", stdin=TWO)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert [one["report"] for one in output["results"]] == ["It parses.", "It prints."]
    assert f"[request-1] sonnet-4.5 on {programs.kind}:claude" in done.stderr
    assert f"[request-2] gpt-5.2 on {programs.kind}:codex" in done.stderr
    assert [one["backend"] for one in output["results"]] == [f"{programs.kind}:claude", f"{programs.kind}:codex"]
    assert "[AWAITING_HUMAN_INPUT]" in programs.calls()[0].stdin


def test_requests_have_the_budget_the_time_and_the_tools_of_the_options(house):
    given = ("--budget", "0.25", "--timeout", "90", "--tools", "Read,Write", "--model", "offline:scout")
    run = house.run("exec", "-", *given, stdin=PROSE, ANTHROPIC_API_KEY="x")
    assert run.returncode == 6
    shown = [line.strip() for line in run.stderr.splitlines()]
    assert "cost: at most $0.25" in shown
    assert "task 1 tools: Read, Write" in shown
    assert any(line.startswith("task 1 limits: at most 90 s") for line in shown)


def test_together_the_results_keep_the_order_of_the_text(house, programs):
    programs.play(ScriptedTurn(text="It parses.", delay_seconds=0.5))
    done = house.run("exec", "-", "--yes", "--parallel", stdin=TWO)
    assert done.stdout.index("It parses.") < done.stdout.index("It prints.")


def test_a_text_without_a_request_runs_nothing(house, programs):
    done = house.run("exec", "-", "--yes", stdin="How can you delegate work to subagents?")
    assert (done.returncode, done.stdout) == (3, "")
    assert not programs.calls()


def test_without_a_person_to_ask_it_is_refused_and_says_what_would_run(house, programs):
    done = house.run("exec", "-", "--json", stdin=TWO)
    assert done.returncode == 6
    assert "    │ Say what the parser does." in done.stderr.splitlines()
    assert f"sonnet-4.5 on {programs.kind}:claude" in done.stderr
    assert [one["status"] for one in json.loads(done.stdout)["results"]] == ["rejected", "rejected"]
    assert not programs.calls()


@pytest.mark.rule("ladder.default")
@pytest.mark.parametrize("text", [PROSE, "Please use a subagent to look around."], ids=["model", "no model"])
def test_what_no_program_can_do_is_done_by_a_subagent_with_the_sessions_own_model(house, text):
    model = house.script("own", {"turns": [{"text": "Read."}]})
    done = house.run("exec", "-", "--yes", "--json", "--model", model, stdin=text)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    assert (result["report"], result["backend"], result["isolated"]) == ("Read.", "native", True)
    assert (result["model"], result["fallbacks"][0]["taken"]) == (model, f"{model} on native")
    assert "not installed" in result["fallbacks"][0]["reason"]


@pytest.mark.rule("delegate.key")
@pytest.mark.rule("ladder")
def test_inline_can_be_forbidden_and_then_it_fails_and_says_why_of_every_way(house):
    model = house.script("own", {"turns": [{"text": "Read."}]})
    done = house.run("exec", "-", "--yes", "--no-inline", "--model", model, stdin=PROSE)
    assert done.returncode == 1
    assert done.stderr.startswith("[request-1] Cannot spawn subagents: no API key for provider anthropic\n")
    assert done.stdout.startswith("## Subagents: 1 failed of 1")
    assert "\n\nManual intervention required: no API key for provider anthropic; set ANTHROPIC_API_KEY." in done.stdout
    for reason in ("claude is not installed.", "cursor-agent is not installed."):
        assert f"\n\n{reason}" in done.stdout


@pytest.mark.rule("escalate")
def test_a_question_is_shown_by_ps_and_answered_by_resume_as_often_as_it_is_asked(house, programs):
    asks = (ScriptedTurn(text="Which?\n[AWAITING_HUMAN_INPUT]"), ScriptedTurn(text="When?\n[AWAITING_HUMAN_INPUT]"))
    programs.play(*asks, ScriptedTurn(text="Done."))
    done = house.run("exec", "-", "--yes", "--json", stdin=PROSE)
    assert done.returncode == 5
    [result] = json.loads(done.stdout)["results"]
    assert result["question"] == "Which?"
    assert "request-1: Which?" in house.run("ps").stdout
    second = house.run("resume", result["session_id"], "--answer", "that")
    assert second.returncode == 5
    third = house.run("resume", result["session_id"], "--answer", "now")
    assert (third.returncode, third.stdout) == (0, "Done.\n")


@pytest.mark.rule("escalate")
def test_at_a_terminal_the_question_of_an_answer_is_asked(house, programs):
    (house.workspace / "text.md").write_text(PROSE)
    programs.play(ScriptedTurn(text="Which?\n[AWAITING_HUMAN_INPUT]"), ScriptedTurn(text="Done."))
    terminal = house.terminal("exec", "text.md")
    terminal.until(f"sonnet-4.5 on {programs.kind}:claude")
    terminal.until("Go ahead? [y/N/")
    terminal.type("y\n")
    terminal.until("[request-1] asks: Which?\r\n> ")
    terminal.type("that\n")
    assert terminal.end() == 0
    assert "that" in programs.calls()[1].stdin


@pytest.mark.parametrize("path", ["/etc/passwd", "/nowhere/to/be/found"])
def test_a_text_cannot_have_a_file_played_as_a_script_nor_learn_whether_it_is_there(house, path):
    done = house.run("exec", "-", "--yes", stdin=f'<delegate model="script:{path}">Look.</delegate>')
    assert done.returncode == 2
    assert f"model: found 'script:{path}'; only the person who runs Deputy may name a script" in done.stderr
    assert not house.home.exists() or json.loads(house.run("ps", "--all", "--json").stdout)["delegations"] == []


def test_an_unknown_model_is_passed_as_it_is_to_a_program_that_may_know_it(house, tmp_path):
    made = install_fake_programs(tmp_path / "bin", ["cursor-agent"])
    house.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{house.env['PATH']}"
    made.play("cursor-agent", (ScriptedTurn(text="Done."),))
    done = house.run("exec", "-", "--yes", "--json", stdin='<delegate model="sonet-9">Look around.</delegate>')
    assert done.returncode == 0, done.stderr
    assert "sonet-9 on cli:cursor-agent" in done.stderr
    argv = made.calls("cursor-agent")[0].argv
    assert argv[argv.index("--model") + 1] == "sonet-9"


def test_a_model_that_no_program_can_know_is_an_error(house):
    done = house.run("exec", "-", "--yes", "--no-inline", stdin='<delegate model="sonet-9">Look around.</delegate>')
    assert done.returncode == 1
    assert (
        "no provider lists the model 'sonet-9', and cursor-agent, which may have it, is not available here"
        in done.stderr
    )
    assert "cursor-agent is not installed." in done.stdout


@pytest.mark.parametrize("command", [["run", "Look."], ["delegate", "-t", "a=Look."], ["exec", "-"]])
def test_an_unknown_model_of_the_session_is_an_error_that_names_what_is_known(house, command):
    done = house.run(*command, "--yes", "--model", "sonet-4.5", stdin=PROSE)
    assert done.returncode == 2
    assert "found 'sonet-4.5'; unknown model: did you mean sonnet-4.5" in done.stderr
    assert "anthropic" in done.stderr
    assert "provider cursor" not in done.stderr


def test_a_model_whose_name_is_hidden_in_the_journal_is_tried_once_like_any_other(house):
    name = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    done = house.run("exec", "-", "--yes", "--json", stdin=f'<delegate model="{name}">Look around.</delegate>')
    assert done.returncode == 0, done.stderr
    assert name not in done.stdout
    assert "[redacted] on cli:cursor-agent" in done.stdout


@pytest.mark.rule("delegate.cancel")
def test_a_program_that_will_not_end_keeps_no_outcome_from_the_record(house, tmp_path):
    made = install_fake_programs(tmp_path / "bin", ["claude"])
    house.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{house.env['PATH']}"
    made.play("claude", (ScriptedTurn(text="Working."),), misbehaviour="hangs and is deaf")
    (house.workspace / "text.md").write_text('<delegate model="sonnet">Look around.</delegate>')
    process = house.start("exec", "text.md", "--yes", "--json")
    while not made.calls("claude"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [result["status"] for result in json.loads(out)["results"]] == ["cancelled"]
    assert json.loads(house.run("ps", "--json").stdout)["delegations"] == []


@pytest.mark.rule("delegate.order")
def test_a_request_that_cannot_be_carried_out_stops_no_other(house, tmp_path):
    made = install_fake_programs(tmp_path / "bin", ["codex"])
    house.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{house.env['PATH']}"
    made.play("codex", (ScriptedTurn(text="It prints."),))
    done = house.run("exec", "-", "--yes", "--no-inline", "--json", stdin=TWO)
    assert done.returncode == 4
    assert "[request-1] Cannot spawn subagents: no API key for provider anthropic" in done.stderr
    first, second = json.loads(done.stdout)["results"]
    assert (first["status"], second["status"], second["report"]) == ("error", "ok", "It prints.")


@pytest.mark.rule("delegate.approve")
def test_the_cost_is_that_of_the_model_that_is_really_asked_wherever_it_is_said(house):
    text = house.workspace / "w.md"
    text.write_text('<delegate model="composer-1">\nlook around\n</delegate>\n')
    run = house.run("exec", str(text), "--model", "offline:scout")
    assert run.returncode == 6
    assert run.stderr.count("cost: free") == 2
    assert "unlimited" not in run.stderr


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_a_model_that_looks_like_a_secret_is_not_said(house, options):
    secret = "sk-ant-api03-" + "Zx9Kq2Lm" * 6
    text = house.workspace / "w.md"
    text.write_text(f'<delegate model="{secret}">\nlook around\n</delegate>\n')
    run = house.run("exec", str(text), "--model", "offline:scout", *options)
    assert "request-1" in run.stderr
    assert secret not in run.stderr + run.stdout


NAMED = """<delegate tools="Read, Write" timeout="60">Change it.</delegate>

<delegate agent="scribe">Write it down.</delegate>

Please use a subagent to improve the parser.
"""


def writing(when: str) -> dict:
    call = {"name": "Write", "arguments": {"path": "new.txt", "content": "new"}}
    return {"when": when, "turns": [{"calls": [call]}, {"text": "Tried."}]}


@pytest.fixture
def texts(house):
    agents = house.workspace / ".deputy/agents"
    agents.mkdir(parents=True)
    (agents / "scribe.md").write_text("---\nname: scribe\ntools: Read, Write\n---\nYou write.\n")
    config = house.workspace.parent / ".config/deputy"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'[agents]\ntrusted = ["{house.workspace}"]\n')
    house.env["HOME"] = str(house.workspace.parent)
    (house.workspace / "text.md").write_text(NAMED)
    for arguments in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "begin"]):
        git = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost")
        subprocess.run([*git, *arguments], cwd=house.workspace, check=True)
    house.model = house.script("all", *map(writing, ("Change it", "Write it down", "improve the parser")))
    return house


def executed(house, *options: str) -> tuple[list[dict], str]:
    run = house.run("exec", "text.md", "--yes", "--json", "--model", house.model, *options)
    return json.loads(run.stdout)["results"], run.stderr


@pytest.mark.rule("exec.grant")
def test_a_text_gives_nothing_that_the_person_does_not_give(texts):
    results, said = executed(texts)
    assert [result["status"] for result in results] == ["ok"] * 3
    why = "Write was refused: it is not among the tools of the task"
    refused = f"{why}; --allow Write, or the `tools` of the task, grants it."
    assert [result["warnings"][-1:] for result in results] == [[refused]] * 3
    assert [result.get("branch") for result in results] == [None] * 3
    for label in ("request-1", "request-2"):
        assert f"warning: {label} may not use Write, which the text or its agent names; --allow Write allows it" in said


@pytest.mark.rule("exec.grant")
@pytest.mark.parametrize(
    ("options", "writers"),
    [(("--allow", "Write"), [0, 1, 2]), (("--tools", "Write"), [0, 1, 2]), (("--agent", "scribe"), [2])],
)
def test_options_give_tools_to_the_requests_of_a_text(texts, options, writers):
    results, _ = executed(texts, *options)
    assert [index for index, result in enumerate(results) if result.get("branch")] == writers
    assert [result["status"] for result in results] == ["ok"] * 3
    assert not (texts.workspace / "new.txt").exists()


@pytest.mark.rule("exec.grant")
@pytest.mark.rule("approve.exact")
def test_the_approval_shows_the_task_that_a_person_gave_and_the_model_that_it_needs(house):
    (house.workspace / "text.md").write_text("Please delegate this.\n")
    model = house.script("m", {"turns": [{"text": "Fine."}]})
    terminal = house.terminal("exec", "text.md", "--model", model)
    terminal.until("> ", after="The text only says: Please delegate this.")
    terminal.type("Investigate the slow start\n")
    terminal.until("Go ahead?")
    assert "│ ## Task\r\n    │ \r\n    │ Investigate the slow start" in terminal.text
    assert "task 1 model: gpt-5.2" in terminal.text
    terminal.type("n\n")
    assert terminal.end() == 6
