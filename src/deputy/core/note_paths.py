"""File paths in a subagent's notes, recognised by their form; the files need not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_PATHS = 200
_LONGEST_PATH = 300
_LETTERS_READ = 200_000
_BETWEEN = str.maketrans(dict.fromkeys("`'\"()[]{}<>,;|*", " "))


def paths_named(notes: Iterable[str]) -> tuple[str, ...]:
    """Everything that looks like a file path, in order, without line numbers."""
    named: dict[str, None] = {}
    for path in _candidates(notes):
        if len(named) >= MOST_PATHS:
            break
        named[path] = None
    return tuple(named)


def _candidates(notes: Iterable[str]) -> Iterator[str]:
    left = _LETTERS_READ
    for note in notes:
        text, left = note[:left], left - len(note)
        for word in text.translate(_BETWEEN).split():
            path = _without_lines(word.rstrip(".:!?"))
            if 1 < len(path) <= _LONGEST_PATH and "://" not in path and ("/" in path or "." in path[1:]):
                yield path
        if left <= 0:
            return


def _without_lines(word: str) -> str:
    """`src/a.py` of `src/a.py:12`, `src/a.py:12:4` and `src/a.py:12-30`."""
    path, _, lines = word.partition(":")
    return path if lines.replace("-", "").replace(":", "").isdecimal() else word
