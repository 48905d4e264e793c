"""Whether a value assigned to a name like `password` or `token` is a secret, or code, prose or a placeholder."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

WINDOW = 64
"""How much of a value is looked at to decide whether it is a secret."""

KEYWORDS = (
    "passphrase", "password", "passwd", "pwd", "secret", "token", "apikey", "api_key", "api-key", "access_key",
    "access-key", "accesskey", "secret_key", "secret-key", "secretkey", "private_key", "private-key", "privatekey",
    "signing_key", "encryption_key", "auth_key", "account_key", "accountkey", "secret_key_base", "credential",
    "credentials", "authorization",
)  # fmt: skip
"""What names of secrets end with, in lower case."""
_WEAK_KEYS = ("passphrase", "password", "passwd", "pwd")

_NO_SECRET_TOKENS = (
    "page", "next", "continuation", "sync", "cancel", "cancellation", "special", "pad", "eos", "bos", "unk", "start",
    "end", "stop", "mask", "sep", "cls", "max", "per", "first", "last", "prev", "previous",
)  # fmt: skip
_PLACEHOLDER_STARTS = ("<", "$", "{", "%(", "[", "(", "***", "...", "…", "xxx", "XXX", "arn:", "http:", "https:")
_PLACEHOLDER_WORDS = ("your", "changeme", "change-me", "change_me", "placeholder", "redacted", "insert", "todo")


def is_assigned_secret(match: re.Match[str]) -> bool:
    """Whether a match of the assignment shape assigns a secret."""
    key = match.group("key").lower()
    before = match.string[max(0, match.start() - 40) : match.start()].lower()
    if not _separates(match.group("separator"), before) or (key == "token" and _names_no_secret(before)):
        return False
    bare = match.group("bare")
    if bare is None:
        return _is_literal_secret(key, match.group(match.lastgroup or 0))
    after = match.string[match.end() : match.end() + 1] if len(bare) < WINDOW else ""
    if match.group("separator") == ">" and after != "<" and len(bare) < WINDOW:
        return False
    tight = match.group("separator") == "=" and not match.group("space")
    is_called = after in ("(", "[", "{") and bare.replace(".", "").isidentifier()
    return not is_called and _is_bare_secret(key, bare, tight=tight)


def _separates(separator: str, before: str) -> bool:
    """Whether this separator assigns: a space does after an option (--token X), `>` after an opening tag."""
    word = before[max(before.rfind(" "), before.rfind("\n"), before.rfind("<") - 1) + 1 :]
    if separator in (" ", "\t"):
        return word.startswith("--")
    return separator != ">" or word.startswith("<")


def _names_no_secret(before: str) -> bool:
    return before.rstrip("_-").endswith(_NO_SECRET_TOKENS)


def is_secret_value(name: str, value: str) -> bool:
    """Whether a text that stands under this name in structured data is a secret."""
    name = name.lower()
    key = next((word for word in KEYWORDS if name.endswith(word)), None)
    if key is None or (key == "token" and _names_no_secret(name.removesuffix("token"))):
        return False
    return _is_literal_secret(key, value)


def _is_literal_secret(key: str, value: str) -> bool:
    """Whether a quoted value assigned to this key is a secret."""
    if _is_placeholder(value) or _is_path(value) or _is_label(key, value):
        return False
    if key == "passphrase":
        return len(value) >= 6
    if key == "authorization":
        return len(value) >= 8 and not value.islower() and not value.istitle()
    if any(c.isspace() for c in value):
        return False
    if key in _WEAK_KEYS:
        return len(value) >= 6 and (not value.isalpha() or not value[1:].islower() or len(value) >= 10)
    return _is_strong(value) or (len(value) >= 16 and value.isalnum() and not value[1:].islower())


def _is_bare_secret(key: str, value: str, *, tight: bool) -> bool:
    """Whether an unquoted value assigned to this key is a secret rather than code or prose."""
    if _is_placeholder(value) or _is_path(value) or _is_code(value):
        return False
    if key == "authorization":
        return _is_strong(value) or (len(value) >= 12 and not value.islower() and not value.istitle())
    if key in _WEAK_KEYS:
        return len(value) >= 6 and any(not c.isalpha() and c not in "_-.:/=*" for c in value)
    digits = sum(c.isdigit() for c in value)
    return _is_strong(value) or (tight and len(value) >= 6 and value.isalnum() and 2 <= digits < len(value))


def _is_strong(value: str) -> bool:
    """Whether this looks drawn at random: letters and digits mixed, rather than words with a number."""
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    if len(value) < 8 or not digits or not letters:
        return False
    changes = sum((a.isdigit() and b.isalpha()) or (a.isalpha() and b.isdigit()) for a, b in pairwise(value))
    return changes >= 3 or (digits >= 4 and not any(c in "-_.:/ " for c in value))


def stands_for_password(value: str) -> bool:
    """Whether this is what manuals write where a password goes."""
    return value.lower() in ("pass", "password", "passwd", "pwd", "pw", "secret") or _is_placeholder(value)


def _is_label(key: str, value: str) -> bool:
    """Whether this names something rather than being it: a constant's name, or words about passwords."""
    words = value.replace("_", "").replace("-", "")
    return words.isalpha() and (words.isupper() or key in words.lower())


def _is_placeholder(value: str) -> bool:
    folded = value.lower()
    return (
        value.startswith(_PLACEHOLDER_STARTS)
        or any(word in folded for word in _PLACEHOLDER_WORDS)
        or (len(value) < 20 and "example" in folded)
    )


def _is_path(value: str) -> bool:
    if not value.startswith(("/", "./", "../", "~/")):
        return False
    return all(len(part) <= 24 for part in value.split("/")) and value.count("/") >= 2


def _is_code(value: str) -> bool:
    """Whether this is a name in a program: dotted names, or a type with a number in it."""
    parts = value.rstrip(".:").split(".")
    if len(parts) > 1 and all(part.isidentifier() and len(part) < 20 for part in parts):
        return True
    return value.isidentifier() and ("_" in value or value[0].isupper()) and not _is_strong(value) and len(value) < 20
