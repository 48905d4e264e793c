"""Conformance suite of durable engines.

Run `await case(host)` for each of `CASES`, with a fresh host each. A case fails with `AssertionError`.
"""

from deputy.testing.runtime_suite import children, host_cases, inbox, steps
from deputy.testing.runtime_suite.case_helpers import Case, Host

CASES: tuple[Case, ...] = (*steps.CASES, *children.CASES, *inbox.CASES, *host_cases.CASES)

__all__ = ["CASES", "Host"]
