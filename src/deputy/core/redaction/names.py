"""Names of secrets: of variables, fields, headers and options."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_KNOWN = 8
"""A known value shorter than this is not hidden: it would occur in ordinary text."""

SECRET_ENDS = (
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential", "credentials",
    "apikey", "accesskey", "secretkey", "secretkeybase", "privatekey", "encryptionkey", "signingkey", "masterkey",
    "accountkey", "sharedkey", "authkey", "servicekey", "storagekey", "authorization",
)  # fmt: skip
"""Endings of secret names, without separators; a number may follow."""

_PASS_OF = frozenset((
    "", "account", "admin", "app", "auth", "db", "database", "email", "ftp", "http", "key", "login", "mail", "mongo",
    "my", "mysql", "pg", "postgres", "proxy", "redis", "root", "smtp", "ssh", "sudo", "user",
))  # fmt: skip
"""Words before `pass` that make it short for password."""

_PLACES = frozenset((
    "bos", "cancel", "cancellation", "cls", "continuation", "current", "end", "eos", "first", "last", "mask", "max",
    "next", "pad", "page", "prev", "previous", "progress", "resume", "sep", "special", "start", "stop", "sync", "unk",
))  # fmt: skip
"""Words before `token` that make it a position in a list or a text."""

_DIRECTORIES = ("PWD", "OLDPWD")
"""Shell variables with a directory."""

_COMMON = frozenset((
    "00000000", "11111111", "12345678", "123456789", "1234567890", "87654321", "aaaaaaaa", "abcdefgh", "admin123",
    "administrator", "anonymous", "baseball", "changeit", "changeme", "change-me", "change_me", "computer", "database",
    "debugging", "default1", "deployment", "development", "disabled", "document", "elasticsearch", "football",
    "guestguest", "iloveyou", "insecure", "internal", "internet", "keycloak", "kubernetes", "letmein1", "localhost",
    "localdev", "mariadb1", "minioadmin", "mongodb1", "nextcloud", "nopassword", "not-needed", "not-set", "notneeded",
    "optional", "passw0rd", "password", "password1", "password12", "password123", "placeholder", "postgres",
    "postgresql", "princess", "production", "qwertyui", "qwertyuiop", "rabbitmq", "redacted", "required", "rootroot",
    "secret123", "security", "something", "staging1", "starwars", "sunshine", "superman", "supersecret", "superuser",
    "test1234", "testing1", "testing123", "testpass", "testtest", "trustno1", "undefined", "unlocked", "unsecure",
    "user1234", "username", "whatever", "wordpress",
))  # fmt: skip
"""Common values; they are never hidden as known values."""


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of environment variables with a secret name, without values that repeat a word of the name.

    Also the password in a variable that is an address.
    """
    items = list(environ.items())
    named = (value for name, value in items if _is_secret_variable(name) and value.strip().lower() not in words(name))
    return (*named, *(password for _, value in items if "://" in value and (password := _password_in(value))))


def _password_in(address: str) -> str:
    """The password of `scheme://user:password@host`; empty if there is none."""
    _, is_address, rest = address.partition("://")
    login, is_login, _ = rest.partition("/")[0].rpartition("@") if is_address else ("", "", "")
    return login.partition(":")[2] if is_login else ""


def is_known_secret(value: str) -> bool:
    """Whether a known value is hidden: long enough, and not a common word."""
    return len(value) >= LEAST_KNOWN and value.lower() not in _COMMON


@lru_cache(4096)
def _is_secret_variable(name: str) -> bool:
    return is_secret_name(name) or words(name)[-1:] in (["key"], ["pat"], ["auth"])


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether the name is the name of a secret."""
    parts = words(name.rstrip("0123456789"))
    if not parts or name in _DIRECTORIES:
        return False
    before = parts[-2] if len(parts) > 1 else ""
    if parts[-1].endswith("pass"):
        return (parts[-1].removesuffix("pass") or before) in _PASS_OF
    if parts[-1] == "token" and before in _PLACES:
        return False
    return "".join(parts).endswith(SECRET_ENDS) or name == "_auth"


def words(name: str) -> list[str]:
    """The words of a name in lower case: `dbPassword`, `DB_PASSWORD` and `db-password` have the same two."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
