"""What a person is told to do about work that did not complete."""

from deputy.core.errors import Error
from deputy.core.outcome import Partial
from deputy.core.request import Lineage
from deputy.interfaces.cli.outcome_output import remedy


def _partial(run: str, kind: str) -> Partial:
    error = Error(type=kind, message="It is over.", recoverable=True, recommendation="")
    return Partial(lineage=Lineage.root(run), summary="so far", errors=(error,))


def test_resume_is_not_suggested_when_a_spent_budget_would_stop_it_again() -> None:
    spent, late = _partial("sess_1_a", "budget"), _partial("sess_1_b", "timeout")
    assert remedy("sess_1_call", [spent]) == ""
    assert remedy("sess_1_call", [spent, late]) == "to continue what is not complete: deputy resume sess_1_call"
