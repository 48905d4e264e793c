import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.redaction.samples import made_up
from tests.support.fork_server import forked_deputy
from tests.support.fork_server import run as run_forked

from deputy.interfaces.cli import COMMANDS
from deputy.interfaces.cli.streams import is_unread


def deputy(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_forked(
        [sys.executable, "-m", "deputy", *arguments], input=stdin, capture_output=True, text=True, cwd=Path.cwd()
    )


def test_help_lists_the_commands_and_the_exit_codes():
    run = deputy("--help")
    assert run.returncode == 0
    for word in ("detect", "check-return", "agents", "130 cancelled"):
        assert word in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80


def test_an_unknown_command_is_a_usage_error_that_suggests_help():
    run = deputy("detekt")
    assert run.returncode == 2
    assert "detekt" in run.stderr
    assert "--help" in run.stderr


def test_misuse_is_one_line_and_exit_code_two():
    run = deputy("detect", "nowhere.md")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("deputy: FILE: found 'nowhere.md'; cannot read it: No such file or directory;")
    assert run.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_traceback():
    program = f"{sys.executable} -c 'from deputy.interfaces.cli import main; main()' --help | true"
    run = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr == ""


@pytest.mark.parametrize(
    "module", ["deputy.interfaces.cli", "click", "deputy.core.errors", "deputy.interfaces.cli.commands.check_return"]
)
def test_ctrl_c_before_anything_began_is_exit_code_130_and_silent(module: str):
    run = deputy_after(module, "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("deputy.journal.export", ("export", "sess_1_a")),
        ("deputy.journal.retention", ("prune",)),
        ("deputy.interfaces.questions", ("approve", "sess_1_a")),
    ],
)
def test_ctrl_c_in_a_command_is_exit_code_130_and_silent_after_all_is_cleaned_up(
    module: str, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    interrupt = "import atexit, os, signal; atexit.register(print, 'at exit'); os.kill(os.getpid(), signal.SIGINT)"
    run = deputy_after(module, interrupt, *arguments)
    assert (run.returncode, run.stdout, run.stderr) == (130, "at exit\n", "")


def deputy_after(module: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, with a program that runs when a module of it is about to be loaded."""
    hook = f"""
import sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            exec({program!r})
sys.meta_path.insert(0, Hook())
sys.argv = ["deputy", *{arguments or ("check-return", "-")!r}]
from deputy.__main__ import main
main()
"""
    return subprocess.run([sys.executable, "-c", hook], capture_output=True, text=True, check=False, input="")


def test_every_command_stands_in_the_reference():
    output = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    headings = " ".join(line for line in output.splitlines() if line.startswith("## "))
    assert [name for name in COMMANDS if name not in headings.replace(",", "").split()] == []


def shell(line: str, tmp_path) -> subprocess.CompletedProcess[str]:
    # A forked process needs all streams, and how Python itself flushes at its end is seen of one that is executed.
    is_executed = "&-" in line or "--help" in line
    executed = f"{sys.executable} -c 'from deputy.interfaces.cli import main; main()'"
    deputy_line = executed if is_executed else shlex.join(forked_deputy())
    env = {**os.environ, "DEPUTY_HOME": str(tmp_path / "home"), "DEPUTY_MODEL": "offline:scout"}
    return subprocess.run(
        ["sh", "-c", line.replace("deputy", deputy_line, 1)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=env,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("deputy delegate -t a=x <&-", 6),
        ("deputy run <&-", 2),
        ("deputy delegate -t a=x --yes >&-", 0),
        ("deputy delegate -t a=x --yes 2>&-", 0),
        ("deputy models >/dev/full", 1),
        ("deputy delegate -t a=x --yes >/dev/full", 1),
    ],
)
def test_closed_and_full_streams_are_no_traceback(tmp_path, line, code):
    run = shell(line, tmp_path)
    assert "Traceback" not in run.stderr
    assert run.returncode == code, run.stderr


@pytest.mark.parametrize(
    "line",
    [
        "deputy models | head -1",
        "deputy models | true",
        "deputy --help | true",
        "deputy doctor --json | true",
        "deputy delegate -t a=x -t b=x --yes 2>&1 | head -1",
        "deputy delegate -t a=x --yes 2>&1 >/dev/null | true",
        "deputy delegate -t a=x --yes --json | true",
        "deputy delegate -t a=x --yes --events - | true",
        "deputy delegate -t a=x --yes 2>/dev/full",
    ],
)
def test_a_reader_that_goes_away_neither_fails_the_work_nor_is_reported(tmp_path, monkeypatch, line):
    run = shell(
        f"({line.replace(' |', '; echo $? >code) |', 1)}" if "|" in line else f"{line}; echo $? >code", tmp_path
    )
    assert (tmp_path / "code").read_text() == "0\n"
    assert "deputy:" not in run.stdout + run.stderr
    if "delegate" in line:
        monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
        runs = json.loads(deputy("ps", "--all", "--json").stdout)["delegations"]
        assert {one["status"] for one in runs} == {"completed"}


def test_what_is_left_of_a_reader_can_be_told(tmp_path):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe, (tmp_path / "file").open("w") as file:
        assert not is_unread(pipe)
        os.close(reading)
        assert is_unread(pipe)
        assert not is_unread(file)


SECRET = "sk-" + "ant-api03-" + made_up(40)


@pytest.mark.parametrize(
    ("arguments", "kind", "code", "said"),
    [
        (("ask", "--json", "Where?"), "usage", 2, "no model is configured"),
        (("show", "--json", "nothing"), "not_found", 3, "no run has the id 'nothing'"),
        (("show", "--json"), "usage", 2, "Missing argument 'ID'"),
        (("show", "--json", "--modle", "x"), "usage", 2, "No such option '--modle'"),
        (("delgate", "--json"), "usage", 2, "Did you mean delegate?"),
        (("watch", "--json"), "not_found", 3, "no run is active"),
        (("delegate", "--json", "x", "--model", "nope:nope"), "usage", 2, "nope:nope"),
    ],
)
def test_with_json_an_error_is_json_too(house, arguments, kind, code, said):
    run = house.run(*arguments, DEPUTY_MODEL="")
    error = json.loads(run.stdout)["error"]
    assert (error["type"], error["exit_code"], run.returncode) == (kind, code, code)
    assert said in error["message"]
    assert said in run.stderr, "a person reads it too"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("delgate",), "No such command 'delgate'. Did you mean delegate?"),
        (("task", "lsit"), "Did you mean 'list'?"),
        (("run", "x", "--agent", "revewer"), "similar names: reviewer"),
        (("delegate", "--tasks", "-"), "tasks[0].promt is not a field; did you mean 'prompt'?"),
        (("qqqqqqq",), "No such command 'qqqqqqq'.\n"),
    ],
)
def test_a_wrong_name_gets_the_name_that_was_meant(house, arguments, meant):
    run = house.run(*arguments, stdin='[{"label": "a", "promt": "x"}]')
    assert run.returncode == 2
    assert meant in run.stderr


CONFIGURED = "configured value of mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--model", "{}", "go"),
        ("run", "--agent", "{}", "go"),
        ("run", "--{}", "go"),
        ("research", "1", "--timeout", "{}"),
        ("delegate", "-t", "{}"),
        ("delegate", "--concurrency", "{}", "-t", "a=b"),
        ("show", "{}"),
        ("transcript", "{}", "--json"),
        ("resume", "{}"),
        ("cancel", "{}"),
        ("approve", "{}"),
        ("pin", "{}"),
        ("prune", "--older-than", "{}"),
        ("models", "{}"),
        ("detect", "{}"),
        ("check-return", "--since", "{}", "--workspace", ".", "-"),
        ("errors", "fix", "{}"),
        ("task", "show", "{}"),
        ("{}",),
    ],
    ids=" ".join,
)
def test_a_secret_that_was_given_is_not_said_back(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SOME_API_KEY", CONFIGURED)
    monkeypatch.setenv("DEPUTY_MODEL", "offline:scout")
    monkeypatch.chdir(tmp_path)
    given = f"{SECRET} {CONFIGURED} {'long ' * 24}{CONFIGURED}"
    run = deputy(*(argument.format(given) for argument in arguments), stdin="{}")
    assert run.returncode != 0
    said = run.stdout + run.stderr
    assert "Traceback" not in said
    assert "[redacted]" in said
    assert SECRET[-20:] not in said
    assert CONFIGURED[:12] not in said


def test_a_secret_in_a_settings_file_is_not_said_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SOME_API_KEY", CONFIGURED)
    monkeypatch.setenv("DEPUTY_MODEL", "offline:scout")
    monkeypatch.chdir(tmp_path)
    given = f'["password=hunter2", "{SECRET}", "{CONFIGURED}"]'
    (tmp_path / "deputy.toml").write_text(f"[limits]\nconcurrency = {given}\n[tools]\nx = {given}\n")
    for run in (deputy("run", "go"), deputy("doctor", "--json")):
        said = run.stdout + run.stderr
        assert "[redacted]" in said
        assert not any(secret in said for secret in (SECRET[-20:], CONFIGURED, "hunter2"))


@pytest.mark.parametrize(("command", "code"), [(("ask", "--model", "nope:x", "Why?"), 2), (("show", "no-such-run"), 3)])
def test_a_message_is_wrapped_at_words_at_a_terminal_and_one_line_in_a_pipe(house, command, code):
    terminal = house.terminal(*command, columns=30)
    assert terminal.end() == code
    lines = terminal.text.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 30
    assert " ".join(map(str.strip, lines)) == house.run(*command).stderr.strip()
