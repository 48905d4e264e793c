"""Actions of the page: `deputy … --json` child processes that outlive the server."""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import count
from subprocess import Popen
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct

from deputy.core.errors import Unquoted, UsageError
from deputy.processes.outgoing import outgoing_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MOST_RUNNING = 4
"""Short actions that run at once; the others wait for their turn. Resumed work is not counted."""
MOST_KEPT = 200
MOST_QUEUED = 2000
_SAID_BYTES = 4000


class Job(Struct, kw_only=True):
    """One child process, waiting, running or ended."""

    id: str
    run: str
    action: str
    words: tuple[str, ...]
    stdin: bytes
    folder: str
    is_long: bool
    """Whether it does the work of a run, for as long as that takes."""
    state: str = "running"
    exit: int | None = None
    said: str = ""

    @property
    def form(self) -> dict[str, Any]:
        """The job as JSON data."""
        return {
            "id": self.id,
            "run": self.run,
            "action": self.action,
            "state": self.state,
            "exit": self.exit,
            "said": self.said,
        }


class Jobs:
    """Starts child processes and notices when they end; `poll` is called again and again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._numbers = count(1)
        self._jobs: dict[str, Job] = {}
        self._queue: list[Job] = []
        self._processes: dict[str, tuple[Popen[bytes], IO[bytes]]] = {}

    @property
    def are_running(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._queue or self._processes)

    def start(
        self, action: str, run: str, words: Sequence[str], *, stdin: bytes = b"", folder: str = "", is_long: bool
    ) -> Job:
        """Start a command of ours in its own session, or queue it."""
        if len(self._queue) >= MOST_QUEUED:
            raise UsageError("action", Unquoted(action), "too many actions are waiting; try again later")
        job = Job(
            id=f"job_{next(self._numbers)}",
            run=run,
            action=action,
            words=tuple(words),
            stdin=stdin,
            folder=folder if os.path.isdir(folder) else os.getcwd(),  # noqa: PTH109, PTH112  the folder is text from the journal
            is_long=is_long,
        )
        self._jobs[job.id] = job
        self._queue.append(job)
        self._start_queued()
        for old in [one.id for one in self._jobs.values() if one.state != "running"][: len(self._jobs) - MOST_KEPT]:
            del self._jobs[old]
        return job

    def poll(self) -> list[Job]:
        """The jobs that have ended since the last poll."""
        ended = list(self._ended())
        self._start_queued()
        return ended

    def forms(self) -> list[dict[str, Any]]:
        """All jobs that are still known."""
        return [job.form for job in self._jobs.values()]

    def _start_queued(self) -> None:
        short = sum(not self._jobs[name].is_long for name in self._processes)
        while self._queue and (self._queue[0].is_long or short < MOST_RUNNING):
            job = self._queue.pop(0)
            short += not job.is_long
            self._spawn(job)

    def _spawn(self, job: Job) -> None:
        output = tempfile.TemporaryFile()  # noqa: SIM115  closed when the process has ended
        with tempfile.TemporaryFile() as given:
            given.write(job.stdin)
            given.seek(0)
            # A session of its own and a file for its output: the server may end before it.
            process = Popen(
                [sys.executable, "-m", "deputy", *job.words],
                stdin=given,
                stdout=output,
                stderr=output,
                cwd=job.folder,
                env={**os.environ, "DEPUTY_HOME": str(self._home)},
                start_new_session=True,
            )
        self._processes[job.id] = process, output

    def _ended(self) -> Iterator[Job]:
        for name, (process, output) in list(self._processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self._processes[name]
            job = self._jobs[name]
            with output:
                job.said = _last_words(output)
            job.exit, job.state = code, "done" if code == 0 else "failed"
            yield job


def _last_words(output: IO[bytes]) -> str:
    """The lines that a command printed for people, else the end of its output."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _SAID_BYTES))
    text = outgoing_text(output.read().decode(errors="replace"))
    lines = [line.removeprefix("deputy: ") for line in text.splitlines() if line.startswith("deputy: ")]
    return "\n".join(lines)
