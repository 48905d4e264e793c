"""Redact text, JSON-like data, encoded JSON and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from deputy.core.foreign_text import plain
from deputy.core.redaction.forms import passed_from
from deputy.core.redaction.known import KnownFilter, KnownValues
from deputy.core.redaction.names import is_secret_name
from deputy.core.redaction.scan import MARK, Scanner, may_hold_secret
from deputy.core.redaction.values import is_shown, scheme_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ESCAPES = ("\\u", "\\/", "\\r", "\\b", "\\f")
"""Escapes in JSON of a character that is plain, or that cannot be seen."""


class Redactor:
    """Replaces secrets by a mark: known values, vendor keys, private keys, and named values."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = KnownValues(known)

    def redact(self, text: str) -> str:
        """The text without its secrets."""
        without = KnownFilter(self._known, MARK).feed(text, final=True)
        return Scanner().feed(without, final=True)

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
                fields = cast("dict[Any, Any]", item)
                copy = {self._redact_named("", key) if isinstance(key, str) else key: fields[key] for key in fields}
                container[at] = copy
                # A pair of name and value: the name is that of the value.
                called = next((copy[key] for key in ("name", "key") if isinstance(copy.get(key), str)), "")
                todo.extend((copy, key, called if key == "value" else str(key)) for key in copy)
            elif isinstance(item, list | tuple):
                items = list(cast("Sequence[Any]", item))
                container[at] = items
                todo.extend((items, index, name) for index in range(len(items)))
                self._redact_arguments(items)
        return root[0]

    def _redact_named(self, name: str, value: str) -> str:
        # An invisible character must not split a name or a secret.
        name = name if name.isprintable() else plain(name)
        clean, seen = self._redact_visible(name, value), plain(value)
        if seen == value:
            return clean
        clean_seen = self._redact_visible(name, seen)
        return clean if clean_seen == plain(clean) else clean_seen

    def _redact_visible(self, name: str, value: str) -> str:
        if name and (is_secret_name(name) or (name.lower().endswith("cookie") and "=" in value)):
            start = scheme_end(value, 0)
            if not is_shown(name, value[start:]):
                return value[:start] + MARK
        return self.redact(value)

    def _redact_arguments(self, items: list[Any]) -> None:
        """Hide the secrets that options pass, in a list of arguments."""
        program = " ".join(item for item in items[:2] if isinstance(item, str) and item[:1] != "-" and len(item) < 64)
        for at, item in enumerate(items):
            if not isinstance(item, str) or not item.startswith("-"):
                continue
            value = items[at + 1] if at + 1 < len(items) else None
            if isinstance(value, str):
                start = passed_from(program, item, value)
                items[at + 1] = value if start is None else value[:start] + MARK
            attached = self.redact(f"{program} {item}")
            items[at] = attached.removeprefix(f"{program} ")

    def redact_json(self, data: bytes) -> bytes:
        """Encoded JSON without its secrets, the same bytes if it has none; what is not JSON is redacted as text."""
        text = data.decode("utf-8", "surrogateescape")
        # Without escapes and invisible characters, the encoded text shows every secret.
        is_plain = not any(escape in text for escape in _ESCAPES) and plain(text) == text
        if is_plain and not may_hold_secret(text) and not self._known.occur_in(text):
            return data
        try:
            value = msgspec.json.decode(data)
            clean = self.redact_value(value)
            # A repeated key is only once in the decoded value, so the text is checked too.
            is_clean = clean == value and self.redact(text) == text
            return data if is_clean else msgspec.json.encode(clean)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return self.redact(text).encode("utf-8", "surrogateescape")

    def stream(self) -> RedactingStream:
        """A stream that hides what `redact` hides, however the text is cut into chunks."""
        return RedactingStream(self._known)


class RedactingStream:
    """Redacts a text that comes in chunks; holds back only text that may still become a secret."""

    def __init__(self, known: KnownValues) -> None:
        self._filter = KnownFilter(known, MARK)
        self._scanner = Scanner()

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return self._filter.held + self._scanner.held

    def feed(self, chunk: str) -> str:
        """The redacted text that can be shown after this chunk."""
        return self._scanner.feed(self._filter.feed(chunk))

    def flush(self) -> str:
        """The rest of the text."""
        return self._scanner.feed(self._filter.feed("", final=True), final=True)
