"""Files of a workspace for somebody else's program: served beneath its root and within a grant, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from deputy.core.request import Grant


class NotServed(Struct, frozen=True, kw_only=True):
    """Why a file is not served."""

    reason: str
    is_missing: bool = False
    """Whether there simply is none."""


class TextFiles(Protocol):
    """The text files of one workspace. All of it may block, and nothing of it raises for what a path leads to."""

    def refusal(self, path: str, *, for_writing: bool) -> NotServed | None:
        """Why a path may not be reached; None when it may."""
        ...

    def read(self, path: str, first_line: int, lines: int | None) -> str | NotServed:
        """So many lines of a file from one on, counted from 1."""
        ...

    def write(self, path: str, content: str) -> NotServed | None:
        """Put a whole file in place; None when that is done."""
        ...


OpenTextFiles: TypeAlias = Callable[[str, Grant], TextFiles]
"""Opens the files of a workspace's root, as far as a grant goes."""
