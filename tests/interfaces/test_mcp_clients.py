import json
import sys
import tomllib
from pathlib import Path

import pytest

from deputy.config.toml_edit import CannotEdit
from deputy.interfaces.mcp_clients import CLIENTS, own_command, skill_text

ENTRIES = {name: client.entry(["/bin/deputy", "mcp"], ["OPENAI_API_KEY"]) for name, client in CLIENTS.items()}
every_client = pytest.mark.parametrize("name", CLIENTS)


def read(name: str, text: str):
    return tomllib.loads(text) if CLIENTS[name].form == "toml" else json.loads(text)


@every_client
def test_the_entry_is_added_once_and_removed_without_a_trace(name):
    client, entry = CLIENTS[name], ENTRIES[name]
    for before in (None, "", 'model = "x"\n' if client.form == "toml" else '{\n    "model": "x"\n}'):
        once = client.connected(before, entry)
        servers = read(name, once)
        for key in client.place:
            servers = servers[key]
        assert servers == {"deputy": entry}
        assert client.connected(once, entry) == once
        gone = client.disconnected(once)
        assert gone is None if not before else read(name, gone) == read(name, before)
        assert gone is None or client.disconnected(gone) == gone


@every_client
def test_other_servers_and_own_keys_of_an_entry_stay(name):
    client, entry = CLIENTS[name], ENTRIES[name]
    if client.form == "toml":
        before = (
            '# mine\n[mcp_servers.other]\ncommand = "o"\n\n[mcp_servers.deputy]\ncommand = "old"\nrequired = true\n'
        )
    else:
        servers = {"other": {"command": "o"}, "deputy": {"command": "old", "required": True}}
        before = json.dumps({client.place[0]: servers, "z": "é"}, indent=4, ensure_ascii=False)
    after = client.connected(before, entry)
    found = read(name, after)[client.place[0]]
    assert found == {"other": {"command": "o"}, "deputy": {"command": "old", "required": True, **entry}}
    assert "# mine\n" in after if client.form == "toml" else '\n    "z": "é"\n}' in after
    assert read(name, client.disconnected(after))[client.place[0]] == {"other": {"command": "o"}}


@pytest.mark.parametrize("text", ["{ // a comment\n}", "[]", '{"mcpServers": 3}', "[" * 100_000])
def test_json_that_cannot_be_changed_is_refused(text):
    with pytest.raises(CannotEdit):
        CLIENTS["claude"].connected(text, ENTRIES["claude"])


def test_files_are_where_the_clients_look_for_them():
    home = {"HOME": "/h"}
    assert {name: str(client.config_path(home)) for name, client in CLIENTS.items()} == {
        "claude": "/h/.claude.json",
        "codex": "/h/.codex/config.toml",
        "opencode": "/h/.config/opencode/opencode.json",
        "gemini": "/h/.gemini/settings.json",
    }
    assert str(CLIENTS["claude"].skill_path(home)) == "/h/.claude/skills/deputy/SKILL.md"
    moved = {**home, "CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "XDG_CONFIG_HOME": "/g", "GEMINI_CLI_HOME": "/m"}
    assert {name: str(client.config_path(moved)) for name, client in CLIENTS.items()} == {
        "claude": "/c/.claude.json",
        "codex": "/x/config.toml",
        "opencode": "/g/opencode/opencode.json",
        "gemini": "/m/.gemini/settings.json",
    }


def test_the_command_is_absolute_and_starts_this_installation():
    command = own_command("mcp", "--yes")
    assert Path(command[0]).is_absolute()
    assert Path(command[0]).parent == Path(sys.executable).parent
    assert command[-2:] == ["mcp", "--yes"]


def test_keys_are_named_and_never_written():
    assert ENTRIES["codex"]["env_vars"] == ["OPENAI_API_KEY"]
    assert ENTRIES["gemini"]["env"] == {"OPENAI_API_KEY": "$OPENAI_API_KEY"}
    assert "env" not in ENTRIES["claude"]


def test_the_advice_is_a_skill():
    head, about, _ = skill_text().split("---\n")[0:3]
    assert head == ""
    assert about.startswith("name: deputy\ndescription: Delegate work to subagents")
    assert len(about) < 1024
    assert "Delegate when it pays" in skill_text()
