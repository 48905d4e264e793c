import pytest
from msgspec import UNSET

from deputy.core.errors import DeputyError, Error, UsageError, passed_up

SLOW = Error(type="timeout", code="TIMEOUT", message="Too slow.", recoverable=True, recommendation="Resume it.")


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
