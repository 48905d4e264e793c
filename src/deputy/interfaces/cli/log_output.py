"""Log lines of a command on standard error."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deputy.observe.logging_observer import LoggingObserver

if TYPE_CHECKING:
    from collections.abc import Generator

    from deputy.engine.ports import Observer


class _LineFormatter(logging.Formatter):
    """Adds the ids of the trace, where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        ids = getattr(record, "otelTraceID", ""), getattr(record, "otelSpanID", "")
        line = super().format(record)
        return f"{line} trace_id={ids[0]} span_id={ids[1]}" if ids[0] else line


@contextmanager
def open_log(level: str) -> Generator[Observer]:
    """Print log lines from this level on while the command runs."""
    logger, handler = logging.getLogger("deputy"), logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logger.setLevel(level.upper())
    logger.addHandler(handler)
    try:
        yield LoggingObserver()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
