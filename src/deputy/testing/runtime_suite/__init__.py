"""What every durable engine must do: cases that need nothing but a host to run them on.

A test suite runs `CASES` one by one: `await case(host)` with a fresh host each. A case fails by `AssertionError`.
"""

from deputy.testing.runtime_suite import children, host_cases, inbox, steps
from deputy.testing.runtime_suite.case_helpers import Case, Host

CASES: tuple[Case, ...] = (*steps.CASES, *children.CASES, *inbox.CASES, *host_cases.CASES)

__all__ = ["CASES", "Host"]
