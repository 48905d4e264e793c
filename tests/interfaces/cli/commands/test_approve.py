"""The screens of every approval, character by character, and who may answer."""

import hashlib
import json
import re
import sys

import pytest
from tests.support.command_house import Terminal, entries, until
from tests.support.mcp_clients import Wire

from deputy.core.task import ALL_TOOLS

ASK_ALWAYS = "y: yes, n: no, a: always {tool} in this run, d: details\r\nGo ahead? [y/N/a/d] "
ASK = "y: yes, n: no, d: details\r\nGo ahead? [y/N/d] "


def calling(house, *calls: dict, child: tuple[dict, ...] = ()) -> str:
    """A parent that makes these calls, one a turn, and a subagent that makes its own."""
    turns = [*({"calls": [one]} for one in calls), {"text": "Done."}]
    below = [*({"calls": [one]} for one in child), {"text": "Found."}]
    return house.script("m", {"turns": below, "when": "You are a subagent"}, {"turns": turns})


def screen(terminal: Terminal, ends: str) -> list[str]:
    """The rows of the question that is shown now; ids and digests are the same in every test."""
    terminal.until(ends)
    # The table above an open question may be drawn again at any time, and the question below it.
    text = terminal.text[: terminal.text.rindex(ends) + len(ends)]
    text = text[text.rindex("\n", 0, text.rindex("· risk: ")) + 1 :]
    text = re.sub(r"sess_\d+_[a-z0-9]{6}", "SESSION", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text).replace("\r\n", "\n")
    return re.sub(r"(?m)^  folder: .*(\n    ┊ .*)*", "  folder: FOLDER", text).split("\n")


def answered(terminal: Terminal, answer: str) -> None:
    terminal.type(f"{answer}\n")


@pytest.mark.rule("approve.exact")
def test_run_write_and_edit_are_shown_whole_before_they_are_done(house):
    (house.workspace / "a.txt").write_text("one\ntwo\n")
    run = {"name": "Run", "arguments": {"path": ".", "command": "touch made\n\trm\u202e x"}}
    write = {"name": "Write", "arguments": {"content": "harmless\n", "path": "new.txt"}}
    edit = {"name": "Edit", "arguments": {"path": "a.txt", "old": "two", "new": "2"}}
    terminal = house.terminal("run", "do it", "--model", calling(house, run, write, edit))
    assert screen(terminal, ASK_ALWAYS.format(tool="Run")) == [
        "Use Run · risk: high",
        "  asked by: run (orchestrator) SESSION",
        "  folder: FOLDER",
        "  command: (2 lines, 19 bytes)",
        "    │ touch made",
        "    │ ⇥rm\\u202e x",
        "  path: .",
        "  digest: DIGEST",
        "y: yes, n: no, a: always Run in this run, d: details",
        "Go ahead? [y/N/a/d] ",
    ]
    answered(terminal, "n")
    assert screen(terminal, ASK_ALWAYS.format(tool="Write")) == [
        "Use Write · risk: high",
        "  asked by: run (orchestrator) SESSION",
        "  folder: FOLDER",
        "  path: new.txt",
        "  file: new",
        "  diff: (2 lines, 25 bytes)",
        "    │ @@ -1,0 +1,1 @@",
        "    │ +harmless",
        "  digest: DIGEST",
        "y: yes, n: no, a: always Write in this run, d: details",
        "Go ahead? [y/N/a/d] ",
    ]
    answered(terminal, "y")
    rows = screen(terminal, ASK_ALWAYS.format(tool="Edit"))
    assert rows == [
        "Use Edit · risk: high",
        "  asked by: run (orchestrator) SESSION",
        "  folder: FOLDER",
        "  path: a.txt",
        "  file: (1 line, 81 bytes)",
        "    │ 8 bytes, SHA-256 " + hashlib.sha256(b"one\ntwo\n").hexdigest()[:56],
        "    ┊ " + hashlib.sha256(b"one\ntwo\n").hexdigest()[56:],
        "  diff: (4 lines, 28 bytes)",
        "    │ @@ -1,2 +1,2 @@",
        "    │  one",
        "    │ -two",
        "    │ +2",
        "  digest: DIGEST",
        "y: yes, n: no, a: always Edit in this run, d: details",
        "Go ahead? [y/N/a/d] ",
    ]
    answered(terminal, "a")
    assert terminal.end() == 0
    assert (house.workspace / "new.txt").read_text() == "harmless\n"
    assert (house.workspace / "a.txt").read_text() == "one\n2\n"
    assert not (house.workspace / "made").exists()
    [run] = [entry["session_id"] for entry in entries(house)]
    assert "  approved  always Edit\n" in house.run("show", run).stdout


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("approve.child")
def test_a_delegation_and_the_command_of_its_subagent_are_shown(house):
    (house.workspace / "notes.md").write_text("n")
    digest = hashlib.sha256(b"n").hexdigest()
    task = {"label": "a", "prompt": "Look.", "context": ["notes.md"], "tools": ["Run"], "isolation": "none"}
    command = {"name": "Run", "arguments": {"command": "touch made"}}
    model = calling(house, {"name": "Delegate", "arguments": {"tasks": [task]}}, child=(command,))
    terminal = house.terminal("run", "do it", "--model", model, columns=200)
    assert screen(terminal, ASK) == [
        "Start 1 subagent · risk: high",
        "  asked by: run (orchestrator) SESSION",
        "  folder: FOLDER",
        "  cost: unknown (no price for the model)",
        "  task 1 label: a",
        "  task 1 prompt: Look.",
        f"  task 1 context: notes.md (1 bytes, SHA-256 {digest})".replace(digest, "DIGEST"),
        f"  task 1 model: {model}",
        "  task 1 tools: Run",
        "  task 1 works: in place: changes your files",
        "  task 1 limits: no time limit, 4,096 tokens of output",
        "  digest: DIGEST",
        "y: yes, n: no, d: details",
        "Go ahead? [y/N/d] ",
    ]
    answered(terminal, "y")
    assert screen(terminal, ASK_ALWAYS.format(tool="Run"))[:4] == [
        "Use Run · risk: high",
        "  asked by: a (orchestrator › task:a) SESSION",
        "  folder: FOLDER",
        "  command: touch made",
    ]
    answered(terminal, "n")
    assert terminal.end() == 0
    assert not (house.workspace / "made").exists()


@pytest.mark.rule("approve.exact")
def test_a_yes_to_a_text_that_was_cut_shows_the_rest_and_asks_again(house):
    lines = "\n".join(f"echo {number}" for number in range(100))
    run = {"name": "Run", "arguments": {"command": f"{lines}\ntouch made"}}
    terminal = house.terminal("run", "do it", "--model", calling(house, run))
    rows = screen(terminal, ASK_ALWAYS.format(tool="Run"))
    assert "    … 82 more lines, 658 more bytes" in rows
    assert "  NOT SHOWN: 658 bytes of this call; details shows all of it" in rows
    assert "    │ touch made" not in rows
    terminal.shown = ""
    answered(terminal, "y")
    terminal.until("Not approved yet: the text above was shortened. This is all of it:\r\n")
    assert "    │ touch made" in screen(terminal, ASK_ALWAYS.format(tool="Run"))
    assert not (house.workspace / "made").exists()
    answered(terminal, "y")
    assert terminal.end() == 0
    assert (house.workspace / "made").exists()


@pytest.mark.rule("approve.exact")
def test_details_show_all_of_it_and_are_no_answer(house):
    run = {"name": "Run", "arguments": {"command": "\n" * 100 + "touch made"}}
    terminal = house.terminal("run", "do it", "--model", calling(house, run))
    terminal.until(ASK_ALWAYS.format(tool="Run"))
    terminal.shown = ""
    answered(terminal, "d")
    assert "    │ touch made" in screen(terminal, ASK_ALWAYS.format(tool="Run"))
    answered(terminal, "n")
    assert terminal.end() == 0
    assert not (house.workspace / "made").exists()


@pytest.mark.rule("approve.exact")
def test_delegate_asks_in_its_run_and_an_approval_from_elsewhere_names_the_digest(house):
    model = house.script("m", {"turns": [{"text": "Found."}]})
    terminal = house.terminal("delegate", "-t", "a=Look.", "--model", model, columns=200)
    assert screen(terminal, ASK) == [
        "Start 1 subagent · risk: medium",
        "  asked by: delegate (orchestrator) SESSION",
        "  folder: FOLDER",
        "  cost: unknown (no price for the model)",
        "  task 1 label: a",
        "  task 1 prompt: Look.",
        f"  task 1 model: {model}",
        "  task 1 tools: read-only",
        "  task 1 limits: no time limit, 4,096 tokens of output",
        "  digest: DIGEST",
        "y: yes, n: no, d: details",
        "Go ahead? [y/N/d] ",
    ]
    [run] = [entry["session_id"] for entry in entries(house)]
    shown = house.run("approve", run)
    assert shown.returncode == 2
    assert shown.stdout.splitlines()[:2] == [
        "Start 1 subagent · risk: medium",
        f"  asked by: delegate (orchestrator) {run}",
    ]
    digest = shown.stdout.splitlines()[-1].removeprefix("  digest: ")
    assert shown.stderr == (
        f"deputy: not approved: no terminal to ask at. To approve it: deputy approve {run} --digest {digest}\n"
    )
    output = json.loads(house.run("approve", run, "--json").stdout)
    assert (output["session_id"], output["key"], output["digest"]) == (run, "approval", digest)
    assert {"name": "task 1 prompt", "text": "Look."} in output["request"]["parts"]
    assert house.run("approve", run, "--details").returncode == 0
    wrong = house.run("approve", run, "--digest", "0" * 64)
    assert (wrong.returncode, f"{run} asks now for {digest}" in wrong.stderr) == (3, True)
    assert house.run("approve", run, "--key", "other", "--digest", digest).returncode == 3
    assert house.run("approve", run, "--always", "--digest", digest).returncode == 3
    other = house.terminal("approve", run, columns=200)
    assert screen(other, ASK)[:2] == ["Start 1 subagent · risk: medium", "  asked by: delegate (orchestrator) SESSION"]
    answered(other, "yes")
    assert other.end() == 0
    assert "Approved: Start 1 subagent: a (risk: medium)" in other.text
    assert terminal.end() == 0
    assert "(Answered elsewhere, or no longer asked.)" in terminal.text


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("approve.who")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_task_command_asks_in_its_run_before_it_claims_its_task(house, tmp_path, answer):
    house.env["HOME"] = str(tmp_path / "person")
    assert house.run("task", "add", "One").returncode == 0
    model = house.script("m", {"turns": [{"text": "Found."}] * 2})
    terminal = house.terminal("research", "1", "--model", model, columns=200)
    assert screen(terminal, ASK) == [
        "Start 1 subagent · risk: high",
        "  asked by: research-1 (orchestrator › research › researcher) SESSION",
        "  folder: FOLDER",
        "  cost: unknown (no price for the model)",
        "  task 1 label: research-1",
        "  task 1 prompt: (5 lines, 106 bytes)",
        "    │ Task: 1",
        "    │ ",
        "    │ One",
        "    │ ",
        "    │ Work folder: .deputy/work/001_one (reports, plans and other documents of this task go there)",
        f"  task 1 model: {model}",
        "  task 1 agent: researcher (definition: SHA-256 DIGEST)",
        "  task 1 tools: Delegate, Glob, Grep, Read, WebFetch, WebSearch, Write",
        "  task 1 without asking: may use Delegate without asking, may write files without asking",
        "  task 1 works: in place: writes only in .deputy/work/001_one",
        "  task 1 limits: at most 3600 s, 8,192 tokens of output",
        "  task 1 returns: json",
        "  digest: DIGEST",
        "y: yes, n: no, d: details",
        "Go ahead? [y/N/d] ",
    ]
    [entry] = entries(house)
    assert (entry["status"], entry["command"], entry["task_number"]) == ("waiting", "research", 1)
    assert "work" not in json.loads((house.workspace / ".deputy/tasks.json").read_text())["tasks"][0]
    other = house.terminal("approve", entry["session_id"], columns=200)
    assert screen(other, ASK) == screen(terminal, ASK)
    answered(other, answer)
    assert other.end() == 0
    # The model breaks the return contract, so an approved command fails.
    assert terminal.end() == (1 if answer == "y" else 6)
    assert "(Answered elsewhere, or no longer asked.)" in terminal.text
    outcome = json.loads(house.run("show", entry["session_id"], "--json").stdout)["outcome"]
    assert outcome["errors"][0]["code"] == ("INVALID_RETURN" if answer == "y" else "NOT_APPROVED")
    task = json.loads((house.workspace / ".deputy/tasks.json").read_text())["tasks"][0]
    assert [entry["what"] for entry in task["history"][1:]] == ["research began", "research ended"] * (answer == "y")


RESUME_SCREEN = [
    "Resume a finished run · risk: high",
    "  asked by: run (orchestrator) SESSION",
    "  run: run",
    "  message: (2 lines, 16 bytes)",
    "    │ go on",
    "    │ ⇥and\\u202e on",
    "  model: MODEL",
    "  tools: TOOLS",
    "  digest: DIGEST",
    "y: yes, n: no, d: details",
    "Go ahead? [y/N/d] ",
]


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize(("answer", "report"), [("y", "second done"), ("n", "first done")])
@pytest.mark.parametrize("command", ["approve", "resume"])
def test_the_question_to_resume_a_finished_run_is_shown_whole_where_a_person_answers_it(house, command, answer, report):
    """A client resumes the run over MCP; a person answers at a terminal, there or after the server was killed."""
    model = house.script("m", {"turns": [{"text": "first done"}, {"text": "second done"}], "times": 9})
    run = json.loads(house.run("run", "do", "--model", model, "--json").stdout)["session_id"]
    with Wire(house, "--allow", "Run", "--allow", "Write", "--allow", "Edit") as wire:
        wire.shake_hands()
        said = {"session_id": run, "answer": "go on\n\tand\u202e on"}
        asked = wire.answer(wire.call("DelegateResume", said))["result"]
        assert asked["structuredContent"]["status"] == "waiting", asked
        if command == "resume":
            wire.process.kill()
            wire.process.wait()
        terminal = house.terminal(command, run, columns=200)
        assert screen(terminal, ASK) == [
            row.replace("MODEL", model).replace("TOOLS", ", ".join(sorted(ALL_TOOLS))) for row in RESUME_SCREEN
        ]
        answered(terminal, answer)
        assert terminal.end() == 0
        until(lambda: entries(house)[0]["status"] == "completed")
    assert json.loads(house.run("show", run, "--json").stdout)["outcome"]["report"] == report


@pytest.mark.rule("approve.who")
def test_a_run_never_approves_or_answers_a_call(house):
    waits = house.script("waits", {"turns": [{"calls": [{"name": "Run", "arguments": {"command": "ls"}}]}], "times": 9})
    house.start("run", "wait", "--wait", "--json", "--model", waits)
    [asking] = until(lambda: [entry for entry in entries(house) if entry["status"] == "waiting"])
    run = asking["session_id"]
    digest = json.loads(house.run("approve", run, "--json").stdout)["digest"]
    deputy = f"env -u DEPUTY_CALL DEPUTY_HOME={house.home} {sys.executable} -m deputy"
    library = house.workspace / "library.py"
    library.write_text(
        "import asyncio, sys\nfrom deputy import Deputy\nfrom deputy.core.errors import UsageError\n"
        "async def main():\n"
        f"    async with Deputy(home={str(house.home)!r}) as deputy:\n"
        f"        await deputy.approve({run!r}, digest={digest!r})\n"
        "try:\n    asyncio.run(main())\nexcept UsageError as error:\n    print(error)\n    sys.exit(2)\n"
    )
    tries = (
        f"env -i {sys.executable} {library}",
        f"{deputy} approve {run} --digest {digest}",
        f"setsid {deputy} approve {run} --deny",
        f"{deputy} resume {run} --yes",
        f"{deputy} resume {run} --answer yes",
        f"{deputy} merge 1 --yes",
        f"{deputy} resume {run} --budget 9",
        f"{deputy} web --no-open",
        f"{deputy} delegate -t a=b --yes --web",
    )
    command = "; ".join(f"{one}; echo code $?" for one in tries)
    model = calling(house, {"name": "Run", "arguments": {"command": command}})
    assert house.run("run", "try", "--yes", "--model", model).returncode == 0
    mine = next(entry["session_id"] for entry in entries(house) if entry["session_id"] != run)
    said = house.run("transcript", mine).stdout
    assert said.count("a run cannot approve, answer or extend its own call") >= len(tries)
    assert said.count("code 2") >= len(tries)
    assert next(entry["status"] for entry in entries(house) if entry["session_id"] == run) == "waiting"
