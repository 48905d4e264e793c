"""Text in a loop: a model that writes the same block again and again."""

from __future__ import annotations

_STEP = 500
"""How many new characters are read before the end of the text is looked at again."""
_SIZES = ((2_400, 200), (6_000, 1_500))
"""How long the repeated text must be, and how long the block in it may be."""


class LoopWatch:
    """Reads a stream of text; the whole costs linear time, because each look is at a bounded end."""

    def __init__(self) -> None:
        self._end = ""
        self._unread = 0

    def feed(self, text: str) -> bool:
        """Read more text; True once the text ends with one block that is repeated at least four times."""
        self._end = (self._end + text)[-_SIZES[-1][0] :]
        self._unread += len(text)
        if self._unread < _STEP:
            return False
        self._unread = 0
        return any(len(self._end) >= size and _period(self._end[-size:]) <= block for size, block in _SIZES)


def without_loop(text: str) -> str:
    """The text with the repeated block at its end only once."""
    for size, block in _SIZES:
        if len(text) >= size and (period := _period(text[-size:])) <= block:
            end = len(text) - period
            while end > period and text[end - period : end] == text[end : end + period]:
                end -= period
            return text[: end + period]
    return text


def _period(text: str) -> int:
    """The length of the shortest block whose repetition is the text, the last one perhaps cut (Knuth-Morris-Pratt)."""
    borders = [0] * len(text)
    border = 0
    for index in range(1, len(text)):
        while border and text[index] != text[border]:
            border = borders[border - 1]
        border += text[index] == text[border]
        borders[index] = border
    return len(text) - borders[-1]
