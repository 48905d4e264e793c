"""Logged errors grouped by type and code, the most frequent first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class LoggedError(Protocol):
    """The fields of a logged error that grouping needs."""

    @property
    def id(self) -> str:
        """Its id in the log."""
        ...

    @property
    def type(self) -> str:
        """Its type."""
        ...

    @property
    def code(self) -> str:
        """Its code, or an empty string."""
        ...

    @property
    def count(self) -> int:
        """How often it happened."""
        ...

    @property
    def last_at(self) -> float:
        """When it happened last."""
        ...


_S = TypeVar("_S", bound=LoggedError)


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Errors of one type and code: the total count, and their ids."""

    type: str
    code: str
    count: int
    ids: tuple[str, ...]

    @property
    def is_recurring(self) -> bool:
        """Whether it happened more than once."""
        return self.count > 1


def grouped(errors: Iterable[LoggedError]) -> list[ErrorGroup]:
    """The errors by type and code; groups, and the errors in a group, are sorted by frequency."""
    groups: dict[tuple[str, str], list[LoggedError]] = {}
    for error in sorted(errors, key=lambda one: (-one.count, -one.last_at, one.id)):
        groups.setdefault((error.type, error.code), []).append(error)
    made = [
        ErrorGroup(type=type_, code=code, count=sum(one.count for one in members), ids=tuple(one.id for one in members))
        for (type_, code), members in groups.items()
    ]
    return sorted(made, key=lambda group: -group.count)


def alike(errors: Iterable[_S], id_: str) -> list[_S]:
    """The error with this id, then the rest of its group; empty if there is no such error."""
    known = list(errors)
    named = next((one for one in known if one.id == id_), None)
    if named is None:
        return []
    others = [one for one in known if (one.type, one.code) == (named.type, named.code) and one.id != id_]
    return [named, *sorted(others, key=lambda one: (-one.count, -one.last_at, one.id))]
