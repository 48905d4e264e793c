"""Whether a value that stands behind a name like `password` or `token` is a secret, or code, prose or a placeholder."""

from __future__ import annotations

from binascii import Error as NotBase64
from binascii import a2b_base64
from itertools import pairwise
from typing import NamedTuple

from deputy.core.secret_ends import compiled

WINDOW = 64
"""How much of a value is looked at to decide whether it is a secret."""

KEYWORDS = (
    "passphrase", "password", "passwd", "passcode", "pwd", "secret", "token", "apikey", "api_key", "api-key", "api key",
    "access_key", "access-key", "accesskey", "access key", "secret_key", "secret-key", "secretkey",
    "secret key", "private_key", "private-key", "privatekey", "signing_key", "encryption_key", "auth_key",
    "account_key", "accountkey", "secret_key_base", "credential", "credentials", "authorization",
    "identified by", "requirepass",
)  # fmt: skip
"""What names of secrets end with, in lower case."""
SHORT_NAMES = ("pass", "auth")
SHORT = 4
"""The same, where only a few of the words that end so are names of secrets; and their length."""
_WEAK_KEYS = ("passphrase", "password", "passwd", "passcode", "pwd", "pass", "identified by", "requirepass")
"""Names whose values people think up: no need to look drawn at random."""

_NO_SECRET_TOKENS = (
    "page", "next", "continuation", "sync", "cancel", "cancellation", "special", "pad", "eos", "bos", "unk", "start",
    "end", "stop", "mask", "sep", "cls", "max", "per", "first", "last", "prev", "previous",
)  # fmt: skip
_PASS_NAMES = (
    "", "db_", "database_", "user_", "admin_", "root_", "smtp_", "mail_", "email_", "mysql_", "pg_", "postgres_",
    "redis_", "mongo_", "rabbitmq_", "ftp_", "ssh_", "http_", "proxy_", "sudo_", "login_", "-",
)  # fmt: skip
"""What stands before `pass` where it is short for password, rather than a pass over something."""
_PLACEHOLDER_STARTS = ("<", "$", "{", "%(", "[", "(", "***", "...", "…", "xxx", "XXX", "arn:", "http:", "https:")
_PLACEHOLDER = "(?i:your|change[-_]?me|placeholder|redacted|insert|todo|example)"
_NO_WORD = r"[^\w\-.:/=*]|\d"
"""A character that neither words nor paths have."""
_NO_VALUES = frozenset((
    "none", "null", "nil", "true", "false", "yes", "no", "on", "off", "str", "string", "text", "bytes", "int", "bool",
    "any", "object", "unicode", "varchar", "char", "input", "value", "required", "optional", "default", "hidden",
    "disabled", "enabled", "invalid", "missing", "empty", "unset", "undefined", "prompt", "stdin", "file", "env",
    "environment", "plain", "plaintext", "hash", "hashed", "encrypted", "bcrypt", "scrypt", "argon2", "argon2i",
    "argon2id", "pbkdf2", "md5", "sha1", "sha256", "sha384", "sha512", "base64", "utf8", "utf-8", "self", "cls",
    "option", "flag", "field", "type", "name", "keyring", "vault",
))  # fmt: skip
"""What says something about a value where the value would stand."""
_PROSE = frozenset((
    "is", "are", "was", "be", "been", "must", "should", "shall", "may", "might", "can", "could", "cannot", "can't",
    "will", "would", "not", "don't", "doesn't", "no", "any", "your", "you", "please", "enter", "type", "provide",
    "specify", "give", "given", "set", "use", "used", "using", "uses", "required", "optional", "invalid", "incorrect",
    "wrong", "bad", "missing", "empty", "blank", "least", "most", "characters", "character", "chars", "digits",
    "letters", "length", "long", "short", "weak", "strong", "match", "matches", "expired", "needed", "needs", "for",
    "when", "whether", "where", "which", "that", "this", "these", "if", "else", "with", "without", "from", "into",
    "default", "confirm", "repeat", "again", "forgot", "forgotten", "reset", "change", "changed", "new", "current",
    "old", "show", "hide", "field", "login", "sign", "log", "user", "username", "users", "account", "email", "key",
    "keys", "file", "read", "stored", "string", "value", "de", "das", "le", "la", "el", "il",
))  # fmt: skip
"""Words of messages and labels; a passphrase is made of other ones."""
_LABELS = ("passw", "passphrase", "kennwort", "contrase", "mot de passe", "senha", "wachtwoord")


class Assigned(NamedTuple):
    """A value, the name it stands behind and how it does."""

    key: str
    """What the name ends with, in lower case."""
    name: str
    """The whole name as it stands, with what makes it an option or a tag."""
    value: str
    """Its beginning, as much as is looked at."""
    is_quoted: bool = False
    is_tight: bool = False
    """Nothing but `=` stands between it and the name."""
    is_split: bool = False
    """It stands on a later line."""
    is_told: bool = False
    """It stands where only a value can: in the environment, behind an option, in a query."""
    after: str = ""
    """The character behind the value, when that is known."""


def is_assigned_secret(assigned: Assigned) -> bool:
    """Whether this assigns a secret."""
    key, name = assigned.key, assigned.name.lower()
    before = name.removesuffix(key)
    if key == "token" and _names_no_secret(before):
        return False
    if key == "pass" and not before.endswith(_PASS_NAMES[1:]) and before not in _PASS_NAMES:
        return False
    if assigned.is_quoted:
        return _is_literal_secret(key, assigned.value, is_told=assigned.is_told)
    return _is_bare_secret(assigned)


def _names_no_secret(before: str) -> bool:
    return before.rstrip("_-").endswith(_NO_SECRET_TOKENS)


def is_secret_value(name: str, value: str) -> bool:
    """Whether a text that stands under this name in structured data is a secret."""
    lower = name.lower()
    key = next((word for word in (*KEYWORDS, *SHORT_NAMES) if lower.endswith(word)), None)
    if key is None:
        return False
    is_told = name.isupper() or name.startswith("-")
    return is_assigned_secret(Assigned(key=key, name=name, value=value, is_quoted=True, is_told=is_told))


def _is_literal_secret(key: str, value: str, *, is_told: bool) -> bool:
    """Whether a quoted value assigned to this key is a secret."""
    if _is_placeholder(value) or _is_path(value) or _is_label(key, value):
        return False
    if key == "auth":
        return is_encoded_login(value)
    if key == "authorization":
        return len(value) >= 8 and not value.islower() and not value.istitle() and not _is_placeholder(_sent(value))
    if key in _WEAK_KEYS:
        return _is_thought_up(key, value, is_told=is_told)
    if any(c.isspace() for c in value):
        return False
    return _is_strong(value) or _is_mixed(value) or (len(value) >= 16 and value.isalnum() and not value[1:].islower())


def _sent(header: str) -> str:
    """What a header sends, behind the name of its scheme."""
    return header.partition(" ")[2] or header


def _is_thought_up(key: str, value: str, *, is_told: bool) -> bool:
    """Whether a quoted text is a password that a person made."""
    if value.lower() in _NO_VALUES:
        return False
    if any(c.isspace() for c in value.strip()):
        return len(value) >= 6 and not is_prose(value) and key not in value.lower()
    least = 4 if is_told else 6
    is_word = value.isalpha() and value[1:].islower()
    return len(value) >= least and (is_told or key == "passphrase" or not is_word or len(value) >= 10)


def is_prose(value: str) -> bool:
    """Whether words stand here as in a message or a label, rather than as in a passphrase."""
    lower = value.lower()
    words = [word.strip(".,:;!?()[]\"'") for word in lower.split()]
    return not _PROSE.isdisjoint(words) or any(label in lower for label in _LABELS) or lower.endswith((":", "?", "…"))


def is_passphrase(line: str) -> bool:
    """Whether the rest of a line behind `passphrase:` is one."""
    words = line.split()
    return len(words) >= 2 and not _is_placeholder(line) and not is_prose(line) and all(map(_is_plain_word, words))


def _is_plain_word(word: str) -> bool:
    return not any(c in "=(){}[]|" for c in word)


def _is_bare_secret(assigned: Assigned) -> bool:
    """Whether an unquoted value is a secret rather than code or prose."""
    key, value = assigned.key, assigned.value
    if _is_placeholder(value) or _is_path(value) or value.lower().rstrip(".,:;!?") in _NO_VALUES:
        return False
    if assigned.is_split and (assigned.after not in _LINE_ENDS or "=" in value or value.endswith(":")):
        return False
    if key == "auth":
        return is_encoded_login(value)
    if assigned.is_told and key in _WEAK_KEYS:
        return len(value) >= 4 and not (value.isupper() and value.replace("_", "").isalpha()) and not _is_dotted(value)
    if _is_code(value):
        return False
    if key == "authorization":
        return _is_strong(value) or (len(value) >= 12 and not value.islower() and not value.istitle())
    if key in _WEAK_KEYS:
        return len(value) >= 6 and compiled(_NO_WORD).search(value) is not None
    digits = sum(c.isdigit() for c in value)
    is_drawn = assigned.is_tight and len(value) >= 6 and value.isalnum() and 2 <= digits < len(value)
    return _is_strong(value) or is_drawn or (_is_mixed(value) and not value.isalpha())


_LINE_ENDS = ("", "\n", "\r", "\\", '"', "'", "`", ",", "<")


def is_said_secret(key: str, value: str, *, is_announced: bool) -> bool:
    """Whether a word behind "the password is" is the password; a colon or a quote announces one."""
    word = value.rstrip(".,:;!?")
    if _is_placeholder(word) or _is_path(word) or word.lower() in _NO_VALUES or len(word) < 5:
        return False
    if key not in _WEAK_KEYS or any(c in "-_./:" for c in word):
        return _is_strong(word)
    if word.isalpha():
        return is_announced and len(word) >= 6 and word.lower() not in _PROSE
    return any(c.isalpha() for c in word) or word.isdigit()


def is_encoded_login(value: str) -> bool:
    """Whether this is a name and a password in base64, as headers and configurations have them."""
    start = value[: min(len(value), WINDOW) & ~3]
    try:
        decoded = a2b_base64(start, strict_mode=True)
    except (NotBase64, ValueError):
        return False
    return len(decoded) >= 6 and b":" in decoded[1:] and all(32 <= code < 127 for code in decoded)


def is_login(name: str, password: str) -> bool:
    """Whether `name:password` behind an option is that, rather than the numbers or names of a user and a group."""
    is_group = name == password or (name.isdigit() and password.isdigit())
    is_word = password.isupper() and password.isalpha()
    return (
        len(password) >= 3
        and not is_group
        and not is_word
        and not password.startswith(("/", "\\"))
        and not (_is_placeholder(password) or _is_time(name, password))
    )


def _is_time(name: str, password: str) -> bool:
    return name[-1:].isdigit() and password.replace(":", "").isdigit()


def _is_strong(value: str) -> bool:
    """Whether this looks drawn at random: letters and digits mixed, rather than words with a number."""
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    if len(value) < 8 or not digits or not letters:
        return False
    changes = sum((a.isdigit() and b.isalpha()) or (a.isalpha() and b.isdigit()) for a, b in pairwise(value))
    return changes >= 3 or (digits >= 4 and not any(c in "-_.:/ " for c in value))


def _is_mixed(value: str) -> bool:
    """Whether this looks like many random bytes in base64: both cases, and no word breaks."""
    if len(value) < 20 or value.islower() or value.isupper():
        return False
    return any(c.isdigit() for c in value) and all(c.isalnum() or c in "+/=" for c in value)


def stands_for_password(value: str) -> bool:
    """Whether this is what manuals write where a password goes."""
    return value.lower() in ("pass", "password", "passwd", "pwd", "pw", "secret") or _is_placeholder(value)


def _is_label(key: str, value: str) -> bool:
    """Whether this names something rather than being it: a constant's name, or words about passwords."""
    words = value.replace("_", "").replace("-", "")
    return words.isalpha() and (words.isupper() or key in words.lower())


def _is_placeholder(value: str) -> bool:
    if value.startswith(_PLACEHOLDER_STARTS):
        return True
    found = compiled(_PLACEHOLDER).search(value)
    return found is not None and (found.group().lower() != "example" or len(value) < 20)


def _is_path(value: str) -> bool:
    if not value.startswith(("/", "./", "../", "~/")):
        return False
    return all(len(part) <= 24 for part in value.split("/")) and value.count("/") >= 2


def _is_code(value: str) -> bool:
    """Whether this is a name in a program: dotted names, or a type with a number in it."""
    if _is_dotted(value):
        return True
    return value.isidentifier() and ("_" in value or value[0].isupper()) and not _is_strong(value) and len(value) < 20


def _is_dotted(value: str) -> bool:
    parts = value.rstrip(".:").split(".")
    return len(parts) > 1 and all(part.isidentifier() and len(part) < 20 for part in parts)
