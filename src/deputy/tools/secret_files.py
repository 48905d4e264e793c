"""Files that tools never show: keys, credentials and environment files."""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from deputy.core.fallback import LOGIN_FILES, OTHER_CREDENTIAL_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from re import Pattern

WITHHELD_STEMS = (
    ".env", ".envrc", ".netrc", "_netrc", ".npmrc", ".yarnrc", ".pypirc", ".pgpass", ".my.cnf", ".mylogin.cnf",
    ".htpasswd", ".dockercfg", ".dockerconfigjson", ".boto", ".s3cfg", ".git-credentials", ".terraformrc", ".authinfo",
    ".vault-token", ".vault_pass", ".vault_password", ".smbcredentials", ".passwd-s3fs", ".claude.json",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss",
    "ssh_host_rsa_key", "ssh_host_dsa_key", "ssh_host_ecdsa_key", "ssh_host_ed25519_key",
    "credentials.json", "credentials.tfrc.json", "service_account.json", "serviceaccount.json", "secring.gpg",
)  # fmt: skip
"""Beginnings of names; no letter may follow: `.env`, `.env~`, `.env-prod`, `.env.local`."""
WITHHELD_NAMES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud", ".oci", ".password-store", "kubeconfig",
    "rclone.conf", "wallet.dat",
)  # fmt: skip
"""Whole names of files and folders, and their copies: `.ssh.bak`, not `.aws-sam`."""
WITHHELD_ENDINGS = (
    ".pem", ".key", ".p8", ".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx", ".agekey",
    ".env", ".tfstate", ".tfvars", ".tfvars.json", ".ovpn",
)  # fmt: skip
"""Endings of names and of their copies: `terraform.tfstate.backup`, `server.key.bak`."""
WITHHELD_SPANS = (("client_secret", ".json"), ("client-secret", ".json"), ("service-account", ".json"))
"""Beginning and ending of a name or its copy."""

WITHHELD_PATHS = (
    ".git/config", ".git/credentials", ".config/gcloud", ".config/gh", ".config/git", ".config/hub",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".streamlit/secrets.toml",
    ".gradle/gradle.properties", ".composer/auth.json", ".bundle/config", ".config/containers/auth.json",
    *OTHER_CREDENTIAL_FILES,
    *(path for paths in LOGIN_FILES.values() for path in paths),
)  # fmt: skip
"""Paths of files whose names alone would be harmless."""

UNWRITABLE_NAMES = frozenset({".git"})
"""Readable, but never written: other programs run hooks and settings from there."""

_SHOWN = ("example", "sample", "template")
"""A file with one of these words in its name has no real secret."""
_PUBLIC = ("id_", "ssh_host_")
_MOVABLE = ".local/share/"
"""A folder that a variable can move, so paths in it are matched without it."""
# Possessive quantifiers: no backtracking, linear time.
_COPY = r"(?:[~#]|[.\-_ ]?(?:backup|bak|original|orig|old|saved|save|copy|tmp|temp|prev|new|sw[a-p]|\d++))*+"
_LEFT_BY_EDITORS = r"(?:#|\.#|~\$|copy of )?"


def is_withheld(parts: Sequence[str]) -> bool:
    """Whether a path leads to or through a secret file, ignoring case."""
    names = [_folded(part) for part in parts]
    if any(map(_is_withheld_name, names)):
        return True
    found = _path_pattern().findall("/".join(names))
    return any(not _is_harmless(path.rpartition("/")[2]) for path in found)


def is_unwritable(parts: Sequence[str]) -> bool:
    """Whether a path leads to or through a folder that tools never write."""
    return any(_folded(part) in UNWRITABLE_NAMES for part in parts)


def withheld_globs() -> list[str]:
    """The plain names as globs, so that a search does not even open them; `is_withheld` filters its results."""
    return [*WITHHELD_STEMS, *WITHHELD_NAMES, *(f"**/{path}" for path in WITHHELD_PATHS)]


@lru_cache(8192)
def _is_withheld_name(name: str) -> bool:
    return _name_pattern().fullmatch(name) is not None and not _is_harmless(name)


def _is_harmless(name: str) -> bool:
    return any(word in name for word in _SHOWN) or (name.startswith(_PUBLIC) and name.endswith(".pub"))


@cache
def _name_pattern() -> Pattern[str]:
    import re

    stems, names, endings = map(_either, (WITHHELD_STEMS, WITHHELD_NAMES, WITHHELD_ENDINGS))
    spans = "|".join(rf"{re.escape(begin)}.*{re.escape(end)}" for begin, end in WITHHELD_SPANS)
    # An editor's swap file has a dot before the name.
    kinds = (rf"{stems}(?:[^a-z].*)?", rf"(?:{names}|.*{endings}|{spans}){_COPY}", rf"\.{stems}\.sw[a-p]")
    return re.compile(rf"{_LEFT_BY_EDITORS}(?:{'|'.join(kinds)})", re.DOTALL)


@cache
def _path_pattern() -> Pattern[str]:
    import re

    known = _either(path.removeprefix(_MOVABLE) for path in WITHHELD_PATHS)
    return re.compile(rf"(?<![^/]){known}(?:[^a-z/][^/]*)?(?![^/])")


def _either(words: Iterable[str]) -> str:
    import re

    return f"(?:{'|'.join(map(re.escape, sorted(set(words), key=len, reverse=True)))})"


def _folded(name: str) -> str:
    return name.casefold() if name.isascii() else unicodedata.normalize("NFKC", name).casefold()
