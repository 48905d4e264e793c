import io
import json
import math
import os
import sys

import click
import pytest
from click.testing import CliRunner
from tests.support.command_house import entries
from tests.support.scripts import talk, turn

from deputy.core.errors import UsageError
from deputy.core.limits import Budget
from deputy.interfaces.cli import COMMANDS, deputy
from deputy.interfaces.cli.console import RunOptions, _find_run, read_source, read_text, with_run_options


@pytest.mark.rule("ids.short")
def test_every_command_that_takes_a_run_takes_short_ids_labels_and_last(house):
    model = house.script("s", talk(turn("Here."), times=2))
    for question in ("Where is light?", "Where is light?"):
        assert house.run("ask", question, "--model", model).returncode == 0
    first, second = (entry["session_id"] for entry in entries(house))
    assert json.loads(house.run("show", second[-6:-2], "--json").stdout)["session_id"] == second
    assert json.loads(house.run("pin", "last", "--json").stdout)["session_id"] == second
    ambiguous = house.run("transcript", "where-light")
    assert ambiguous.returncode == 2
    assert f"it means several runs; give more of the id:\n  {first}  completed  where-light\n" in ambiguous.stderr
    assert house.run("cancel", "nothing").returncode == 3
    taking = [name for name in COMMANDS if "ID" in named(deputy.get_command(click.Context(deputy), name))]
    assert set(taking) >= {"show", "transcript", "export", "pin", "watch", "resume", "cancel", "approve"}
    for name in taking:
        command = deputy.get_command(click.Context(deputy), name)
        assert command is not None
        [argument] = [one for one in command.params if isinstance(one, click.Argument) and one.name == "run"]
        assert argument.callback is _find_run, name


def named(command) -> set[str]:
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    return {str(one.metavar).strip("[]") for one in arguments}


def test_a_file_is_read_whole(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfna\xc3\xafve \xff")
    assert read_source(str(file)) == file.read_bytes()
    assert read_text(str(file)) == "naïve �"


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello")))
    assert read_text("-") == "hello"


def test_a_missing_file_is_named_with_the_way_out(tmp_path):
    with pytest.raises(UsageError, match=r"FILE: found '.*nothing.md'; cannot read it: No such file.*- for stdin"):
        read_source(str(tmp_path / "nothing.md"))


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, kind):
    path = tmp_path / kind
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path = "/dev/zero"
    with pytest.raises(UsageError, match="not a regular file"):
        read_source(str(path))


def test_a_file_over_the_bound_is_refused(tmp_path):
    file = tmp_path / "big"
    file.write_bytes(b"x" * 2_000_000)
    with pytest.raises(UsageError, match="larger than the limit of 1 MiB"):
        read_source(str(file), limit_bytes=1_048_576)
    assert len(read_source(str(file), limit_bytes=2_000_000)) == 2_000_000


# --- the options of a run ---------------------------------------------------------------------------------------------


def options(*arguments: str) -> RunOptions:
    found: list[RunOptions] = []

    @click.command()
    @with_run_options("budget", "timeout", "tools")
    def command(options: RunOptions) -> None:
        found.append(options)

    if (failure := CliRunner().invoke(command, arguments).exception) is not None:
        raise failure
    return found[0]


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("0.50", Budget(cost=0.5)),
        ("$0.50", Budget(cost=0.5)),
        ("cost=0.5", Budget(cost=0.5)),
        ("tokens=100000", Budget(tokens=100_000)),
        ("cost=$0.5, tokens=100000, requests=20", Budget(cost=0.5, tokens=100_000, requests=20)),
        ("10000", Budget(cost=10_000)),
    ],
)
def test_a_budget_is_dollars_or_named_caps(text, budget):
    assert options("--budget", text).budget == budget


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "nan", "inf", "half", "0.5,0.6", "tokens=1.5", "tokens=0", "turns=3", "cost=1,cost=2"]
)
def test_a_budget_that_is_none_is_refused_with_the_form(text):
    with pytest.raises(UsageError, match=r"--budget( \w+)?: found .*; give dollars, like 0.50, or any of cost, tokens"):
        options("--budget", text)


def test_a_mistyped_cap_is_named():
    with pytest.raises(UsageError, match="--budget: found 'token'; give dollars"):
        options("--budget", "token=5")
    with pytest.raises(UsageError, match=r"--budget tokens: found '1\.5'; give dollars"):
        options("--budget", "cost=1,tokens=1.5")


@pytest.mark.parametrize("text", ["10000.01", "500000", "cost=500000"])
def test_more_than_ten_thousand_dollars_is_refused_with_the_unit(text):
    with pytest.raises(
        UsageError, match=r"a cost is in US dollars, at most 10,000 \(0.5 is 50 cents\); write tokens like"
    ):
        options("--budget", text)


def test_a_time_limit_is_above_zero_and_tools_are_a_list():
    assert options("--timeout", "1.5", "--tools", "Read, Grep,").timeout == 1.5
    assert options("--tools", "Read, Grep,").tools == ("Read", "Grep")
    assert options().tools is None
    for seconds in (0, -1, math.nan):
        with pytest.raises(UsageError, match=r"--timeout: found .*; give a number of seconds above 0"):
            options("--timeout", str(seconds))


def test_pages_fit_60_columns(house):
    agents = house.workspace / ".deputy" / "agents"
    agents.mkdir(parents=True)
    agents.joinpath("reviewer.md").write_text(
        f"---\nname: reviewer\ndescription: {'Reviews all. ' * 9}\n---\nReview.\n"
    )
    assert house.run("task", "add", "Make the login page work for everyone who has no password at all").returncode == 0
    assert house.run("ask", "Where is light?").returncode == 0
    for command in (["ps", "--all"], ["agents", "--shipped"], ["todo"], ["config"], ["stats"], ["show", "last"]):
        terminal = house.terminal(*command, columns=60)
        terminal.end()
        # Only a path is longer, which would be of no use when cut.
        lines = [line for line in terminal.text.replace("\r", "").splitlines() if "/" not in line]
        assert lines
        assert max(map(len, lines)) <= 60, command
