"""Progress for programs: one JSON object a line, numbered and timed."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING, Any

from msgspec import json, to_builtins

from deputy.core.forms import NANOS_PER_DOLLAR

if TYPE_CHECKING:
    from deputy.core.progress import Progress


class EventLines:
    """Writes each event as it happens; a reader that goes away stops the writing, never the work."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._seq = 0
        self._is_read = True

    def tell(self, progress: Progress) -> None:
        """Something happened."""
        form = event_form(progress)
        self.write(form.pop("event"), form)

    def write(self, event: str, fields: dict[str, Any]) -> None:
        """One line."""
        if not self._is_read:
            return
        self._seq += 1
        head = {"event": event, "seq": self._seq, "time": _stamp(time.time())}
        try:
            self._file.write(json.encode({**head, **fields}) + b"\n")
            self._file.flush()
        except BrokenPipeError:
            self._is_read = False


def event_form(progress: Progress) -> dict[str, Any]:
    """An event as JSON has it: only the fields of its kind, the cost in dollars."""
    form: dict[str, Any] = to_builtins(progress)
    if progress.cost is not None:
        form["cost"] = progress.cost / NANOS_PER_DOLLAR
    return form


def _stamp(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
