import pytest
from msgspec import UNSET

from deputy.core.errors import DeputyError, Error, UsageError, passed_up, remedy

SLOW = Error(type="timeout", code="TIMEOUT", message="Too slow.", recoverable=True, recommendation="Resume it.")
BROKEN = Error(type="build_error", message="It does not build.", recoverable=False, recommendation="Fix line 3.")


@pytest.mark.rule("errors.advice")
def test_errors_that_can_all_be_recovered_from_give_the_first_instruction():
    other = Error(type="provider", message="m", recoverable=True, recommendation="Try later.")
    assert remedy([SLOW, other]) == "Resume it."


@pytest.mark.rule("errors.advice")
def test_one_error_that_cannot_needs_a_person_and_says_why():
    assert remedy([SLOW, BROKEN]) == "A person must act: It does not build. Fix line 3."


@pytest.mark.rule("errors.advice")
def test_no_errors_need_no_advice():
    assert remedy([]) == ""


@pytest.mark.rule("errors.up")
def test_a_caller_sees_its_childs_errors_with_the_childs_session_id():
    (seen,) = passed_up([SLOW], "sess_1_child")
    assert (seen.session_id, seen.message) == ("sess_1_child", "Too slow.")
    assert SLOW.session_id is UNSET


@pytest.mark.rule("errors.up")
def test_an_error_keeps_the_delegation_it_first_came_from_on_its_way_up():
    grandchild = passed_up([SLOW], "sess_1_grandchild")
    (seen,) = passed_up(grandchild, "sess_1_child")
    assert seen.session_id == "sess_1_grandchild"


def test_misuse_names_the_field_the_value_and_what_would_be_right():
    error = UsageError("timeout", 99999, "plan takes at most 3600 seconds")
    assert str(error) == "timeout: found 99999; plan takes at most 3600 seconds"
    assert isinstance(error, DeputyError)


def test_a_long_value_is_quoted_in_part():
    assert len(str(UsageError("prompt", "x" * 1_000_000, "say less"))) < 240
