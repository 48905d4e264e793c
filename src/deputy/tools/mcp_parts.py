"""How much a JSON text is made of: reading many small parts costs far more time than reading as many bytes."""

from __future__ import annotations

from typing import Final

MOST_PARTS: Final = 100_000
"""How many values a message may be made of."""
_SMALL = 64 * 1024


def has_too_many_parts(text: bytes) -> bool:
    """Whether a JSON text has more parts than are read; what stands in strings is none."""
    if len(text) <= _SMALL:
        return False
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 2 * MOST_PARTS:
        return True
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > MOST_PARTS
