"""Redacted text and JSON for output."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from msgspec import json

from deputy.core.foreign_text import plain
from deputy.core.visible_text import visible_json_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.core.redaction import Redactor

_MOST_CONFIGURATION = 64 * 1024
"""The size limit of a configuration file; a larger one is refused when its settings are read."""


def process_redactor() -> Redactor:
    """The redactor that knows the secrets in the environment of this process and in the user's configuration."""
    from deputy.core.redaction import known_secrets

    return _redactor((*known_secrets(os.environ), *(_secrets_in(held) if (held := _configuration()) else ())))


def _configuration() -> bytes:
    """The user's own configuration file; nothing if it cannot be read."""
    path = f"{os.environ.get('HOME', '')}/.config/deputy/config.toml"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, _MOST_CONFIGURATION)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


@lru_cache(4)
def _secrets_in(configuration: bytes) -> tuple[str, ...]:
    """The secrets in a configuration file; none if it is not TOML, which commands refuse."""
    import tomllib

    from deputy.core.redaction import known_secrets
    from deputy.core.redaction.forms import scheme_end

    try:
        settings = tomllib.loads(configuration.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return ()
    return tuple(
        secret
        for name, text in _named_texts(settings, "")
        for secret in known_secrets({name: text[scheme_end(text, 0) :]})
    )


def _named_texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Each text with its name: of its field, or of the option that passes it in a list of arguments."""
    if isinstance(value, str):
        option, _, passed = value.partition("=")
        yield (option, passed) if option.startswith("-") else (name, value)
    elif isinstance(value, dict):
        for key, held in cast("dict[str, Any]", value).items():
            yield from _named_texts(held, key)
    elif isinstance(value, list):
        before = ""
        for held in cast("list[Any]", value):
            yield from _named_texts(held, before if before.startswith("-") else name)
            before = held if isinstance(held, str) else ""


@lru_cache(4)
def _redactor(known: tuple[str, ...]) -> Redactor:
    from deputy.core.redaction import Redactor

    return Redactor(known)


def outgoing_text(text: str) -> str:
    """Text without secrets and invisible characters; those are removed first, because they could split a secret."""
    return process_redactor().redact(plain(text))


def outgoing_json(value: Any, *, indent: int = 0, redactor: Redactor | None = None) -> bytes:
    """A value as JSON without secrets and invisible characters."""
    data = (redactor or process_redactor()).redact_json(json.encode(value))
    return visible_json_of(json.format(data, indent=indent) if indent else data)
