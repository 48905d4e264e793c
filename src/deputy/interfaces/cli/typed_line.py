"""What a person types, key by key: with its echo, and the keys that erase."""

from __future__ import annotations

import codecs
import re
from typing import Final

_SEQUENCE: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""What arrows and function keys send."""
_UNFINISHED: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)\Z")
_ERASE, _ERASE_LINE, _ERASE_WORD, _END = "\x7f\b", "\x15", "\x17", "\x04"


class TypedLine:
    """The keys of one answer, for a terminal that neither edits lines nor shows them."""

    def __init__(self) -> None:
        self.text = ""
        self.is_over = False
        """Whether the input has ended (Ctrl-D)."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        """The beginning of a sequence whose rest has not come yet."""

    def feed(self, keys: bytes) -> str:
        """Take in keys; returns what the terminal must show."""
        text = self._held + self._decoder.decode(keys)
        begun = _UNFINISHED.search(text)
        self._held = begun.group() if begun else ""
        return "".join(map(self._echo, _SEQUENCE.sub("", text.removesuffix(self._held))))

    def _echo(self, key: str) -> str:
        if key in "\r\n":
            self.text += "\n"
            return "\n"
        if key in _ERASE:
            return self._erase(1)
        line = self.text.rpartition("\n")[2]
        if key == _ERASE_LINE:
            return self._erase(len(line))
        if key == _ERASE_WORD:
            return self._erase(len(line) - 1 - line.rstrip().rfind(" "))
        self.is_over = self.is_over or key == _END
        shown = " " if key == "\t" else key if key.isprintable() else ""
        self.text += shown
        return shown

    def _erase(self, count: int) -> str:
        from rich.cells import cell_len

        gone = self.text.rpartition("\n")[2][-count:] if count else ""
        self.text = self.text[: len(self.text) - len(gone)]
        return "\b \b" * cell_len(gone)
