"""Errors that are one trouble seen several times: grouped by what they are, the most frequent first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class LoggedError(Protocol):
    """An error of the log, as far as grouping needs it."""

    @property
    def id(self) -> str:
        """Its name in the log."""
        ...

    @property
    def type(self) -> str:
        """What kind it is."""
        ...

    @property
    def code(self) -> str:
        """Its stable code, or nothing."""
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
    """Errors of one type and code: how often they happened together, and which they are."""

    type: str
    code: str
    count: int
    ids: tuple[str, ...]

    @property
    def is_recurring(self) -> bool:
        """Whether it happened more than once."""
        return self.count > 1


def grouped(errors: Iterable[LoggedError]) -> list[ErrorGroup]:
    """The errors by type and code, the most frequent group first and in it the most frequent error."""
    groups: dict[tuple[str, str], list[LoggedError]] = {}
    for error in sorted(errors, key=lambda one: (-one.count, -one.last_at, one.id)):
        groups.setdefault((error.type, error.code), []).append(error)
    made = [
        ErrorGroup(type=type_, code=code, count=sum(one.count for one in members), ids=tuple(one.id for one in members))
        for (type_, code), members in groups.items()
    ]
    return sorted(made, key=lambda group: -group.count)


def alike(errors: Iterable[_S], id_: str) -> list[_S]:
    """The error of this id and all of its group, that one first; nothing when there is no such error."""
    known = list(errors)
    named = next((one for one in known if one.id == id_), None)
    if named is None:
        return []
    others = [one for one in known if (one.type, one.code) == (named.type, named.code) and one.id != id_]
    return [named, *sorted(others, key=lambda one: (-one.count, -one.last_at, one.id))]
