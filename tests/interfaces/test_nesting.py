"""A Deputy that a run starts through Run: depth, deadline, quota and budget are those of the run."""

import asyncio
import json
import shlex
import sqlite3
import sys
from contextlib import closing

import pytest
from msgspec import UNSET

from deputy import Budget, Deputy
from deputy.core.errors import NotAdmitted, StorageCorrupt
from deputy.core.guard import Policy
from deputy.core.request import Lineage, Nesting
from deputy.core.trace_context import run_traceparent
from deputy.interfaces.run_submission import _traced
from deputy.journal.nested import nested_amounts
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

DEPUTY = shlex.join([sys.executable, "-m", "deputy"])


def entries(house, **env):
    return json.loads(house.run("ps", "--all", "--json", **env).stdout)["delegations"]


def running(house, name: str, command: str) -> str:
    """A model that runs a command and then is done."""
    call = {"name": "Run", "arguments": {"command": command}}
    return house.script(name, {"times": 99, "turns": [{"calls": [call]}, {"text": "Done."}]})


@pytest.mark.rule("lineage.env")
@pytest.mark.parametrize(
    "hiding",
    ["", "env -u DEPUTY_CALL setsid", 'env -i PATH="$PATH" HOME="$PWD"'],
    ids=["plain", "session of its own", "other home"],
)
def test_depth_three_exists_and_depth_four_never_does(house, hiding):
    path = house.workspace.parent / "digging.json"
    again = f'{hiding} {DEPUTY} run "level $$" --yes --model script:{path} >> said.txt 2>&1; echo "exit $?" >> said.txt'
    model = running(house, "digging", again)
    assert house.run("run", "level 0", "--yes", "--model", model).returncode == 0
    said = (house.workspace / "said.txt").read_text()
    assert said.count("MAX_DEPTH_EXCEEDED: 'task:run' is at depth 3 of at most 3.") == 1
    assert [said.count(f"exit {code}") for code in (0, 6)] == [3, 1]
    found = entries(house)
    if "HOME" in hiding:
        found += entries(house, DEPUTY_HOME=str(house.workspace / ".deputy"))
    assert sorted(entry["delegation_depth"] for entry in found) == [0, 1, 2, 3]


@pytest.mark.rule("lineage.env")
def test_the_stricter_depth_of_the_run_above_binds_a_nested_process(house):
    inner = house.script("inner", {"times": 99, "turns": [{"text": "Done."}]})
    command = f"{DEPUTY} delegate -t a=look --yes --model {inner} > said.txt 2>&1"
    model = running(house, "outer", command)

    async def main():
        policy = Policy(max_depth=0, max_spawns=9)
        async with Deputy(model, workspace=house.workspace, home=house.home, policy=policy) as deputy:
            return await deputy.run("work")

    assert asyncio.run(main()).status == "completed"
    assert "is at depth 0 of at most 0" in (house.workspace / "said.txt").read_text()
    with SqliteQueries.open(house.home) as reader:
        (nested,) = [entry["session_id"] for entry in entries(house) if entry["command"] == "delegate"]
        # Half of the nine spawns of the run above, not of the 64 of its own process.
        assert next(iter(reader.records(nested))).event.grant.budget.spawns == 5


@pytest.mark.rule("lineage.env")
def test_tasks_of_a_nested_call_stand_below_the_run_and_within_its_limits(house):
    inner = house.script("inner", {"times": 99, "turns": [{"text": "Done."}]})
    tasks = " ".join(f"-t {name}=look" for name in "abc")
    command = f"{DEPUTY} delegate {tasks} --yes --json --model {inner} > nested.json"
    model = running(house, "outer", command)

    async def main():
        async with Deputy(
            model, workspace=house.workspace, home=house.home, budget=Budget(spawns=4, requests=4, tokens=90_000)
        ) as deputy:
            return await deputy.run("work")

    assert asyncio.run(main()).status == "completed"
    nested = json.loads((house.workspace / "nested.json").read_text())
    # Half of the four spawns, and of the three requests that the parent has left.
    assert sorted(result["status"] for result in nested["results"]) == ["ok", "ok", "rejected"]
    (refused,) = [result for result in nested["results"] if result["status"] == "rejected"]
    assert refused["error"]["code"] == "SPAWN_BUDGET"
    found = entries(house)
    assert sorted(entry["delegation_depth"] for entry in found) == [0, 0, 1, 1, 1]
    top = next(entry for entry in found if entry["command"] == "run")
    with SqliteQueries.open(house.home) as reader:
        (row,) = reader.nested(top["session_id"])
        caps = next(iter(reader.records(row[0]))).event.grant.budget
    assert (caps.spawns, caps.requests) == (2, 2)
    assert 0 < caps.tokens < 45_000
    with closing(sqlite3.connect(house.home / "journal.db")) as damaged, damaged:
        damaged.execute("UPDATE nested SET body = 5")
    with SqliteQueries.open(house.home) as reader, pytest.raises(StorageCorrupt, match="cannot be read"):
        list(nested_amounts(reader, top["session_id"]))


@pytest.mark.rule("lineage.env")
def test_a_server_that_no_single_run_started_starts_nothing(house):
    program = (
        "import asyncio, os, sys; from deputy.processes.supervise import Command, supervise\n"
        "async def play():\n"
        "    argv = (sys.executable, '-m', 'deputy', 'run', 'x', '--yes', '--model', 'offline:scout')\n"
        "    async with supervise(Command(argv=argv, cwd='.', environment=os.environ, owner='mcp')) as child:\n"
        "        print((await child.stderr.read()).decode(), (await child.exited()).code)\n"
        "asyncio.run(play())"
    )
    import subprocess

    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=house.workspace, env=house.env
    )
    assert "for several runs" in run.stdout
    assert run.stdout.endswith(" 6\n")


@pytest.mark.rule("lineage.env")
def test_a_run_whose_journal_is_gone_lets_nothing_start(house, monkeypatch):
    monkeypatch.setenv("DEPUTY_CALL", "sess_1_aaaaaa:00")
    monkeypatch.setenv("DEPUTY_HOME", str(house.workspace / "nowhere"))

    async def main():
        async with Deputy("offline:scout", workspace=house.workspace, home=house.home) as deputy:
            await deputy.run("work")

    with pytest.raises(NotAdmitted, match="has no journal of it"):
        asyncio.run(main())


@pytest.mark.rule("lineage.env")
def test_what_a_nested_run_used_counts_for_the_run_that_started_it(house):
    inner = house.script("inner", {"times": 99, "turns": [{"text": "Done."}]})
    call = {"name": "Run", "arguments": {"command": f"{DEPUTY} delegate -t a=x -t b=y --yes --model {inner}"}}
    tasks = [{"label": name, "prompt": name} for name in "cde"]
    spawn = {"name": "Delegate", "arguments": {"tasks": tasks}}
    turns = [{"calls": [call]}, {"calls": [spawn]}, {"text": "Done."}]
    model = house.script("outer", {"when": "work", "turns": turns}, {"times": 99, "turns": [{"text": "Done."}]})

    async def main():
        caps = Budget(spawns=4, requests=5)
        async with Deputy(model, workspace=house.workspace, home=house.home, budget=caps) as deputy:
            return await deputy.run("work")

    outcome = asyncio.run(main())
    statuses = [entry["status"] for entry in entries(house)]
    # Two of four spawns and two of five requests were used by the nested call: three of each kind are never started.
    assert statuses.count("rejected") == 1
    requests = sum(entry["usage"]["requests"] for entry in entries(house) if entry["parent"] is None)
    assert requests <= 5
    assert outcome.status == "partial"
    assert outcome.errors[0].type == "budget"


@pytest.mark.rule("lineage.env")
def test_a_command_of_a_run_has_the_limits_of_the_delegate_tool(house):
    nine = " ".join("abcdefghi")
    command = (
        f"{DEPUTY} delegate {nine} --yes > said.txt 2>&1; {DEPUTY} delegate a --concurrency 5 --yes >> said.txt 2>&1"
    )
    call = {"name": "Run", "arguments": {"command": command}}
    model = house.script("outer", {"turns": [{"calls": [call]}, {"text": "Done."}]})
    assert house.run("run", "work", "--yes", "--model", model).returncode == 0
    many, wide = (house.workspace / "said.txt").read_text().splitlines()
    assert "it must be a list of 1 to 8 tasks" in many
    assert "concurrency is 5; it must be a whole number from 1 to 4" in wide


def test_a_nested_run_belongs_to_the_trace_of_the_run_above_unless_its_caller_names_another(monkeypatch):
    above, own = Lineage.root("sess_1_aaaaaa"), Lineage.root("sess_1_bbbbbb")
    nesting = Nesting(lineage=above, budget=Budget(), round=1)
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert _traced(own, nesting).traceparent == str(run_traceparent(above, 1))
    assert _traced(own, None).traceparent is UNSET
    named = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    monkeypatch.setenv("TRACEPARENT", named)
    assert _traced(own, nesting).traceparent == _traced(own, None).traceparent == named
