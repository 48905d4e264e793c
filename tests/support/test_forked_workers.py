"""Tests in forked processes: each runs once, and what fails, prints or kills its process is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.forked_workers import Shares

CONFTEST = """
import os
import pytest
from tests.support.forked_workers import pytest_addoption, pytest_runtestloop

@pytest.fixture(scope="session", autouse=True)
def of_the_process():
    with open({fixtures!r}, "a") as log:
        log.write(f"made {{os.getpid()}}\\n")
    yield
    with open({fixtures!r}, "a") as log:
        log.write(f"ended {{os.getpid()}}\\n")
"""
ENDS_BETWEEN_TESTS = """
def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith("test_one.py::test_many[0]"):
        os._exit({status})
"""
TESTS = """
import os
import select
import sys
import pytest

KEPT = sys.stderr

@pytest.fixture(scope="module", autouse=True)
def shared(tmp_path_factory):
    yield
    print("torn down")

@pytest.mark.parametrize("number", range(20))
def test_many(number, tmp_path):
    with open({log!r}, "a") as log:
        log.write(f"{{number}}\\n")
    (tmp_path / "mine").touch(exist_ok=False)

def test_fails():
    print("said before")
    os.system("echo said by a child")
    assert 1 + 1 == 3

@pytest.mark.parametrize("status", [7, 0])
def test_dies(status):
    os._exit(status)

def test_dies_and_leaves_a_process():
    tests = os.pidfd_open(os.getppid())
    if not os.fork():
        select.select([tests], [], [])
    os._exit(8)

def test_a_stream_that_was_kept():
    KEPT.write("still open")
"""


def _run(folder: Path, *options: str, conftest: str = "") -> str:
    log = folder / "log"
    (folder / "conftest.py").write_text(CONFTEST.format(fixtures=str(folder / "fixtures")) + conftest)
    for name in ("test_one.py", "test_two.py"):
        (folder / name).write_text(TESTS.format(log=str(log)))
    root = str(Path(__file__).parents[2])
    # Without a folder of its own, a run also removes those of older runs.
    places = ["-o", f"pythonpath={root}", f"--basetemp={folder / 'base'}", "--import-mode=importlib"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *places, *options, "."]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, timeout=60).stdout


def test_every_test_runs_once_and_failures_are_reported_with_what_was_printed(tmp_path: Path):
    shown = _run(tmp_path, "--processes", "3")
    assert "8 failed, 42 passed" in shown, shown
    assert sorted((tmp_path / "log").read_text().split(), key=int) == [str(n) for n in range(20) for _ in range(2)]
    assert shown.count("E       assert (1 + 1) == 3") == 2
    assert shown.count("\nsaid before\nsaid by a child\n") == 2
    for status in (7, 0, 8):
        assert shown.count(f"\nthe process that ran this test ended with {status}\n") == 2
    fixtures = [line.split() for line in (tmp_path / "fixtures").read_text().splitlines()]
    made, ended = ([pid for did, pid in fixtures if did == which] for which in ("made", "ended"))
    assert len(set(made)) == len(made)
    assert set(ended) < set(made)
    # Six tests end their process.
    assert len(ended) == len(made) - 6


@pytest.mark.parametrize("status", [0, 9])
def test_a_process_that_ends_between_two_tests_ends_the_run(tmp_path: Path, status: int):
    ends = ENDS_BETWEEN_TESTS.format(status=status)
    shown = _run(tmp_path, "--processes", "2", conftest=ends)
    assert f"RuntimeError: a process that runs tests ended with {status} while it ran none" in shown, shown


def test_no_more_tests_are_given_out_after_the_first_failure(tmp_path: Path):
    shown = _run(tmp_path, "--processes", "2", "-x")
    assert "stopping after" in shown
    assert "42 passed" not in shown


def test_shares_cover_every_test_once_and_keep_files_whole_while_there_are_many():
    files = [f"file{number // 10}" for number in range(400)]
    shares = Shares(files, 3)
    taken: list[int] = []
    first = shares.take(0)
    assert first == list(range(10))
    taken += first
    # The second process does everything else, also what is left of the others' shares.
    while part := shares.take(1):
        assert len({files[index] for index in part}) == 1
        taken += part
    assert sorted(taken) == list(range(400))


def test_tests_that_a_process_did_not_begin_are_run_by_the_next():
    shares = Shares(["file"] * 40, 2)
    taken = shares.take(0)
    rest = [*taken[1:], 30]
    shares.give_back(0, rest)
    assert shares.take(0) == rest
