"""Keep secrets out of what is written and shown: known values and the usual shapes, in texts, data and streams."""

from __future__ import annotations

from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, quote_plus

import msgspec

from deputy.core.key_lines import Place, hide_lines, may_hold_lines
from deputy.core.secret_look import may_start_secret
from deputy.core.secret_shapes import beginnings, by_last_character, finder, hint, names, shapes
from deputy.core.secret_values import is_secret_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deputy.core.secret_ends import Rest
    from deputy.core.secret_shapes import Shape

MARK = "[redacted]"
"""What stands in place of a secret; the public prefix of its kind may stand before it."""

_CONTEXT = 176
_LEAST_KNOWN = 8
_LONGEST_ARGUMENT = 4_096
_LONGEST_TRIGGER = 16
_INDEXED = 32
"""Up to which length the beginnings of known values are kept; a value may be a whole file."""


_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "_PASS", "PASSPHRASE", "CREDENTIALS")


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables that hold secrets by their names."""
    return tuple(value for name, value in environ.items() if name.upper().endswith(_SECRET_NAMES))


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
                # A variable as a pair of its name and its value is judged by that name.
                called = next((copy[key] for key in _NAMED_BY if isinstance(copy.get(key), str)), "")
                todo.extend((copy, key, called if key == "value" and called else str(key)) for key in copy)
            elif isinstance(item, list | tuple):
                items = self._redact_arguments(list(cast("Sequence[Any]", item)))
                container[at] = items
                todo.extend((items, index, _option_at(items, index - 1) or name) for index in range(len(items)))
        return root[0]

    def _redact_arguments(self, words: list[Any]) -> list[Any]:
        """A list without what options pass, if it is a command and its arguments."""
        texts = [word if isinstance(word, str) and len(word) <= _LONGEST_ARGUMENT else "" for word in words]
        if not any(word[:1] == "-" for word in texts):
            return words
        program = " ".join(word for word in texts[:2] if word[:1] != "-")
        for at, word in enumerate(texts):
            if word[:1] != "-" or word[:2] == "--":
                continue
            words[at] = self._redact_within(f"{program} ", word, "")
            if at + 1 < len(texts) and "'" not in texts[at + 1]:
                words[at + 1] = self._redact_within(f"{program} {word} '", texts[at + 1], "'") or words[at + 1]
        return words

    def _redact_within(self, before: str, text: str, after: str) -> str:
        """A text without its secrets, as it reads where it stands."""
        shown = self.redact(f"{before}{text}{after}")
        is_apart = shown.startswith(before) and shown.endswith(after)
        return shown[len(before) : len(shown) - len(after)] if is_apart else text

    def redact_json(self, data: bytes) -> bytes:
        """Encoded JSON without its secrets, the same bytes when it has none; what is not JSON is taken as text."""
        text = data.decode("utf-8", "surrogateescape")
        # Only an escaped letter or slash can hide what would be found as it stands.
        if not ("/" in text and "\\/" in text) and not self._may_hold(text):
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
        for spelling in self._known.spellings:
            if spelling in text:
                return True
        if may_start_secret(text) and ("\\u00" in text or next(_candidates(text, 0), None) is not None):
            return True
        return may_hold_lines(text)


class _Known:
    """The spellings of all known values."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self.spellings = tuple(spellings)
        self.shortest = min(map(len, self.spellings), default=0)
        self.long = tuple(spelling for spelling in self.spellings if len(spelling) > _INDEXED)

    @cached_property
    def beginnings(self) -> dict[str, tuple[str, ...]]:
        """The short ones of all that a value may begin with, by their last character, the longest first."""
        return by_last_character(spelling[: _INDEXED + 1] for spelling in self.spellings)


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
        held = self._place.held + self._state.held + self._held
        # Blanks may be the beginning of a secret, and are none.
        return self._show(self._held, final=True) if held.strip() else held

    def _show(self, text: str, *, final: bool) -> str:
        without, self._held = _hide_known(text, self._known, final=final)
        shown, self._state = _hide_shapes(without, self._state, final=final)
        shown, self._place = hide_lines(shown, self._place, MARK, final=final)
        return shown


class _State(NamedTuple):
    """Where a stream stands between two chunks."""

    context: str = ""
    """The last characters already dealt with: what a candidate may look back at."""
    held: str = ""
    going_on: Rest | None = None
    """What belongs to the secret that the last chunk ended in."""


_NAMED_BY = ("name", "key")


def _option_at(arguments: list[Any], at: int) -> str:
    """The option at this place of a command's arguments, which names the argument behind it."""
    option = arguments[at] if at >= 0 else ""
    return option if isinstance(option, str) and option.startswith("--") else ""


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
    spans = _find_all(text, known.spellings) if len(text) >= known.shortest else []
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
    held = _longest_end(text, known.beginnings.get(text[-1:], ()))
    end = text[-_INDEXED:] if len(text) > _INDEXED else ""
    for spelling in known.long if end else ():
        at = spelling.rfind(end, 0, min(len(spelling) - 1, len(text)))
        while at >= 0 and not text.endswith(spelling[: at + _INDEXED]):
            at = spelling.rfind(end, 0, at + _INDEXED - 1)
        held = max(held, 0 if at < 0 else at + _INDEXED)
    return len(text) - held


def _longest_end(text: str, words: tuple[str, ...]) -> int:
    """How long the first of these words is that a text ends in, the longest being first; 0 when it ends in none."""
    # Most texts end in none, which is asked for all of them at once.
    return next(len(word) for word in words if text.endswith(word)) if text.endswith(words) else 0


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
    if not may_start_secret(text[at:] if at else text):
        return
    folded = _fold(text)
    (triggers, started), hits = finder(), hint()
    while hit := hits.search(folded, at):
        near = hit.start()
        found = triggers.search(folded, max(at, near - _LONGEST_TRIGGER), near + _LONGEST_TRIGGER)
        if found is None or found.start() > near:
            # The hit is inside a trigger that was dealt with; what stands behind it may go on beyond where was looked.
            at = near + 1
            continue
        start = found.start()
        for trigger, shape in started[found.group()]:
            if (folded if shape.folded else text).startswith(trigger, start):
                end = start + len(trigger)
                if shape.glance is None or shape.glance(text, start, end):
                    yield start, end, shape
        at = found.end() if found.group() in names() else start + 1


def _trigger_begun(text: str) -> int:
    """Where the end of the text begins that is the beginning of a trigger."""
    end = text[-_LONGEST_TRIGGER:]
    folded = _fold(end)
    as_it_stands, in_lower_case = beginnings()
    exact = _longest_end(end, as_it_stands.get(end[-1:], ()))
    return len(text) - max(exact, _longest_end(folded, in_lower_case.get(folded[-1:], ())))


def _fold(text: str) -> str:
    """Lower case, every character in its place."""
    folded = text.lower()
    return folded if len(folded) == len(text) else text.replace("İ", "I").lower()
