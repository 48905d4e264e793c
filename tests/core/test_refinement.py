import pytest
from msgspec import to_builtins
from tests.support.every_case import every_case

from deputy.core.refinement import (
    Ending,
    Round,
    ScriptOutput,
    Verdict,
    best_round,
    ended,
    refinement_dict,
    verdict_of_report,
    verdict_of_script,
)


def made(number: int, work: str = "", *, success: bool = False, score: float | None = None) -> Round:
    return Round(
        number=number,
        session_id=f"s{number}",
        work=work or f"work {number}",
        verdict=Verdict(success=success, score=score),
    )


@pytest.mark.rule("refine")
@every_case(
    ("rounds", "why"),
    [
        ([], None),
        ([made(1)], None),
        ([made(1), made(2, success=True)], "success"),
        ([made(1, "same"), made(2, " same\n")], "no_change"),
        ([made(number) for number in range(1, 6)], "limit"),
        ([made(number) for number in range(1, 5)], None),
    ],
)
def test_it_stops_on_success_at_the_limit_and_when_nothing_changes(rounds: list[Round], why: Ending | None) -> None:
    assert ended(rounds) == why


@pytest.mark.rule("refine")
def test_the_best_round_is_kept_and_not_the_last() -> None:
    assert best_round([made(1, score=0.5), made(2, score=0.9), made(3, score=0.1), made(4)]) == made(2, score=0.9)
    assert best_round([made(1, score=0.9), made(2, success=True, score=0.2)]) == made(2, success=True, score=0.2)
    assert best_round([made(1), made(2)]) == made(2)
    assert best_round([]) is None


@pytest.mark.rule("subtask.kinds")
def test_an_evaluation_is_read_from_json_whole_between_prose_or_in_a_result() -> None:
    wanted = Verdict(success=True, feedback="Good.", details={"n": 1})
    whole = '{"success": true, "feedback": "Good.", "details": {"n": 1}}'
    for report in (
        whole,
        f"I think:\n```json\n{whole}\n```",
        '{"content": "", "status": "COMPLETE", "notes": ' + whole + "}",
    ):
        assert verdict_of_report(report) == wanted


@pytest.mark.rule("refine")
@every_case("report", ["", "Looks good to me!", '{"success": "true"}', '{"success": 1}', "[" * 100_000, "{}"])
def test_what_cannot_be_understood_is_no_success(report: str) -> None:
    assert not verdict_of_report(report).success
    assert verdict_of_report(report).feedback


@pytest.mark.rule("subtask.kinds")
@every_case(
    ("script", "success", "feedback"),
    [
        (ScriptOutput(), True, "The script ended with exit code 0."),
        (ScriptOutput(exit_code=3), False, "The script ended with exit code 3."),
        (ScriptOutput(stdout='{"success": true, "feedback": "fine"}'), True, "fine"),
        (ScriptOutput(stdout='{"success": true, "feedback": "fine"}', exit_code=1), False, "fine"),
        (ScriptOutput(stdout='{"success": false}', stderr="line 3"), False, "line 3"),
        (ScriptOutput(stdout="2 failed", stderr="noise", exit_code=1), False, "2 failed"),
        (ScriptOutput(stdout="[" * 100_000, exit_code=0), True, None),
    ],
)
def test_a_script_is_believed_by_its_json_and_never_against_its_exit_code(
    script: ScriptOutput, success: bool, feedback: str | None
) -> None:
    verdict = verdict_of_script(script)
    assert verdict.success is success
    assert verdict.script == script
    assert feedback is None or verdict.feedback == feedback
    assert len(verdict.feedback) <= 20_000


@pytest.mark.rule("refine")
@every_case(
    "printed",
    [
        'checking\n{"success": false, "feedback": "too short"}',
        '{"success": true}\n{"success": false, "feedback": "too short"}\ndone',
        '{"success": "false", "feedback": "too short"}',
        '{"success": 0, "feedback": "too short"}',
        '{"success": null, "feedback": "too short"}',
        '{"feedback": "too short", "success": fal',
        'checking {"feedback": "too short", "success": False}',
        "{'success': False, 'feedback': 'too short'}",
        '{"success": true}\n{"success": fal too short',
        '{"success": false, "success": true, "feedback": "too short"}',
        '[{"success": false, "feedback": "too short"}]',
        'too short\n{\n  "succ',
        '{"success": true}\ntoo short\n{"succ',
    ],
)
def test_a_script_that_does_not_clearly_accept_has_not_accepted(printed: str) -> None:
    verdict = verdict_of_script(ScriptOutput(stdout=printed))
    assert not verdict.success
    assert "too short" in verdict.feedback


@pytest.mark.rule("subtask.type")
def test_the_notes_of_a_script_always_hold_its_output_and_exit_code() -> None:
    round_ = Round(number=1, session_id="s1", work="work", verdict=verdict_of_script(ScriptOutput()))
    (one,) = refinement_dict([round_], "success")["rounds"]
    assert to_builtins(one)["evaluation"]["notes"]["script"] == {"stdout": "", "stderr": "", "exit_code": 0}


@pytest.mark.rule("refine")
@pytest.mark.parametrize(("stderr", "feedback"), [("", "The script ended with exit code 3."), ("1 != 2\n", "1 != 2")])
def test_a_script_that_says_success_alone_and_fails_is_not_left_without_a_reason(stderr: str, feedback: str) -> None:
    verdict = verdict_of_script(ScriptOutput(stdout='{"success": true}', stderr=stderr, exit_code=3))
    assert (verdict.success, verdict.feedback) == (False, feedback)


@pytest.mark.rule("refine")
@pytest.mark.parametrize(
    "printed", ["12 passed", '{"level": "info"}\n12 passed', "[info] fine", "int f() {\n}", 'log\n{"success": true}']
)
def test_other_output_leaves_it_to_the_exit_code(printed: str) -> None:
    assert verdict_of_script(ScriptOutput(stdout=printed)).success
    assert not verdict_of_script(ScriptOutput(stdout=printed, exit_code=1)).success
