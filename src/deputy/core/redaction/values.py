"""Values beside a secret's name: how far they go, and which of them are placeholders or code."""

from __future__ import annotations

import re
from functools import cache

from deputy.core.redaction.names import words

MOST_JUDGED = 192
"""How much of a value is read to judge it; a longer one is neither placeholder nor code."""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled when it is first used."""
    return re.compile(pattern, re.ASCII)


# Each pattern below consists of units that are repeated possessively: matching takes linear time, and a stream can
# stop after any unit and continue there.
_NEXT = r"(?:amp;)?[A-Za-z_][\w.%\[\]-]{0,31}"
_ENDS = r"[\s\"'`<>]|\\{1,8}[nrt\"']"
BARE = (
    r"(?:[^\s\"'`<\\,;&)\]}]"
    r"|<(?![A-Za-z/!])"
    rf"|&(?!{_NEXT}=)"
    rf"|[,;](?!{_NEXT}[=:]|{_ENDS}|\Z)"
    rf"|[)\]}}](?!{_ENDS}|[)\]}},;.:]|\Z)"
    r"|\\(?![\\nrtu\"'])"
    r")*+"
)
"""A value without quotes: up to a space, a quote, or the next name of a query or list."""

WORD = r"(?:[^\s\"'`\\]|\\(?![\\nrtu\"']))*+"
"""A value that only a space or a quote ends: of an option or a header."""

LINE = r"(?:[^\r\n\"'`\\]|(?<==)\"[^\"\r\n\\]{0,256}\"|\\(?![\\nru\"']))*+"
"""A value up to the end of the line: of a header that may have several parts."""


@cache
def quoted(quote: str, slashes: int) -> str:
    """A value after an opening quote that has this many backslashes before it: up to the same again."""
    mark = quote[0]
    inside = rf"[^{mark}\\\n]|\\{{{slashes + 1}}}(?:\\{{{slashes}}}{mark}|\\{{{slashes + 1}}}|[^{mark}\\\n])"
    if len(quote) == 3:
        return rf"(?:[^{mark}\\]|\\[\s\S]|{mark}(?!{mark}{mark}))*+"
    if slashes:
        return rf"(?:{inside}|\\{{1,{slashes}}}(?![\\{mark}n]))*+"
    # A doubled quote, one that a shell closes and opens again, and one that a word follows are inside the value.
    more = r"''|'\\''|'\"'\"'" if mark == "'" else mark * 2
    return rf"(?:{inside}|{more}|{mark}(?=[A-Za-z0-9]))*+"


SPACED = r"\$?\{\{[^{}\n]{0,96}\}\}|\$\([^()\n]{0,96}\)|<[^<>\n]{1,96}>|\[redacted(?: \w{1,64})?\]"
"""Placeholders that may contain spaces."""
_PLACEHOLDER = (
    r"(?:%\(\w{1,64}\)[sdr]|%[sdrqv]|%\w{1,64}%|\$\{{1,2}[^{}]{0,128}\}{1,2}|\$\([^()]{0,128}\)?|\$[A-Za-z_]\w{0,64}|\$[0-9@*]"
    r"|\{{1,2}[^{}]{0,128}\}{1,2}|<[^<>]{1,128}>|\[redacted(?: \w{1,64})?\]|\[REDACTED\]|@\w{1,64}@"
    r"|(?i:none|null|nil|undefined|true|false)|[|>][-+0-9]{0,2}|\*+|\.+|x+|X+|#+|_+|\?+|-+|•+|…+)"
)
_SCHEME = r"(?i:basic|bearer|token|digest|negotiate|apikey|bot|oauth|key|aws4-hmac-sha256|sharedkey|ntlm|hoba)"
_FILLER = frozenset(("your", "my", "the", "a", "some", "new", "old", "here", "goes", "self", "cls", "args", "this"))
_IDENTIFIER = r"[A-Za-z_][\w]{0,127}"
_CODE = (
    rf"[-+!&*~]{{0,2}}(?:{_IDENTIFIER}(?:(?:\?\.|\.|::|->){_IDENTIFIER}){{0,12}}\??(?:[.,;:]{{0,3}}\Z|[(\[{{|,;:<)\]}}][\s\S]*)"
    r"|(?:0[xob])?[0-9][0-9a-fA-F_.]*[,;:)\]}]{0,4}\Z|[(\[{][\s\S]*|\.\.\.)"
)


def scheme_end(text: str, at: int) -> int:
    """Where the value of an authorization starts: after the name of its scheme, if it has one."""
    found = compiled(rf"{_SCHEME}[ \t]{{1,4}}(?=\S)").match(text, at)
    return found.end() if found else at


def is_shown(name: str, value: str) -> bool:
    """Whether a value stays: empty, a placeholder, or only a repetition of its name."""
    stripped = value.strip()
    if not stripped or len(value) >= MOST_JUDGED:
        return not stripped
    if compiled(rf"{_PLACEHOLDER}(?:[\s:/.,@|+-]{{0,4}}{_PLACEHOLDER}){{0,4}}[,;)\]}}]{{0,3}}").fullmatch(stripped):
        return True
    return _repeats(name, stripped)


def _repeats(name: str, value: str) -> bool:
    """Whether a value is words that end in its name: `password`, `self.password`, `test_api_key`."""
    if compiled(r"[:@&*]?[A-Za-z_.\- ]*[()\[\],;:.!?]{0,4}").fullmatch(value) is None:
        return False
    of_name, of_value = "".join(words(name)), "".join(words(value))
    is_part = not set(words(name)).isdisjoint(words(value)) and set(words(value)) <= {*words(name), *_FILLER}
    return is_part or of_value == of_name or (of_value.endswith(of_name) and len(words(value)) > len(words(name)))


def is_code(value: str) -> bool:
    """Whether a value without quotes is an identifier, attribute, call, number or type."""
    if compiled(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{20,}[,;]?").fullmatch(value):
        return False
    return compiled(_CODE).fullmatch(value) is not None
