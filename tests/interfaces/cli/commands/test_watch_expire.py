"""A command that reads the journal ends what is past its deadline, once; its old process writes nothing afterwards."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fork_server import Popen

from deputy.core.events import Adopted, Record, Returned
from deputy.core.outcome import Partial
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

HUNG = Path(__file__).with_name("hung.py")
RUN = "sess_1_hung00"


@pytest.fixture
def hung(house):
    """A process that is stopped in the middle of a run that is past its deadline."""
    command = [sys.executable, str(HUNG), str(house.home), RUN]
    with Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def records(home: Path) -> list[Record]:
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        return [record for record in reader.records(RUN) if isinstance(record, Record)]


@pytest.mark.rule("registry.monitor")
@pytest.mark.rule("time.partial")
def test_two_that_look_at_once_end_a_late_run_once_and_its_owner_writes_nothing_when_it_wakes_up(house, hung):
    looking = [house.start("ps", "--json") for _ in range(2)]
    listed = [json.loads(each.communicate()[0])["delegations"] for each in looking]
    assert listed == [[], []]
    before = records(house.home)
    endings = [record.event.outcome for record in before if isinstance(record.event, Returned)]
    assert [type(ending) for ending in endings] == [Partial]
    (ending,) = endings
    assert (ending.errors[0].code, ending.errors[0].recoverable) == ("TIMEOUT", True)
    assert "30 s" in ending.summary
    assert ending.notes == ("found before it hung",)
    assert [artifact.path for artifact in ending.artifacts] == ["made.txt"]
    assert ending.next_steps == f"deputy resume {RUN}"
    assert sum(isinstance(record.event, Adopted) for record in before) == 1
    hung.send_signal(signal.SIGCONT)
    output, _ = hung.communicate("\n", timeout=30)
    assert output.startswith("partial: Stopped when its time was up")
    assert records(house.home) == before


@pytest.mark.rule("registry.monitor")
@pytest.mark.parametrize("arguments", [("show", RUN, "--json"), ("watch", RUN)])
def test_show_and_watch_end_it_too(house, hung, arguments):
    run = house.run(*arguments)
    assert run.returncode == (0 if arguments[0] == "show" else 4), run.stderr
    assert sum(isinstance(record.event, Returned) for record in records(house.home)) == 1


@pytest.mark.rule("registry.monitor")
def test_a_process_at_work_ends_what_is_late_elsewhere(house, hung):
    run = house.run("delegate", "-t", "a=look", "--yes", "--model", house.script("s", {"turns": [{"text": "Done."}]}))
    assert run.returncode == 0, run.stderr
    assert sum(isinstance(record.event, Returned) for record in records(house.home)) == 1
