"""Timers fire in order and once, or never when they are cancelled; a limit ends its block and nothing else."""

import asyncio
import gc
import weakref
from itertools import pairwise

import pytest

from deputy.engine.timeouts import SharedTimer
from deputy.testing.virtual_clock import run_in_virtual_time


@pytest.fixture
def timer() -> SharedTimer:
    return SharedTimer()


def fired_of(*after: float, cancelled: tuple[int, ...] = ()) -> list[tuple[int, float]]:
    """Which of the timers that are set at the beginning fire, and when."""
    fired: list[tuple[int, float]] = []

    timer = SharedTimer()

    async def go() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        given = [
            timer.set(seconds, lambda number=number: fired.append((number, round(loop.time() - began, 6))))
            for number, seconds in enumerate(after)
        ]
        for number in cancelled:
            timer.cancel(given[number])
        await asyncio.sleep(100)

    run_in_virtual_time(go())
    return fired


def test_each_fires_at_its_time_in_whatever_order_they_were_set():
    assert fired_of(60, 5, 30, 5) == [(1, 5), (3, 5), (2, 30), (0, 60)]


def test_a_cancelled_timer_never_fires_and_later_ones_do():
    assert fired_of(5, 60, 7, cancelled=(0, 2)) == [(1, 60)]
    assert fired_of(5, cancelled=(0,)) == []


def test_a_timer_without_time_left_fires_at_once():
    assert fired_of(10, 0, -3) == [(2, 0), (1, 0), (0, 10)]


def test_one_timer_of_the_loop_serves_all():
    async def go() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        timers = vars(loop)["_scheduled"]
        own = SharedTimer()
        given = [own.set(60 + number, lambda: None) for number in range(1000)]
        most = len(timers)
        for entry in given:
            own.cancel(entry)
        return most, sum(not timer.cancelled() for timer in timers)

    assert asyncio.run(go()) == (1, 0)


def test_those_that_stay_fire_in_order_after_most_were_cancelled():
    after = [float(1 + number * 7 % 90) for number in range(900)]
    cancelled = tuple(number for number in range(900) if number % 9)
    expected = sorted((seconds, number) for number, seconds in enumerate(after) if number not in cancelled)
    assert fired_of(*after, cancelled=cancelled) == [(number, seconds) for seconds, number in expected]


def test_a_timer_of_no_seconds_that_another_sets_fires_after_those_that_are_due(timer: SharedTimer):
    async def go() -> list[str]:
        fired: list[str] = []

        def first() -> None:
            fired.append("first")
            timer.set(0, lambda: fired.append("set by the first"))

        timer.set(1, first)
        timer.set(1, lambda: fired.append("second"))
        await asyncio.sleep(2)
        return fired

    assert run_in_virtual_time(go()) == ["first", "second", "set by the first"]


def test_a_timer_may_set_another_when_it_fires(timer: SharedTimer):
    async def go() -> list[float]:
        loop = asyncio.get_running_loop()
        fired: list[float] = []

        def again() -> None:
            fired.append(round(loop.time(), 6))
            if len(fired) < 3:
                timer.set(2, again)

        began = loop.time()
        timer.set(1, again)
        await asyncio.sleep(20)
        return [at - began for at in fired]

    assert run_in_virtual_time(go()) == [1, 3, 5]


def test_a_loop_that_is_gone_leaves_nothing(timer: SharedTimer):
    async def go() -> weakref.ref[asyncio.AbstractEventLoop]:
        async with timer.timeout(60):
            await asyncio.sleep(0)
        return weakref.ref(asyncio.get_running_loop())

    gone = asyncio.run(go())
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_at_all_ends_a_block_as_soon_as_it_waits(seconds: float, timer: SharedTimer):
    async def go() -> list[bool]:
        is_up: list[bool] = []
        for limit in (asyncio.timeout(seconds), timer.timeout(seconds)):
            try:
                async with limit:
                    await asyncio.sleep(0)
                is_up.append(False)
            except TimeoutError:
                is_up.append(True)
        return is_up

    assert asyncio.run(go()) == [True, True]


def test_after_a_pause_of_the_process_all_due_timers_fire_at_once(timer: SharedTimer):
    due: list[tuple[float, float]] = []

    async def go() -> tuple[int, list[int]]:
        loop = asyncio.get_running_loop()
        fired: list[int] = []
        for number in range(50):
            seconds, before = 0.001 * (50 - number), loop.time()
            timer.set(seconds, lambda number=number: fired.append(number))
            due.append((before + seconds, loop.time() + seconds))
        until = loop.time() + 0.06
        while loop.time() < until:
            pass
        turns = 0
        while len(fired) < 50:
            turns += 1
            await asyncio.sleep(0)
        return turns, fired

    turns, fired = asyncio.run(go())
    assert turns <= 2
    assert sorted(fired) == list(range(50))
    assert all(due[one][0] <= due[later][1] for one, later in pairwise(fired))


def test_a_callback_that_fails_keeps_no_other_timer_from_firing(timer: SharedTimer):
    async def go() -> list[str]:
        loop = asyncio.get_running_loop()
        fired: list[str] = []
        loop.set_exception_handler(lambda _, context: fired.append(type(context["exception"]).__name__))

        def fail() -> None:
            raise KeyError

        timer.set(1, fail)
        timer.set(1, lambda: fired.append("other"))
        await asyncio.sleep(5)
        return fired

    assert run_in_virtual_time(go()) == ["KeyError", "other"]


def test_a_loop_that_was_closed_with_a_timer_set_is_freed():
    async def leave() -> weakref.ref[asyncio.AbstractEventLoop]:
        SharedTimer().set(60, lambda: None)
        return weakref.ref(asyncio.get_running_loop())

    left = asyncio.run(leave())
    gc.collect()
    assert left() is None


def test_a_block_is_ended_when_its_time_is_up(timer: SharedTimer):
    async def go() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with timer.timeout(3):
                await asyncio.sleep(50)
        # What comes behind it goes on undisturbed.
        await asyncio.sleep(1)
        return loop.time() - began

    assert run_in_virtual_time(go()) == pytest.approx(4)


def test_of_two_limits_the_inner_one_ends_its_own_block(timer: SharedTimer):
    async def go() -> str:
        async with timer.timeout(10):
            try:
                async with timer.timeout(3):
                    await asyncio.sleep(50)
            except TimeoutError:
                return "inner"
        return "outer"

    assert run_in_virtual_time(go()) == "inner"


def test_a_cancel_is_never_turned_into_a_timeout(timer: SharedTimer):
    async def go() -> asyncio.Task[None]:
        async def block() -> None:
            async with timer.timeout(3):
                await asyncio.sleep(50)

        task = asyncio.create_task(block())
        asyncio.get_running_loop().call_later(3, task.cancel)
        await asyncio.wait([task])
        return task

    assert run_in_virtual_time(go()).cancelled()


def test_an_error_in_the_block_stays_what_it_is(timer: SharedTimer):
    async def go() -> None:
        async with timer.timeout(3):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                raise KeyError("own") from None

    with pytest.raises(KeyError):
        run_in_virtual_time(go())
