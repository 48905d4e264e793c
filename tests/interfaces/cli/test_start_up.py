"""Start-up is a feature: what a command does not need, it does not import."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deputy.interfaces.cli import COMMANDS, deputy

NEVER = {"aiohttp", "rich", "sqlite3", "asyncio", "logging"}
PRINT_MODULES = "import sys, atexit; atexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr))"


def modules_of(*arguments: str, stdin: str = "") -> set[str]:
    """The modules that a run of the command line has imported by its end."""
    program = (
        f"{PRINT_MODULES}; sys.argv = ['deputy', *{list(arguments)!r}]; from deputy.interfaces.cli import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", program], input=stdin, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 3), run.stderr[-2000:]
    return set(run.stderr.split())


def test_the_probe_sees_an_import():
    program = f"{PRINT_MODULES}; import asyncio"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "asyncio" in run.stderr.split()


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_and_version_import_no_command_and_nothing_heavy(arguments):
    modules = modules_of(*arguments)
    assert "deputy.interfaces.cli" in modules
    assert modules & NEVER == set()
    assert {name for name in modules if name.startswith("deputy.core.")} <= {"deputy.core.errors"}


def test_ps_imports_nothing_of_the_web_page(tmp_path, monkeypatch):
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    modules = modules_of("ps")
    assert "deputy.interfaces.cli.commands.ps" in modules
    assert {name for name in modules if name.startswith(("deputy.interfaces.web", "aiohttp"))} == set()


def test_the_help_of_the_group_says_the_same_as_each_command():
    for name, line in COMMANDS.items():
        command = deputy.get_command(click.Context(deputy), name)
        assert command is not None
        assert command.help is not None
        assert " ".join(command.help.split()).startswith(line.removesuffix(".")), name


def test_every_command_has_json_and_teaches_by_example():
    for name in COMMANDS:
        command = deputy.get_command(click.Context(deputy), name)
        assert command is not None
        assert "Examples:" in (command.help or "") + (command.epilog or ""), name
        below = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for one in below:
            assert any("--json" in parameter.opts for parameter in one.params), (name, one.name)


def test_the_config_of_an_mcp_client_can_be_pasted():
    command = deputy.get_command(click.Context(deputy), "mcp")
    output = CliRunner().invoke(command, ["--json", "--model", "sonnet", "--yes"])
    assert json.loads(output.stdout) == {
        "mcpServers": {
            "deputy": {
                "command": str(Path(sys.executable).parent / "deputy"),
                "args": ["mcp", "--model", "sonnet", "--yes"],
            }
        }
    }


@pytest.mark.parametrize("arguments", [("mcp",), ("mcp", "--json"), ("connect", "claude", "--dry-run")])
def test_what_needs_the_mcp_package_says_so_without_it(arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    for name in [name for name in sys.modules if name.startswith(("deputy.interfaces.mcp.", "mcp."))]:
        monkeypatch.delitem(sys.modules, name)
    output = CliRunner().invoke(deputy, arguments)
    assert str(output.exception) == "the MCP server needs the `mcp` package: pip install 'deputy-agents[mcp]'"


def test_a_client_can_be_disconnected_without_the_mcp_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CliRunner().invoke(deputy, ["connect", "claude", "--remove", "--yes"]).exit_code == 0
