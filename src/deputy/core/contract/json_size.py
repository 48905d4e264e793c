"""The size of a JSON value: how deep it is and how much it holds, without recursion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def measure(value: Any, most_levels: int) -> tuple[int, int]:
    """The number of levels, counted up to one above the maximum, and the number of values in them."""
    levels, values = 0, 0
    level: list[Any] = [value]
    while level and levels <= most_levels:
        levels += 1
        values += len(level)
        level = [child for node in level for child in _children(node)]
    return levels, values


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a value, itself included."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield cast(dict[str, Any], node)
        waiting.extend(_children(node))


def _children(node: Any) -> Iterable[Any]:
    match node:
        case dict():
            return cast(dict[str, Any], node).values()
        case list():
            return cast(list[Any], node)
        case _:
            return ()
