"""Several processes, and processes that die: nothing that was acknowledged is lost, nothing is spliced."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fork_server import Popen

from deputy.core.errors import LeaseHeld
from deputy.core.events import Noted, Record
from deputy.core.state import replay
from deputy.engine.ports.queries import DamagedRecord
from deputy.engine.recover import shown_status
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

WRITER = Path(__file__).parents[1] / "writer.py"


def start(home: Path, run: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), str(home), run, *options]
    return Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(home: Path, run: str, acknowledged: list[str]) -> int:
    """Every acknowledged record is there and whole, the sequence has no holes, and the state follows from it."""
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        records = list(reader.records(run))
        assert not [record for record in records if isinstance(record, DamagedRecord)]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        by_key = {record.key: record for record in records}
        for line in acknowledged:
            seq, key, length = line.split()
            record = by_key[key]
            assert record.seq == int(seq)
            assert isinstance(record.event, Noted)
            assert len(record.event.content) == int(length)
            assert record.event.content.rstrip("x") == f"{key.removeprefix('note:')}:"
        whole: list[Record] = records
        assert reader.state(run) == replay(whole)
    return len(records)


@pytest.mark.rule("journal.first")
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed_60_times(tmp_path: Path) -> None:
    chance = random.Random(3)
    acknowledged: list[str] = []
    with start(tmp_path / "home", "sess_1_aaaaaa", "--lives", "60") as writers:
        assert writers.stdout is not None
        lines = iter(writers.stdout.readline, "")
        pid = left = 0
        for line in lines:
            if line.startswith("pid "):
                pid, left = int(line.split()[1]), chance.randrange(40)
            elif line[0].isdigit():
                acknowledged.append(line)
                left -= 1
            # The ready line may come before the id does.
            if pid and left <= 0:
                os.kill(pid, signal.SIGKILL)
                pid = 0
    assert check(tmp_path / "home", "sess_1_aaaaaa", acknowledged) > len(acknowledged) > 60


def test_six_processes_write_records_of_up_to_300_kb_into_one_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    children = [start(home, f"sess_{n}_aaaaaa", "--count", "25", "--bytes", "300000") for n in range(6)]
    output = [child.communicate() for child in children]
    assert [err for _, err in output] == [""] * 6
    for n, (out, _) in enumerate(output):
        lines = out.splitlines()
        assert (lines[0], lines[-1]) == ("ready", "done")
        assert len(lines) == 27
        check(home, f"sess_{n}_aaaaaa", lines[1:-1])


def test_a_frozen_process_that_lost_its_lease_writes_nothing_when_it_wakes(tmp_path: Path) -> None:
    home, run = tmp_path / "home", "sess_1_aaaaaa"
    command = [sys.executable, str(WRITER.with_name("frozen.py")), str(home), run]
    with Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGSTOP)

        async def take_over() -> None:
            async with SqliteJournal(home) as patient:
                # It is stopped, not dead: only its silence says that it may be taken for dead.
                with pytest.raises(LeaseHeld):
                    await patient.acquire(run)
            async with SqliteJournal(home, stale_seconds=0.0) as journal:
                lease = await journal.acquire(run)
                await journal.append(lease, "meanwhile", Noted(content="theirs"))

        asyncio.run(take_over())
        child.send_signal(signal.SIGCONT)
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == f"lost {run}\n"
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        keys = [record.key for record in reader.records(run) if isinstance(record, Record)]
    assert keys == ["requested", "before", "adopted:2", "meanwhile"]


def test_a_killed_process_is_seen_to_be_dead_at_once(tmp_path: Path) -> None:
    home, run = tmp_path / "home", "sess_1_aaaaaa"
    with start(home, run) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert status_of(home, run) == "running"
        child.kill()
    assert status_of(home, run) == "interrupted"


def status_of(home: Path, run: str) -> str:
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        (standing,) = list_runs(reader)
    assert standing.state.run == run
    return shown_status(standing)
