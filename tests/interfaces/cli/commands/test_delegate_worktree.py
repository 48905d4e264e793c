"""A subagent that writes, at the command line: killed in the middle, gone on with, and taken over."""

import json
import subprocess


def git(directory, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


WRITE = {"name": "Write", "arguments": {"path": "new.txt", "content": "hello\n"}}
NOTE = {"name": "Note", "arguments": {"content": "Written."}}


def script(house, **last) -> str:
    turns = [{"calls": [WRITE]}, {"calls": [NOTE]}, {"text": "Done.", **last}]
    return house.script("scribe", {"turns": turns})


def test_a_kill_in_the_middle_loses_nothing_of_a_worktree(house):
    git(house.workspace, "init", "--quiet")
    (house.workspace / "tasks.json").write_text(
        json.dumps([{"label": "scribe", "prompt": "Write it.", "tools": ["Write"]}])
    )
    git(house.workspace, "add", "--all")
    git(house.workspace, "commit", "--quiet", "-m", "Begin")
    model = script(house, delay_seconds=600)
    killed = house.terminal("delegate", "--tasks", "tasks.json", "--yes", "--model", model)
    notes = house.home / "subagent"
    killed.watched_until(lambda: any("Written." in file.read_text() for file in notes.glob("*.scratch.md")))
    killed.process.kill()
    killed.process.wait()
    (place,) = (path for path in (house.home / "worktrees").iterdir() if path.is_dir())
    assert (place / "new.txt").read_text() == "hello\n"
    script(house)
    entries = json.loads(house.run("ps", "--json").stdout)["delegations"]
    whole = next(entry["session_id"] for entry in entries if entry["delegation_depth"] == 0)
    resumed = house.run("resume", whole, "--json")
    assert resumed.returncode == 0, resumed.stderr
    (branch,) = git(house.workspace, "branch", "--list", "deputy/*", "--format=%(refname:short)").split()
    assert git(house.workspace, "show", f"{branch}:new.txt") == "hello\n"
    assert not (house.workspace / "new.txt").exists()
    shown = json.loads(house.run("show", place.name, "--json").stdout)
    assert (shown["outcome"]["branch"], [one["path"] for one in shown["outcome"]["artifacts"]]) == (branch, ["new.txt"])
