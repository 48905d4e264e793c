"""The types and fields of a return, its problems, and a bounded list of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeGuard, TypeVar, cast

from msgspec import UNSET, Struct, UnsetType

from deputy.core.contract.quote import is_unicode
from deputy.core.errors import Error
from deputy.core.outcome import SUMMARY_LENGTH, Artifact

if TYPE_CHECKING:
    from collections.abc import Callable

Status = Literal["completed", "partial", "failed", "blocked"]
Mode = Literal["strict", "lenient"]

STATUSES: tuple[Status, ...] = ("completed", "partial", "failed", "blocked")
SUMMARY_MAX = SUMMARY_LENGTH
SUMMARY_LONG = 400

T = TypeVar("T")


class ExpectedReturn(Struct, frozen=True, kw_only=True):
    """What the caller knows about the delegation; None and () are not compared."""

    session_id: str | None = None
    agent_type: str | None = None
    depth: int | None = None
    path: tuple[str, ...] = ()
    """From the top down, ending with the target, as the registry has it."""
    workspace: str | None = None
    """The absolute path that contains every artifact."""
    elapsed_seconds: float | None = None
    fills_metadata: bool = False
    """Whether missing metadata is filled in with these values."""

    @property
    def known_metadata(self) -> dict[str, Any]:
        """The metadata that a return must have."""
        known = {
            "session_id": self.session_id,
            "agent_type": self.agent_type,
            "delegation_depth": self.depth,
            "delegation_path": list(self.path) or None,
        }
        return {name: value for name, value in known.items() if value is not None}


class Metadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which delegation a return belongs to."""

    session_id: str
    agent_type: str
    delegation_depth: int | UnsetType = UNSET
    delegation_path: tuple[str, ...] | UnsetType = UNSET
    duration_seconds: float | UnsetType = UNSET


class Return(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A valid return; only `check` makes one from foreign data."""

    status: Status
    summary: str
    artifacts: tuple[Artifact, ...]
    metadata: Metadata
    errors: tuple[Error, ...] = ()
    next_steps: str | UnsetType = UNSET


class ContractProblem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A violation of the contract; the wording of the message is stable."""

    rule: str
    message: str
    remedy: str = ""
    """What to do, for people and models."""


class CheckedReturn(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a check; `return_` is set exactly when there are no problems."""

    return_: T | None
    problems: tuple[ContractProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether the return may be used."""
        return not self.problems


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


Object = dict[str, Any]

_NUMBER_MAX = 2**63


def is_object(value: object) -> TypeGuard[Object]:
    """Whether the value is a JSON object."""
    return isinstance(value, dict)


def is_text(value: object) -> TypeGuard[str]:
    """Whether the value is a string of valid Unicode."""
    return isinstance(value, str) and is_unicode(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NUMBER_MAX


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _NUMBER_MAX


def _is_path(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, cast("list[object]", value)))


class ReturnField(NamedTuple):
    """The type of a field, in words, as a predicate and as JSON Schema; and whether the field is required."""

    type_name: str
    holds: Callable[[object], bool]
    form: Object
    is_required: bool = False


Fields = dict[str, ReturnField]


def _text(*, required: bool = False) -> ReturnField:
    return ReturnField("a string", is_text, {"type": "string"}, required)


def _list_of(fields: Fields, *, required: bool = False) -> ReturnField:
    return ReturnField("a list", _is_list, {"type": "array", "items": form_of(fields)}, required)


def _object_of(fields: Fields) -> ReturnField:
    return ReturnField("an object", is_object, form_of(fields), is_required=True)


def form_of(fields: Fields) -> Object:
    """The JSON Schema of an object with these fields."""
    return {
        "type": "object",
        "properties": {name: field.form for name, field in fields.items()},
        "required": [name for name, field in fields.items() if field.is_required],
    }


METADATA = {
    "session_id": _text(required=True),
    "agent_type": _text(required=True),
    "delegation_depth": ReturnField("a whole number, 0 or more", _is_count, {"type": "integer", "minimum": 0}),
    "delegation_path": ReturnField("a list of names", _is_path, {"type": "array", "items": {"type": "string"}}),
    "duration_seconds": ReturnField("a number of seconds, 0 or more", _is_duration, {"type": "number", "minimum": 0}),
}
ARTIFACT = {
    "type": _text(required=True),
    "path": _text(required=True),
    "summary": _text(),
}
ERROR = {
    "type": _text(required=True),
    "message": _text(required=True),
    "code": _text(),
    "recoverable": ReturnField("true or false", _is_flag, {"type": "boolean"}, is_required=True),
    "recommendation": _text(required=True),
}
RETURN = {
    "status": ReturnField("a status", is_text, {"enum": list(STATUSES)}, is_required=True),
    "summary": ReturnField(
        "a string", is_text, {"type": "string", "minLength": 1, "maxLength": SUMMARY_MAX}, is_required=True
    ),
    "artifacts": _list_of(ARTIFACT, required=True),
    "metadata": _object_of(METADATA),
    "errors": _list_of(ERROR),
    "next_steps": _text(),
}


def return_schema() -> Object:
    """The return as JSON Schema, for providers with structured output; metadata is filled in afterwards."""
    return form_of({name: field for name, field in RETURN.items() if name != "metadata"})
