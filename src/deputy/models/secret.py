"""A key that cannot be printed by accident."""

from __future__ import annotations

from typing import Final

SHOWN: Final = "***"


class ApiKey:
    """An API key that repr, logs, errors, pickles and JSON do not show."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value, for a request header."""
        return self._value

    def hide(self, text: str) -> str:
        """The text with every occurrence of the value masked."""
        return text.replace(self._value, SHOWN) if len(self._value) >= 4 else text

    def __repr__(self) -> str:
        return f"Secret({SHOWN})"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        raise TypeError("an ApiKey cannot be pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)
