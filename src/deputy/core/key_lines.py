"""Lines from inside a private key, without the line that would say so: what a search shows of a key file."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_CLASS = r"[A-Za-z0-9+/]"
_SHORT, _LONG = 64, 70
"""How long the lines of a key are: in PEM, and as OpenSSH writes them. Mail and images have lines of 76."""

_MARGIN = r"[ \t\"'+|>\\]{0,24}"
_PREFIX = rf"{_MARGIN}(?:(?:[^\s:\"']{{1,160}}[:-])?[0-9]{{1,7}}(?:\\{{1,3}}t|[\t:|-])[ \t|]{{0,8}})?"
"""What tools write before a line: its number, perhaps with the path of its file."""
_BREAK = rf"[\"',+\\ \t]{{0,8}}(?:\r?\n|(?:\\{{1,3}}r)?\\{{1,3}}n){_PREFIX}"
_OPENINGS = ("\n", "\\n", '"')
_BEHIND = 200
"""How far before a line its beginning is looked for."""
_AHEAD = 520
"""How much text behind a line decides how it goes on: a shorter one and the end of the key, each behind a path."""

_PUBLIC = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0", "UEsDB", "H4sI")
"""How images, documents and archives begin."""

_IS_BASE64 = bytes(97 if chr(code) in _BASE64 else 32 for code in range(256))
_RUN = b"a" * _SHORT


class Block(NamedTuple):
    """Lines of one length that a text is in the middle of."""

    length: int
    is_public: bool


class Place(NamedTuple):
    """Where a stream stands between two chunks."""

    context: str = ""
    held: str = ""
    block: Block | None = None


def may_hold_lines(text: str) -> bool:
    """Whether anything in a text is as long as a line of a key: a look that costs next to nothing."""
    return len(text) >= _SHORT and _RUN in text.encode("utf-8", "surrogatepass").translate(_IS_BASE64)


def hide_lines(chunk: str, place: Place, mark: str, *, final: bool) -> tuple[str, Place]:
    """The text that may be shown, with a mark where lines of a key were, and where the stream stands behind it."""
    context, held, block = place
    if block is None and not held and not final and len(chunk) < _SHORT and not _may_begin_line(context, chunk):
        return chunk, Place((context + chunk)[-_BEHIND - 1 :])
    text = context + held + chunk
    at = len(context)
    shown: list[str] = []
    may_hold = block is not None or may_hold_lines(text[at:])
    while may_hold:
        start, end = (at, at) if block is not None else _next_line(text, at)
        if block is None and start == len(text):
            break
        if not final and len(text) - end < _AHEAD:
            # With the letter of an escape, which looks like a part of the line.
            start -= block is None and start > at and text[start - 1] in _BASE64
            shown.append(text[at:start])
            return "".join(shown), _stand(text, start, block)
        if block is not None:
            further = _following(text, at, block.length)
            end = further or _last_line(text, at)
            shown.append(text[at:end] if block.is_public else "")
            block = block if further else None
        elif _following(text, end, end - start) or _last_line(text, end) > end:
            block = Block(end - start, _is_public(text, start))
            shown += (text[at:start], text[start:end] if block.is_public else mark)
        else:
            shown.append(text[at:end])
        at = end
    held_from = len(text) if final else max(at, _line_begun(text))
    shown.append(text[at:held_from])
    return "".join(shown), _stand(text, held_from, None)


def _may_begin_line(context: str, chunk: str) -> bool:
    """Whether a chunk may end in the beginning of a line; most end between words, or in one behind another."""
    words = chunk.rstrip(_BASE64)
    if len(words) == len(chunk):
        return False
    before = words if len(words) > 1 else (context + words)
    return before[-1:] != " " or not before[-2:-1].isalpha()


def _stand(text: str, at: int, block: Block | None) -> Place:
    return Place(context=text[max(0, at - _BEHIND - 1) : at], held=text[at:], block=block)


def _next_line(text: str, at: int) -> tuple[int, int]:
    """Where the next line stands that may be one of a key; at the end of the text when there is none."""
    for found in _compiled(rf"(?<!{_CLASS}){_CLASS}{{{_SHORT}}}{_CLASS}*+").finditer(text, at):
        start, end = found.start(), found.end()
        # The letter of an escape is not the first one of a line.
        start += text[start - 1 : start] == "\\"
        if end - start in (_SHORT, _LONG) and _is_mixed(text[start:end]) and _begins_line(text, start):
            return start, end
    return len(text), len(text)


def _following(text: str, end: int, length: int) -> int:
    """Where the next line of this length ends, when one follows at once; else 0."""
    found = _compiled(rf"{_BREAK}({_CLASS}{{{length}}})(?!{_CLASS})").match(text, end)
    return found.end() if found and _is_mixed(found.group(1)) else 0


def _last_line(text: str, end: int) -> int:
    """Where a block ends whose last whole line ends here: a shorter line may close it."""
    pattern = rf"{_BREAK}(?P<line>{_CLASS}{{1,{_LONG}}}=?=?)(?!{_CLASS})(?P<end>{_BREAK}-----END)?"
    found = _compiled(pattern).match(text, end)
    if found is None:
        return end
    line = found.group("line")
    closes = line.endswith("=") or found.group("end") or (len(line) >= 8 and _is_mixed(line) and not line.isalpha())
    return found.end("line") if closes else end


def _is_public(text: str, start: int) -> bool:
    """Whether a block that starts here says what it is, and that is no private key: a certificate, an image."""
    before = text[max(0, start - _BEHIND) : start]
    _, begun, since = before.rpartition("-----BEGIN ")
    is_named = bool(begun) and "-----END " not in since and "PRIVATE KEY" not in since
    return is_named or text.startswith(_PUBLIC, start)


def _line_begun(text: str) -> int:
    """Where the end of the text begins that may become a line of a key."""
    end = text[-_LONG - 2 :]
    length = len(end) - len(end.rstrip(_BASE64))
    start = len(text) - length
    if not length or length > _LONG + 1:
        return len(text)
    return start if _begins_line(text, start + (text[start - 1 : start] == "\\")) else len(text)


def _begins_line(text: str, start: int) -> bool:
    """Whether a line starts here, or what a quote or a name opens."""
    if text[start - 1 : start] == " " and text[start - 2 : start - 1].isalpha():
        return False
    before = text[max(0, start - _BEHIND) : start]
    if before.rstrip(" \t").endswith((":", "=", "'", "`")):
        return True
    opened = [at + len(opening) for opening in _OPENINGS if (at := before.rfind(opening)) >= 0]
    if not opened and start > _BEHIND:
        return False
    line = max(opened, default=0)
    return _compiled(_PREFIX).fullmatch(before, line) is not None


def _is_mixed(line: str) -> bool:
    """Whether this has small and capital letters, which a hash in hexadecimal has not."""
    return line != line.lower() and line != line.upper()


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
