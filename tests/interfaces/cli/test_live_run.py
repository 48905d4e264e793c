"""Subagents of subagents: seen where their parents are, and counted."""

import json

import pytest
from tests.interfaces.cli.commands.test_run import Screen
from tests.support.command_house import entries

BOSS = "---\nname: boss\ndescription: leads\ntools: Read, Delegate\n---\nYou lead.\n"


def led(house) -> tuple[str, ...]:
    """The arguments of a call with one subagent that has two of its own."""
    folder = house.home / ".deputy" / "agents"
    folder.mkdir(parents=True)
    (folder / "boss.md").write_text(BOSS)
    house.env["HOME"] = str(house.home)
    tasks = [{"label": f"leaf{number}", "prompt": "deep"} for number in (1, 2)]
    deep = {"text": "Deep.", "usage": {"input_tokens": 50_000, "output_tokens": 30}}
    model = house.script(
        "tree",
        {"when": "deep", "times": 2, "turns": [deep]},
        {"when": "lead", "turns": [{"calls": [{"name": "Delegate", "arguments": {"tasks": tasks}}]}, {"text": "Led."}]},
    )
    return "delegate", "-t", "b=lead it", "--agent", "boss", "--yes", "--model", model


@pytest.mark.rule("delegate.view")
def test_subagents_of_subagents_have_their_lines_and_are_in_the_total(house):
    run = house.run(*led(house))
    assert run.returncode == 0, run.stderr
    lines = run.stderr.splitlines()
    assert lines[0] == "Delegate [1 subagent]"
    assert sum(line.startswith("  [leaf") and "✓ completed (in=50k out=30)" in line for line in lines) == 2
    assert sum(line.startswith("total ") for line in lines) == 1
    assert lines[-1].startswith("total  3 completed · in=100k out=100 · ")


@pytest.mark.rule("delegate.view")
@pytest.mark.parametrize("columns", [80, 40])
def test_the_picture_has_each_beneath_its_parent(house, columns):
    terminal = house.terminal(*led(house), columns=columns)
    assert terminal.end() == 0
    rows = Screen(terminal.shown).rows
    at = rows.index("Delegate [3 subagents]")
    assert [row.split("]")[0] for row in rows[at + 1 : at + 4]] == ["[b", "  [leaf1", "  [leaf2"]
    assert rows[at + 4].startswith("total  3 completed · in=100k out=")
    assert all(len(row) < columns for row in rows[at : at + 5])


@pytest.mark.rule("delegate.view")
def test_watch_shows_the_same_tree(house):
    assert house.run(*led(house), "--json").returncode == 0
    call = next(entry["session_id"] for entry in entries(house) if entry["parent"] is None)
    output = house.run("watch", call)
    lines = output.stderr.splitlines()
    assert sum(line.startswith("Delegate [") for line in lines) == 1
    assert sum(line.startswith("  [leaf") and "✓ completed (in=50k out=30)" in line for line in lines) == 2
    assert lines[-2].startswith("[b] ✓ completed")
    assert lines[-1].startswith("total  3 completed · in=100k out=100 · ")
    events = [json.loads(line) for line in house.run("watch", call, "--json").stdout.splitlines()]
    parents = {event["label"]: event["parent"] for event in events if event["event"] == "started"}
    boss = next(event["session_id"] for event in events if event["label"] == "b")
    assert parents == {"b": call, "leaf1": boss, "leaf2": boss}


@pytest.mark.rule("delegate.view")
def test_subtasks_stand_beneath_the_run_that_asked_for_them(house):
    folder = house.home / ".deputy" / "agents"
    folder.mkdir(parents=True)
    (folder / "boss.md").write_text(BOSS.replace("Delegate", "Subtask"))
    house.env["HOME"] = str(house.home)
    wanted = {"type": "verification", "description": "Verify the deep limit.", "inputs": {"limit": 3}}
    asks = {"calls": [{"name": "Subtask", "arguments": {"requests": [wanted]}}]}
    model = house.script(
        "tree",
        {"when": "Verify the deep limit.", "turns": [{"text": "It holds."}], "times": 1},
        {"when": "lead", "turns": [asks, {"text": "Led."}]},
    )
    run = house.run("delegate", "-t", "b=lead it", "--agent", "boss", "--yes", "--model", model)
    assert run.returncode == 0, run.stderr
    assert "\n  [verification] ✓ completed (in=100 out=20) " in run.stderr
    assert "total  2 completed · in=300 out=60 · " in run.stderr
