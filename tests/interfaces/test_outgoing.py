"""No secret of any covered form leaves by any way out: files beside the journal, the command line, events, MCP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.core.redaction.samples import made_up, secret_lines
from tests.support.mcp_clients import here

from deputy import Deputy, Task
from deputy.core.progress import Progress, redacted
from deputy.interfaces.cli import deputy as command_line
from deputy.interfaces.view.progress_table import ProgressTable, text_of
from deputy.processes.outgoing import process_redactor

pytestmark = pytest.mark.rule("redact.where")

KNOWN = f"made up {made_up(20, seed=5)}"
CONFIGURED = [f"configured {made_up(20, seed=seed)}" for seed in (11, 12, 13, 14)]
CONFIG = """
[mcp.servers.program]
command = "docs-server"
args = ["--stdio", "--api-key", "{}", "--token={}"]
env = {{ DOCS_TOKEN = "{}" }}
[mcp.servers.address]
url = "https://host.test/mcp"
headers = {{ Authorization = "Bearer {}" }}
"""
LINES = [*secret_lines(), *((f"it says {value} here", value) for value in (KNOWN, *CONFIGURED))]
TEXT = "\n\n".join(line for line, _ in LINES)
NOTES = ["\n\n".join(line for line, _ in LINES[at : at + 100]) for at in range(0, len(LINES), 100)]
"""The same text, in pieces that a note can hold."""


@pytest.fixture
def place(house, monkeypatch: pytest.MonkeyPatch):
    for name in list(house.env):
        monkeypatch.setenv(name, house.env[name])
    monkeypatch.setenv("MADE_UP_TOKEN", KNOWN)
    own = house.workspace.with_name("own") / ".config" / "deputy"
    own.mkdir(parents=True)
    (own / "config.toml").write_text(CONFIG.format(*CONFIGURED))
    monkeypatch.setenv("HOME", str(own.parent.parent))
    monkeypatch.chdir(house.workspace)
    (house.workspace / "config.txt").write_text(TEXT)
    return house


def script(house: Any, times: int = 1) -> str:
    """A subagent that reads, notes and reports secrets, one whose report asks with them, and one that fails."""
    calls = [{"name": "Read", "arguments": {"path": "config.txt"}}]
    calls += [{"name": "Note", "arguments": {"content": note}} for note in NOTES]
    # The first text of a call is shown as progress.
    shown = [{"name": "Grep", "arguments": {"pattern": line[:300]}} for line, _ in LINES[::7]]
    reports = {
        "turns": [{"text": TEXT, "calls": calls}, {"calls": shown}, {"text": TEXT}],
        "when": "report",
        "times": times,
    }
    asks = {"turns": [{"text": f"{TEXT}\n[AWAITING_HUMAN_INPUT]"}], "when": "ask", "times": times}
    fails = {"turns": [{"calls": [{"name": "Read", "arguments": {"path": TEXT[:300]}}]}, {"faults": ["bad_request"]}]}
    return house.script("canaries", reports, asks, {**fails, "when": "fail", "times": times})


def leaked(shown: str) -> list[str]:
    """Where secrets stand in a text, as they are or as JSON writes them."""
    found = {spelling: shown.find(spelling) for _, secret in LINES for spelling in (secret, json.dumps(secret)[1:-1])}
    return [f"{shown[max(0, at - 60) : at]}{spelling}" for spelling, at in found.items() if at >= 0]


def call(*arguments: str, code: int | None = None) -> str:
    done = CliRunner().invoke(command_line, arguments, catch_exceptions=not __debug__)
    assert code is None or done.exit_code == code, done.output
    return f"{done.stdout}\n{done.stderr}"


def test_no_secret_leaves_through_the_command_line_or_a_file(place: Any):
    model = script(place, times=2)
    tasks = [{"label": word, "prompt": f"{word}\n{TEXT}"} for word in ("report", "ask", "fail")]
    wanted = place.workspace.with_name("tasks.json")
    wanted.write_text(json.dumps({"tasks": tasks}))
    begin = ("delegate", "--tasks", str(wanted), "--yes", "--model", model)
    shown = {
        "delegate": call(*begin, "--events", "events.jsonl"),
        "delegate --return json": call(*begin, "--return", "json", "--events", "-"),
    }
    shown["--events"] = (place.workspace / "events.jsonl").read_text()
    runs = [one["session_id"] for one in json.loads(call("ps", "--all", "--json", code=0).strip())["delegations"]]
    assert len(runs) == 8
    for arguments in (("ps", "--all"), ("errors",), ("stats",), ("todo",)):
        shown[" ".join(arguments)] = call(*arguments) + call(*arguments, "--json")
    for run in runs[:4]:
        for name in ("show", "transcript", "watch"):
            shown[f"{name} {run}"] = call(name, run) + call(name, run, "--json")
    shown["export"] = call("export", runs[0], "--to", "exported", code=0)
    shown["task add"] = call("task", "add", LINES[0][0]) + call("task", "list") + call("task", "list", "--json")
    shown["an error"] = call("show", LINES[0][0]) + call("delegate", f"--{LINES[1][0]}") + call("export", KNOWN)
    assert {name: found for name, text in shown.items() if (found := leaked(text))} == {}
    assert sum(text.count("[redacted]") for text in shown.values()) > 20 * len(LINES)
    files = [*(place.workspace / "exported").rglob("*"), *(place.home / "subagent").rglob("*")]
    written = {str(path): path.read_text() for path in files if path.is_file()}
    assert {name.rpartition(".")[2] for name in written} == {"json", "jsonl", "md"}
    assert {name: found for name, text in written.items() if (found := leaked(text))} == {}
    assert {oct(path.stat().st_mode & 0o77) for path in place.home.rglob("*")} == {"0o0"}


def test_no_secret_leaves_through_mcp(place: Any):
    model = script(place, times=3)
    output: dict[str, str] = {}

    async def use() -> None:
        async def heard(count: float, total: float | None, message: str | None) -> None:
            output["progress"] = output.get("progress", "") + (message or "")

        async with here(place, model=model, approval="granted") as client:
            tasks = [{"label": word, "prompt": word} for word in ("report", "ask", "fail")]
            for form in ("markdown", "json"):
                answer = await client.call_tool("Delegate", {"tasks": tasks, "return": form}, progress_callback=heard)
                output[form] = answer.model_dump_json()
            started = await client.call_tool("DelegateStart", {"tasks": tasks})
            run = {"session_id": started.structured_content["session_id"]}
            for name in ("DelegateResult", "DelegateStatus"):
                output[name] = (await client.call_tool(name, run)).model_dump_json()
            for resource in (await client.list_resources()).resources:
                output[resource.uri] = (await client.read_resource(resource.uri)).model_dump_json()
            output["an error"] = (
                await client.call_tool("DelegateStatus", {"session_id": LINES[0][0]})
            ).model_dump_json()
            output["Detect"] = (
                await client.call_tool("Detect", {"text": f"Delegate to a subagent: {TEXT}"})
            ).model_dump_json()

    asyncio.run(use())
    assert len(output) > 12
    assert {name: found for name, text in output.items() if (found := leaked(text))} == {}
    assert sum(text.count("[redacted]") for text in output.values()) > 5 * len(LINES)


def test_events_of_the_library_hold_no_secret_and_its_results_are_exact(place: Any):
    model = script(place)
    seen: list[Progress] = []

    async def use() -> Any:
        async with Deputy(model, workspace=place.workspace, home=place.home, watch=seen.append) as deputy:
            return await deputy.delegate([Task(label="a", prompt="report")])

    [outcome] = asyncio.run(use())
    assert (outcome.report, outcome.notes) == (TEXT, tuple(NOTES))
    assert leaked("".join(f"{one.args}{one.content}{one.reason}" for one in seen if one.event != "text")) == []
    assert leaked("".join(one.content or "" for one in seen if one.event == "text")) == []


@pytest.mark.parametrize("event", ["tool_call", "tool_error", "note", "retry", "fallback", "warning", "waiting"])
def test_the_live_view_shows_no_secret_whatever_it_gets(place: Any, event: Any):
    board = ProgressTable()
    board.emit(Progress(event="started", label="a", session_id="x"), 0.0)
    for line, secret in LINES:
        output = Progress(event=event, label="a", session_id="x", args=line, content=line, reason=line, tool="Run")
        board.emit(redacted(output, process_redactor()), 1.0)
        assert not any(secret in text_of(spans) for spans in board.lines(2.0))


def test_files_of_the_home_are_private_to_their_owner(place: Any):
    model = script(place)
    call("delegate", "-t", "a=report", "--yes", "--model", model)
    assert {oct(path.stat().st_mode & 0o77) for path in (place.home, *place.home.rglob("*"))} == {"0o0"}
    assert (place.home / "journal.db").exists()


def test_the_journal_of_a_delegation_holds_what_really_happened(place: Any):
    call("delegate", "-t", "a=report", "--yes", "--model", script(place))
    held = b"".join(path.read_bytes() for path in Path(place.home).glob("journal.db*"))
    assert LINES[0][1].encode() in held
