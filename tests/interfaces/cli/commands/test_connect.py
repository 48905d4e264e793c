import json

import pytest


@pytest.fixture
def person(house, tmp_path):
    home = tmp_path / "person"
    home.mkdir()
    names = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "GEMINI_CLI_HOME")
    house.env = {**{name: value for name, value in house.env.items() if name not in names}, "HOME": str(home)}
    return home


def test_at_a_terminal_the_change_is_shown_asked_and_written(house, person):
    (person / ".claude.json").write_text('{\n  "theme": "dark"\n}\n')
    terminal = house.terminal("connect", "claude")
    terminal.until("Write these 2 files? [y/N] ")
    assert "deputy" not in (person / ".claude.json").read_text()
    terminal.type("y\n")
    assert terminal.end() == 0
    shown = terminal.text.replace("\r", "")
    assert '-  "theme": "dark"\n+  "theme": "dark",\n+  "mcpServers": {\n+    "deputy": {\n' in shown
    assert "Connected claude. Start it anew to use Delegate.\n" in shown
    own = [line for line in shown.splitlines() if not line.startswith(("+", "-", "The file before"))]
    assert [line for line in own if len(line) > 80] == []
    entry = json.loads((person / ".claude.json").read_text())["mcpServers"]["deputy"]
    assert (entry["type"], entry["args"]) == ("stdio", ["mcp"])
    assert (person / ".claude/skills/deputy/SKILL.md").read_text().startswith("---\nname: deputy\n")


def test_a_no_and_a_pipe_without_yes_write_nothing(house, person):
    terminal = house.terminal("connect", "codex")
    terminal.until("[y/N] ")
    terminal.type("\n")
    assert terminal.end() == 6
    run = house.run("connect", "codex")
    assert (run.returncode, run.stdout, "pass --yes" in run.stderr) == (6, "Nothing was written.\n", True)
    assert list(person.iterdir()) == []


def test_options_reach_the_server_and_set_variables_are_named(house, person):
    options = ("--unattended", "--model", "sonnet", "--allow", "Edit")
    run = house.run("connect", "codex", *options, "--yes", "--json", OPENAI_API_KEY="sk-secret-value-1234")
    form = json.loads(run.stdout)
    assert (run.returncode, form["result"], form["removed"]) == (0, "written", False)
    assert form["entry"]["args"] == ["mcp", "--model", "sonnet", "--allow", "Edit", "--yes"]
    assert "OPENAI_API_KEY" in form["entry"]["env_vars"]
    assert "DEPUTY_HOME" in form["entry"]["env_vars"]
    config = (person / ".codex/config.toml").read_text()
    assert "sk-secret-value-1234" not in config + run.stdout + run.stderr


def test_a_second_time_nothing_changes_and_remove_takes_it_back(house, person):
    path = person / ".config/opencode/opencode.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n  "theme": "x"\n}\n')
    assert house.run("connect", "opencode", "--dry-run").returncode == 0
    assert path.read_text() == '{\n  "theme": "x"\n}\n'
    assert house.run("connect", "opencode", "--yes").returncode == 0
    again = house.run("connect", "opencode")
    assert (again.returncode, again.stdout) == (0, "opencode is connected already.\n")
    removed = house.run("connect", "opencode", "--remove", "--yes")
    assert removed.stdout.startswith("Removed Deputy from opencode.\nThe file before: ")
    assert path.read_text() == '{\n  "theme": "x"\n}\n'
    assert not (person / ".config/opencode/skills").exists()
    assert house.run("connect", "opencode", "--remove").stdout == "opencode has no entry of Deputy.\n"


@pytest.mark.parametrize("client", ["codex", "gemini"])
def test_what_connect_created_is_gone_after_remove(house, person, client):
    assert house.run("connect", client, "--yes").returncode == 0
    assert list(person.iterdir()) != []
    removed = house.run("connect", client, "--remove", "--yes")
    assert (removed.returncode, removed.stdout) == (0, f"Removed Deputy from {client}.\n")
    assert list(person.iterdir()) == []


def test_a_file_with_comments_stays_and_the_entry_is_printed(house, person):
    path = person / ".gemini/settings.json"
    path.parent.mkdir()
    path.write_text("{ // mine\n}\n")
    run = house.run("connect", "gemini", "--yes")
    assert run.returncode == 2
    assert "add by hand, at mcpServers.deputy: {" in run.stderr
    assert path.read_text() == "{ // mine\n}\n"
    assert not (person / ".gemini/skills").exists()
