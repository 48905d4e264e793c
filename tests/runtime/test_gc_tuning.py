"""How often garbage is looked for follows how many runs are at work, and nobody else's choice is undone."""

import gc
from collections.abc import Iterator

import pytest

from deputy.runtime.gc_tuning import MANY, NEW_OBJECTS, GcTuner


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_looked_for_less_often_the_more_runs_are_at_work() -> None:
    collecting = GcTuner()
    seen: dict[int, int] = {}
    for at_work in (1, MANY - 1, MANY, 2 * MANY, 1024, 2 * MANY, MANY, MANY - 1, 0):
        collecting.see(at_work)
        seen[at_work] = gc.get_threshold()[0]
    assert seen == {1: 700, MANY - 1: 700, MANY: MANY * 64, 2 * MANY: 2 * MANY * 64, 1024: 1024 * NEW_OBJECTS, 0: 700}
    assert gc.get_threshold() == (700, 10, 10)


def test_between_two_doublings_nothing_is_set() -> None:
    collecting = GcTuner()
    collecting.see(1000)
    gc.set_threshold(123, 10, 10)
    collecting.see(600)
    assert gc.get_threshold()[0] == 123


@pytest.mark.parametrize("chosen", [0, 1_000_000])
def test_who_looks_never_or_less_often_still_is_left_alone(chosen: int) -> None:
    gc.set_threshold(chosen, 10, 10)
    collecting = GcTuner()
    for at_work in (1000, 100, 0):
        collecting.see(at_work)
        assert gc.get_threshold()[0] == chosen


def test_what_somebody_else_has_set_meanwhile_stays() -> None:
    collecting = GcTuner()
    collecting.see(1000)
    gc.set_threshold(123, 10, 10)
    collecting.see(0)
    assert gc.get_threshold()[0] == 123


def test_two_of_them_leave_it_as_it_was() -> None:
    one, other = GcTuner(), GcTuner()
    one.see(1000)
    other.see(1000)
    other.see(0)
    one.see(0)
    assert gc.get_threshold()[0] == 700
