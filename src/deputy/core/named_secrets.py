"""Values behind a name like `password`: how they are assigned, told and passed, and where they begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deputy.core.secret_ends import AND, BARE, FIELD, LINE, Found, block, compiled, quoted
from deputy.core.secret_values import (
    SHORT_NAMES,
    WINDOW,
    Assigned,
    is_assigned_secret,
    is_passphrase,
    is_said_secret,
)

if TYPE_CHECKING:
    import re

LOOK = 360
"""How much text behind a name decides whether a secret stands there."""
BEHIND = 160
"""How much text before a name says how it is used."""

_SPACE = r"[ \t]{0,4}"
_NEWLINE = r"(?:\\{0,3}\r?\n|(?:\\{1,8}r)?\\{1,16}n)"
_GAP = rf"[ \t]{{0,4}}(?:{_NEWLINE}[ \t]{{0,40}}){{0,2}}"
_ANNOTATION = rf":{_SPACE}[A-Za-z_][A-Za-z0-9_.\[\]| ]{{0,31}}"
_WHOSE = r"(?:(?:for|of|to)[ \t](?:[^\s:=\"'\\]{1,32}[ \t]){1,3})?"
_SAYS = rf"(?<=[ \t]){_WHOSE}(?P<says>(?:is|was)(?:[ \t]?:)?)(?=[ \t])"
_SEPARATOR = rf"(?:{_ANNOTATION}=(?!=)|=>|:=|=(?![=~])|:(?!:)|>|,(?=(?:\s|\\{{1,8}}n){{0,40}}\\{{0,7}}[\"'])|{_SAYS})"
_SCHEME = r"(?:(?i:bearer|basic|token|apikey|api-key|digest|negotiate)[ \t]{1,4})?"
_HEAD = rf"(?:\\{{0,7}}[\"']\]?{_GAP}|\]?{_SPACE})(?P<separator>{_SEPARATOR})?(?P<gap>{_GAP}){_SCHEME}"
_BLOCK = (
    rf"[|>][+-]?[1-9]?[+-]?{_SPACE}(?:#[^\n\\]{{0,80}})?"
    r"(?:\r?\n|(?:\\{1,8}r)?(?P<slashes>\\{1,8})n)(?P<indent>[ \t]{1,40})"
)
_OPENING = r"[bBrRuUfF@]{0,2}(?P<quote>(?P<slashes>\\{0,7})(?P<sign>[\"']))(?:(?P=quote){2})?"
_BARE_CLASS = r"[^\s\"'`,;&<>(){}\[\]|\\]"
_BARE = rf"(?={_BARE_CLASS}|{AND}){_BARE_CLASS}{{0,{WINDOW}}}(?:{AND}{_BARE_CLASS}{{0,{WINDOW}}}){{0,2}}"
_MAY_OPEN = frozenset("bBrRuUfF@\\\"'")
_QUOTES = ("'", '"', "\\")
_NAME_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.$<-/"

_FOLLOWS = r"[ \t]{0,4}(?:\Z|[:=>\"'\\]|[iwfot]\Z|(?:is|wa|of|to|fo|was|for)(?:\Z|[ \t:]))"
_ESCAPED = ("", '"', "'", "\\")
"""What must follow a name for anything to be assigned: a look at a word, which most do not pass."""

_NETRC = r"\b(?:login|account|machine)\s{1,8}\S{1,64}\s{1,8}\Z"
_SET = r"\b(?i:set)[ \t]{1,4}[^\s=]{0,64}\Z"
_CLIENTS = (
    "mysql", "mariadb", "psql", "pg_dump", "sshpass", "curl", "wget", "docker", "podman", "helm", "mongo", "redis-cli",
    "sqlcmd", "ldap", "smbclient", "svn", "htpasswd", "keytool", "restic", "rabbitmq", "influx", "login", "7z",
)  # fmt: skip
"""Programs (or what their names begin with) whose options take passwords."""
_BRANCHES = (
    "if ", "elif ", "while ", "for ", "case ", "when ", "not ", "and ", "or ", "def ", "lambda ", "except ", "with ",
)  # fmt: skip
"""What stands on a line of code that ends with a colon and assigns nothing."""


def may_be_assigned(text: str, start: int, end: int) -> bool:
    """Whether anything can be assigned to the name that ends here."""
    after = text[end : end + 1]
    if after not in " \t":
        return after != "\\" or text[end + 1 : end + 2] in _ESCAPED
    if compiled(_FOLLOWS).match(text, end):
        return True
    before = text[max(0, start - BEHIND) : start]
    return "--" in before[-40:] or _is_passed(before)


def is_open(text: str, start: int, end: int) -> bool:
    """Whether more text is needed to say what stands behind a name that ends here."""
    return len(text) - end < LOOK


def find_assigned(text: str, start: int, end: int) -> Found | None:
    """The secret that is assigned to the name whose last word stands here, if one is."""
    limit = end + LOOK
    head = compiled(_HEAD).match(text, end, limit)
    if head is None:
        return None
    separator, says, gap = head.group("separator", "says", "gap")
    key = text[start:end].lower()
    value = _value_at(text, head.end(), key, separator, limit)
    if value is None:
        return None
    if says:
        return _find_said(key, value, is_announced=says.endswith(":"))
    is_tight = separator == "=" and not gap
    is_spaced = separator in (None, ",")
    if value.is_word and not (is_tight or is_spaced):
        return None
    behind = text[max(0, start - BEHIND) : start]
    before = behind.rstrip(_NAME_LETTERS)
    name = behind[len(before) :] + text[start:end]
    if is_spaced:
        is_told = _is_told_by_space(text, before, name, head)
    else:
        is_told = is_tight and (name.startswith("--") or name.isupper() or before.endswith(("?", "&", ";")))
    is_split = "n" in gap or "\n" in gap
    if is_told is None or (separator == ">" and name[0] != "<") or (is_split and _is_branch(before)):
        return None
    if is_told:
        value = _field_at(text, value, limit) if before.endswith(";") else value
    elif value.is_word:
        return None
    told = is_told or value.is_block
    assigned = Assigned(key, name, value.text, value.is_quoted, is_tight, is_split, told, value.after)
    return value.found if is_assigned_secret(assigned) else None


def _find_said(key: str, value: _Value, *, is_announced: bool) -> Found | None:
    """The password in "the password is …"."""
    if key in SHORT_NAMES or key == "authorization":
        return None
    if value.is_quoted:
        is_secret = is_assigned_secret(Assigned(key=key, name=key, value=value.text, is_quoted=True))
    else:
        is_secret = is_said_secret(key, value.text, is_announced=is_announced)
    return value.found if is_secret else None


def _is_told_by_space(text: str, before: str, name: str, head: re.Match[str]) -> bool | None:
    """Whether only a value can stand behind a space or a comma (else it may be code or prose); None where none can."""
    if head.group("separator") == ",":
        return True if name.startswith("-") else None
    if text[head.end() - 1] not in " \t\n":
        return None
    if name.startswith("--"):
        line = before[before.rfind("\n") + 1 :].lower()
        return any(client in line for client in _CLIENTS)
    if _is_passed(before):
        return True
    is_sql = name.lower().endswith(("password", "identified by")) and text[head.end() : head.end() + 1] in _QUOTES
    return name.isupper() if is_sql else None


def _is_passed(before: str) -> bool:
    """Whether a space is all that parts a name from its value: in a .netrc, or where it is set."""
    return any(compiled(pattern).search(before, max(0, len(before) - 96)) for pattern in (_NETRC, _SET))


def _is_branch(before: str) -> bool:
    line = before[before.rfind("\n") + 1 :].lstrip()
    return any(word in line for word in _BRANCHES)


class _Value(NamedTuple):
    """What stands where a value is expected."""

    found: Found
    text: str
    """Its beginning, as much as is looked at."""
    after: str = ""
    """The character behind it, when that is known."""
    is_quoted: bool = False
    is_block: bool = False
    is_word: bool = False
    """Only letters, without quotes: a name or a type in code, a word in prose."""


def _value_at(text: str, at: int, key: str, separator: str | None, limit: int) -> _Value | None:
    first = text[at : at + 1]
    if first in "|>" and separator == ":" and (opening := compiled(_BLOCK).match(text, at, limit)):
        return _block_at(text, opening)
    if first in _MAY_OPEN and (opening := compiled(_OPENING).match(text, at, limit)):
        return _quoted_at(text, opening, limit)
    if key == "passphrase" and separator in (":", "="):
        line = compiled(LINE.going).match(text, at, min(at + WINDOW, limit))
        if line and is_passphrase(line.group()):
            return _Value(Found(at, at, LINE), line.group(), is_quoted=True)
    bare = compiled(_BARE).match(text, at, limit)
    if bare is None:
        return None
    end, word = bare.end(), bare.group()
    is_whole = end < limit and len(word) < WINDOW
    after = text[end : end + 1] if is_whole else ""
    is_called = after in ("(", "[", "{") and word.replace(".", "").isidentifier()
    if is_called or (separator == ">" and after != "<" and is_whole):
        return None
    is_word = word.isalpha() and key != "authorization"
    return _Value(Found(at, end, BARE), word, after, False, False, is_word)


def _block_at(text: str, opening: re.Match[str]) -> _Value | None:
    start = opening.end()
    rest = block(len(opening.group("indent")), len(opening.group("slashes") or ""))
    lines = compiled(rest.going).match(text, start, start + WINDOW)
    first = lines.group().partition("\n")[0].partition("\\n")[0] if lines else ""
    return _Value(Found(start, start, rest), first, is_quoted=True, is_block=True) if first else None


def _quoted_at(text: str, opening: re.Match[str], limit: int) -> _Value | None:
    start = opening.end()
    rest = quoted(opening.group("sign"), len(opening.group("slashes")))
    inside = compiled(rest.going).match(text, start, min(start + WINDOW, limit))
    return _Value(Found(start, start, rest), inside.group(), is_quoted=True) if inside and inside.group() else None


def _field_at(text: str, value: _Value, limit: int) -> _Value:
    """The same value where spaces belong to it, as in a connection string."""
    at = value.found.start
    field = compiled(FIELD.going).match(text, at, min(at + WINDOW, limit))
    if value.is_quoted or field is None or " " not in field.group():
        return value
    return _Value(Found(at, at, FIELD), field.group())
