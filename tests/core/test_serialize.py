import msgspec
import pytest
from tests.support.every_case import every_case

from deputy.core.errors import Error
from deputy.core.outcome import Artifact, Blocked, Cancelled, Completed, Failed, Fallback, Partial, Rejected, Usage
from deputy.core.request import Hop, Lineage
from deputy.core.serialize import outcome_dict, task_error, task_result_dict

LINEAGE = Lineage.root("sess_1_root", command="research").child(
    "sess_1_child", Hop("researcher", "agent"), "sig", now=0.0, seconds=600.0
)
BROKE = Error(type="execution", code="BOOM", message="It broke.", recoverable=True, recommendation="Try again.")


def as_json(value):
    return msgspec.json.decode(msgspec.json.encode(value))


def error(type_: str, code: str) -> Error:
    return Error(type=type_, code=code, message="m", recoverable=True, recommendation="r")


def test_the_outcome_form_has_everything():
    outcome = Blocked(
        lineage=LINEAGE,
        summary="A question.",
        report="text",
        notes=("n",),
        artifacts=(Artifact(type="report", path="a.md", summary="x"),),
        errors=(BROKE,),
        warnings=("w",),
        next_steps="answer",
        usage=Usage(input=1, output=2, cached=3, requests=4, cost=0.0015),
        model="m",
        backend="native",
        fallbacks=(Fallback(left="a", taken="b", reason="c"),),
        is_isolated=False,
        duration_seconds=1.5,
        question="Which one?",
    )
    assert as_json(outcome_dict(outcome)) == {
        "session_id": "sess_1_child",
        "status": "blocked",
        "summary": "A question.",
        "report": "text",
        "notes": ["n"],
        "artifacts": [{"type": "report", "path": "a.md", "summary": "x"}],
        "errors": [
            {
                "type": "execution",
                "code": "BOOM",
                "message": "It broke.",
                "recoverable": True,
                "recommendation": "Try again.",
            }
        ],
        "warnings": ["w"],
        "next_steps": "answer",
        "usage": {"input": 1, "output": 2, "cached": 3, "requests": 4, "cost": 0.0015, "estimated": False},
        "model": "m",
        "backend": "native",
        "fallbacks": [{"left": "a", "taken": "b", "reason": "c"}],
        "isolated": False,
        "branch": None,
        "duration_seconds": 1.5,
        "delegation_depth": 1,
        "delegation_path": ["orchestrator", "research", "researcher"],
        "deadline": "1970-01-01T00:10:00Z",
        "question": "Which one?",
    }


def test_an_unknown_price_is_null_and_never_zero():
    assert outcome_dict(Cancelled(lineage=LINEAGE, summary="s", usage=Usage(cost=None)))["usage"]["cost"] is None


@pytest.mark.rule("errors.map")
def test_completed_is_complete():
    outcome = Completed(lineage=LINEAGE, summary="Done.", report="All of it.")
    assert task_result_dict(outcome) == {
        "content": "All of it.",
        "status": "COMPLETE",
        "notes": {"outcome": "completed", "session_id": "sess_1_child"},
    }


@pytest.mark.rule("errors.map")
@pytest.mark.parametrize(
    "outcome",
    [
        Partial(lineage=LINEAGE, summary="s", errors=(BROKE,)),
        Failed(lineage=LINEAGE, summary="s", errors=(BROKE,)),
        Blocked(lineage=LINEAGE, summary="s", errors=(BROKE,)),
        Cancelled(lineage=LINEAGE, summary="s"),
        Rejected(lineage=LINEAGE, summary="s", errors=(BROKE,)),
    ],
)
def test_every_other_end_is_failed_with_its_kind_in_the_notes(outcome):
    form = task_result_dict(outcome)
    assert form["status"] == "FAILED"
    assert form["notes"]["outcome"] == outcome.status
    assert form["notes"]["error"].keys() == {"type", "reason", "message", "details"}


@pytest.mark.rule("errors.map")
def test_partial_results_are_kept():
    artifact = Artifact(type="report", path="a.md")
    outcome = Partial(lineage=LINEAGE, summary="s", errors=(BROKE,), notes=("n",), artifacts=(artifact,), report="half")
    form = task_result_dict(outcome)
    assert form["content"] == "half"
    assert form["notes"]["findings"] == ("n",)
    assert form["notes"]["artifacts"] == (artifact,)


@pytest.mark.rule("errors.map")
@every_case(
    ("first", "type_", "reason"),
    [
        (error("timeout", "TIMEOUT"), "RESOURCE_EXHAUSTION", "execution_timeout"),
        (error("budget", "BUDGET_SPENT"), "RESOURCE_EXHAUSTION", "execution_halted"),
        (error("quota", "SPAWN_QUOTA"), "RESOURCE_EXHAUSTION", "execution_halted"),
        (error("context_exhausted", "CONTEXT_EXHAUSTED"), "RESOURCE_EXHAUSTION", "execution_halted"),
        (error("depth", "MAX_DEPTH_EXCEEDED"), "TASK_FAILURE", "max_depth_exceeded"),
        (error("cycle", "CYCLE_DETECTED"), "TASK_FAILURE", "cycle_detected"),
        (error("validation", "INVALID_RETURN"), "TASK_FAILURE", "output_format_failure"),
        (error("validation", "INVALID_REQUEST"), "TASK_FAILURE", "input_validation_failure"),
        (error("execution", "TEMPLATE_NOT_FOUND"), "TASK_FAILURE", "template_not_found"),
        (error("execution", "SUBTASK_FAILED"), "TASK_FAILURE", "subtask_failure"),
        (error("execution", "CONTEXT_RETRIEVAL"), "TASK_FAILURE", "context_retrieval_failure"),
        (error("execution", "CONTEXT_MATCHING"), "TASK_FAILURE", "context_matching_failure"),
        (error("execution", "CONTEXT_PARSING"), "TASK_FAILURE", "context_parsing_failure"),
        (error("cancelled", "CANCELLED"), "TASK_FAILURE", "execution_halted"),
        (error("surprise", "X"), "TASK_FAILURE", "unexpected_error"),
    ],
)
def test_each_error_has_its_reason_in_the_task_vocabulary(first, type_, reason):
    form = task_error(Failed(lineage=LINEAGE, summary="s", errors=(first, BROKE)))
    assert (form["type"], form["reason"], form["message"]) == (type_, reason, "m")
    assert form["details"]["errors"] == (first, BROKE)
