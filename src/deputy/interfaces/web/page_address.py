"""The address of the page that is served now, for other processes of the same user; never its token."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct, json

from deputy.journal.home import write_whole

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

ADDRESS_FILE = "web-address.json"


class PageAddress(Struct, frozen=True):
    """The address of a page, and the process that serves it."""

    url: str
    pid: int


@contextmanager
def announced(home: Path, url: str) -> Generator[None]:
    """Name the page's address while it is served."""
    path, body = home / ADDRESS_FILE, json.encode(PageAddress(url, os.getpid()))
    write_whole(path, body)
    try:
        yield
    finally:
        # Another server may have taken its place.
        with suppress(OSError):
            if path.read_bytes() == body:
                path.unlink()


def served_address(home: Path) -> str:
    """The address of the page that a process of this user serves; empty if there is none."""
    with suppress(OSError, ValueError):
        found = json.decode((home / ADDRESS_FILE).read_bytes(), type=PageAddress)
        os.kill(found.pid, 0)
        return found.url
    return ""
