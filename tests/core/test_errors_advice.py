import pytest
from msgspec import json, structs

from deputy.core.errors import Error, remedy

SLOW = Error(type="timeout", code="TIMEOUT", message="Too slow.", recoverable=True, recommendation="Resume it.")
BROKEN = Error(type="build_error", message="It does not build.", recoverable=False, recommendation="Fix line 3.")


@pytest.mark.rule("errors.advice")
def test_errors_that_can_all_be_recovered_from_give_the_first_instruction():
    other = Error(type="provider", message="m", recoverable=True, recommendation="Try later.")
    assert remedy([SLOW, other]) == "Resume it."


@pytest.mark.rule("errors.advice")
def test_one_error_that_cannot_needs_a_person_and_says_why():
    assert remedy([SLOW, BROKEN]) == "Manual intervention required: It does not build. Fix line 3."


@pytest.mark.rule("errors.once")
def test_an_error_that_is_not_recoverable_says_so_wherever_it_is_read():
    assert BROKEN.recommendation == "Manual intervention required: Fix line 3."
    assert json.decode(json.encode(BROKEN), type=Error) == BROKEN
    silent = Error(type="build_error", message="It does not build.", recoverable=False, recommendation="")
    assert silent.recommendation == remedy([silent]) == "Manual intervention required: It does not build."


@pytest.mark.rule("errors.once")
def test_the_advice_is_not_about_a_fallback():
    fallback = structs.replace(BROKEN, candidate="m on cli:claude")
    assert remedy([SLOW, fallback]) == "Resume it."


@pytest.mark.rule("errors.advice")
def test_no_errors_need_no_advice():
    assert remedy([]) == ""
