"""What leaves this process for people and programs: text and JSON without secrets."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import json

from deputy.core.text.plain import plain
from deputy.core.text.visible import visible_json_of

if TYPE_CHECKING:
    from deputy.core.redaction import Redactor


def process_redactor() -> Redactor:
    """The redactor that knows the secrets in the environment of this process."""
    from deputy.core.redaction import known_secrets

    return _redactor(known_secrets(os.environ))


@lru_cache(4)
def _redactor(known: tuple[str, ...]) -> Redactor:
    from deputy.core.redaction import Redactor

    return Redactor(known)


def outgoing_text(text: str) -> str:
    """Text without secrets and invisible characters.

    What cannot be seen is removed first: it could split a secret.
    """
    return process_redactor().redact(plain(text))


def outgoing_json(value: Any, *, indent: int = 0) -> bytes:
    """A value as JSON without secrets, in which every character can be seen."""
    data = process_redactor().redact_json(json.encode(value))
    return visible_json_of(json.format(data, indent=indent) if indent else data)
