"""A journal whose first page or log is damaged, and with it the way to all others: read as a mended copy in memory."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from deputy.journal import schema
from deputy.journal.log import Log

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 1 << 30
_CHANGES, _PAGES, _FREE, _VALID_FOR = slice(24, 28), slice(28, 32), slice(32, 40), slice(92, 96)
"""Where the first page says how often the file changed, how large it is, what is free, and when that was so."""


def log_damage(path: Path) -> str:
    """What is wrong with the log that nobody is writing to any more; empty when nothing is."""
    broken = Log.beside(path, schema.PAGE).broken_at()
    return "" if broken is None else f"its log is damaged in frame {broken + 1}"


def open_copy(path: Path) -> sqlite3.Connection | None:
    """A connection to a copy in memory; None when there is nothing to be had. The file itself is never touched."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        content = bytearray(path.read_bytes())
    except OSError:
        return None
    fresh = schema.fresh()
    # What was cut off in the middle of a page is kept up to there; a journal is never smaller than an empty one.
    content += bytes(max(len(fresh) - len(content), -len(content) % schema.PAGE))
    for number, page in Log.beside(path, schema.PAGE).pages().items():
        end = number * schema.PAGE
        if end <= _LARGEST:
            content += bytes(max(0, end - len(content)))
            content[end - schema.PAGE : end] = page
    # Tables are made in the same order everywhere, and so lie in the same places.
    first = bytearray(fresh[: schema.PAGE])
    first[schema.LOGGED] = b"\1\1"
    first[_CHANGES] = first[_VALID_FOR] = bytes(4)
    first[_PAGES] = (len(content) // schema.PAGE).to_bytes(4, "big")
    first[_FREE] = bytes(8)
    content[: schema.PAGE] = first
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.deserialize(bytes(content))
        connection.execute("SELECT 1 FROM events LIMIT 0").fetchone()
    except sqlite3.Error:
        connection.close()
        return None
    return connection
