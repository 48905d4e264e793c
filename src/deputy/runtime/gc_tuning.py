"""How often the interpreter looks for garbage: less often while many runs are at work, whose objects are all in use."""

from __future__ import annotations

import gc

MANY = 64
"""With fewer runs at work, the interpreter looks as often as it did before."""
NEW_OBJECTS = 64
"""After how many new objects per run at work it is looked for: about a third of those that each of them holds."""


class GcTuner:
    """Sets how often the interpreter looks for garbage by how many runs are at work, unless somebody else has."""

    def __init__(self) -> None:
        self._before: int = 0
        self._set: int = 0
        """How often it looked before, and looks by what was set here; 0 where nothing was."""
        self._size = 0

    def see(self, at_work: int) -> None:
        """So many runs are at work now; what counts is by how many doublings."""
        size = at_work.bit_length() if at_work >= MANY else 0
        if size != self._size:
            self._size = size
            self._set_threshold(NEW_OBJECTS << (size - 1) if size else 0)

    def _set_threshold(self, objects: int) -> None:
        now, second, third = gc.get_threshold()
        if now != self._set:
            # Somebody else has set it: who has switched it off, or looks less often still, has reasons.
            self._before, self._set = now, 0
        if now and objects > self._before:
            self._set = objects
        elif self._set:
            self._set, objects = 0, self._before
        else:
            return
        gc.set_threshold(objects, second, third)
