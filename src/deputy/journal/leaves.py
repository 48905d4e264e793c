"""Records read from the pages they stand on, where the tree that leads to those pages is damaged.

The form of a page is SQLite's own, https://sqlite.org/fileformat2.html; a record counts only if its checksum fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.events import Record
from deputy.journal.rows import read_event
from deputy.journal.schema import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.journal.rows import Row

_LEAF = 0x0D
_COLUMNS = 9
_MOST_HERE = PAGE - 35
_LEAST_HERE = (PAGE - 12) * 32 // 255 - 23
"""How much of a row stands on its own page when it goes on elsewhere: at least so much, at most that."""
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_FLOAT, _ZERO, _ONE, _BLOB = 7, 8, 9, 12


def leaf_records(content: bytes) -> Iterator[Record]:
    """Every record on a page of this journal that is in use, in no order."""
    free = _free_pages(content)
    for start in range(PAGE, len(content) - PAGE + 1, PAGE):
        if content[start] != _LEAF or start // PAGE + 1 in free:
            continue
        for number in range(min(_integer(content, start + 3, 2), PAGE // 2)):
            try:
                row = _row(_payload(content, start + _integer(content, start + 8 + 2 * number, 2)))
                record = None if row is None else read_event(row)
            except (IndexError, ValueError):
                continue
            if isinstance(record, Record):
                yield record


def _free_pages(content: bytes) -> set[int]:
    """The pages that are not in use: what stands on them was removed."""
    free: set[int] = set()
    trunk = _integer(content, 32, 4)
    while 1 < trunk <= len(content) // PAGE and trunk not in free:
        free.add(trunk)
        at = (trunk - 1) * PAGE
        count = min(_integer(content, at + 4, 4), PAGE // 4 - 2)
        free.update(_integer(content, at + 8 + 4 * number, 4) for number in range(count))
        trunk = _integer(content, at, 4)
    return free


def _payload(content: bytes, at: int) -> bytes:
    size, at = _varint(content, at)
    _, at = _varint(content, at)
    if size > len(content):
        raise ValueError(size)
    here = size
    if size > _MOST_HERE:
        here = _LEAST_HERE + (size - _LEAST_HERE) % (PAGE - 4)
        here = here if here <= _MOST_HERE else _LEAST_HERE
    pieces = [content[at : at + here]]
    page = _integer(content, at + here, 4) if here < size else 0
    for _ in range(here, size, PAGE - 4):
        start = (page - 1) * PAGE
        if start <= 0:
            raise ValueError(page)
        pieces.append(content[start + 4 : start + PAGE])
        page = _integer(content, start, 4)
    return b"".join(pieces)[:size]


def _row(payload: bytes) -> Row | None:
    """The columns of a row of events behind its number; None when it is of another table."""
    end, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if len(kinds) != _COLUMNS:
        return None
    values: list[object] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    _, run, seq, key, at, clock, *rest = values
    # A time that is a whole number is stored as one.
    at, clock = (float(time) if isinstance(time, int) else time for time in (at, clock))
    return (run, seq, key, at, clock, *rest)


def _value(payload: bytes, at: int, kind: int) -> tuple[object, int]:
    if kind in _INTEGERS:
        size = _INTEGERS[kind]
        return int.from_bytes(payload[at : at + size], "big", signed=True), at + size
    if kind == _FLOAT:
        import struct

        return struct.unpack(">d", payload[at : at + 8].ljust(8, b"\0"))[0], at + 8
    if kind >= _BLOB:
        size = (kind - _BLOB) // 2
        found = payload[at : at + size]
        return (found.decode() if kind % 2 else found), at + size
    return {_ZERO: 0, _ONE: 1}.get(kind), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number in range(8):
        byte = content[at + number]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + number + 1
    return value << 8 | content[at + 8], at + 9


def _integer(content: bytes, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "big")
