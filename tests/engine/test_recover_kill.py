"""A delegation at the command line of a real process that is killed, or told to stop, at random moments."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from tests.support.fork_server import Popen, run
from tests.support.scripts import call, talk, turn

from deputy.client import Deputy
from deputy.core.events import ModelCallEnded, Record
from deputy.core.outcome import Outcome
from deputy.core.state import State
from deputy.engine.recover import shown_status
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.testing import ModelScript, ProviderServer, ScriptedConversation, ScriptedTurn

LABELS = ("one", "two", "three")
LINE = 'DB_PASSWORD = "correct horse battery"'
TURNS = 3
MOMENTS = int(os.environ.get("DEPUTY_MOMENTS", "3"))
"""How many moments are tried; `make kill` tries 50."""
STOP_SECONDS = 3.0
SLEEP = "echo $$ > pid-$$; exec sleep 600"
ESCAPE = "setsid sh -c 'echo $$ > pid-$$; exec sleep 600' & wait"
"""A command whose child has a session of its own."""


class Command:
    """`deputy delegate` with three tasks, on a home, a workspace and a provider of its own."""

    def __init__(
        self, root: Path, provider: ProviderServer, monkeypatch: pytest.MonkeyPatch, *tools: str, **more: float
    ) -> None:
        self.home, self.workspace = root / "home", root / "workspace"
        self.workspace.mkdir()
        (self.workspace / "file.txt").write_text(f"{LINE}\n")
        tasks = [{"label": label, "prompt": f"work of {label}", "tools": [*tools], **more} for label in LABELS]
        (root / "tasks.json").write_text(json.dumps({"tasks": tasks, "concurrency": 3}))
        for name, value in provider.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DEPUTY_HOME", str(self.home))
        arguments = ["delegate", "--tasks", str(root / "tasks.json"), "--yes", "--events", "-", "--return", "json"]
        self.process = Popen(
            [sys.executable, "-m", "deputy", *arguments, "--model", "anthropic:claude-sonnet-4-5"],
            cwd=self.workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def read_until(self, count: int, word: str = "") -> None:
        """Let it go on until it has told so often of something."""
        assert self.process.stdout is not None
        while count and (line := self.process.stdout.readline()):
            count -= word.encode() in line

    def send(self, number: signal.Signals) -> int:
        """Send a signal; gives the exit code."""
        assert self.process.stdout is not None
        self.process.send_signal(number)
        self.process.stdout.close()
        return self.process.wait(STOP_SECONDS)

    def runs(self) -> dict[str, State]:
        """Where every run stands, by its label."""
        with SqliteQueries.open(self.home) as reader:
            return {standing.state.label: standing.state for standing in list_runs(reader, ended=100)}

    def shown(self) -> dict[str, str]:
        """The status of every run that has not ended, as people see it."""
        with SqliteQueries.open(self.home) as reader:
            return {standing.state.label: shown_status(standing) for standing in list_runs(reader)}

    def finished(self) -> Counter[str]:
        """How many model calls of each subagent are on record."""
        with SqliteQueries.open(self.home) as reader:
            runs = [standing.state for standing in list_runs(reader, ended=100)]
            records = {state.label: list(reader.records(state.run)) for state in runs}
        return Counter(
            label
            for label, found in records.items()
            for record in found
            if isinstance(record, Record) and isinstance(record.event, ModelCallEnded)
        )

    def children(self) -> list[int]:
        """The commands that its subagents started and that still run."""
        pids = [int(file.name.removeprefix("pid-")) for file in self.workspace.glob("pid-*")]
        return [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]


def asked(provider: ProviderServer) -> Counter[tuple[str, int]]:
    """How often each turn of each subagent was asked for."""
    output = [(label, one.answered) for one in provider.asked for label in LABELS if f"work of {label}" in one.opening]
    return Counter(output)


@pytest.mark.rule("recover")
@pytest.mark.rule("journal.first")
@pytest.mark.rule("redact.where")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_what_a_kill_left_goes_on_and_no_finished_call_is_paid_twice(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chance = Random(f"kill {moment}")

    def conversation(label: str) -> ScriptedConversation:
        slow = [chance.uniform(0.0, 0.2) for _ in range(TURNS)]
        return talk(
            turn("", call("Note", content="seen"), call("Read", path="file.txt"), delay_seconds=slow[0]),
            turn("", call("Glob", pattern="*"), delay_seconds=slow[1]),
            turn("Done.", delay_seconds=slow[2]),
            when=f"work of {label}",
            times=2,
        )

    script = ModelScript(conversations=tuple(map(conversation, LABELS)))
    with ProviderServer(script, strict=False) as provider:
        command = Command(tmp_path, provider, monkeypatch, "Read", "Glob")
        command.read_until(chance.randint(1, 24))
        command.send(signal.SIGKILL)
        finished, shown, runs = command.finished(), command.shown(), command.runs()
        assert set(shown.values()) == {"interrupted"}
        root = next(state.run for state in runs.values() if state.parent is None)

        async def go_on():
            async with Deputy(workspace=command.workspace) as deputy:
                await deputy.resume_run(root)
                return await deputy.results(root)

        results = asyncio.run(go_on())
        assert [(result.label, result.outcome.status) for result in results] == [(x, "completed") for x in LABELS]
        assert [(result.outcome.notes, result.outcome.report) for result in results] == [(("seen",), "Done.")] * 3
        assert [result.outcome.usage.requests for result in results] == [TURNS] * 3
        twice = {key for key, times in asked(provider).items() if times > 1}
        assert not [key for key in twice if key[1] < finished[key[0]]]
        assert len(provider.asked) <= TURNS * len(LABELS) + len(LABELS)
        # What a tool returned reaches the model exactly, before the kill and after it.
        later = [json.dumps(one.body) for one in provider.asked if one.answered]
        assert all(json.dumps(LINE)[1:-1] in body for body in later)
    assert not command.shown()
    transcripts = [json.loads(file.read_bytes()) for file in sorted((command.home / "subagent").glob("*.json"))]
    assert [transcript["outcome"] for transcript in transcripts] == ["success"] * 3
    assert [transcript["messages"][-1]["content"] for transcript in transcripts] == ["Done."] * 3


@pytest.mark.rule("delegate.cancel")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_signal_ends_everything_soon_and_leaves_nothing_running(
    number: signal.Signals, moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chance = Random(f"{number} {moment}")
    turns = [
        turn("Begun.", call("Note", content="seen"), delay_seconds=0.02),
        turn("", call("Run", command=SLEEP), delay_seconds=0.02),
        turn("never", delay_seconds=600),
    ]
    script = ModelScript(conversations=tuple(talk(*turns, when=f"work of {label}") for label in LABELS))
    with ProviderServer(script, strict=False) as provider:
        command = Command(tmp_path, provider, monkeypatch, "Run")
        command.read_until(*((len(LABELS), '"Run"') if moment == 0 else (chance.randint(1, 15),)))
        began = time.monotonic()
        code = command.send(number)
        took = time.monotonic() - began
    runs = command.runs()
    assert code == 130
    assert took <= STOP_SECONDS
    assert {state.status for state in runs.values()} == {"cancelled"}
    assert not command.children()


def in_commands(root: Path, provider: ProviderServer, monkeypatch: pytest.MonkeyPatch, **more: float) -> Command:
    """A delegation of which each subagent runs a command."""
    command = Command(root, provider, monkeypatch, "Run", **more)
    command.read_until(len(LABELS), '"Run"')
    while len(command.children()) < len(LABELS):
        os.sched_yield()
    return command


def kill_with_all_wardens(command: Command) -> None:
    """Kill a process and its reapers, so that its commands outlive it."""
    command.process.send_signal(signal.SIGSTOP)
    pid = command.process.pid
    below = [task.read_text().split() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    for reaper in {int(one) for found in below for one in found}:
        os.kill(reaper, signal.SIGKILL)
    command.send(signal.SIGKILL)
    assert len(command.children()) == len(LABELS)


def scripted(*turns: ScriptedTurn, times: int = 1) -> ModelScript:
    """Each subagent says the same."""
    return ModelScript(conversations=tuple(talk(*turns, when=f"work of {label}", times=times) for label in LABELS))


def ps() -> dict[str, str]:
    """The delegations that `deputy ps` shows, by their labels."""
    output = run([sys.executable, "-m", "deputy", "ps", "--json"], capture_output=True, check=True)
    return {one["label"]: one["status"] for one in json.loads(output.stdout)["delegations"]}


@pytest.mark.rule("recover")
@pytest.mark.parametrize("shape", [SLEEP, ESCAPE], ids=["plain", "in a session of its own"])
def test_no_command_outlives_a_kill(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with ProviderServer(scripted(turn("", call("Run", command=shape))), strict=False) as provider:
        command = in_commands(tmp_path, provider, monkeypatch)
        command.send(signal.SIGKILL)
    while command.children():
        os.sched_yield()
    assert set(command.shown().values()) == {"interrupted"}


@pytest.mark.rule("registry.monitor")
@pytest.mark.parametrize("look", ["ps", "doctor"])
def test_commands_that_outlived_a_kill_are_ended_by_the_next_command(
    look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with ProviderServer(scripted(turn("", call("Run", command=ESCAPE))), strict=False) as provider:
        command = in_commands(tmp_path, provider, monkeypatch)
        kill_with_all_wardens(command)
        run([sys.executable, "-m", "deputy", look], capture_output=True, cwd=command.workspace)
    assert not command.children()
    assert set(command.shown().values()) == {"interrupted"}


@pytest.mark.rule("recover")
def test_commands_that_outlived_a_kill_are_ended_when_their_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = scripted(turn("", call("Run", command=ESCAPE)), turn("Done."), times=2)
    with ProviderServer(script, strict=False) as provider:
        command = in_commands(tmp_path, provider, monkeypatch)
        kill_with_all_wardens(command)
        root = next(state.run for state in command.runs().values() if state.parent is None)
        outcome = asyncio.run(resumed(command, root))
    assert outcome.status == "completed"
    assert not command.children()


@pytest.mark.rule("registry.monitor")
def test_commands_that_outlived_a_kill_are_ended_with_their_run_when_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = scripted(turn("", call("Note", content="seen")), turn("", call("Run", command=ESCAPE)), turn("never"))
    with ProviderServer(script, strict=False) as provider:
        command = in_commands(tmp_path, provider, monkeypatch, timeout=4)
        kill_with_all_wardens(command)
    shown = {"one": "interrupted"}
    while set(shown) & set(LABELS):
        shown = ps()
        assert set(shown.values()) == {"interrupted"}
    assert not command.children()
    runs = [state for state in command.runs().values() if state.label in LABELS]
    assert [(state.status, state.reason, state.counts.notes) for state in runs] == [("partial", "timeout", 1)] * 3


async def resumed(command: Command, run: str) -> Outcome:
    async with Deputy(workspace=command.workspace) as deputy:
        return await deputy.resume(run)
