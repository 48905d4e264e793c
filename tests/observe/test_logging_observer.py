"""Log lines of real runs."""

import logging
import re
import subprocess
import sys

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy import LoggingObserver
from deputy.core.approval import Choice
from deputy.core.outcome import NO_USAGE
from deputy.engine.ports.observer import ObservedRun, RunEnd

RUN = ObservedRun(
    session_id="sess_1_a", root_id="sess_1_a", parent=None, label="a", command="", round=2, is_resumed=True
)


@pytest.fixture
def house(tmp_path, monkeypatch):
    house = House(tmp_path, monkeypatch)
    yield house
    house.check()


def test_a_run_is_logged_line_by_line(house: House, caplog):
    caplog.set_level(logging.DEBUG, "deputy")
    house.script(talk(turn("I read.", call("Read", path="gone.txt")), turn("Done.")))
    outcome = house.one(observer=LoggingObserver())
    lines = [
        (record.name, record.levelname, re.sub(r"\d+\.\d+ s", "N s", record.getMessage()))
        for record in caplog.records
        if record.name.startswith("deputy.") and f"{outcome.session_id} [scout]" in record.getMessage()
    ]
    head = f"{outcome.session_id} [scout]"
    assert lines[0][:2] == ("deputy.run", "INFO")
    assert lines[0][2].startswith(f"{head} started below sess_")
    assert lines[1:3] == [
        ("deputy.step", "DEBUG", f"{head} model {house.model} started [model:0]"),
        ("deputy.step", "INFO", f"{head} model {house.model} took N s, in=100 out=20 cost=unknown"),
    ]
    assert lines[4][:2] == ("deputy.step", "WARNING")
    assert lines[4][2].startswith(f"{head} tool Read failed after N s: ")
    assert lines[-1] == ("deputy.run", "INFO", f"{head} completed in N s, in=200 out=40 cost=unknown")


@pytest.mark.parametrize(
    ("method", "arguments", "expected"),
    [
        ("run_started", (), "deputy.run INFO sess_1_a [a] resumed"),
        (
            "run_ended",
            (RunEnd(status="failed", reason="no key", seconds=1.25, usage=NO_USAGE),),
            "deputy.run WARNING sess_1_a [a] failed in 1.2 s: no key",
        ),
        ("retried", ("retrying: overloaded",), "deputy.retry WARNING sess_1_a [a] retrying: overloaded"),
        ("fell_back", ("m", "no key"), "deputy.fallback WARNING sess_1_a [a] falls back to m: no key"),
        ("approval_asked", ("Write a",), "deputy.approval INFO sess_1_a [a] waits for approval: Write a"),
        ("approval_answered", ("Write a", "no"), "deputy.approval INFO sess_1_a [a] approval answered no: Write a"),
    ],
)
def test_every_happening_has_its_logger_and_its_line(caplog, method, arguments: tuple[RunEnd | str | Choice], expected):
    caplog.set_level(logging.DEBUG, "deputy")
    getattr(LoggingObserver(), method)(RUN, *arguments)
    [record] = caplog.records
    assert f"{record.name} {record.levelname} {record.getMessage()}" == expected


def test_it_is_silent_until_the_program_configures_logging(tmp_path):
    program = """
import sys, deputy
task = deputy.Task(label="a", prompt="x", timeout=5)
[outcome] = deputy.run_sync(task, model="script:script.json", home="home", observer=deputy.LoggingObserver())
assert outcome.status == "failed", outcome
"""
    (tmp_path / "script.json").write_text('{"turns": [{"faults": ["bad_request"]}]}')
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
