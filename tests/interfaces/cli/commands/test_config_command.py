import json
from pathlib import Path

import pytest


@pytest.fixture
def own(house) -> Path:
    """The user's own settings file."""
    house.env["HOME"] = str(house.workspace.parent)
    return house.workspace.parent / ".config" / "deputy" / "config.toml"


def editor(house, text: str) -> str:
    """A program that appends a text to the file it edits."""
    path = house.workspace.parent / "editor"
    path.write_text(f"#!/bin/sh\nprintf '%s' '{text}' >> \"$1\"\n")
    path.chmod(0o700)
    return str(path)


def test_each_setting_names_the_file_that_it_comes_from(house, own):
    own.parent.mkdir(parents=True)
    own.write_text("[limits]\nconcurrency = 3\nmax_depth = 3\nrepairs = 2\n")
    (house.workspace / "deputy.toml").write_text(
        '[limits]\nrepairs = 0\nmax_spawns = 9\n[approval]\npolicy = "allow"\n'
    )
    form = json.loads(house.run("config", "show", "--json").stdout)
    assert form["files"] == {"yours": str(own), "project": "deputy.toml"}
    settings = {one["key"]: (one["value"], one["source"]) for one in form["settings"]}
    assert settings["limits.concurrency"] == (3, "yours")
    assert settings["limits.max_depth"] == (3, "yours"), "though it is the shipped value"
    assert settings["limits.repairs"] == (0, "project")
    assert settings["limits.max_spawns"] == (9, "project")
    assert settings["approval.policy"] == ("ask", "default"), "a project cannot allow more"
    assert settings["routing.fallback"] == (True, "default")


def test_the_screen_fits_80_columns(house, own):
    own.parent.mkdir(parents=True)
    own.write_text(f'[notify]\ncommand = ["{"notify " * 30}"]\n')
    terminal = house.terminal("config", columns=80)
    assert terminal.end() == 0
    lines = terminal.text.replace("\r", "").replace(str(own), "~").splitlines()
    assert "default   limits.max_depth      3" in lines
    assert any(line.startswith('yours     notify.command        ["notify notify') for line in lines)
    assert max(map(len, lines)) <= 80


def test_edit_makes_the_file_opens_the_editor_and_checks_the_settings(house, own):
    terminal = house.terminal("config", "edit", EDITOR=editor(house, "[limits]\nconcurrency = 3\n"), VISUAL="")
    assert terminal.end() == 0, terminal.text
    assert "The settings are valid." in terminal.text
    assert own.read_text().startswith("# Settings of Deputy")
    assert own.read_text().endswith("concurrency = 3\n")
    assert own.stat().st_mode & 0o777 == 0o600
    terminal = house.terminal(
        "config", "edit", "--project", EDITOR=editor(house, "[limits]\nconcurency = 3\n"), VISUAL=""
    )
    assert terminal.end() == 2
    assert "did you mean 'concurrency'?" in " ".join(terminal.text.split())


def test_without_a_terminal_nothing_is_edited(house, own):
    run = house.run("config", "edit", EDITOR="false")
    assert run.returncode == 2
    assert "run it at a terminal" in run.stderr
    assert not own.exists()
