"""Parse and check a report in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from deputy.core.contract.return_check import check
from deputy.core.contract.return_parser import parse
from deputy.core.contract.return_types import CheckedReturn, ContractProblem, ExpectedReturn, Mode
from deputy.core.contract.user_schema import check_schema

if TYPE_CHECKING:
    from deputy.core.contract.user_schema import Schema


def read(
    text: str, expected: ExpectedReturn | None = None, mode: Mode = "strict", *, schema: Schema | None = None
) -> CheckedReturn[Any]:
    """Parse and check a report against the contract, or against a user's schema instead."""
    parsed = parse(text, mode) if schema is None else parse(text, mode, keys=schema.keys)
    if isinstance(parsed, ContractProblem):
        return CheckedReturn(return_=None, problems=(parsed,))
    checked = check(parsed.value, expected, mode) if schema is None else check_schema(parsed.value, schema)
    return structs.replace(checked, liberties=(*parsed.liberties, *checked.liberties)) if parsed.liberties else checked
