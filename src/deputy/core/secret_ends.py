"""How far a secret goes on once it is known to be one, also over the chunks of a stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Rest:
    """What still belongs to a secret, from where it is known to be one."""

    going: str = ""
    last: str = ""
    """The same where no more text comes, if that makes a difference."""
    tail: str = ""
    """What may stand behind it at the end of a chunk and still belong to it."""

    def end(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Where a secret that goes on here ends, and whether the text ended first."""
        match = compiled((final and self.last) or self.going).match(text, at)
        end = match.end() if match else at
        return end, compiled(self.tail).fullmatch(text, end) is not None


class Found(NamedTuple):
    """A secret: its first character to hide, from where its rest is read, and how."""

    start: int
    end: int
    rest: Rest


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled when it is first needed."""
    return re.compile(pattern)


# In a query string (and a list) the next name and its value end a value; elsewhere the same sign is part of it.
NEXT_NAME = r"(?:amp;)?[A-Za-z_][A-Za-z0-9_.%\[\]-]{0,31}"
AND = rf"&(?!{NEXT_NAME}=)"
_PLAIN = r"[^\s\"'`,;&<>\\]"
_STOP = r"[\s\"'`,;&<>(){}\[\]\\]"
BARE = Rest(
    going=(
        rf"{_PLAIN}*+(?:(?:&(?!{NEXT_NAME}(?:=|\Z)|(?:amp;)?\Z)|[,;](?!{NEXT_NAME}(?:[=:]|\Z)|{_STOP}|\Z))"
        rf"{_PLAIN}*+)*+"
    ),
    last=rf"{_PLAIN}*+(?:(?:{AND}|[,;](?!{NEXT_NAME}[=:]|{_STOP}|\Z)){_PLAIN}*+)*+",
    tail=rf"(?:[&,;](?:{NEXT_NAME})?|&amp;)?",
)
"""A value without quotes."""

LINE = Rest(going=r"(?:[^\n\\\"'`<]|(?<=\w)'(?=\w))*+", tail="'?")
"""All to the end of the line."""

FIELD = Rest(going=r"[^\n\\\"'`<;]*+")
"""All to the end of a field, as connection strings have them."""


@cache
def quoted(quote: str, slashes: int) -> Rest:
    """What a quote opened, so many backslashes before it: up to the same again, however it writes quotes inside."""
    escape = rf"\\{{{slashes + 1}}}(?:\\{{{slashes}}}{quote}|\\{{{slashes + 1}}}|[^{quote}\\\n])"
    inside = rf"[^{quote}\\\n]|{escape}"
    if slashes:
        twice = rf"(?:\\{{{slashes}}}{quote}){{2}}"
        tail = rf"(?:\\{{1,{2 * slashes + 1}}}|\\{{{slashes}}}{quote}\\{{0,{slashes}}})?"
        return Rest(going=rf"(?:{inside}|{twice})*+", tail=tail)
    if quote == '"':
        return Rest(going=rf"(?:{inside}|\"\")*+", tail=r"[\\\"]?")
    # Shells close a quote to write one; an apostrophe behind two backslashes was escaped, and then all of it once more.
    more = r"''|'\\{1,8}''|'\\{0,8}\"'\\{0,8}\"'|(?<=\\\\)'(?=\w)"
    begun = r"\\|'(?:\\{1,8}'?|\\{0,8}\"(?:'(?:\\{0,8}\"?)?)?)?"
    return Rest(going=rf"(?:{inside}|{more})*+", tail=f"(?:{begun})?")


@cache
def block(indent: int, slashes: int) -> Rest:
    """The lines of a block, indented at least so far; the line ends are escapes of so many backslashes, if any."""
    if not slashes:
        line, newline, begun = r"[^\n]*+", r"\n", ""
    else:
        line = rf"(?:[^\\\"\n]|\\{{{slashes}}}[^n\\{'' if slashes == 1 else chr(34)}\n])*+"
        newline, begun = rf"\\{{{slashes}}}n", rf"\\{{1,{slashes}}}|"
    return Rest(
        going=rf"{line}(?:{newline}(?:[ \t]{{{indent}}}{line}|[ \t]{{0,80}}(?={newline})))*+",
        tail=rf"(?:{begun}{newline}[ \t]{{0,80}})?",
    )
