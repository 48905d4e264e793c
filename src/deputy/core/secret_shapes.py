"""What secrets look like: a table of shapes, each decided within a bounded window of text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from deputy.core.named_secrets import find_assigned, is_open, may_be_assigned
from deputy.core.passed_secrets import TRIGGERS, find_passed
from deputy.core.secret_ends import Found, Rest, compiled
from deputy.core.secret_values import KEYWORDS, SHORT, SHORT_NAMES, WINDOW, is_encoded_login, stands_for_password

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ALNUM = "A-Za-z0-9"
_WORD = r"A-Za-z0-9_\-"

_PREFIXED: tuple[tuple[str, str, int], ...] = (
    ("sk-ant-", _WORD, 16),
    ("sk-proj-", _WORD, 16),
    ("sk-svcacct-", _WORD, 16),
    ("sk-admin-", _WORD, 16),
    ("sk-or-v1-", _WORD, 16),
    ("sk-lf-", _WORD, 16),
    ("sk-", _ALNUM + "_", 16),
    ("sk_live_", _ALNUM, 16),
    ("sk_test_", _ALNUM, 16),
    ("rk_live_", _ALNUM, 16),
    ("rk_test_", _ALNUM, 16),
    ("whsec_", _ALNUM + "+/=", 16),
    ("AKIA", "A-Z0-9", 16),
    ("ASIA", "A-Z0-9", 16),
    ("ghp_", _ALNUM, 20),
    ("gho_", _ALNUM, 20),
    ("ghu_", _ALNUM, 20),
    ("ghs_", _ALNUM, 20),
    ("ghr_", _ALNUM, 20),
    ("github_pat_", _ALNUM + "_", 20),
    ("glpat-", _WORD, 16),
    ("gldt-", _WORD, 16),
    ("glrt-", _WORD, 16),
    ("xoxa-", _ALNUM + r"\-", 10),
    ("xoxb-", _ALNUM + r"\-", 10),
    ("xoxe-", _ALNUM + r"\-", 10),
    ("xoxe.", _WORD + ".", 10),
    ("xoxp-", _ALNUM + r"\-", 10),
    ("xoxr-", _ALNUM + r"\-", 10),
    ("xoxs-", _ALNUM + r"\-", 10),
    ("xapp-", _ALNUM + r"\-", 16),
    ("AIza", _WORD, 30),
    ("ya29.", _WORD, 20),
    ("GOCSPX-", _WORD, 20),
    ("hf_", _ALNUM, 20),
    ("npm_", _ALNUM, 20),
    ("pypi-Ag", _WORD, 20),
    ("gsk_", _ALNUM, 20),
    ("xai-", _ALNUM, 20),
    ("pplx-", _ALNUM, 20),
    ("nvapi-", _WORD, 20),
    ("tvly-", _WORD, 16),
    ("r8_", _ALNUM, 20),
    ("SG.", _WORD + ".", 32),
    ("hvs.", _WORD, 20),
    ("dop_v1_", "a-f0-9", 32),
    ("shpat_", "A-Fa-f0-9", 20),
    ("lin_api_", _ALNUM, 20),
    ("dckr_pat_", _WORD, 16),
    ("AGE-SECRET-KEY-1", "A-Z0-9", 32),
    ("gloas-", _WORD, 20),
    ("glptt-", _WORD, 20),
    ("glcbt-", _WORD, 20),
    ("glft-", _WORD, 20),
    ("glsa_", _ALNUM + "_", 20),
    ("glc_", _ALNUM + "+/=", 32),
    ("figd_", _WORD, 20),
    ("sntrys_", _ALNUM + "+/=_", 20),
    ("sbp_", "a-f0-9", 32),
    ("dp.pt.", _ALNUM, 32),
    ("ATATT3", _WORD + "=", 32),
    ("PMAK-", _ALNUM + r"\-", 32),
    ("hooks.slack", _WORD + "./", 30),
    ("discord.com/api/", _WORD + "/", 60),
)
"""Public prefix, alphabet of what follows, and how many of these make it a secret (a digit or capital among them)."""

# A token starts where no word goes on; the tail of an escape (\n, \x3d, %3D, a terminal colour) belongs to no word.
_STARTS = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)
_ANYWHERE = {
    "sk-ant-": "[a-z]{3,5}[0-9]{2}-",
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "[A-Za-z0-9]{30}"),
    **dict.fromkeys(("github_pat_", "glpat-", "xoxb-", "xoxp-"), ""),
}
"""Prefixes of tokens that no word contains, with what must follow: they start one behind a letter, too."""

_LEAD = r"(?:[\s\"'+,|>]|\\[nrt]?)"
_BODY = r"[A-Za-z0-9/=][A-Za-z0-9+/=]"
_BEGIN = r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
# A line of a file as tools show it: a number, or a path and a number, and what parts them from the line.
_LINE = rf"{_LEAD}{{0,24}}(?:(?:[^\s:\"']{{1,120}}[:-])?[0-9]{{1,7}}(?:\\t|[\t:|-]){_LEAD}{{0,4}})?"
_HEADER = rf"(?:{_LEAD}{{0,8}}(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\n\\]{{0,80}})"
_KEY_LINES = (
    rf"[A-Za-z0-9+/=]*+(?:{_LINE}{_BODY}{{15,}})*+"
    rf"(?:(?:{_LINE}{_BODY}{{0,14}}){{1,2}}{_LINE}(?=-----END))?"
)
_KEY_TAIL = rf"(?:{_LINE}[A-Za-z0-9+/=]{{0,16}}){{0,2}}{_LINE}-{{0,5}}E?N?"

_SIZED = "MII[A-Za-z0-9+/]{3}"
_FIRST_LINES = {
    # RSA and DSA (PKCS #1); any kind in PKCS #8, plain and encrypted.
    "MII": f"{_SIZED}(?:IBAAK[BC]|IBADANBgkqhkiG|[A-Za-z0-9+/]{{2}}BgkqhkiG9w0BBQ)",
    # Elliptic curves: SEC 1, then PKCS #8 by the size of the curve.
    "MHcCAQEE": "MHcCAQEE",
    "MHQCAQEE": "MHQCAQEE",
    "MIGkAgEBBD": "MIGkAgEBBD",
    "MIHcAgEBBE": "MIHcAgEBBE",
    "MIGHAgEAMB": "MIGHAgEAMB",
    "MIGEAgEAMB": "MIGEAgEAMB",
    "MIG2AgEAMB": "MIG2AgEAMB",
    "MIHuAgEAMB": "MIHuAgEAMB",
    "MC4CAQAwBQYDK2V": "MC4CAQAwBQYDK2V",
    "b3BlbnNzaC1rZXkt": "b3BlbnNzaC1rZXktdjE",
    # A whole key file that is itself encoded, as in a secret of Kubernetes.
    "LS0tLS1CRUdJTiB": "LS0tLS1CRUdJTiB(?:SU0EgUFJJVkFU|QUklWQVRF|PUEVOU1NIIFBS|FQyBQUklWQVRF|FTkNSWVBURUQg)",
}
"""What the first line of a private key begins with, by the literal that starts it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One form of secret: what starts it and what decides it. Patterns are compiled when first needed."""

    triggers: tuple[str, ...]
    """Literals that each start a candidate (lower case when `folded`)."""
    find: Callable[[str, int, int], Found | None]
    """The secret that a trigger starts, by where the trigger begins and ends; reads a bounded part of the text."""
    is_open: Callable[[str, int, int], bool]
    """Whether more text is needed to say what a trigger starts; never for long."""
    glance: Callable[[str, int, int], bool] | None = None
    """A cheap look that rules most candidates out."""
    folded: bool = False
    is_prefix: bool = False
    """Whether a trigger is the public part of a secret."""


def _by_pattern(
    triggers: tuple[str, ...],
    decided: str,
    undecided: str,
    rest: Rest,
    *,
    judge: Callable[[re.Match[str]], bool] | None = None,
    folded: bool = False,
    is_prefix: bool = False,
) -> Shape:
    """A shape told by a pattern whose last group starts at the first character to hide, and one for its beginnings."""

    def find(text: str, start: int, end: int) -> Found | None:
        match = compiled(decided).match(text, start)
        if match is None or (judge is not None and not judge(match)):
            return None
        return Found(match.start(match.lastgroup or 0), match.end(), rest)

    def is_undecided(text: str, start: int, end: int) -> bool:
        return compiled(undecided).match(text, start) is not None

    return Shape(triggers=triggers, find=find, is_open=is_undecided, folded=folded, is_prefix=is_prefix)


@cache
def shapes() -> tuple[Shape, ...]:
    """All shapes."""
    return (
        *_prefixed(),
        _jwt(),
        _bearer(),
        _basic(),
        _url(),
        _private_key(),
        _first_line(),
        _passed(),
        _short(),
        _assigned(),
    )


@cache
def beginnings() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """What triggers begin with, by the last character: those that stand as they are, and those in lower case."""
    exact, folded = (
        by_last_character({t for shape in shapes() if shape.folded is fold for t in shape.triggers})
        for fold in (False, True)
    )
    return exact, folded


def by_last_character(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """All proper beginnings of words, by their last character, the longest first."""
    found: dict[str, set[str]] = {}
    for word in words:
        for length in range(1, len(word)):
            found.setdefault(word[length - 1], set()).add(word[:length])
    return {last: tuple(sorted(some, key=len, reverse=True)) for last, some in found.items()}


@cache
def names() -> frozenset[str]:
    """The triggers that are names; no other trigger begins inside one of them."""
    return frozenset(KEYWORDS)


@cache
def hint() -> re.Pattern[str]:
    """A pattern found in lower-case text iff `finder` finds something, and fast: it stops at rare letters only."""
    by_letter: dict[str, list[str]] = {}
    for word in finder()[1]:
        at = min(range(len(word)), key=lambda index: _RARE_FIRST.index(word[index]))
        after = word[at + 1 :]
        follows = _FOLLOWS_NAME if word in names() else ""
        # Literal first: what follows the letter rules most branches out.
        by_letter.setdefault(word[at], []).append(f"{re.escape(after)}(?<={re.escape(word)}){follows}")
    return re.compile("|".join(f"{re.escape(letter)}(?:{'|'.join(rests)})" for letter, rests in by_letter.items()))


_RARE_FIRST = ":=._-zqxjkvwbg0123456789pfycmuldhrsnioate /\"'\\"


@cache
def finder() -> tuple[re.Pattern[str], dict[str, tuple[tuple[str, Shape], ...]]]:
    """One pattern that finds all triggers in lower-case text in one pass, and the shapes that each find may start."""
    others = sorted({t.lower() for shape in shapes() for t in shape.triggers if t not in names()})
    shortest = [t for t in others if not any(t != other and t.startswith(other) for other in others)]
    started = {
        found: tuple((t, shape) for shape in shapes() for t in shape.triggers if t.lower().startswith(found))
        for found in shortest
    }
    named = next(shape for shape in shapes() if shape.triggers is KEYWORDS)
    started |= {word: ((word, named),) for word in KEYWORDS}
    return re.compile(f"{_one_of(sorted(KEYWORDS))}{_FOLLOWS_NAME}|{_one_of(shortest)}"), started


FOLLOW_NAME = r":=>\"'\]\\ \t"
"""What can follow the name of a secret: the first of what `may_be_assigned` looks at, or the end of the text."""
_FOLLOWS_NAME = rf"(?![^{FOLLOW_NAME}])"


def _one_of(words: list[str]) -> str:
    """A pattern for any of these words that looks at each character once, and takes the longest word there is."""
    rests: dict[str, list[str]] = {}
    for word in words:
        if word:
            rests.setdefault(word[0], []).append(word[1:])
    if not rests:
        return ""
    branches = "|".join(re.escape(first) + _one_of(rest) for first, rest in rests.items())
    return f"(?:{branches}){'?' if '' in words else ''}"


def _prefixed() -> list[Shape]:
    """One shape per public prefix; the longest prefix of a family comes first and wins."""
    made: list[Shape] = []
    for prefix, alphabet, least in _PREFIXED:
        literal = re.escape(prefix)
        starts = f"(?:{_STARTS}|(?={literal}{_ANYWHERE[prefix]}))" if prefix in _ANYWHERE else _STARTS
        may_start = "" if prefix in _ANYWHERE else _STARTS
        words = r"(?:[a-z0-9]{2,8}-){0,2}" if prefix == "sk-" else ""
        mixed = rf"(?=[a-z_.+/=-]{{0,{WINDOW - 1}}}[0-9A-Z])"
        made.append(
            _by_pattern(
                (prefix,),
                rf"{starts}{literal}(?P<secret>){words}(?=[{alphabet}]{{{least}}}){mixed}",
                rf"{may_start}{literal}[A-Za-z0-9_.+/=-]{{0,{WINDOW + 20}}}\Z",
                Rest(rf"[{alphabet}\-]*"),
                is_prefix=True,
            )
        )
    return made


def _jwt() -> Shape:
    part = "[A-Za-z0-9_-]"
    return _by_pattern(
        ("eyJ",),
        rf"{_STARTS}eyJ(?P<secret>){part}{{10,1024}}\.(?:{part}{{10}}|\.{part}{{10}})",
        rf"{_STARTS}eyJ{part}{{0,1024}}(?:\.{{1,2}}{part}{{0,10}})?\Z",
        Rest(r"[A-Za-z0-9_.-]*"),
        is_prefix=True,
    )


def _bearer() -> Shape:
    value = r"[A-Za-z0-9._~+/=-]"
    return _by_pattern(
        ("bearer",),
        rf"(?i:bearer)[ \t]{{1,4}}(?P<secret>(?=[a-z._~+/=-]{{0,{WINDOW - 1}}}[0-9A-Z]){value}{{16}})",
        rf"(?i:bearer)[ \t]{{0,4}}{value}{{0,{WINDOW}}}\Z",
        Rest(rf"{value}*"),
        folded=True,
    )


def _basic() -> Shape:
    value = r"[A-Za-z0-9+/]"
    return _by_pattern(
        ("basic",),
        rf"(?i:basic)[ \t]{{1,4}}(?P<secret>{value}{{6,{WINDOW}}}={{0,2}})",
        rf"(?i:basic)[ \t]{{0,4}}{value}{{0,{WINDOW}}}={{0,2}}\Z",
        Rest(r"[A-Za-z0-9+/=]*"),
        judge=lambda match: is_encoded_login(match.group("secret")),
        folded=True,
    )


def _url() -> Shape:
    part = r"[^\s/?#\"'<>`\\]"
    return _by_pattern(
        ("://",),
        (
            r"://(?:(?P<secret>(?=[A-Za-z_-]{0,63}[0-9])[A-Za-z0-9_-]{20,512})(?=[:@])(?=[^\s/?#]{0,1024}@)"
            rf"|[^\s/?#\"'<>`\\:@]{{0,128}}:(?P<word>{part}{{1,1024}})(?=@))"
        ),
        rf"://{part}{{0,1200}}\Z",
        Rest(),
        judge=lambda match: match.group("word") is None or not stands_for_password(match.group("word")),
    )


def _private_key() -> Shape:
    return _by_pattern(
        ("-----BEGIN ",),
        rf"{_BEGIN}(?P<secret>{_HEADER}{{0,4}})(?={_LINE}{_BODY}{{15}})",
        rf"-----BEGIN [A-Z0-9 ]{{0,56}}-{{0,5}}(?:{_HEADER}{{0,4}}{_LINE}[A-Za-z0-9+/=:-]{{0,16}})?\Z",
        Rest(_KEY_LINES, tail=_KEY_TAIL),
    )


def _first_line() -> Shape:
    """The first line of a key without the line before it, known by how its encoding must begin."""
    return _by_pattern(
        tuple(_FIRST_LINES),
        rf"{_STARTS}(?P<secret>)(?:{'|'.join(_FIRST_LINES.values())})(?=[A-Za-z0-9+/]{{24}})",
        rf"{_STARTS}(?:{'|'.join(_FIRST_LINES)})[A-Za-z0-9+/]{{0,56}}\Z",
        Rest(_KEY_LINES, tail=_KEY_TAIL),
    )


def _passed() -> Shape:
    return Shape(triggers=TRIGGERS, find=find_passed, is_open=is_open)


_ASSIGNS = ("=", " =", ":", "':", '":', *("\\" * count + '":' for count in (1, 3, 7)))


def _short() -> Shape:
    """Names that are too short to be looked for without what must follow them."""
    return Shape(
        triggers=tuple(name + follows for name in SHORT_NAMES for follows in _ASSIGNS),
        find=lambda text, start, end: find_assigned(text, start, start + SHORT),
        is_open=lambda text, start, end: is_open(text, start, start + SHORT),
        folded=True,
    )


def _assigned() -> Shape:
    return Shape(triggers=KEYWORDS, find=find_assigned, is_open=is_open, glance=may_be_assigned, folded=True)
