"""What a person is told to do about work that did not complete."""

import asyncio

from msgspec import structs

from deputy.core.errors import ContextChanged, Error
from deputy.core.outcome import Failed, Partial
from deputy.core.request import Lineage
from deputy.interfaces.cli.outcome_output import remedy, show_ended
from deputy.project_tasks.orchestrator import CommandResult


def _partial(run: str, kind: str) -> Partial:
    error = Error(type=kind, message="It is over.", recoverable=True, recommendation="")
    return Partial(lineage=Lineage.root(run), summary="so far", errors=(error,))


def test_resume_is_not_suggested_when_a_spent_budget_would_stop_it_again() -> None:
    spent, late = _partial("sess_1_a", "budget"), _partial("sess_1_b", "timeout")
    assert remedy("sess_1_call", [spent]) == ""
    assert remedy("sess_1_call", [spent, late]) == "to continue what is not complete: deputy resume sess_1_call"


def test_a_plain_resume_is_not_suggested_when_a_changed_file_must_be_approved() -> None:
    changed = Failed(lineage=Lineage.root("sess_1_a"), summary="s", errors=(ContextChanged(["notes.md"]).error,))
    assert "--yes" in changed.errors[0].recommendation
    assert remedy("sess_1_call", [changed]) == ""


def test_a_call_of_one_task_names_the_id_that_its_report_names() -> None:
    late = _partial("sess_1_b", "timeout")
    assert remedy("sess_1_call", [late]) == "to continue what is not complete: deputy resume sess_1_b"


def test_a_command_prints_how_to_resume_it_once(capsys) -> None:
    advice = "Continue it with: deputy resume sess_1_a"
    error = Error(type="timeout", message="The time is up.", recoverable=True, recommendation=advice)
    for recommendation in ("", advice):
        late = Partial(
            lineage=Lineage.root("sess_1_a"),
            summary="so far",
            errors=(structs.replace(error, recommendation=recommendation),),
        )
        asyncio.run(show_ended([CommandResult(outcome=late)], ".", as_json=False))
        assert capsys.readouterr().err.count("deputy resume sess_1_a") == 1
