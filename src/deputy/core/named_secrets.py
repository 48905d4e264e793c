"""Values behind a name like `password`: how they are assigned, told and passed, and where they begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.secret_ends import AND, BARE, FIELD, LINE, Found, block, compiled, quoted
from deputy.core.secret_values import WINDOW, Assigned, is_assigned_secret, is_passphrase, is_said_secret

if TYPE_CHECKING:
    import re

LOOK = 360
"""How much text behind a name decides whether a secret stands there."""
BEHIND = 160
"""How much text before a name says how it is used."""

_SPACE = r"[ \t]{0,4}"
_NEWLINE = r"(?:\\{0,3}\r?\n|(?:\\{1,3}r)?\\{1,3}n)"
_GAP = rf"[ \t]{{0,4}}(?:{_NEWLINE}[ \t]{{0,40}}){{0,2}}"
_ANNOTATION = rf":{_SPACE}[A-Za-z_][A-Za-z0-9_.\[\]| ]{{0,31}}"
_WHOSE = r"(?:(?:for|of|to)[ \t](?:[^\s:=\"'\\]{1,32}[ \t]){1,3})?"
_SAYS = rf"(?<=[ \t]){_WHOSE}(?P<says>(?:is|was)(?:[ \t]?:)?)(?=[ \t])"
_SEPARATOR = rf"(?:{_ANNOTATION}=(?!=)|=>|:=|=(?![=~])|:(?!:)|>|,(?=\s{{0,40}}\\{{0,3}}[\"'])|{_SAYS})"
_SCHEME = r"(?:(?i:bearer|basic|token|apikey|api-key|digest|negotiate)[ \t]{1,4})?"
_HEAD = rf"(?:\\{{0,3}}[\"']\]?{_GAP}|\]?{_SPACE})(?P<separator>{_SEPARATOR})?(?P<gap>{_GAP}){_SCHEME}"
_BLOCK = (
    rf"[|>][+-]?[1-9]?[+-]?{_SPACE}(?:#[^\n\\]{{0,80}})?"
    r"(?:\r?\n|(?:\\{1,3}r)?(?P<slashes>\\{1,3})n)(?P<indent>[ \t]{1,40})"
)
_OPENING = r"[bBrRuUfF@]{0,2}(?P<quote>(?P<slashes>\\{0,3})(?P<sign>[\"']))(?:(?P=quote){2})?"
_BARE_CLASS = r"[^\s\"'`,;&<>(){}\[\]|\\]"
_BARE = rf"(?={_BARE_CLASS}|{AND}){_BARE_CLASS}{{0,{WINDOW}}}(?:{AND}{_BARE_CLASS}{{0,{WINDOW}}}){{0,2}}"
_NAME_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.$<-/"

_FOLLOWS = (
    r"\Z|[:=>\"'\]]|\\(?:\Z|[\"'\\])"
    r"|[ \t]{1,4}(?:\Z|[:=>\"']|\\(?:\Z|[\"'\\])|(?:i|w|f|o|t)\Z|(?:is|wa|fo|of|to)(?:\Z|[ \t:])|(?:was|for)(?:\Z|[ \t:]))"
)
"""What must follow a name for anything to be assigned: a look at a character or two, which most words do not pass."""

_NETRC = r"\b(?:login|account|machine)\s{1,8}\S{1,64}\s{1,8}\Z"
_SET = r"\b(?i:set)[ \t]{1,4}[^\s=]{0,64}\Z"
CLIENTS = (
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
    if compiled(_FOLLOWS).match(text, end):
        return True
    return text[end] in " \t" and _is_passed(text[max(0, start - BEHIND) : start])


def is_open(text: str, start: int, end: int) -> bool:
    """Whether more text is needed to say what stands behind a name that ends here."""
    return len(text) - end < LOOK


def find_assigned(text: str, start: int, end: int) -> Found | None:
    """The secret that is assigned to the name whose last word stands here, if one is."""
    limit = end + LOOK
    head = compiled(_HEAD).match(text, end, limit)
    if head is None:
        return None
    key = text[start:end].lower()
    if head.group("says"):
        return _find_said(text, key, head, limit)
    behind = text[max(0, start - BEHIND) : start]
    before = behind.rstrip(_NAME_LETTERS)
    name = behind[len(before) :] + text[start:end]
    is_told = _is_told(text, before, name, head)
    if is_told is None:
        return None
    gap = head.group("gap")
    assigned = Assigned(
        key=key,
        name=name,
        separator=head.group("separator") or " ",
        value="",
        is_tight=head.group("separator") == "=" and not gap,
        is_split="n" in gap or "\n" in gap,
        is_told=is_told,
    )
    if assigned.is_split and assigned.separator == ":" and _is_branch(before):
        return None
    return _find_value(text, head.end(), assigned, limit, is_field=before.endswith(";"))


def _is_told(text: str, before: str, name: str, head: re.Match[str]) -> bool | None:
    """Whether only a value can stand here (else it may be code or prose); None where none can."""
    separator = head.group("separator")
    if separator is None:
        return _is_told_by_space(text, before, name, head)
    if separator == ",":
        return True if name.startswith("-") else None
    if separator == ">":
        return False if name.startswith("<") else None
    is_tight = separator == "=" and head.start("gap") == head.end()
    return is_tight and (name.startswith("--") or name.isupper() or before.endswith(("?", "&", ";")))


def _is_told_by_space(text: str, before: str, name: str, head: re.Match[str]) -> bool | None:
    if text[head.end() - 1] not in " \t\n":
        return None
    if name.startswith("--"):
        line = before[before.rfind("\n") + 1 :].lower()
        return any(client in line for client in CLIENTS)
    if _is_passed(before):
        return True
    lower = name.lower()
    is_sql = lower.endswith(("password", "identified by")) and text[head.end() : head.end() + 1] in ("'", '"', "\\")
    return name.isupper() if is_sql else None


def _is_passed(before: str) -> bool:
    """Whether a space is all that parts a name from its value: behind an option, in a .netrc, where it is set."""
    if "--" in before[-40:]:
        return True
    return any(compiled(pattern).search(before, max(0, len(before) - 96)) for pattern in (_NETRC, _SET))


def _is_branch(before: str) -> bool:
    line = before[before.rfind("\n") + 1 :].lstrip()
    return any(word in line for word in _BRANCHES)


def _find_value(text: str, at: int, assigned: Assigned, limit: int, *, is_field: bool) -> Found | None:
    if assigned.separator == ":" and (lines := compiled(_BLOCK).match(text, at, limit)):
        return _find_block(text, lines, assigned)
    if opening := compiled(_OPENING).match(text, at, limit):
        return _find_quoted(text, opening, assigned, limit)
    if assigned.key == "passphrase" and not assigned.is_split:
        line = compiled(LINE.going).match(text, at, min(at + WINDOW, limit))
        if line and is_passphrase(line.group()):
            return Found(at, at, LINE)
    if is_field and assigned.is_told:
        field = compiled(FIELD.going).match(text, at, min(at + WINDOW, limit))
        if field and " " in field.group() and is_assigned_secret(assigned._replace(value=field.group())):
            return Found(at, at, FIELD)
    return _find_bare(text, at, assigned, limit)


def _find_block(text: str, opening: re.Match[str], assigned: Assigned) -> Found | None:
    start = opening.end()
    rest = block(len(opening.group("indent")), len(opening.group("slashes") or ""))
    lines = compiled(rest.going).match(text, start, start + WINDOW)
    value = lines.group().partition("\n")[0].partition("\\n")[0] if lines else ""
    judged = assigned._replace(value=value, is_quoted=True, is_told=True)
    return Found(start, start, rest) if value and is_assigned_secret(judged) else None


def _find_quoted(text: str, opening: re.Match[str], assigned: Assigned, limit: int) -> Found | None:
    start = opening.end()
    rest = quoted(opening.group("sign"), len(opening.group("slashes")))
    inside = compiled(rest.going).match(text, start, min(start + WINDOW, limit))
    value = inside.group() if inside else ""
    judged = assigned._replace(value=value, is_quoted=True)
    return Found(start, start, rest) if value and is_assigned_secret(judged) else None


def _find_bare(text: str, at: int, assigned: Assigned, limit: int) -> Found | None:
    bare = compiled(_BARE).match(text, at, limit)
    if bare is None:
        return None
    value = bare.group()
    after = text[bare.end() : bare.end() + 1] if bare.end() < limit and len(value) < WINDOW else ""
    if assigned.separator == ">" and after != "<" and len(value) < WINDOW:
        return None
    judged = assigned._replace(value=value, after=after)
    return Found(at, bare.end(), BARE) if is_assigned_secret(judged) else None


def _find_said(text: str, key: str, head: re.Match[str], limit: int) -> Found | None:
    """The password in "the password is …"."""
    if key in ("pass", "auth", "authorization"):
        return None
    at = head.end()
    if opening := compiled(_OPENING).match(text, at, limit):
        return _find_quoted(text, opening, Assigned(key=key, name=key, separator="is", value=""), limit)
    bare = compiled(_BARE).match(text, at, limit)
    is_announced = head.group("says").endswith(":")
    if bare and is_said_secret(key, bare.group(), is_announced=is_announced):
        return Found(at, bare.end(), BARE)
    return None
