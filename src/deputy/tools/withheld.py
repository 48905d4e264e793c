"""What tools never show, wherever it lies: keys, credentials and environment files, as data."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A name is withheld with all that lies below it.
WITHHELD_NAMES = frozenset({
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud", ".oci", ".password-store", ".vault-token",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk",
    ".env", ".envrc", ".netrc", "_netrc", ".npmrc", ".yarnrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd",
    ".dockercfg", ".boto", ".s3cfg", ".git-credentials", "credentials.json",
})  # fmt: skip
WITHHELD_ENDINGS = (
    ".pem", ".key", ".p8", ".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx", ".agekey",
    ".env", ".tfstate", ".tfvars",
)  # fmt: skip
WITHHELD_SPANS = ((".env.", ""), ("client_secret", ".json"), ("service-account", ".json"))
"""How a name begins and how it ends."""

WITHHELD_PAIRS = frozenset({
    (".git", "config"), (".git", "credentials"), (".config", "gcloud"), (".config", "gh"), (".config", "git"),
    (".cargo", "credentials"), (".cargo", "credentials.toml"), (".gem", "credentials"), (".m2", "settings.xml"),
})  # fmt: skip
"""A directory and a name in it that would be harmless elsewhere."""

UNWRITABLE_NAMES = frozenset({".git"})
"""What is readable and never written: a hook or a setting there is run by somebody else later."""


def is_withheld(parts: Sequence[str]) -> bool:
    """Whether a path leads to, or through, something that is never shown; the case of letters does not matter."""
    names = [_folded(part) for part in parts]
    return any(map(_is_withheld_name, names)) or any(pair in WITHHELD_PAIRS for pair in pairwise(names))


def is_unwritable(parts: Sequence[str]) -> bool:
    """Whether a path leads to, or through, something that tools never write."""
    return any(_folded(part) in UNWRITABLE_NAMES for part in parts)


def withheld_globs() -> list[str]:
    """The same as globs that match without regard to case, so that a search does not even open them."""
    names = [*sorted(WITHHELD_NAMES), *(f"*{ending}" for ending in WITHHELD_ENDINGS)]
    spans = [f"{beginning}*{ending}" for beginning, ending in WITHHELD_SPANS]
    pairs = [f"**/{directory}/{name}" for directory, name in sorted(WITHHELD_PAIRS)]
    return [*names, *spans, *pairs]


def _is_withheld_name(name: str) -> bool:
    return (
        name in WITHHELD_NAMES
        or name.endswith(WITHHELD_ENDINGS)
        or any(name.startswith(beginning) and name.endswith(ending) for beginning, ending in WITHHELD_SPANS)
    )


def _folded(name: str) -> str:
    return name.casefold() if name.isascii() else unicodedata.normalize("NFKC", name).casefold()
