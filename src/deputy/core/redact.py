"""Keep secrets out of what is written and shown: known values and the usual shapes, in texts, data and streams."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, quote_plus

import msgspec

from deputy.core.key_lines import Place, hide_lines, may_hold_lines
from deputy.core.secret_shapes import finder, hint, shapes, trigger_beginnings
from deputy.core.secret_values import is_secret_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deputy.core.secret_ends import Rest
    from deputy.core.secret_shapes import Shape

MARK = "[redacted]"
"""What stands in place of a secret; the public prefix of its kind may stand before it."""

_CONTEXT = 176
_LEAST_KNOWN = 8
_LONGEST_TRIGGER = 32


class Redactor:
    """Replaces secrets by a mark: the values it was made with, in all their spellings, and what looks like one.

    A known value shorter than eight characters is left to the shapes: replacing it would shred ordinary text.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        values = {value.strip() for value in known}
        self._known = _Known(_spellings(value for value in values if len(value) >= _LEAST_KNOWN))

    def redact(self, text: str) -> str:
        """The text without its secrets."""
        without = _hide_known(text, self._known, final=True)[0]
        shown = _hide_shapes(without, _State(), final=True)[0]
        return hide_lines(shown, Place(), MARK, final=True)[0] if may_hold_lines(shown) else shown

    def redact_value(self, value: Any) -> Any:
        """JSON-like data without its secrets; a text under a name like `password` is judged by that name."""
        root = [value]
        todo: list[tuple[Any, Any, str]] = [(root, 0, "")]
        while todo:
            container, at, name = todo.pop()
            item = container[at]
            if isinstance(item, str):
                container[at] = MARK if is_secret_value(name, item) else self.redact(item)
            elif isinstance(item, dict):
                fields = cast("dict[Any, Any]", item)
                copy = {self.redact(key) if isinstance(key, str) else key: held for key, held in fields.items()}
                container[at] = copy
                todo.extend((copy, key, str(key)) for key in copy)
            elif isinstance(item, list | tuple):
                items = list(cast("Sequence[Any]", item))
                container[at] = items
                todo.extend((items, index, name) for index in range(len(items)))
        return root[0]

    def redact_json(self, data: bytes) -> bytes:
        """Encoded JSON without its secrets, the same bytes when it has none; what is not JSON is taken as text."""
        text = data.decode("utf-8", "surrogateescape")
        # Only an escaped letter or slash can hide what would be found as it stands.
        if "\\u00" not in text and "\\/" not in text and not self._may_hold(text):
            return data
        try:
            value = msgspec.json.decode(data)
            clean = self.redact_value(value)
            return data if clean == value else msgspec.json.encode(clean)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return self.redact(text).encode("utf-8", "surrogateescape")

    def stream(self) -> RedactingStream:
        """A stream that hides what this redactor hides, however the text is cut into chunks."""
        return RedactingStream(self._known)

    def _may_hold(self, text: str) -> bool:
        if any(spelling in text for spelling in self._known.spellings):
            return True
        return next(_candidates(text, 0), None) is not None or may_hold_lines(text)


class _Known:
    """The spellings of all known values."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self.spellings = tuple(spellings)
        self.longest = max(map(len, self.spellings), default=0)
        self.by_first: dict[str, list[str]] = {}
        for spelling in self.spellings:
            self.by_first.setdefault(spelling[0], []).append(spelling)


class RedactingStream:
    """Redacts a text that comes in chunks; holds back only what could still become a secret."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._held = ""
        self._state = _State()
        self._place = Place()

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._held) + len(self._state.held) + len(self._place.held)

    def feed(self, chunk: str) -> str:
        """What may be shown now that this chunk has come."""
        return self._show(self._held + chunk, final=False)

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        return self._show(self._held, final=True)

    def _show(self, text: str, *, final: bool) -> str:
        without, self._held = _hide_known(text, self._known, final=final)
        shown, self._state = _hide_shapes(without, self._state, final=final)
        shown, self._place = hide_lines(shown, self._place, MARK, final=final)
        return shown


@dataclass(frozen=True, slots=True)
class _State:
    """Where a stream stands between two chunks."""

    context: str = ""
    """The last characters already dealt with: what a candidate may look back at."""
    held: str = ""
    going_on: Rest | None = None
    """What belongs to the secret that the last chunk ended in."""


def _spellings(values: Iterable[str]) -> set[str]:
    """The values as they may stand in a text: plain, in JSON, in a URL, and in base64 at each of its three offsets."""
    found: set[str] = set()
    for value in values:
        if not value.isprintable():
            # Surrogates and control characters have no spelling but their own.
            found.add(value)
            continue
        once = _in_json(value)
        ascii_only = _escape(once, "\\u{:04x}")
        found |= {value, once, once.replace("/", "\\/"), ascii_only, _escape(once, "\\u{:04X}")}
        found |= {_in_json(once), _in_json(ascii_only)}
        for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
            found |= {encoded, _lower_escapes(encoded)}
        found |= _in_base64(value.encode("utf-8", "surrogatepass"))
    return found


def _in_json(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


def _escape(text: str, form: str) -> str:
    """Everything beyond ASCII written as JSON may write it: by its UTF-16 units."""
    if text.isascii():
        return text
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(chr(unit) if unit < 128 else form.format(unit) for unit in units)


def _lower_escapes(encoded: str) -> str:
    head, *escapes = encoded.split("%")
    return "".join((head, *(f"%{part[:2].lower()}{part[2:]}" for part in escapes)))


def _in_base64(value: bytes) -> set[str]:
    """The characters of base64 that depend on this value alone, wherever it stands in what was encoded."""
    found: set[str] = set()
    for offset in range(3):
        encoded = b64encode(b"\0" * offset + value).decode()
        first = -(-offset * 8 // 6)
        whole = (offset + len(value)) * 8 // 6
        standard = encoded[first:whole]
        found |= {standard, standard.replace("+", "-").replace("/", "_")}
    return found


def _hide_known(text: str, known: _Known, *, final: bool) -> tuple[str, str]:
    """The text without known values, and the end of it that may be the beginning of one (empty when final)."""
    spans = _find_all(text, known.spellings)
    held = len(text) if final else _held_from(text, known)
    out: list[str] = []
    at = 0
    for start, end in spans:
        if end > held:
            held = min(held, start)
            break
        out += (text[at:start], _public_prefix(text[start:end]), MARK)
        at = end
    out.append(text[at:held])
    return "".join(out), text[held:]


def _find_all(text: str, spellings: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where known values stand, in order, overlapping ones as one."""
    hits: list[tuple[int, int]] = []
    for spelling in spellings:
        at = text.find(spelling)
        while at >= 0:
            hits.append((at, at + len(spelling)))
            at = text.find(spelling, at + 1)
    spans: list[tuple[int, int]] = []
    for start, end in sorted(hits):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def _held_from(text: str, known: _Known) -> int:
    """Where the end of the text begins that is the beginning of a known value."""
    for at in range(max(0, len(text) - known.longest + 1), len(text)):
        for spelling in known.by_first.get(text[at], ()):
            if spelling.startswith(text[at:]):
                return at
    return len(text)


def _public_prefix(value: str) -> str:
    return next((t for shape in shapes() if shape.is_prefix for t in shape.triggers if value.startswith(t)), "")


def _hide_shapes(chunk: str, state: _State, *, final: bool) -> tuple[str, _State]:
    """The text that may be shown, and where the stream stands behind it."""
    context = state.context
    text = context + state.held + chunk
    at = len(context)
    out: list[str] = []
    if state.going_on is not None:
        at, text_ended = state.going_on.end(text, at, final=final)
        if text_ended and not final:
            return "", _stand(text, at, state.going_on)
    held = len(text)
    for start, end, shape in _candidates(text, at):
        if start < at:
            continue
        if not final and shape.is_open(text, start, end):
            held = start
            break
        found = shape.find(text, start, end)
        if found is None:
            continue
        out += (text[at : found.start], MARK)
        at, text_ended = found.rest.end(text, found.end, final=final)
        if text_ended and not final:
            return "".join(out), _stand(text, at, found.rest)
    if not final:
        held = min(held, max(at, _trigger_begun(text)))
    out.append(text[at:held])
    return "".join(out), _stand(text, held)


def _stand(text: str, at: int, going_on: Rest | None = None) -> _State:
    return _State(context=text[max(0, at - _CONTEXT) : at], held=text[at:], going_on=going_on)


def _candidates(text: str, at: int) -> Iterator[tuple[int, int, Shape]]:
    """Where something could be a secret, in order; at the same place the first shape of the table comes first."""
    folded = _fold(text)
    if hint().search(folded, at) is None:
        return
    triggers, started = finder()
    while found := triggers.search(folded, at):
        at = found.start()
        for trigger, shape in started[found.group()]:
            if (folded if shape.folded else text).startswith(trigger, at):
                end = at + len(trigger)
                if shape.glance is None or shape.glance(text, at, end):
                    yield at, end, shape
        at += 1


def _trigger_begun(text: str) -> int:
    """Where the end of the text begins that is the beginning of a trigger."""
    exact, folded = trigger_beginnings()
    end = text[-_LONGEST_TRIGGER:]
    lower = _fold(end)
    for at in range(len(end)):
        if end[at:] in exact or lower[at:] in folded:
            return len(text) - len(end) + at
    return len(text)


def _fold(text: str) -> str:
    """Lower case, every character in its place."""
    folded = text.lower()
    return folded if len(folded) == len(text) else text.replace("İ", "I").lower()
