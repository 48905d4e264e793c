"""A list of findings with a maximum length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LISTED_MAX = 50


class BoundedList(Generic[T]):
    """The first findings, in order, and the count of the others."""

    __slots__ = ("_items", "_more", "_rest")

    def __init__(self, more: Callable[[str], T]) -> None:
        self._items: list[T] = []
        self._rest = 0
        self._more = more

    def add(self, item: T) -> None:
        """Append an item, or only count it when the list is full."""
        if len(self._items) < LISTED_MAX:
            self._items.append(item)
        else:
            self._rest += 1

    def all(self) -> tuple[T, ...]:
        """The items, with a last line that counts the others."""
        if not self._rest:
            return tuple(self._items)
        return (*self._items, self._more(f"… and {self._rest} more like these"))
