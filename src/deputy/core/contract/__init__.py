"""The return contract: what a target is asked for, how its report is read and checked, and what happens if it fails.

ask → (the target reports) → parse → check → weigh the evidence → repair, or a `Return`.
"""

from deputy.core.contract.checking import check
from deputy.core.contract.evidence import FileFact, weigh_evidence
from deputy.core.contract.fields import return_schema
from deputy.core.contract.form import Artifact, Checked, Expected, Metadata, Mode, Problem, Return, Status
from deputy.core.contract.instruction import ask
from deputy.core.contract.parsing import Parsed, parse
from deputy.core.contract.reading import read
from deputy.core.contract.repair import INVALID_RETURN, invalid_return, repair_message, repairs_allowed
from deputy.core.contract.schemas import Schema, check_schema, schema_of

__all__ = [
    "INVALID_RETURN",
    "Artifact",
    "Checked",
    "Expected",
    "FileFact",
    "Metadata",
    "Mode",
    "Parsed",
    "Problem",
    "Return",
    "Schema",
    "Status",
    "ask",
    "check",
    "check_schema",
    "invalid_return",
    "parse",
    "read",
    "repair_message",
    "repairs_allowed",
    "return_schema",
    "schema_of",
    "weigh_evidence",
]
