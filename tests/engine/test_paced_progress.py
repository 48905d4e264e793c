import asyncio

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.progress import Progress
from deputy.engine.paced_progress import TEXT_SECONDS, PacedProgress
from deputy.engine.timeouts import SharedTimer
from deputy.testing import run_in_virtual_time


def text(content: str) -> Progress:
    return Progress(event="text", label="a", content=content)


async def streamed(events: list[Progress], seconds: float) -> list[tuple[float, Progress]]:
    """What is passed on of these events, which come at equal intervals; with the time of each."""
    clock = asyncio.get_running_loop().time
    began, passed = clock(), list[tuple[float, Progress]]()
    paced = PacedProgress(lambda progress: passed.append((clock() - began, progress)), SharedTimer())
    for event in events:
        paced.emit(event)
        await asyncio.sleep(seconds / len(events))
    paced.close()
    return passed


@pytest.mark.rule("delegate.events")
def test_a_flood_of_text_thinking_and_tokens_is_joined_and_its_last_state_arrives():
    flood = [
        one
        for number in range(3_000)
        for one in (
            text(f"{number} "),
            Progress(event="thinking", label="a", output=number),
            Progress(event="tokens", label="a", input=number),
        )
    ]
    passed = run_in_virtual_time(streamed(flood, seconds=3.0))
    assert len(passed) <= 3 * (3.0 / TEXT_SECONDS + 2)
    for kind, at_most in (("text", 31), ("thinking", 31), ("tokens", 31)):
        assert 0 < sum(one.event == kind for _, one in passed) <= at_most
    assert "".join(one.content or "" for _, one in passed if one.event == "text") == "".join(
        f"{number} " for number in range(3_000)
    )
    last = {one.event: one for _, one in passed}
    assert (last["thinking"].output, last["tokens"].input) == (2_999, 2_999)


def test_counts_alone_pass_once_a_second_and_text_is_not_delayed_by_them():
    thinking = [Progress(event="thinking", label="a", output=number) for number in range(400)]
    passed = run_in_virtual_time(streamed([*thinking, text("1")], seconds=4.0))
    assert [round(at) for at, one in passed if one.event == "thinking"] == [0, 1, 2, 3, 4]
    assert [one.output for _, one in passed if one.event == "thinking"][-1] == 399

    async def turn_to_text() -> float:
        clock, found = asyncio.get_running_loop().time, list[float]()
        paced = PacedProgress(
            lambda progress: found.append(clock()) if progress.event == "text" else None, SharedTimer()
        )
        began = clock()
        paced.emit(thinking[0])
        paced.emit(text("1"))
        await asyncio.sleep(2)
        return found[0] - began

    assert run_in_virtual_time(turn_to_text()) < 2 * TEXT_SECONDS


def test_every_other_event_passes_at_once_after_the_text_before_it():
    call = Progress(event="tool_call", label="a", tool="Read")
    passed = run_in_virtual_time(streamed([text("1"), text("2"), *[call] * 50, text("3")], seconds=0.05))
    assert [one.event for _, one in passed] == ["text", "text", *["tool_call"] * 50, "text"]
    assert [one.content for _, one in passed if one.event == "text"] == ["1", "2", "3"]


def test_held_text_follows_after_the_interval_though_nothing_more_comes():
    async def pause() -> list[Progress]:
        passed: list[Progress] = []
        paced = PacedProgress(passed.append, SharedTimer())
        paced.emit(text("1"))
        paced.emit(text("2"))
        assert len(passed) == 1
        await asyncio.sleep(TEXT_SECONDS * 1.5)
        return passed

    assert [one.content for one in run_in_virtual_time(pause())] == ["1", "2"]


def test_one_timer_is_set_for_all_texts_that_are_held_back():
    async def count() -> int:
        timer = SharedTimer()
        paced = PacedProgress(lambda _: None, timer)
        for number in range(100):
            paced.emit(text(str(number)))
        found = timer.count
        paced.close()
        return found

    # The clock of a real loop moves between two texts.
    assert asyncio.run(count()) <= 2


def test_the_text_of_a_run_is_whole_when_it_ends(house: House):
    said = ["Sentence " * 20 + f"{number}." for number in range(3)]
    (house.workspace / "a.txt").write_text("x")
    house.script(talk(*(turn(one, call("Read", path="a.txt")) for one in said[:2]), turn(said[2])))
    house.one()
    shown = [one.content or "" for one in house.seen if one.event == "text"]
    assert "".join(shown) == "".join(said)
    assert len(shown) < 40, "the model streams 63 words"
    assert house.seen[-1].event == "completed"
