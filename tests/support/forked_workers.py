# pyright: basic
"""Tests in several processes (`--processes 4`), forked from the one that has collected the tests, once for all.

Every process begins with its share of the tests. One that has done its share takes half of what another still has.
A process that ends in a test fails that test, and a new one takes its place.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import suppress
from itertools import pairwise, takewhile
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from _pytest.capture import FDCapture
from _pytest.pathlib import cleanup_numbered_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="the number of processes that run tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in processes, unless one process is enough."""
    option = session.config.option
    count = min(option.processes, len(session.items))
    if count < 2 or option.collectonly or session.testsfailed:
        return None
    # Started here, one serves all processes.
    if (forking := sys.modules.get("tests.support.fork_server")) is not None:
        forking.forked_deputy()
    _WorkerPool(session, count).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class Shares:
    """The tests that are still to be given out: a list of them for each process."""

    def __init__(self, files: list[str], count: int) -> None:
        self._files = files
        ends = [len(files) * number // count for number in range(count + 1)]
        self._lists = [list(range(first, last)) for first, last in pairwise(ends)]

    def take(self, worker: int) -> list[int]:
        """The next tests of a process: of one file, and fewer and fewer, so that all processes end at the same time."""
        if not self._lists[worker]:
            largest = max(range(len(self._lists)), key=lambda number: len(self._lists[number]))
            theirs = self._lists[largest]
            middle = len(theirs) // 2
            self._lists[largest], self._lists[worker] = theirs[:middle], theirs[middle:]
        mine = self._lists[worker]
        most = max(1, sum(map(len, self._lists)) // (8 * len(self._lists)))
        taken = list(takewhile(lambda index: self._files[index] == self._files[mine[0]], mine[:most]))
        self._lists[worker] = mine[len(taken) :]
        return taken

    def give_back(self, worker: int, indexes: list[int]) -> None:
        """Give out again, before all others of a process, tests that it took and did not begin."""
        self._lists[worker] = [*indexes, *self._lists[worker]]


class _Worker:
    """One process, as seen by the one that forked it."""

    def __init__(self, number: int, pid: int, connection: Connection) -> None:
        self.number = number
        self.pid = pid
        # Readable when the process has ended, also while one that it forked still has its end of the connection.
        self.ending = os.pidfd_open(pid)
        self.connection = connection
        self.given: list[int] = []
        """The tests that it took and has not begun."""
        self.running: int | None = None

    def close(self) -> None:
        self.connection.close()
        os.close(self.ending)


class _WorkerPool:
    """The processes."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._config: Any = session.config
        self._shares = Shares([item.nodeid.partition("::")[0] for item in session.items], count)
        self._base = self._config._tmp_path_factory.getbasetemp()
        self._workers: list[_Worker] = []
        self._begun: Counter[int] = Counter()
        self._forked = 0
        for number in range(count):
            self._fork(number)

    def run(self) -> None:
        """Run all tests, and report each as if it had been run here."""
        try:
            while self._workers:
                ready = wait([end for worker in self._workers for end in (worker.connection, worker.ending)])
                for worker in list(self._workers):
                    has_ended = worker.ending in ready
                    if worker.connection in ready:
                        has_ended |= not self._receive(worker)
                    if has_ended:
                        self._finish(worker)
        finally:
            for worker in self._workers:
                os.kill(worker.pid, signal.SIGINT)
                worker.close()
            for worker in self._workers:
                os.waitpid(worker.pid, 0)
        wrong = [item.nodeid for index, item in enumerate(self._session.items) if self._begun[index] != 1]
        if wrong and not self._is_over():
            raise RuntimeError(f"tests that were not begun exactly once: {', '.join(wrong)}")

    def _is_over(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop)

    def _fork(self, number: int) -> None:
        ours, theirs = Pipe()
        self._forked += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            ours.close()
            for worker in self._workers:
                worker.close()
            _run_tests(self._session, theirs, self._base / f"process-{self._forked}")
        theirs.close()
        self._workers.append(_Worker(number, pid, ours))

    def _receive(self, worker: _Worker) -> bool:
        """Take one message; whether more can follow."""
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionError):
            return False
        match message:
            case None:
                taken = [] if self._is_over() else self._shares.take(worker.number)
                worker.given += taken
                # A process that has ended meanwhile is noticed next.
                with suppress(ConnectionError):
                    worker.connection.send(taken)
            case int():
                worker.given.remove(message)
                worker.running = message
                self._begun[message] += 1
            case _:
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=message)
                self._config.hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    worker.running = None
        return True

    def _finish(self, worker: _Worker) -> None:
        """Take the last messages of a process that has ended, and have what it did not run run by another."""
        while worker.connection.poll() and self._receive(worker):
            pass
        self._workers.remove(worker)
        worker.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.running is not None:
            item = self._session.items[worker.running]
            message = f"the process that ran this test ended with {status}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
            self._config.hook.pytest_runtest_logreport(report=report)
            self._shares.give_back(worker.number, worker.given)
            self._fork(worker.number)
        elif status or (worker.given and not self._is_over()):
            raise RuntimeError(f"a process that runs tests ended with {status} while it ran none")


# --- in a process that was forked -------------------------------------------------------------------------------------


class _Reporter:
    """Sends reports instead of printing them."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Send one report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(data)


def _capture_alone(manager: Any) -> None:
    """Put what tests print into a file of this process, behind the same descriptors: modules may have kept them."""
    for stream in (manager._global_capturing.out, manager._global_capturing.err):
        if isinstance(stream, FDCapture):
            with tempfile.TemporaryFile() as file:
                os.dup2(file.fileno(), stream.tmpfile.fileno(), inheritable=False)


def _given(connection: Connection) -> Iterator[int]:
    """The tests of this process, taken a few at a time."""
    connection.send(None)
    while taken := connection.recv():
        yield from taken
        connection.send(None)


def _run_tests(session: pytest.Session, connection: Connection, folder: Any) -> NoReturn:
    config: Any = session.config
    status = 1
    try:
        plugins = config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(_Reporter(config, connection))
        _capture_alone(plugins.getplugin("capturemanager"))
        folder.mkdir()
        config._tmp_path_factory._basetemp = folder
        given = _given(connection)
        following = next(given, None)
        while following is not None and not (session.shouldfail or session.shouldstop):
            index, following = following, next(given, None)
            connection.send(index)
            # Fixtures that the next test needs too are kept for it.
            after = None if following is None else session.items[following]
            config.hook.pytest_runtest_protocol(item=session.items[index], nextitem=after)
        session._setupstate.teardown_exact(None)
        status = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        with suppress(Exception):
            session._setupstate.teardown_exact(None)
    except BaseException:  # noqa: BLE001 - the process that forked this one reports its status
        config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
        traceback.print_exc()
    finally:
        # The process that forked this one removes old folders of pytest.
        atexit.unregister(cleanup_numbered_dir)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
