"""The forms of a secret: beside its name, in a URL, in a header, in an option, or as a private key block."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from msgspec import Struct

from deputy.core.redaction.names import SECRET_ENDS, is_secret_name, words

LOOK_BACK = 320
"""How much text before a trigger is read: the rest of its name, the quotes and the program of its line."""
_LINE_BACK = 256
_NAME_LENGTH = 64
_VALUE_LENGTH = 192
"""How much of a value is read to judge it; a longer value is neither a placeholder nor code."""


class Found(Struct, frozen=True, gc=False):
    """A secret: its start, its known end, and the pattern of the rest."""

    start: int
    end: int
    rest: str = ""


Find: TypeAlias = Callable[[str, int], Found | None]
"""What judges a trigger: it returns the secret that a trigger at this place of a text starts, if it starts one."""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled on first use."""
    return re.compile(pattern, re.ASCII)


# Values. Each pattern repeats its units possessively: it is linear, and a stream can stop after any unit.
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
"""The value of an option or a header: up to a space or a quote."""
LINE = r"(?:[^\r\n\"'`\\]|(?<==)\"[^\"\r\n\\]{0,256}\"|\\(?![\\nru\"']))*+"
"""The value of a header with several parts: up to the end of the line."""

_SPACED = r"\$?\{\{[^{}\n]{0,96}\}\}|\$\([^()\n]{0,96}\)|<[^<>\n]{1,96}>|\[redacted(?: \w{1,64})?\]"
"""Placeholders that may contain spaces."""
_PLACEHOLDER = (
    r"(?:%\(\w{1,64}\)[sdr]|%[sdrqv]|%\w{1,64}%|\$\{{1,2}[^{}]{0,128}\}{1,2}|\$\([^()]{0,128}\)?|\$[A-Za-z_]\w{0,64}|\$[0-9@*]"
    r"|\{{1,2}[^{}]{0,128}\}{1,2}|<[^<>]{1,128}>|\[redacted(?: \w{1,64})?\]|\[REDACTED\]|@\w{1,64}@"
    r"|(?i:none|null|nil|undefined|true|false)|[|>][-+0-9]{0,2}|\*++|\.++|x++|X++|#++|_++|\?++|-++|•++|…++)"
)
_FILLER = frozenset(("your", "my", "the", "a", "some", "new", "old", "here", "goes", "self", "cls", "args", "this"))
_PASSWORDS = "user username pass password passwd pwd secret token"
"""The name of a password without a name: the words that manuals write in its place."""
_IDENTIFIER = r"[A-Za-z_][\w]{0,127}"
_CODE = (
    rf"[-+!&*~]{{0,2}}(?:{_IDENTIFIER}(?:(?:\?\.|\.|::|->){_IDENTIFIER}){{0,12}}\??(?:[.,;:]{{0,3}}\Z|[(\[{{|,;:<)\]}}][\s\S]*)"
    r"|(?:0[xob])?[0-9][0-9a-fA-F_.]*[,;:)\]}]{0,4}\Z|[(\[{][\s\S]*|\.\.\.)"
)
_SCHEME = r"(?i:basic|bearer|token|digest|negotiate|apikey|bot|oauth|key|aws4-hmac-sha256|sharedkey|ntlm|hoba)"


def scheme_end(text: str, at: int) -> int:
    """The start of the value of an authorization: after its scheme, if it has one."""
    found = compiled(rf"{_SCHEME}[ \t]{{1,4}}(?=\S)").match(text, at)
    return found.end() if found else at


def is_shown(name: str, value: str) -> bool:
    """Whether a value stays: it is empty, a placeholder, or a repetition of its name (`self.password`)."""
    stripped = value.strip()
    if not stripped or len(value) >= _VALUE_LENGTH:
        return not stripped
    if compiled(rf"{_PLACEHOLDER}(?:[\s:/.,@|+-]{{0,4}}{_PLACEHOLDER}){{0,4}}[,;)\]}}]{{0,3}}").fullmatch(stripped):
        return True
    if compiled(r"[:@&*]?[A-Za-z_.\- ]*[()\[\],;:.!?]{0,4}").fullmatch(stripped) is None:
        return False
    of_name, of_value = words(name), words(stripped)
    if set(of_value) & set(of_name) and set(of_value) <= {*of_name, *_FILLER}:
        return True
    ends = "".join(of_value).endswith("".join(of_name))
    return ends and (len(of_value) > len(of_name) or "".join(of_value) == "".join(of_name))


def _is_code(value: str) -> bool:
    """Whether a value without quotes is an identifier, attribute, call, number or type."""
    if compiled(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{20,}[,;]?").fullmatch(value):
        return False
    return compiled(_CODE).fullmatch(value) is not None


_BLANKS = r"(?:\s|\\{1,8}n){0,24}"
_OPENING = r"(?:[bBrRuUfFL@$]|u8){0,2}(?P<slashes>\\{0,15})(?P<quote>\"\"\"|'''|[\"'])"


@cache
def _quoted(quote: str, slashes: int, *, in_list: bool = False) -> str:
    """A value after an opening quote with this many backslashes before it; in a list up to its last item."""
    mark = quote[0]
    if len(quote) == 3:
        return rf"(?:[^{mark}\\]|\\[\s\S]|{mark}(?!{mark}{mark}))*+"
    inside = rf"[^{mark}\\\n]|\\{{{slashes + 1}}}(?:\\{{{slashes}}}{mark}|\\{{{slashes + 1}}}|[^{mark}\\\n])"
    if in_list:
        inside = rf"\\{{{slashes}}}{mark},{_BLANKS}\\{{{slashes}}}{mark}|{inside}"
    if slashes:
        return rf"(?:{inside}|\\{{1,{slashes}}}(?![\\{mark}n]))*+"
    # A doubled quote, one that a shell closes and opens again, and one before a letter are inside the value.
    more = r"''|'\\''|'\"'\"'" if mark == "'" else mark * 2
    return rf"(?:{inside}|{more}|{mark}(?=[A-Za-z0-9]))*+"


def _value_of(opening: re.Match[str], *, in_list: bool = False) -> str:
    return _quoted(opening["quote"], len(opening["slashes"]), in_list=in_list)


def _read(pattern: str, text: str, at: int) -> tuple[str, Found]:
    """The value that starts here: what is read to judge it, and its place. A placeholder with spaces may start it."""
    spaced = compiled(_SPACED).match(text, at)
    found = Found(at, spaced.end() if spaced else at, pattern)
    read = compiled(rf"{pattern}[)\]}}]{{0,4}}").match(text, found.end, at + _VALUE_LENGTH)
    return text[at : read.end() if read else found.end], found


def _line_before(text: str, at: int) -> str:
    """The line up to this place; a backslash at the end of a line continues it."""
    before = text[max(0, at - _LINE_BACK) : at].replace("\\\n", "  ").replace("\\\r\n", "   ")
    return before[before.rfind("\n") + 1 :]


_NAMES = (
    "pass", "pwd", "secret", "token", "credential", "authorization", "cookie", "_auth", "_key=", "_pat=",
    *(f"{end[:-3]}{sign}key" for end in SECRET_ENDS if end.endswith("key") for sign in ("", "_", "-")),
)  # fmt: skip
_QUERY = ("key", "sig", "signature", "auth", "x-amz-signature", "x-amz-credential", "x-goog-signature", "code")
_LOGIN = r"[^\s\"':\\]{1,64}:"
_OPTIONS = (
    ("--(?:proxy-)?user", "curl|wget", "[= ] {0,3}", _LOGIN),
    ("-[A-Za-z]{0,5}u", "curl|wget", " {0,4}", _LOGIN),
    ("-a", "https?", " {1,4}", _LOGIN),
    ("--cookie|-b", "curl", "[= ] {0,3}", r"[\w.-]{1,64}="),
    ("-p", r"sshpass|(?:docker|podman|buildah|skopeo|helm\W{1,4}registry|oras)\W{1,4}login", " {1,4}", ""),
    ("-p", "mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump|sshpass", "", ""),
    ("-a", "redis-cli", " {1,4}", ""),
    ("-w", "ldapsearch|ldapadd|ldapmodify|ldapdelete|ldapwhoami", " {1,4}", ""),
)
"""Options that pass a password: their programs, what is between, and what is before the password."""


def _find_in_url(text: str, at: int) -> Found | None:
    """The password in `scheme://name:password@host`."""
    found = compiled(r":(?:\\{0,15}/){2}[^\s:/?#@\"'`<>\\]{0,128}:(?P<password>[^\s/?#\"'`<>\\]{1,384}(?=@))").match(
        text, at
    )
    return None if found is None or is_shown(_PASSWORDS, found["password"]) else Found(*found.span("password"))


def _find_in_query(text: str, at: int) -> Found | None:
    """The value of a name that is a secret only in a URL: `?key=…`, `&sig=…`."""
    sign = text.index("=", at) + 1
    is_url = compiled(r"://\S*\Z").search(text[max(0, at - _LINE_BACK) : at]) is not None
    value, found = _read(BARE, text, sign)
    return found if is_url and not is_shown(text[at + 1 : sign], value) else None


def _find_bearer(text: str, at: int) -> Found | None:
    found = compiled(r"(?i:bearer)[ \t]{1,4}(?=[\w.~+/=-]{20})(?=[A-Za-z_.~+/=-]{0,64}[0-9])").match(text, at)
    return Found(found.end(), found.end(), r"[\w.~+/=-]*+") if found else None


def _find_option(text: str, at: int) -> Found | None:
    if text[max(0, at - 1) : at].strip(" \t\"'"):
        return None
    line = _line_before(text, at)
    for option, programs, gap, before in _OPTIONS:
        between = rf"(?:{gap}|{_NEXT_ITEM})" if gap else ""
        found = compiled(rf"(?:{option}){between}(?P<opening>{_OPENING})?{before}").match(text, at)
        if found is None or not compiled(rf"(?:(?<!\w)|(?<=\\[nrt]))(?:{programs})\b").search(line):
            continue
        pattern = _value_of(found) if found["opening"] else WORD
        value, password = _read(pattern, text, found.end())
        if value and value[0] not in "-/=" and not is_shown(_PASSWORDS, value):
            return password
    return None


_LEAD = r"(?:[\s\"'+,|>]|\\{1,8}[nrt]?)"
_LINE_NUMBER = r"(?:[^\s:\"']{1,80}[:-])?[0-9]{1,7}(?:\\{1,3}t|[\t :|-]|→|\\{1,8}u2192)"
_LINE_START = rf"{_LEAD}{{0,24}}+(?:{_LINE_NUMBER}{_LEAD}{{0,8}}+){{0,2}}+"
"""What is before a line of a key: its indentation, or a path and a number as tools print them, also twice."""
_HEADER_NAME = "(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): "
_HEADER_TEXT = rf"(?:(?!{_HEADER_NAME}|[A-Za-z0-9+/]{{40}})[^\n\\]){{0,80}}+"
"""The text of a header: up to the end of its line, or where line ends became spaces, to the next header or the key."""
_KEY_HEADER = f"(?:{_LINE_START}{_HEADER_NAME}{_HEADER_TEXT})"
_KEY_BLOCK = (
    rf"[A-Za-z0-9+/=]*+{_KEY_HEADER}{{0,6}}+(?:{_LINE_START}[A-Za-z0-9/+=]{{16,}}+)*+"
    rf"(?:(?:{_LINE_START}[A-Za-z0-9+/=]{{1,15}}){{0,2}}{_LINE_START}-----END [A-Z0-9 ]{{1,40}}-----)?+"
)


def _find_private_key(text: str, at: int) -> Found | None:
    begin = compiled(
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        rf"(?={_KEY_HEADER}{{0,6}}+{_LINE_START}[A-Za-z0-9+/=]{{16}})"
    ).match(text, at)
    return Found(at, begin.end(), _KEY_BLOCK) if begin else None


_GAP = r"(?:[ \t\xa0]|\\{1,8}u00a0)"
_CLOSE = rf"(?P<close>\\{{0,15}}[\"'])?(?:\]|\[[0-9]{{0,6}}\])?(?P<before>{_GAP}{{0,64}})"
_TYPE = r"[A-Za-z_][\w.]{0,48}(?:\[[^\]=\n]{0,48}\])?(?: ?\| ?[\w.]{1,48})?"
_ANNOTATION = rf":[ \t]{{0,4}}&?{_TYPE}[ \t]{{0,4}}=[ \t]{{0,8}}(?=[bru]?\\{{0,15}}[\"'])"
_ANNOTATED = rf"(?:str|string|bytes|any|bool|object|{_TYPE}[ \t]{{0,4}}[,)=;\[(.])(?!\w)"
_VALUE_NAME = r"\\{0,15}[\"']?value\\{0,15}[\"']?[ \t]{0,4}[:=](?=[ \t]{0,4}\\{0,15}[\"'])"
_PAIR = rf"(?:,{_BLANKS}|(?:\s|\\{{1,8}}n){{1,24}}){_VALUE_NAME}"
"""Between name and value in `{"name": "password", "value": "…"}`, in XML and in YAML."""
_ASSIGNMENT = rf"(?P<sign>=>|:=|=(?![=~>])|%3[Dd]|\\{{1,7}}u003[dD]|:(?![:=])|{_PAIR})(?P<after>{_GAP}{{0,128}})"
_LIST = rf"\[{_BLANKS}(?=\\{{0,15}}[\"'])"
_NEXT_ITEM = r"\\{0,15}[\"'],[ \t]{0,4}(?=[bru]?\\{0,15}[\"'])"


def _find_named(text: str, at: int) -> Found | None:
    """The value beside a name: `name=value`, `name: value`, `"name": "value"`, a header, an option."""
    start, end = _name_at(text, at)
    full = text[start:end].rpartition(".")[2]
    # Before an option, grep prints the number of the line and a hyphen.
    option = compiled(r"(?:[\w-]{0,64}[0-9]-)?--+(?=[^-])").match(full)
    name = full[option.end() :] if option else full.lstrip("-")
    kind = words(name)[-1] if words(name) else ""
    # A variable has no hyphen: what is before one is the place of the line, as grep prints it.
    variable = name.rpartition("-")[2]
    is_variable = variable.isupper() and variable.endswith(("_KEY", "_PAT")) and text[end : end + 1] == "="
    if not (kind == "cookie" or is_variable or is_secret_name(name)):
        return None
    is_header = kind in ("cookie", "authorization")
    sign = gap = compiled(_CLOSE + (_ASSIGNMENT if is_header else f"(?:{_ANNOTATION}|{_ASSIGNMENT})")).match(text, end)
    # A header after two hyphens is one; another option with a colon is prose about it, if it has no quotes.
    is_named = sign is not None and (sign["sign"] == "=" or sign["close"] or (is_header and not sign["before"]))
    if option and not is_named:
        gap = compiled(rf"[ \t]{{1,4}}|{_NEXT_ITEM}").match(text, end)
    elif sign is None and (is_header or "-" in name):
        gap = compiled(_NEXT_ITEM).match(text, end)
    if gap is None:
        return None
    listed = compiled(_LIST).match(text, gap.end())
    opening = compiled(_OPENING).match(text, listed.end() if listed else gap.end())
    if sign is not None and gap is sign:
        if opening is None:
            return _find_bare(text, name, sign)
        if not sign["close"] and _is_closing(text, start, opening):
            return None
    value_at = opening.end() if opening else gap.end()
    value_at = scheme_end(text, value_at) if kind == "authorization" else value_at
    pattern = _value_of(opening, in_list=bool(listed)) if opening else WORD
    value, found = _read(pattern, text, value_at)
    if is_shown(name, value) or (sign is not gap and value[0] == "-") or (kind == "cookie" and "=" not in value):
        return None
    return found


def _name_at(text: str, at: int) -> tuple[int, int]:
    """The start and the end of the name around a trigger."""
    start = at
    while start > 0 and at - start < _NAME_LENGTH and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
        start -= 1
    if start < at and text[max(0, start - 1) : start] == "\\" and text[start] in "nrt":
        start += 1  # The end of an escape (`\n`) is not part of the name.
    rest = compiled(r"[\w-]{0,64}").match(text, at)
    return start, rest.end() if rest else at


def _find_bare(text: str, name: str, sign: re.Match[str]) -> Found | None:
    """The value without quotes after a sign."""
    # Between backticks, a command has spaces and a value has none.
    at = sign.end() + bool(compiled(r"`[^`\s]{1,512}`").match(text, sign.end()))
    kind = words(name)[-1]
    is_header = sign["sign"] == ":" and not sign["close"] and not sign["before"]
    pattern = BARE
    if kind == "authorization" and (value_at := scheme_end(text, at)) > at:
        at, pattern = value_at, LINE
    elif is_header and (kind == "cookie" or (kind == "authorization" and not compiled(_ANNOTATED).match(text, at))):
        pattern = LINE
    elif is_header and "-" in name:
        pattern = WORD
    value, found = _read(pattern, text, at)
    is_tight = sign["sign"][-1] in "=dD" and sign["sign"] != ":=" and not sign["before"] and not sign["after"]
    # Code has no no-break space.
    may_be_code = pattern is BARE and not is_tight and not sign["after"].strip(" \t")
    if (
        is_shown(name, value)
        or (may_be_code and _is_code(value))
        or (kind == "cookie" and (pattern is BARE or not compiled(r"[\w.-]{1,64}=").match(value)))
        or (kind == "pwd" and value.startswith(("/", "~", ".")))
    ):
        return None
    return found


def _is_closing(text: str, start: int, quote: re.Match[str]) -> bool:
    """Whether a quote right after a sign closes a text that ends in it, as in `"password=" + value`."""
    if _line_before(text, start).count(quote["quote"][0]) % 2 == 0:
        return False
    return compiled(r"[ \t]{0,8}(?:[+,)\]}%.:;]|[bBrRuUfF]?[\"']|\r?\n|\\n|\Z)").match(text, quote.end()) is not None


TRIGGERS: tuple[tuple[str, str, Find], ...] = (
    ("://", "", _find_in_url),
    *((":" + "\\" * escaped + "/", "", _find_in_url) for escaped in range(1, 16)),
    ("-----begin", "", _find_private_key),
    ("bearer", "", _find_bearer),
    *((option, "", _find_option) for option in ("--user", "--proxy-user", "--cookie", "-u", "-a", "-b", "-p", "-w")),
    *((f"-{flag}", r"-(?i:[fgiklnosv]{1,4})u[ \"'\\]", _find_option) for flag in "fgiklnosv"),
    *((name, "", _find_named) for name in _NAMES),
    *((f"{sign}{name}=", "", _find_in_query) for sign in "?&;" for name in _QUERY),
)
"""What may start a form: a literal in lower case, a pattern of what it begins, and what judges it."""
