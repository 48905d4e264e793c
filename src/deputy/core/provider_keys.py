"""Deputy's own provider keys: their values never enter the journal, a prompt or a tool call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import json

from deputy.core.events import decode, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deputy.core.events import Event

    E = TypeVar("E", bound=Event)

_SHORTEST = 8
_LONG = 20


class ProviderKeys:
    """Replaces the exact value of each provider key by a mark that names its variable: `[redacted OPENAI_API_KEY]`."""

    def __init__(self, names: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> None:
        self._names = tuple(dict.fromkeys(names))
        found: dict[str, str] = {}
        for name in self._names:
            value = (environ or {}).get(name, "").strip()
            if _is_key(value):
                found.setdefault(value, _mark(name))
        # Longest first, so that a key that contains another one is replaced whole.
        ordered = sorted(found.items(), key=lambda item: -len(item[0]))
        self._in_text = tuple(ordered)
        self._in_json = {json.encode(value)[1:-1]: mark.encode() for value, mark in ordered}

    def mask(self, text: str) -> str:
        """The text with a mark in place of each key."""
        for value, mark in self._in_text:
            if value in text:
                text = text.replace(value, mark)
        return text

    def mask_json(self, body: bytes) -> bytes:
        """Encoded JSON with a mark in place of each key; the same object if it contains none."""
        for value in self._in_json:
            if value in body:
                break
        else:
            return body
        # Escapes are matched whole: `\n` before `vapi-…` is not the key `nvapi-…`.
        either = rb"|".join(map(re.escape, self._in_json))
        pattern = re.compile(rb"(?P<key>" + either + rb")|\\u[0-9a-f]{4}|\\.")
        return pattern.sub(lambda found: self._in_json.get(found["key"], found[0]), body)

    def mask_event(self, event: E) -> E:
        """The event with a mark in place of each key; the same object if it contains none."""
        if not self._in_json:
            return event
        _, body = written(event)
        masked = self.mask_json(body)
        return event if masked == body else cast("E", decode(masked))

    def marked(self, text: str) -> str:
        """The variable whose mark is in the text, else ""."""
        if "[redacted " not in text:
            return ""
        return next((name for name in self._names if _mark(name) in text), "")


def _mark(name: str) -> str:
    return f"[redacted {name}]"


def _is_key(value: str) -> bool:
    """Whether a value can be a key; a plain word such as `not-needed` would also match ordinary text."""
    if len(value) < _SHORTEST or not any(letter.isalpha() for letter in value):
        return False
    return any(letter.isdigit() for letter in value) or (len(value) >= _LONG and not value.islower())
