"""Chains and fans of subtasks in a real process that is killed at random moments, and resumed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.fork_server import Popen
from tests.support.scripts import call, talk, turn

from deputy.client import Deputy
from deputy.core.events import ModelCallEnded, Record
from deputy.core.outcome import Completed, Outcome
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.testing import ModelScript, ProviderServer, ScriptedConversation

MOMENTS = int(os.environ.get("DEPUTY_MOMENTS", "1"))
"""How many moments are tried of each shape; `make kill` tries 50."""
PARENT = "You work for a person"
DEPTH, FAN, QUORUM = 10, 64, 60
MODEL = "anthropic:claude-sonnet-4-5"


def request(name: str) -> dict[str, str]:
    return {"type": name, "description": f"Work of {name}.", "context_management": {"fresh_context": "disabled"}}


def chain(chance: Random) -> tuple[ScriptedConversation, ...]:
    """Ten subtasks, each of which waits for the next; the deepest first, since its words are in no other."""

    def level(depth: int) -> ScriptedConversation:
        asks = turn(
            "", call("Subtask", requests=[request(f"level{depth + 1}.")]), delay_seconds=chance.uniform(0, 0.05)
        )
        turns = (asks, turn(f"back at {depth}")) if depth < DEPTH else (turn("the bottom"),)
        return talk(*turns, when=f"Work of level{depth}." if depth else PARENT, times=9)

    return tuple(level(depth) for depth in reversed(range(DEPTH + 1)))


def fan(chance: Random) -> tuple[ScriptedConversation, ...]:
    """Sixty-four subtasks at once."""
    names = [f"part{number}." for number in range(FAN)]
    parts = [
        talk(turn(f"done {name}", delay_seconds=chance.uniform(0, 0.3)), when=f"Work of {name}", times=9)
        for name in names
    ]
    asks = turn("", call("Subtask", requests=[request(name) for name in names]))
    return (talk(asks, turn("all back"), when=PARENT, times=9), *parts)


def some_of(answering: int, **join: Any) -> Callable[[Random], tuple[ScriptedConversation, ...]]:
    """Sixty-four subtasks at once, of which so many ever answer; the others would keep their caller for ever."""

    def make(chance: Random) -> tuple[ScriptedConversation, ...]:
        names = [f"part{number}." for number in range(FAN)]
        quick = frozenset(chance.sample(names, answering))
        parts = [
            talk(
                turn(f"done {name}", delay_seconds=chance.uniform(0, 0.3) if name in quick else 600.0),
                when=f"Work of {name}",
                times=9,
            )
            for name in names
        ]
        asks = turn("", call("Subtask", requests=[request(name) for name in names], **join))
        return (talk(asks, turn("enough"), when=PARENT, times=9), *parts)

    return make


SHAPES = {
    "chain": (chain, DEPTH, "back at 0"),
    "fan": (fan, FAN, "all back"),
    "any": (some_of(FAN - 2, join="any"), FAN, "enough"),
    "quorum": (some_of(QUORUM, join="quorum", quorum=QUORUM), FAN, "enough"),
}
NEEDED = {"any": range(1, FAN - 1), "quorum": range(QUORUM, QUORUM + 1)}
"""How many may have completed in the end."""


def answers(home: Path) -> dict[str, str]:
    """What every run reported, by its label."""
    with SqliteQueries.open(home) as reader:
        states = [one.state for one in list_runs(reader, ended=1000)]
        endings = {state.label: reader.get(state.run, "returned:0") for state in states}
    return {label: ending.event.outcome.report for label, ending in endings.items() if ending is not None}


def _answered(records: Iterable[object]) -> int:
    """How many model calls have their answer on record."""
    return sum(isinstance(one, Record) and isinstance(one.event, ModelCallEnded) for one in records)


def label_of(opening: str) -> str:
    """Whose conversation opens like this; the root has no label."""
    _, found, rest = opening.partition("Work of ")
    return f"{rest.partition('.')[0]}." if found and PARENT not in opening else ""


def ids(home: Path) -> Counter[str]:
    """How many runs there are of each label."""
    with SqliteQueries.open(home) as reader:
        return Counter(one.state.label for one in list_runs(reader, ended=1000))


@pytest.mark.rule("subtask.flow")
@pytest.mark.rule("spawn.once")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_subtasks_that_a_kill_interrupted_come_to_the_same_and_none_is_run_twice(
    shape: str, moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make, count, report = SHAPES[shape]
    chance = Random(f"{shape} {moment}")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    with ProviderServer(ModelScript(conversations=make(chance)), strict=False) as provider:
        for name, value in provider.environ.items():
            monkeypatch.setenv(name, value)
        command = [sys.executable, "-m", "deputy", "run", "--yes", "--events", "-", "--model", MODEL, "Do it."]
        process = Popen(command, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        for _ in range(chance.randint(1, 3 * count)):
            if not process.stdout.readline():
                break
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait(10)
        with SqliteQueries.open(tmp_path / "home") as reader:
            states = [one.state for one in list_runs(reader, ended=1000)]
            root = next(state.run for state in states if state.parent is None)
            finished = {state.label: _answered(reader.records(state.run)) for state in states}

        async def go_on() -> Outcome:
            async with Deputy(workspace=workspace) as deputy:
                state = await deputy.state(root)
                if state.is_live:
                    await deputy.resume_run(root)
                return await deputy.outcome(root)

        outcome = asyncio.run(go_on())
    assert isinstance(outcome, Completed), outcome
    assert outcome.report == report
    labels = ids(tmp_path / "home")
    assert sum(labels.values()) == count + 1
    assert set(labels.values()) == {1}
    output = answers(tmp_path / "home")
    if shape in NEEDED:
        # A subtask that is not needed any more was stopped, and says nothing.
        done = [label for label, said in output.items() if said == f"done {label}"]
        assert len(done) in NEEDED[shape]
        assert sum(not said for said in output.values()) == FAN - len(done)
    else:
        fan_out = {f"part{n}.": f"done part{n}." for n in range(FAN)}
        assert (fan_out if shape == "fan" else {"level10.": "the bottom"}).items() <= output.items()
    # A call that was under way is made again; one that was answered and written down never is.
    asked = Counter((label_of(one.opening), one.answered) for one in provider.asked)
    assert not [key for key, times in asked.items() if times > 1 and key[1] < finished.get(key[0], 0)]
    assert max(asked.values()) <= 2
