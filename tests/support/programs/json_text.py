"""JSON for the fake programs by the C code of `json`: the rest takes longer to import than Python takes to start."""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Reading:
    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def _refuse(value: object) -> None:
    raise TypeError(f"{value!r} is no JSON")


_scan: Any = make_scanner(_Reading)  # pyright: ignore[reportArgumentType]
_encode: Any = make_encoder(None, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)


def loads(text: str) -> Any:
    """The value of a JSON text, as `json.loads` gives it."""
    text = text.strip()
    value, end = _scan(text, 0)
    assert end == len(text), f"no JSON: {text!r}"
    return value


def dumps(value: object) -> str:
    """A value as JSON, as `json.dumps` writes it."""
    return "".join(_encode(value, 0))
