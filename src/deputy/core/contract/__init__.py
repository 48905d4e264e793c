"""The return contract: ask → (the target reports) → parse → check → weigh the evidence → repair, or a `Return`."""

from deputy.core.contract.evidence import FileFact, weigh_evidence
from deputy.core.contract.instruction import (
    INVALID_RETURN,
    ask,
    invalid_return,
    may_repair,
    repair_message,
    repairs_allowed,
)
from deputy.core.contract.return_check import check, read
from deputy.core.contract.return_parser import Parsed, parse
from deputy.core.contract.return_types import (
    Artifact,
    CheckedReturn,
    ContractProblem,
    ExpectedReturn,
    Metadata,
    Mode,
    Return,
    Status,
    return_schema,
)
from deputy.core.contract.user_schema import Schema, check_schema, schema_of

__all__ = [
    "INVALID_RETURN",
    "Artifact",
    "CheckedReturn",
    "ContractProblem",
    "ExpectedReturn",
    "FileFact",
    "Metadata",
    "Mode",
    "Parsed",
    "Return",
    "Schema",
    "Status",
    "ask",
    "check",
    "check_schema",
    "invalid_return",
    "may_repair",
    "parse",
    "read",
    "repair_message",
    "repairs_allowed",
    "return_schema",
    "schema_of",
    "weigh_evidence",
]
