"""Text in a loop: a model that writes the same block again and again."""

from __future__ import annotations

_STEP = 500
"""How many new characters are read before the end of the text is looked at again."""
_SIZES = ((2_400, 200), (6_000, 1_500))
"""How long the repeated text must be, and how long the block in it may be."""
_SAMPLE = 64


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
        return _block(self._end) > 0


def without_loop(text: str) -> str:
    """The text with the repeated block at its end only once."""
    period = _block(text)
    if not period:
        return text
    end = len(text) - period
    while end > period and text[end - period : end] == text[end : end + period]:
        end -= period
    return text[: end + period]


def _block(text: str) -> int:
    """The length of the shortest block whose repetition is the end of a text, the first perhaps cut; 0 for none."""
    for size, longest in _SIZES:
        if len(text) < size:
            break
        end, last = text[-size:], text[-_SAMPLE:]
        first = size - _SAMPLE - longest
        # Where the last characters occur before, a block may have ended.
        at = end.rfind(last, first, size - 1)
        while at >= 0:
            period = size - _SAMPLE - at
            if end.startswith(end[period:]):
                return period
            at = end.rfind(last, first, at + _SAMPLE - 1)
    return 0
