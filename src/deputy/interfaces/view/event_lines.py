"""Events for programs: one JSON object per line, with a number and a time."""

from __future__ import annotations

import time
from collections import deque
from errno import ETIMEDOUT
from threading import Condition, Thread
from typing import IO, TYPE_CHECKING, Any

from msgspec import to_builtins

from deputy.core.limits import NANOS_PER_DOLLAR
from deputy.processes.outgoing import outgoing_json

if TYPE_CHECKING:
    from deputy.core.progress import Progress


_UNWRITTEN = 10_000
_PIECE = 4096
_PATIENCE_SECONDS = 5.0
"""How long to wait at the end for a reader that does not read."""


class EventLines:
    """Writes events in its own thread, so that a slow reader never delays the work.

    When the reader is too slow, the oldest events are dropped; the numbers then show a gap.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._seq = 0
        self._unwritten: deque[bytes] = deque(maxlen=_UNWRITTEN)
        self._news = Condition()
        self._is_over = False
        self._written = 0
        self.failure: OSError | None = None
        """Why not all was written, unless the reader left."""
        self._writer = Thread(target=self._write_all, daemon=True)
        self._writer.start()

    def emit(self, progress: Progress) -> None:
        """Write an event."""
        form = event_dict(progress)
        self.write(form.pop("event"), form)

    def write(self, event: str, fields: dict[str, Any]) -> None:
        """Queue one line."""
        self._seq += 1
        head = {"event": event, "seq": self._seq, "time": _stamp(time.time())}
        with self._news:
            self._unwritten.append(outgoing_json({**head, **fields}) + b"\n")
            self._news.notify()

    def close(self) -> None:
        """Wait until all is written, or the reader no longer reads."""
        with self._news:
            self._is_over = True
            self._news.notify()
        while self._writer.is_alive():
            before = self._written
            self._writer.join(_PATIENCE_SECONDS)
            if self._writer.is_alive() and self._written == before:
                self.failure = TimeoutError(ETIMEDOUT, "the reader does not read")
                return

    def _write_all(self) -> None:
        try:
            while lines := memoryview(self._next()):
                while lines:
                    # Small pieces show whether a slow reader still reads.
                    taken = self._file.write(lines[:_PIECE])
                    self._written += taken
                    lines = lines[taken:]
                self._file.flush()
        except BrokenPipeError:
            return
        except OSError as error:
            self.failure = error

    def _next(self) -> bytes:
        with self._news:
            self._news.wait_for(lambda: self._unwritten or self._is_over)
            lines = b"".join(self._unwritten)
            self._unwritten.clear()
            return lines


def event_dict(progress: Progress) -> dict[str, Any]:
    """An event as JSON: only the fields of its kind, the cost in dollars."""
    form: dict[str, Any] = to_builtins(progress)
    if progress.cost is not None:
        form["cost"] = progress.cost / NANOS_PER_DOLLAR
    return form


def _stamp(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
