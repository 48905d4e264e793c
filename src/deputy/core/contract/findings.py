"""Collect problems and warnings of a return; the wording of problems is stable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deputy.core.contract.bounded_list import BoundedList
from deputy.core.contract.fields import RETURN, Fields, Object, is_object
from deputy.core.contract.quote import kind_of, quoted
from deputy.core.contract.return_types import ContractProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

RULE = "contract.check"


class ContractFindings:
    """The problems and warnings of one check."""

    __slots__ = ("problems", "warnings")

    def __init__(self) -> None:
        self.problems: BoundedList[ContractProblem] = BoundedList(lambda more: ContractProblem(rule=RULE, message=more))
        self.warnings: BoundedList[str] = BoundedList(str)

    def problem(self, message: str, remedy: str) -> None:
        """Add a problem; the value is not a return."""
        self.problems.add(ContractProblem(rule=RULE, message=message, remedy=remedy))

    def warn(self, message: str) -> None:
        """Add a warning."""
        self.warnings.add(message)

    def require(self, record: Object, fields: Fields, at: str = "") -> None:
        """Report the required fields that are absent."""
        for name, field in fields.items():
            if field.is_required and name not in record:
                self.problem(f"Missing required field: {at}{name}", f"Add {at}{name}.")

    def typed(self, record: Object, name: str, fields: Fields, at: str = "") -> Any:
        """The value of a field; None when it is absent or has the wrong type, which is reported."""
        if name not in record:
            return None
        given = record[name]
        if fields[name].holds(given):
            return given
        self._wrong_type(f"{at}{name}", fields[name].type_name, given, is_optional=not fields[name].is_required)
        return None

    def filled(self, record: Object, fields: Fields, at: str) -> dict[str, Any]:
        """The values of all fields of a record, as in `typed`; a required string must not be blank."""
        given = {name: self.typed(record, name, fields, at) for name in fields}
        for name, value in given.items():
            if fields[name].is_required and isinstance(value, str) and not value.strip():
                self.problem(f"Empty field: {at}{name}", f"Fill in {at}{name}.")
        self.warn_unknown(record, fields, at)
        return given

    def records(self, value: Object, name: str) -> Iterator[tuple[str, Object]]:
        """The objects in a list of the return, each with its location."""
        for index, item in enumerate(self.typed(value, name, RETURN) or ()):
            if is_object(item):
                yield f"{name}[{index}].", item
            else:
                self._wrong_type(f"{name}[{index}]", "an object", item)

    def warn_unknown(self, record: Object, fields: Fields, at: str = "") -> None:
        """Warn of unknown fields."""
        for name in record:
            if name not in fields:
                self.warn(f"Unknown field ignored: {at}{quoted(name)}")

    def _wrong_type(self, at: str, type_name: str, given: object, *, is_optional: bool = False) -> None:
        # A number may be out of range: then its type would not explain the problem.
        found = quoted(given) if kind_of(given) == "a number" else kind_of(given)
        self.problem(
            f"Wrong type for {at}: expected {type_name}, found {found}",
            f"Write {type_name}, or leave {at} out." if is_optional else f"Write {type_name}.",
        )
