"""Several processes, and processes that die: nothing that was acknowledged is lost, nothing is spliced."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deputy.core.events import Noted, Record
from deputy.core.state import replay
from deputy.journal.reader import Reader
from deputy.journal.rows import Damaged

WRITER = Path(__file__).with_name("writer.py")


def start(home: Path, run: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), str(home), run, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(home: Path, run: str, acknowledged: list[str]) -> int:
    """Every acknowledged record is there and whole, the sequence has no holes, and the state follows from it."""
    reader = Reader.open(home)
    assert reader is not None
    with reader:
        records = list(reader.records(run))
        assert not [record for record in records if isinstance(record, Damaged)]
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
    for _ in range(60):
        with start(tmp_path / "home", "sess_1_aaaaaa") as child:
            assert child.stdout is not None
            assert child.stderr is not None
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            for _ in range(chance.randrange(40)):
                acknowledged.append(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            acknowledged.extend(line for line in child.stdout if line.endswith("\n"))
    assert check(tmp_path / "home", "sess_1_aaaaaa", acknowledged) > len(acknowledged)


def test_six_processes_write_records_of_up_to_300_kb_into_one_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    children = [start(home, f"sess_{n}_aaaaaa", "--count", "25", "--bytes", "300000") for n in range(6)]
    told = [child.communicate() for child in children]
    assert [err for _, err in told] == [""] * 6
    for n, (out, _) in enumerate(told):
        lines = out.splitlines()
        assert (lines[0], lines[-1]) == ("ready", "done")
        assert len(lines) == 27
        check(home, f"sess_{n}_aaaaaa", lines[1:-1])
