"""A journal whose first page is damaged, which describes all others: read as a copy with that page from a fresh one."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from deputy.journal import schema

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 1 << 30
_CHANGES, _PAGES, _FREE, _VALID_FOR = slice(24, 28), slice(28, 32), slice(32, 40), slice(92, 96)
"""Where the first page says how often the file changed, how large it is, what is free, and when that was so."""


def open_copy(path: Path) -> sqlite3.Connection | None:
    """A connection to a copy in memory; None when there is nothing to be had. The file itself is never touched."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        rest = path.read_bytes()[schema.PAGE :]
    except OSError:
        return None
    # Tables are made in the same order everywhere, and so lie in the same places.
    first = bytearray(schema.fresh()[: schema.PAGE])
    first[schema.LOGGED] = b"\1\1"
    first[_CHANGES] = first[_VALID_FOR] = bytes(4)
    first[_PAGES] = (1 + len(rest) // schema.PAGE).to_bytes(4, "big")
    first[_FREE] = bytes(8)
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.deserialize(bytes(first) + rest[: len(rest) // schema.PAGE * schema.PAGE])
        connection.execute("SELECT 1 FROM events").fetchone()
    except sqlite3.Error:
        connection.close()
        return None
    return connection
