"""Watchers see each question and each call once, although a suspended run is replayed when it goes on."""

import asyncio
from typing import Any

from tests.support.house import House, approve
from tests.support.scripts import call, talk, turn


async def until_suspended(runtime: Any, run: str) -> None:
    async with asyncio.timeout(20):
        while run in runtime.engine._supervisor.work or not (await runtime.engine.get(run)).waits:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.002)


def test_a_run_that_goes_on_shows_no_question_and_no_call_again(house: House):
    asks = turn("", call("Ask", question="Which one?"))
    house.script(talk(asks, asks, turn("", call("Write", path="a.txt", content="x")), turn("Done.")))

    async def main() -> str:
        async with house.open(approval="ask", can_ask=True, suspend_seconds=0.0) as runtime:
            run = await house.start_parent(runtime, "Write it.")
            for turns, answer in enumerate(("this", "that"), 1):
                await until_suspended(runtime, run)
                await runtime.engine.send(run, "answer", answer)
                await house.until(lambda turns=turns: [one.event for one in house.seen].count("tokens") > turns)
            await until_suspended(runtime, run)
            await approve(runtime, run)
            return (await runtime.engine.result(run)).status

    assert asyncio.run(main()) == "completed"
    shown = [(one.event, one.tool or "") for one in house.seen if one.event not in ("text", "thinking", "completed")]
    asked = [("tokens", ""), ("tool_call", "Ask"), ("waiting", "")]
    assert shown == [*asked, *asked, ("tokens", ""), ("waiting", ""), ("tool_call", "Write"), ("tokens", "")]
