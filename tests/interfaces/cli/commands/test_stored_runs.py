import json
import unicodedata

import pytest

from deputy import Task, run_sync


@pytest.fixture
def runs(house):
    """A call of two tasks with hostile labels, one of which noted something."""
    note = {"name": "Note", "arguments": {"content": "Seen."}}
    model = house.script(
        "two",
        {"when": "first", "turns": [{"calls": [note]}, {"text": "Done."}]},
        {"when": "second", "turns": [{"faults": ["bad_request"]}]},
    )
    tasks = [Task(label="../../up", prompt="first"), Task(label="b", prompt="second")]
    # One after the other, so that the one born first is the one that noted something.
    run_sync(*tasks, concurrency=1, model=model, workspace=house.workspace, home=house.home)
    return json.loads(house.run("ps", "--all", "--json").stdout)["delegations"]


@pytest.mark.rule("disk")
def test_a_run_is_a_folder_that_only_its_owner_reads(house, runs):
    top, first, second = runs
    run = house.run("export", top["session_id"], "--to", "kept", "--json")
    assert run.returncode == 0, run.stderr
    place = house.workspace / "kept"
    output = json.loads((place / "export.json").read_text())
    assert json.loads(run.stdout) == {"folder": "kept", **output}
    assert output["schema"] == 1
    assert [one["session_id"] for one in output["runs"]] == [
        top["session_id"],
        first["session_id"],
        second["session_id"],
    ]
    assert [one["parent"] for one in output["runs"]] == [None, top["session_id"], top["session_id"]]
    everything = [place, *place.rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in everything if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in everything if path.is_file()} == {0o600}
    folder = place / output["runs"][1]["folder"]
    assert folder.resolve().is_relative_to(place.resolve())
    assert (folder / "notes.md").read_text() == "Seen.\n\n"
    assert json.loads((folder / "outcome.json").read_text())["outcome"]["report"] == "Done."
    assert json.loads((folder / "transcript.json").read_text())["outcome"] == "success"
    assert "Done." in (folder / "transcript.md").read_text()
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert (lines[0]["event"]["kind"], lines[-1]["event"]["kind"]) == ("requested", "delivered")


@pytest.mark.rule("disk")
def test_nothing_is_overwritten_and_nothing_half_is_left(house, runs):
    (house.workspace / "kept").mkdir()
    again = house.run("export", runs[0]["session_id"], "--to", "kept")
    assert again.returncode == 2
    assert "it already exists" in again.stderr
    assert list((house.workspace / "kept").iterdir()) == []
    assert house.run("export", runs[0]["session_id"], "--to", "no/such/folder").returncode == 2
    assert house.run("export", "sess_1_nobody").returncode == 3
    assert sorted(path.name for path in house.workspace.iterdir()) == ["kept"]


def test_a_subagent_can_be_exported_alone_into_a_folder_of_its_name(house, runs):
    assert house.run("export", runs[1]["session_id"]).returncode == 0
    place = house.workspace / runs[1]["session_id"]
    assert sorted(path.name for path in place.iterdir()) == [
        "events.jsonl", "export.json", "notes.md", "outcome.json", "transcript.json", "transcript.md",
    ]  # fmt: skip


@pytest.mark.rule("text.visible")
def test_no_way_out_has_a_character_that_a_reader_cannot_see(house):
    sly = "\x1b[31m\x9b2J\x85\u2028\u202e\u200b\U000e0041[b] ✓"
    note = {"name": "Note", "arguments": {"content": f"seen {sly}"}}
    look = {"name": "Glob", "arguments": {"pattern": sly}}
    model = house.script("sly", {"times": 9, "turns": [{"calls": [note, look]}, {"text": f"found {sly}"}]})
    asked = ("-t", f"a=say {sly}", "--model", model, "-y")
    said = [house.run("delegate", *asked, *more) for more in ((), ("--json",), ("--events", "-"))]
    top, child = json.loads(house.run("ps", "--all", "--json").stdout)["delegations"][:2]
    run = child["session_id"]
    for words in (("transcript", run), ("transcript", run, "--json"), ("show", run), ("show", run, "--json")):
        said.append(house.run(*words))
    assert house.run("export", top["session_id"], "--to", "kept").returncode == 0
    assert {one.returncode for one in said} == {0}
    left = [
        path.read_text()
        for folder in (house.workspace / "kept", house.home / "subagent")
        for path in folder.rglob("*.*")
    ]
    assert len(left) >= 8
    for text in (*(one.stdout + one.stderr for one in said), *left):
        assert not [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Zl") and letter != "\n"]
    assert json.loads(said[1].stdout)["results"][0]["report"] == f"found {sly}"


@pytest.mark.parametrize("command", ["stats", "errors", "models"])
def test_on_a_narrow_terminal_no_line_runs_over(house, command):
    model = house.script("bad", {"turns": [{"faults": ["bad_request"]}]})
    assert house.run("delegate", "-t", "a=x", "--yes", "--model", model).returncode == 1
    terminal = house.terminal(command, columns=40)
    assert terminal.end() == 0
    lines = terminal.text.replace("\r\n", "\n").splitlines()
    assert lines
    # A word that is longer than the line, as a path, stays whole, so that it can be copied.
    assert [line for line in lines if len(line) > 40 and " " in line.strip()] == []


def test_one_run_of_one_tree_is_counted_as_one(house):
    model = house.script("one", {"turns": [{"text": "Done."}]})
    assert house.run("run", "do it", "--model", model).returncode == 0
    run = house.run("prune", "--older-than", "0s", "--dry-run")
    assert "  1 run, last " in run.stdout
    assert run.stderr == "Would remove 1 run in 1 tree.\n"


@pytest.mark.rule("transcript")
def test_the_transcript_of_a_call_is_that_of_its_only_subagent(house, runs):
    model = house.script("one", {"turns": [{"text": "Done."}]})
    assert house.run("delegate", "-t", "a=Look at it.", "--yes", "--model", model).returncode == 0
    run = house.run("transcript", "last")
    assert run.stdout.startswith("# a\n")
    assert "## user\n\nLook at it.\n" in run.stdout
    call, *below = [one["session_id"] for one in runs]
    run = house.run("transcript", call)
    assert run.stderr == f"{call} has no conversation of its own; its subagents have: {', '.join(below)}\n"


def test_the_page_of_a_run_lists_the_tools_that_its_model_was_offered(house):
    model = house.script("one", {"turns": [{"text": "Done."}]})
    assert house.run("ask", "What is it?", "--model", model).returncode == 0
    shown = json.loads(house.run("show", "last", "--json").stdout)
    assert shown["tools"] == ["Ask", "Glob", "Grep", "Note", "Read", "WebFetch"]
