"""What a check of fields finds: problems and warnings, in words that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deputy.core.contract.fields import RETURN, Fields, Object, is_object
from deputy.core.contract.form import Problem
from deputy.core.contract.listing import Listing
from deputy.core.contract.quoting import kind_of, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

RULE = "contract.check"


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
        self._wrong_type(f"{at}{name}", fields[name].says, told, is_optional=not fields[name].is_required)
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
                self._wrong_type(f"{name}[{index}]", "an object", item)

    def warn_unknown(self, record: Object, fields: Fields, at: str = "") -> None:
        """Mention the fields that the contract does not know."""
        for name in record:
            if name not in fields:
                self.warn(f"Unknown field ignored: {at}{quoted(name)}")

    def _wrong_type(self, at: str, says: str, told: object, *, is_optional: bool = False) -> None:
        # A number may be of the right type and out of range: then the kind alone would not tell.
        found = quoted(told) if kind_of(told) == "a number" else kind_of(told)
        self.problem(
            f"Wrong type for {at}: expected {says}, found {found}",
            f"Write {says}, or leave {at} out." if is_optional else f"Write {says}.",
        )
