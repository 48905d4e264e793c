"""What tools never show, wherever it lies: keys, credentials and environment files, as data."""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from deputy.core.login_files import LOGIN_FILES, OTHER_CREDENTIAL_FILES

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
"""How a name begins that may have anything after it but a letter: `.env`, `.env~`, `.env-prod`, `.env.local`."""
WITHHELD_NAMES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud", ".oci", ".password-store", "kubeconfig",
    "rclone.conf", "wallet.dat",
)  # fmt: skip
"""Names that are withheld with all that lies below them, and with their copies: `.ssh.bak`, not `.aws-sam`."""
WITHHELD_ENDINGS = (
    ".pem", ".key", ".p8", ".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx", ".agekey",
    ".env", ".tfstate", ".tfvars", ".tfvars.json", ".ovpn",
)  # fmt: skip
"""How a name or its copy ends: `terraform.tfstate.backup`, `server.key.bak`."""
WITHHELD_SPANS = (("client_secret", ".json"), ("client-secret", ".json"), ("service-account", ".json"))
"""How a name begins and how it or its copy ends."""

WITHHELD_PATHS = (
    ".git/config", ".git/credentials", ".config/gcloud", ".config/gh", ".config/git", ".config/hub",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".streamlit/secrets.toml",
    ".gradle/gradle.properties", ".composer/auth.json", ".bundle/config", ".config/containers/auth.json",
    *OTHER_CREDENTIAL_FILES,
    *(path for paths in LOGIN_FILES.values() for path in paths),
)  # fmt: skip
"""Names that would be harmless in another folder."""

UNWRITABLE_NAMES = frozenset({".git"})
"""What is readable and never written: a hook or a setting there is run by somebody else later."""

_SHOWN = ("example", "sample", "template")
"""A name with one of these words holds no real secret."""
_PUBLIC = ("id_", "ssh_host_")
_MOVABLE = ".local/share/"
"""A folder that a variable may move elsewhere; what lies in it is recognised without it."""
# Nothing in here is tried in two ways, so that no name takes long.
_COPY = r"(?:[~#]|[.\-_ ]?(?:backup|bak|original|orig|old|saved|save|copy|tmp|temp|prev|new|sw[a-p]|\d++))*+"
_LEFT_BY_EDITORS = r"(?:#|\.#|~\$|copy of )?"


def is_withheld(parts: Sequence[str]) -> bool:
    """Whether a path leads to, or through, something that is never shown; the case of letters does not matter."""
    names = [_folded(part) for part in parts]
    if any(map(_is_withheld_name, names)):
        return True
    found = _path_pattern().findall("/".join(names))
    return any(not _is_harmless(path.rpartition("/")[2]) for path in found)


def is_unwritable(parts: Sequence[str]) -> bool:
    """Whether a path leads to, or through, something that tools never write."""
    return any(_folded(part) in UNWRITABLE_NAMES for part in parts)


def withheld_globs() -> list[str]:
    """The plain names as globs that match without regard to case, so that a search does not even open them.

    What else a search finds is left out of its results by `is_withheld`.
    """
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
    # The swap file of an editor has a dot before the name.
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
