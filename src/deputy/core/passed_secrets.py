"""Passwords that a command line passes by short options: `curl -u name:password`, `mysql -pX`, `sshpass -p X`."""

from __future__ import annotations

from typing import NamedTuple

from deputy.core.named_secrets import BEHIND, LOOK
from deputy.core.secret_ends import BARE, Found, compiled, quoted
from deputy.core.secret_values import WINDOW, is_login, stands_for_password


class _Option(NamedTuple):
    programs: tuple[str, ...]
    """Who takes a password by it (or what their names begin with); empty for `name:password`, which tells itself."""
    is_spaced: bool = True
    """Whether the password may also be the next word."""


_LOGIN = _Option(())
_OPTIONS: dict[str, tuple[_Option, ...]] = {
    "-u": (_LOGIN,),
    "--user": (_LOGIN,),
    "--proxy-user": (_LOGIN,),
    "-p": (
        _Option(("mysql", "mariadb"), is_spaced=False),
        _Option(("sshpass", "docker login", "podman login", "registry login", "oc login", "mongo", "7z")),
    ),
    "-a": (_Option(("redis-cli",)),),
    "-w": (_Option(("ldap",)),),
}

_BEFORE = (" ", '"', "'")
TRIGGERS = tuple(before + option for option in _OPTIONS for before in _BEFORE)
"""An option with what parts it from the word before it."""

_GAP = (
    r"(?:=|[ \t]{1,4}(?:\\{1,3}\r?\n[ \t]{0,40}|\\{2,16}n[ \t]{0,40})?"
    r"|\\{0,7}[\"'],(?:\s|\\{1,8}n){0,40}(?=\\{0,7}[\"']))"
)
_OPENING = r"(?P<slashes>\\{0,7})(?P<sign>[\"'])"
_NAME = r"(?P<name>[A-Za-z0-9_][^\s:\"'`\\/,;=<>(){}\[\]|$]{0,63}):"
_WORD = r"[^\s\"'`,;&<>(){}\[\]|\\]"
_COMMAND_ENDS = ("\n", "|", ";", "&&", "\\n")


def find_passed(text: str, start: int, end: int) -> Found | None:
    """The password that is passed by the option that ends here, if one is."""
    limit = end + LOOK
    gap = compiled(_GAP).match(text, end, limit)
    for option in _OPTIONS[text[start + 1 : end]]:
        if not option.programs:
            return _find_login(text, gap.end() if gap else end, limit)
        if _is_called(text, start, option.programs) and (option.is_spaced or gap is None):
            return _find_password(text, gap.end() if gap else end, limit)
    return None


def _is_called(text: str, start: int, programs: tuple[str, ...]) -> bool:
    before = text[max(0, start - BEHIND) : start]
    command = before[max(before.rfind(end) for end in _COMMAND_ENDS) + 1 :]
    return any(program in command for program in programs)


def _find_login(text: str, at: int, limit: int) -> Found | None:
    opening = compiled(_OPENING).match(text, at, limit)
    name = compiled(_NAME).match(text, opening.end() if opening else at, limit)
    if name is None:
        return None
    start = name.end()
    rest = quoted(opening.group("sign"), len(opening.group("slashes"))) if opening else BARE
    going = rest.going if opening else rf"{_WORD}*"
    password = compiled(going).match(text, start, min(start + WINDOW, limit))
    is_secret = password is not None and is_login(name.group("name"), password.group())
    return Found(start, start, rest) if is_secret else None


def _find_password(text: str, at: int, limit: int) -> Found | None:
    opening = compiled(_OPENING).match(text, at, limit)
    start = opening.end() if opening else at
    rest = quoted(opening.group("sign"), len(opening.group("slashes"))) if opening else BARE
    going = rest.going if opening else rf"{_WORD}*"
    password = compiled(going).match(text, start, min(start + WINDOW, limit))
    value = password.group() if password else ""
    is_secret = len(value) >= 3 and not value.startswith("-") and not stands_for_password(value) and not value.isupper()
    return Found(start, start, rest) if is_secret else None
