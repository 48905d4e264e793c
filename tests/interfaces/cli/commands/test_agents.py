from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import fork_server

if TYPE_CHECKING:
    from pathlib import Path


class Shell:
    """Runs the command line in a project of its own, with a home of its own."""

    def __init__(self, root: Path) -> None:
        self.project, self.home = root / "project", root / "home"
        (self.project / ".git").mkdir(parents=True)
        self.home.mkdir()

    def write(self, path: str, text: str, *, at_home: bool = False) -> None:
        file = (self.home if at_home else self.project) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return fork_server.run(
            [sys.executable, "-m", "deputy", "agents", *arguments],
            cwd=cwd or self.project,
            env={**os.environ, "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def data(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.run("--json", *arguments).stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


CLEAN = "---\nname: pilot\ndescription: Brings ships in. Knows the tides.\ntools: Read, Grep\nmodel: sonnet\n---\nGo.\n"


@pytest.mark.rule("agents")
def test_json_has_exactly_the_documented_form(shell: Shell) -> None:
    shell.write(".claude/agents/pilot.md", CLEAN.replace("Brings", "When: brings"))
    shell.write(".claude/agents/README.md", "# Agents\n")
    done = shell.run("--json")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    reason = "mapping values are not allowed in this context"
    assert data["agents"] == [
        {
            "name": "pilot",
            "description": "When: brings ships in. Knows the tides.",
            "tools": ["Read", "Grep"],
            "model": "sonnet",
            "path": ".claude/agents/pilot.md",
            "source": "claude project",
            "warnings": [
                {
                    "path": ".claude/agents/pilot.md",
                    "line": 3,
                    "message": f"not valid YAML ({reason}), so it was read key by key; quote the value to fix it",
                }
            ],
        }
    ]
    assert [(problem["path"], problem["line"]) for problem in data["problems"]] == [(".claude/agents/README.md", 1)]
    assert set(data["problems"][0]) == {"path", "line", "message"}


def test_tools_and_model_that_are_inherited_are_null(shell: Shell) -> None:
    shell.write(".claude/agents/heir.md", "---\nname: heir\ndescription: x\nmodel: inherit\n---\n")
    assert [(agent["tools"], agent["model"]) for agent in shell.data()["agents"]] == [(None, None)]


@pytest.mark.rule("agents")
def test_a_shadowed_definition_is_reported_with_the_one_that_wins(shell: Shell) -> None:
    shell.write(".deputy/agents/near.md", CLEAN)
    shell.write(".claude/agents/far.md", CLEAN, at_home=True)
    data = shell.data()
    assert [agent["path"] for agent in data["agents"]] == [".deputy/agents/near.md"]
    assert [problem["path"] for problem in data["problems"]] == [str(shell.home / ".claude/agents/far.md")]
    assert "shadowed by .deputy/agents/near.md (deputy project)" in data["problems"][0]["message"]
    text = " ".join(shell.run().stdout.split())
    assert "~/.claude/agents/far.md: shadowed by .deputy/agents/near.md (deputy project)" in text


def test_a_person_reads_name_source_model_tools_and_the_first_sentence(shell: Shell) -> None:
    shell.write(".claude/agents/pilot.md", CLEAN)
    done = shell.run()
    assert done.returncode == 0
    assert done.stdout == (
        "pilot                                                             claude project\n"
        "  Brings ships in.\n"
        "  model: sonnet · tools: Read, Grep\n"
        "  .claude/agents/pilot.md\n"
        "\n"
        "1 agent, 0 warnings, 0 problems\n"
    )


def test_everything_fits_80_columns(shell: Shell) -> None:
    long = "word " * 400
    tools = ", ".join(f"mcp__server_{number}__tool" for number in range(40))
    shell.write(
        ".claude/agents/a.md", f"---\nname: {'n' * 200}\ndescription: when: {long}\ntools: {tools}\nzz: 1\n---\n"
    )
    shell.write(".claude/agents/b.md", "no front matter")
    shell.write(".opencode/agent/c.md", "---\nname: other\ndescription: x\ntools: {write: false}\n---\n")
    lines = shell.run().stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("…") for line in lines)
    assert "  model: the caller's · tools: the caller's, without write" in lines


def test_nothing_found_says_where_it_looked_and_how_to_make_one(shell: Shell) -> None:
    done = shell.run()
    assert (done.returncode, done.stderr) == (3, "")
    assert "  .claude/agents\n" in done.stdout
    assert "  ~/.config/opencode/agents\n" in done.stdout
    assert "description: Reviews" in done.stdout


def test_the_example_that_it_gives_is_a_clean_definition(shell: Shell) -> None:
    example = shell.run().stdout.split("reviewer.md:\n")[1]
    shell.write(".deputy/agents/reviewer.md", "\n".join(line[4:] for line in example.strip("\n").splitlines()))
    (agent,) = shell.data()["agents"]
    assert (agent["name"], agent["tools"], agent["warnings"]) == ("reviewer", ["Read", "Grep", "Glob"], [])


def test_only_problems_is_nothing_found(shell: Shell) -> None:
    shell.write(".claude/agents/README.md", "# Agents\n")
    done = shell.run("--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["agents"] == []
    assert len(json.loads(done.stdout)["problems"]) == 1


def test_another_directory_is_looked_at_with_dir(shell: Shell) -> None:
    shell.write("service/.claude/agents/pilot.md", CLEAN)
    assert shell.run().returncode == 3
    assert [agent["path"] for agent in shell.data("--dir", "service")["agents"]] == ["service/.claude/agents/pilot.md"]


@pytest.mark.parametrize("directory", ["nowhere", "file.txt"])
def test_a_directory_that_is_none_is_a_usage_error(shell: Shell, directory: str) -> None:
    shell.write("file.txt", "")
    done = shell.run("--dir", directory)
    assert done.returncode == 2
    assert directory in done.stderr
    assert "Traceback" not in done.stderr


def test_a_current_directory_that_is_gone_is_a_usage_error(shell: Shell) -> None:
    gone = shell.home / "gone"
    gone.mkdir()
    script = "import os; os.rmdir(os.getcwd()); from deputy.interfaces.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "agents"], cwd=gone, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--dir" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_control_character_reaches_the_terminal(shell: Shell) -> None:
    hostile = "\x1b]0;x\x07\x1b[2J\x9b31m\u202e"
    shell.write(
        ".claude/agents/a.md", f"---\nname: a{hostile}\ndescription: b{hostile}\n{hostile}: 1\nmodel: m{hostile}\n---\n"
    )
    shell.write(f".claude/agents/{hostile.replace('/', '')}.md", "nothing")
    folder = f"sub{hostile}"
    shell.write(f"{folder}/.claude/agents/b.md", CLEAN)
    (shell.project / folder / ".claude/agents/link.md").symlink_to("/etc/hostname")
    for arguments in ([], ["--json"], ["--dir", folder], ["--dir", folder, "--json"]):
        done = shell.run(*arguments)
        assert done.returncode == 0
        assert not set("\x1b\x07\x9b\u202e") & set(done.stdout)
        assert "u001b" not in done.stdout


def test_a_directory_whose_name_is_not_utf8_is_shown_all_the_same(shell: Shell) -> None:
    folder = os.fsdecode(b"caf\xe9")
    (shell.project / folder / ".claude/agents").mkdir(parents=True)
    assert "caf\ufffd/.claude/agents" in shell.run("--dir", folder).stdout
    (shell.project / folder / ".claude/agents/link.md").symlink_to("/etc/hostname")
    for arguments in (["--dir", folder], ["--dir", folder, "--json"]):
        done = shell.run(*arguments)
        assert (done.returncode, done.stderr) == (3, "")


def test_help_teaches_with_examples(shell: Shell) -> None:
    done = shell.run("--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert "deputy agents --dir" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_nothing_heavy_is_imported(shell: Shell) -> None:
    shell.write(".claude/agents/pilot.md", CLEAN)
    script = """
import sys
from deputy.interfaces.cli import main
sys.argv = ["deputy", "agents"]
try:
    main()
finally:
    print([name for name in ("aiohttp", "rich", "sqlite3", "asyncio") if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=shell.project,
        env={**os.environ, "HOME": str(shell.home)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


@pytest.mark.rule("agents")
def test_those_that_are_shipped_are_listed_on_demand_after_the_others(shell: Shell) -> None:
    shell.write(".claude/agents/planner.md", CLEAN.replace("pilot", "planner"))
    agents = shell.data("--shipped")["agents"]
    assert (agents[0]["name"], agents[0]["source"]) == ("planner", "claude project")
    assert {agent["source"] for agent in agents[1:]} == {"deputy shipped"}
    assert "researcher" in {agent["name"] for agent in agents[1:]}


def test_tools_that_do_not_exist_are_a_warning(shell: Shell) -> None:
    shell.write(".claude/agents/a.md", "---\nname: a\ndescription: d\ntools: Read, TodoWrite\n---\nx")
    assert "  ! no such tools, so they are not granted: TodoWrite\n" in shell.run().stdout
    [agent] = json.loads(shell.run("--json").stdout)["agents"]
    assert agent["warnings"][0]["message"] == "no such tools, so they are not granted: TodoWrite"
