"""The fields of a return: which there are, which are required, what each may hold, and how that is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from deputy.core.contract.form import Problem
from deputy.core.contract.listing import Listing
from deputy.core.contract.quoting import is_unicode, kind_of, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

RULE = "contract.check"

Object = dict[str, Any]

_NUMBER_MAX = 2**63


def is_object(value: object) -> TypeGuard[Object]:
    """Whether this is a JSON object."""
    return isinstance(value, dict)


def is_text(value: object) -> TypeGuard[str]:
    """Whether this is a string that can be written down."""
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
    return isinstance(value, list) and all(map(is_text, cast(list[object], value)))


class Field(NamedTuple):
    """What a field may hold, how that is said, and whether the field must be there."""

    says: str
    holds: Callable[[object], bool]
    is_required: bool = False


def _text(*, required: bool = False) -> Field:
    return Field("a string", is_text, required)


_OBJECT = Field("an object", is_object, is_required=True)

RETURN = {
    "status": _text(required=True),
    "summary": _text(required=True),
    "artifacts": Field("a list", _is_list, is_required=True),
    "metadata": _OBJECT,
    "errors": Field("a list", _is_list),
    "next_steps": _text(),
}
METADATA = {
    "session_id": _text(required=True),
    "agent_type": _text(required=True),
    "delegation_depth": Field("a whole number, 0 or more", _is_count),
    "delegation_path": Field("a list of names", _is_path),
    "duration_seconds": Field("a number of seconds, 0 or more", _is_duration),
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
    "recoverable": Field("true or false", _is_flag, is_required=True),
    "recommendation": _text(required=True),
}

Fields = dict[str, Field]


class Findings:
    """The problems and warnings of one check."""

    __slots__ = ("problems", "warnings")

    def __init__(self) -> None:
        self.problems: Listing[Problem] = Listing(lambda more: Problem(rule=RULE, message=more))
        self.warnings: Listing[str] = Listing(str)

    def problem(self, message: str, advice: str) -> None:
        """Something that keeps the value from being a return."""
        self.problems.add(Problem(rule=RULE, message=message, advice=advice))

    def warn(self, message: str) -> None:
        """Something that is worth knowing."""
        self.warnings.add(message)

    def require(self, record: Object, fields: Fields, at: str = "") -> None:
        """Report the required fields that are absent."""
        for name, field in fields.items():
            if field.is_required and name not in record:
                self.problem(f"Missing required field: {at}{name}", f"Add {at}{name}.")

    def typed(self, record: Object, name: str, fields: Fields, at: str = "") -> Any:
        """What a field holds; None when it is absent, and when it is of the wrong type, which is reported."""
        if name not in record:
            return None
        told = record[name]
        if fields[name].holds(told):
            return told
        self._wrong_type(f"{at}{name}", fields[name], told)
        return None

    def filled(self, record: Object, fields: Fields, at: str) -> dict[str, Any]:
        """What all the fields of a record hold, as `typed` has it; required texts must say something."""
        told = {name: self.typed(record, name, fields, at) for name in fields}
        for name, value in told.items():
            if fields[name].is_required and isinstance(value, str) and not value.strip():
                self.problem(f"Empty field: {at}{name}", f"Fill in {at}{name}.")
        self.warn_unknown(record, fields, at)
        return told

    def records(self, value: Object, name: str) -> Iterator[tuple[str, Object]]:
        """The objects in a list of the return, each with where it stands."""
        for index, item in enumerate(self.typed(value, name, RETURN) or ()):
            if is_object(item):
                yield f"{name}[{index}].", item
            else:
                self._wrong_type(f"{name}[{index}]", _OBJECT, item)

    def warn_unknown(self, record: Object, fields: Mapping[str, Field], at: str = "") -> None:
        """Mention the fields that the contract does not know."""
        for name in record:
            if name not in fields:
                self.warn(f"Unknown field ignored: {at}{quoted(name)}")

    def _wrong_type(self, at: str, field: Field, told: object) -> None:
        # A number may be of the right type and out of range: then the kind alone would not tell.
        found = f"{quoted(told)}" if kind_of(told) == "a number" else kind_of(told)
        self.problem(
            f"Wrong type for {at}: expected {field.says}, found {found}",
            f"Write {field.says}." if field.is_required else f"Write {field.says}, or leave {at} out.",
        )
