"""Redact text, JSON-like data, encoded JSON and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from deputy.core.foreign_text import unsplit
from deputy.core.redaction.forms import compiled, is_shown, scheme_end
from deputy.core.redaction.known import KnownValues
from deputy.core.redaction.names import is_secret_name
from deputy.core.redaction.scan import MARK, RedactingStream, find_triggers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ESCAPE = r"\\[u/rbf]"
"""An escape in JSON of a plain or an invisible character."""


class Redactor:
    """Replaces secrets by a mark: known values, vendor keys, private keys, and named values."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = KnownValues(known)

    def redact(self, text: str, *, is_cut: bool = False) -> str:
        """The text without its secrets; of a text that is cut, without an end that may be half of one."""
        # A sequence for the terminal may have a secret inside.
        if is_cut or self._is_suspect(text) or ((seen := unsplit(text)) != text and self._is_suspect(seen)):
            return self.stream().feed(text, final=not is_cut)
        return text

    def _is_suspect(self, text: str) -> bool:
        return bool(find_triggers(text) or self._known.places(text))

    def redact_value(self, value: Any) -> Any:
        """JSON-like data without its secrets; a string under a secret name is hidden too."""
        root = [value]
        todo: list[tuple[Any, Any, str]] = [(root, 0, "")]
        while todo:
            container, at, name = todo.pop()
            item = container[at]
            if isinstance(item, str):
                container[at] = self._redact_named(name, item)
            elif isinstance(item, dict):
                if self._is_clean(item):
                    continue
                fields = cast("dict[Any, Any]", item)
                copy = {self._redact_named("", key) if isinstance(key, str) else key: fields[key] for key in fields}
                container[at] = copy
                # In a pair of name and value, the name is that of the value.
                called = next((copy[key] for key in ("name", "key") if isinstance(copy.get(key), str)), "")
                todo.extend((copy, key, called if key == "value" else str(key)) for key in copy)
            elif isinstance(item, list | tuple):
                items = self._redact_arguments(list(cast("Sequence[Any]", item)))
                container[at] = items
                todo.extend((items, index, name) for index in range(len(items)))
        return root[0]

    def _redact_named(self, name: str, value: str) -> str:
        name = unsplit(name)
        if name and (is_secret_name(name) or (name.lower().endswith("cookie") and "=" in value)):
            start = scheme_end(value, 0)
            if not is_shown(name, value[start:]):
                return value[:start] + MARK
        return self.redact(value)

    def _redact_arguments(self, items: list[Any]) -> list[Any]:
        """A list of a command's arguments without the secrets that its options pass."""
        if not any(isinstance(item, str) and item.startswith("-") for item in items):
            return items
        texts = [item if isinstance(item, str) else "" for item in items]
        try:
            clean: Any = msgspec.json.decode(self.redact(msgspec.json.encode(texts).decode()))
        except (msgspec.MsgspecError, UnicodeError):
            return items
        if len(clean) != len(items):
            return items
        return [new if isinstance(old, str) else old for old, new in zip(items, clean, strict=True)]

    def redact_json(self, data: bytes) -> bytes:
        """Encoded JSON without its secrets, the same bytes if it has none; other data is redacted as text."""
        text = data.decode("utf-8", "surrogateescape")
        if self._shows_nothing(text):
            return data
        try:
            value = msgspec.json.decode(data)
            clean = self.redact_value(value)
            encoded = msgspec.json.encode(clean)
            # A repeated key is only once in the decoded value, so a text that is encoded differently is checked too.
            return data if data == encoded or (clean == value and self.redact(text) == text) else encoded
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return self.redact(text).encode("utf-8", "surrogateescape")

    def _is_clean(self, fields: Any) -> bool:
        """Whether nothing in an object can be a secret: most objects are clean, and one look at each is enough."""
        try:
            return self._shows_nothing(msgspec.json.encode(fields).decode())
        except (msgspec.MsgspecError, UnicodeError, TypeError, RecursionError):
            return False

    def _shows_nothing(self, text: str) -> bool:
        # Without escapes and invisible characters, the encoded text shows every secret.
        is_plain = not ("\\" in text and compiled(_ESCAPE).search(text)) and unsplit(text) == text
        return is_plain and not self._is_suspect(text)

    def stream(self) -> RedactingStream:
        """A stream that hides what `redact` hides, whatever its chunks are."""
        return RedactingStream(self._known)
