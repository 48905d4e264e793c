"""The forms in which a secret stands beside a name, in a URL, a header, an option or a private key block."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deputy.core.redaction.names import SECRET_ENDS, is_secret_name, words
from deputy.core.redaction.values import (
    BARE,
    LINE,
    MOST_JUDGED,
    SPACED,
    WORD,
    compiled,
    is_code,
    is_shown,
    quoted,
    scheme_end,
)

if TYPE_CHECKING:
    import re

LOOK_BACK = 320
"""How much text before a trigger is read: the rest of its name, the quotes and the program of its line."""
_LINE_BACK = 256
_NAME_LENGTH = 64


class Found(NamedTuple):
    """A secret: where it starts, how far it is known to go, and the pattern of the rest."""

    start: int
    end: int
    rest: str = ""


_KEYS = tuple(end for end in SECRET_ENDS if end.endswith("key"))
_QUERY = ("key", "sig", "signature", "auth", "x-amz-signature", "x-amz-credential", "x-goog-signature", "code")
_LOGIN = r"[^\s\"':\\]{1,64}:"
_SHORT_OPTIONS = (
    ("--proxy-user", "curl|wget", "[= ] {0,3}", _LOGIN),
    ("--user", "curl|wget", "[= ] {0,3}", _LOGIN),
    ("-u", "curl|wget", " {0,4}", _LOGIN),
    ("-a", "https?", " {1,4}", _LOGIN),
    ("--cookie", "curl", "[= ] {0,3}", r"[\w.-]{1,64}="),
    ("-b", "curl", " {1,4}", r"[\w.-]{1,64}="),
    ("-p", "mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump|sshpass", "", ""),
    ("-p", "sshpass|(?:docker|podman|buildah|skopeo|helm registry|oras) login", " {1,4}", ""),
    ("-a", "redis-cli", " {1,4}", ""),
    ("-w", "ldapsearch|ldapadd|ldapmodify|ldapdelete|ldapwhoami", " {1,4}", ""),
)
"""Short options that pass a password: the programs that take it so, what is between, and what stands before it."""
_PROGRAM_START = r"(?:^|[\s/\"'`;:|&($]|\\[nrt])"

_NAMES = (
    "pass", "pwd", "secret", "token", "credential", "authorization", "cookie", "_auth", "_key=",
    *(f"{key.removesuffix('key')}{sign}key" for key in _KEYS for sign in ("", "_", "-")),
)  # fmt: skip
TRIGGERS = (
    "://", ":\\", "-----begin", "bearer", *_NAMES,
    *(f"{sign}{name}=" for sign in ("?", "&", ";") for name in _QUERY),
    *(option for option, _, _, _ in _SHORT_OPTIONS),
)  # fmt: skip
"""What starts a form, in lower case."""


def find_form(text: str, at: int) -> Found | None:
    """The secret of the form that a trigger at this place starts, if it starts one."""
    match text[at]:
        case ":":
            return _find_in_url(text, at)
        case "-":
            return _find_private_key(text, at) or _find_short_option(text, at)
        case "?" | "&" | ";":
            return _find_in_query(text, at)
        case _:
            is_name = text[at : at + 16].lower().startswith(_NAMES)
            return _find_named(text, at) if is_name else _find_bearer(text, at)


def _find_in_url(text: str, at: int) -> Found | None:
    """The password in `scheme://name:password@host`."""
    user = compiled(r":(?:\\{0,15}/){2}[^\s:/?#@\"'`<>\\]{0,128}:").match(text, at)
    if user is None:
        return None
    found = compiled(r"[^\s/?#\"'`<>\\]{1,384}(?=@)").match(text, user.end())
    if found is None or is_shown(_PASSWORDS, found.group()):
        return None
    return Found(found.start(), found.end())


def _find_in_query(text: str, at: int) -> Found | None:
    """The value of a name in a query that means a secret only there: `?key=…`, `&sig=…`."""
    before = text[max(0, at - _LINE_BACK) : at]
    sign = text.index("=", at) + 1
    value = _read(BARE, text, sign)
    is_url = compiled(r"://\S*\Z").search(before) is not None
    return _found(BARE, text, sign) if is_url and not is_shown(text[at + 1 : sign], value) else None


def _find_bearer(text: str, at: int) -> Found | None:
    found = compiled(r"(?i:bearer)[ \t]{1,4}(?=[\w.~+/=-]{20})(?=[A-Za-z_.~+/=-]{0,64}[0-9])").match(text, at)
    return Found(found.end(), found.end(), r"[\w.~+/=-]*+") if found else None


def _find_short_option(text: str, at: int) -> Found | None:
    if text[max(0, at - 1) : at].strip(" \t\"'"):
        return None
    line = _line_before(text, at)
    for option, programs, gap, before in _SHORT_OPTIONS:
        if not text.startswith(option, at) or not compiled(rf"{_PROGRAM_START}(?:{programs})\b").search(line):
            continue
        between = rf"(?:{gap}|{_NEXT_ITEM})" if gap else ""
        found = compiled(rf"{between}(?P<opening>{_QUOTE})?{before}").match(text, at + len(option))
        if found is None:
            continue
        pattern = _quoted_by(found) if found.group("opening") else WORD
        value = _read(pattern, text, found.end())
        if value and value[0] not in "-/=" and not is_shown(_PASSWORDS, value):
            return _found(pattern, text, found.end())
    return None


def passed_from(program: str, option: str, value: str) -> int | None:
    """Where the secret starts in the argument after an option; None if the option passes none."""
    if option.startswith("--") and is_secret_name(option):
        return None if value.startswith("-") or is_shown(option, value) else 0
    for name, programs, gap, before in _SHORT_OPTIONS:
        if name == option and gap and compiled(rf"\b(?:{programs})\b").search(program):
            found = compiled(before).match(value)
            if found is not None and not is_shown(_PASSWORDS, value[found.end() :]):
                return found.end()
    return None


_PASSWORDS = "user username pass password passwd pwd secret token"
"""A name for a password that has none, of the words that manuals write in its place."""

_LEAD = r"(?:[\s\"'+,|>]|\\{1,8}[nrt]?)"
_LINE_NUMBER = r"(?:[^\s:\"']{1,80}[:-])?[0-9]{1,7}(?:\\{1,3}t|[\t:|-]|→|\\{1,8}u2192)"
_LINE_START = rf"{_LEAD}{{0,24}}+(?:{_LINE_NUMBER}{_LEAD}{{0,8}}+){{0,2}}+"
"""What stands before a line of a key: its indentation, or a path and a number as tools print them, also twice."""
_KEY_HEADER = rf"(?:{_LINE_START}(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\n\\]{{0,80}})"
_KEY_BLOCK = (
    rf"[A-Za-z0-9+/=]*+{_KEY_HEADER}{{0,6}}+(?:{_LINE_START}[A-Za-z0-9/+=]{{16,}}+)*+"
    rf"(?:(?:{_LINE_START}[A-Za-z0-9+/=]{{1,15}}){{0,2}}{_LINE_START}-----END [A-Z0-9 ]{{1,40}}-----)?+"
)


def _find_private_key(text: str, at: int) -> Found | None:
    begin = compiled(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----").match(text, at)
    if begin is None:
        return None
    follows = compiled(rf"{_KEY_HEADER}{{0,6}}+{_LINE_START}[A-Za-z0-9+/=]{{16}}").match(text, begin.end())
    return Found(at, begin.end(), _KEY_BLOCK) if follows else None


_CLOSE = r"(?P<close>\\{0,15}[\"'])?\]?(?P<before>[ \t]{0,16})"
_TYPE = r"[A-Za-z_][\w.]{0,48}(?:\[[^\]=\n]{0,48}\])?(?: ?\| ?[\w.]{1,48})?"
_ANNOTATION = rf":[ \t]{{0,4}}{_TYPE}[ \t]{{0,4}}=[ \t]{{0,8}}(?=[bru]?\\{{0,15}}[\"'])"
_ANNOTATED = rf"(?:str|string|bytes|any|bool|object|{_TYPE}[ \t]{{0,4}}[,)=;\[(.])(?!\w)"
_ASSIGNMENT = r"(?P<sign>=>|:=|=(?![=~>])|%3[Dd]|\\{1,7}u003[dD]|:(?![:=]))(?P<after>[ \t]{0,64})"
_SIGN = rf"{_CLOSE}(?:{_ANNOTATION}|{_ASSIGNMENT})"
_HEADER_SIGN = _CLOSE + _ASSIGNMENT
_NEXT_ITEM = r"\\{0,15}[\"'],[ \t]{0,4}(?=[bru]?\\{0,15}[\"'])"
_QUOTE = r"[bBrRuUfF]{0,2}(?P<slashes>\\{0,15})(?P<quote>\"\"\"|'''|[\"'])"


def _find_named(text: str, at: int) -> Found | None:
    """The value beside a name: `name=value`, `name: value`, `"name": "value"`, a header, an option."""
    start = at
    while start > 0 and at - start < _NAME_LENGTH and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
        start -= 1
    if start < at and text[max(0, start - 1) : start] == "\\" and text[start] in "nrt":
        start += 1  # The end of an escape (`\n`) is not part of the name.
    whole = compiled(r"[\w-]{0,64}").match(text, at)
    end = whole.end() if whole else at
    name = text[start:end].rpartition(".")[2]
    is_option = name.startswith("--")
    name = name.lstrip("-")
    is_cookie = words(name)[-1:] == ["cookie"]
    is_env_key = name.isupper() and name.endswith("_KEY") and text[end : end + 1] == "="
    if not (is_cookie or is_env_key or is_secret_name(name)):
        return None
    is_header = is_cookie or words(name)[-1] == "authorization"
    sign = compiled(_HEADER_SIGN if is_header else _SIGN).match(text, end)
    if is_option and (sign is None or sign.group("sign") != "="):
        return _find_next_value(text, name, end, rf"[ \t]{{1,4}}|{_NEXT_ITEM}")
    if sign is None and (is_header or "-" in name):
        return _find_next_value(text, name, end, _NEXT_ITEM)
    if sign is None:
        return None
    quote = compiled(_QUOTE).match(text, sign.end())
    if quote is not None:
        return _find_quoted(text, name, start, quote, is_name_quoted=bool(sign.group("close")))
    return _find_bare(text, name, sign.end(), sign)


def _find_next_value(text: str, name: str, end: int, between: str) -> Found | None:
    """The value after the name of an option or a header, behind a space or as the next item of a list."""
    gap = compiled(between).match(text, end)
    if gap is None:
        return None
    quote = compiled(_QUOTE).match(text, gap.end())
    at = scheme_end(text, quote.end()) if quote else gap.end()
    pattern = _quoted_by(quote) if quote else WORD
    value = _read(pattern, text, at)
    return None if value.startswith("-") or is_shown(name, value) else _found(pattern, text, at)


def _find_quoted(text: str, name: str, start: int, quote: re.Match[str], *, is_name_quoted: bool) -> Found | None:
    if not is_name_quoted and _is_closing(text, start, quote):
        return None
    at, pattern = quote.end(), _quoted_by(quote)
    if words(name)[-1] == "authorization":
        at = scheme_end(text, at)
    value = _read(pattern, text, at)
    if is_shown(name, value) or (words(name)[-1] == "cookie" and "=" not in value):
        return None
    return _found(pattern, text, at)


def _find_bare(text: str, name: str, at: int, sign: re.Match[str]) -> Found | None:
    if compiled(r"`[^`\s]{1,512}`").match(text, at):
        at += 1  # Between backticks, a command has spaces and a value has none.
    kind = words(name)[-1]
    if kind == "authorization" and (value_at := scheme_end(text, at)) > at:
        return None if is_shown(name, _read(LINE, text, value_at)) else _found(LINE, text, value_at)
    if sign.group("sign") == ":" and not sign.group("close") and not sign.group("before"):
        if kind == "cookie":
            return Found(at, at, LINE) if compiled(r"[\w.-]{1,64}=").match(text, at) else None
        if "-" in name or (kind == "authorization" and not compiled(_ANNOTATED).match(text, at)):
            pattern = LINE if kind == "authorization" else WORD
            return None if is_shown(name, _read(pattern, text, at)) else _found(pattern, text, at)
    value = _read(BARE, text, at)
    if is_shown(name, value) or kind == "cookie":
        return None
    is_tight = (
        sign.group("sign")[-1] in "=dD"
        and sign.group("sign") != ":="
        and not sign.group("before")
        and not sign.group("after")
    )
    if not is_tight and is_code(value):
        return None
    if kind == "pwd" and value.startswith(("/", "~", ".")):
        return None
    return _found(BARE, text, at)


def _is_closing(text: str, start: int, quote: re.Match[str]) -> bool:
    """Whether a quote right after a sign closes a text that ends in it, as in `"password=" + value`."""
    before = _line_before(text, start)
    if before.count(quote.group("quote")[0]) % 2 == 0:
        return False
    return compiled(r"[ \t]{0,8}(?:[+,)\]}%.:;]|[bBrRuUfF]?[\"']|\r?\n|\\n|\Z)").match(text, quote.end()) is not None


def _quoted_by(quote: re.Match[str]) -> str:
    return quoted(quote.group("quote"), len(quote.group("slashes")))


def _line_before(text: str, at: int) -> str:
    """The line up to this place; a backslash at the end of a line continues it."""
    before = text[max(0, at - _LINE_BACK) : at].replace("\\\n", "  ").replace("\\\r\n", "   ")
    return before[before.rfind("\n") + 1 :]


def _read(pattern: str, text: str, at: int) -> str:
    """The beginning of a value, as much as is judged, with the brackets that close behind it."""
    found = compiled(rf"(?:{SPACED})?{pattern}[)\]}}]{{0,4}}").match(text, at, at + MOST_JUDGED)
    return found.group() if found else ""


def _found(pattern: str, text: str, at: int) -> Found:
    """A value that starts here; a placeholder with spaces at its beginning is a part of it."""
    spaced = compiled(SPACED).match(text, at)
    return Found(at, spaced.end() if spaced else at, pattern)
