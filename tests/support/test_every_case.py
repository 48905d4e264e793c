# pyright: basic
import pytest
from tests.support.every_case import every_case


def failures_of(test, **fixtures):
    with pytest.raises(BaseExceptionGroup) as failed:
        test(**fixtures)
    return failed.value


def test_every_case_is_tried_and_each_that_fails_is_named():
    seen = []

    @every_case("number", [1, 2, 3, 4])
    def is_odd(number):
        seen.append(number)
        assert number % 2, "it is even"

    failed = failures_of(is_odd)
    assert seen == [1, 2, 3, 4]
    assert failed.message == "2 of 4 cases failed"
    assert [(str(error).splitlines()[0], error.__notes__) for error in failed.exceptions] == [
        ("it is even", ["case number: 2"]),
        ("it is even", ["case number: 4"]),
    ]


def test_an_error_that_does_not_come_fails_its_case():
    @every_case(("text", "base"), [("x", 10), ("1", 10)], ids=["a letter", "a digit"])
    def is_refused(text, base):
        with pytest.raises(ValueError, match="invalid literal"):
            int(text, base)

    assert [error.__notes__ for error in failures_of(is_refused).exceptions] == [["case text, base: a digit"]]


def test_tables_are_combined_and_fixtures_reach_every_case():
    seen = []

    @every_case("left", "ab", ids=str.upper)
    @every_case("right", [1, 2])
    def pair(left, right, fixture):
        seen.append((left, right, fixture))
        assert (left, right) != ("b", 1)

    outer = failures_of(pair, fixture="shared")
    assert seen == [(left, right, "shared") for left in "ab" for right in (1, 2)]
    (inner,) = outer.exceptions
    assert (inner.__notes__, inner.exceptions[0].__notes__) == (["case left: B"], ["case right: 1"])  # pyright: ignore


def test_no_cases_are_a_mistake():
    with pytest.raises(AssertionError, match="no cases"):
        every_case("name", [])
