"""What all delegations of a process share is found out once."""

import asyncio
import time
from types import SimpleNamespace

from tests.support.house import House
from tests.support.scripts import talk, turn

from deputy.engine.services import Services
from deputy.runtime.engine import SystemWorld


class CountedWays:
    """Ways that remember whose failures they were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def native_failures(self, root: str) -> int:
        self.asked.append(root)
        await asyncio.sleep(0)
        return 1


def test_the_events_of_a_run_have_the_seconds_of_all_its_rounds(house: House):
    house.script(talk(turn("First."), turn("Second.")))
    outcome = house.one()
    house.resume(outcome.session_id, "And now?")
    seconds = [one.seconds for one in house.seen if one.event in ("started", "completed")]
    assert seconds[0] is None
    assert seconds[1] == seconds[2]
    assert seconds[1] < seconds[3]


def test_children_that_start_together_count_the_failures_of_their_tree_once():
    backends = CountedWays()
    services = Services(
        world=SystemWorld(time.monotonic),
        open_model=lambda _: SimpleNamespace(),
        open_tools=lambda grant, root: SimpleNamespace(),
        max_cost=lambda model, tokens, output: None,
        windows={},
        files=SimpleNamespace(),
        backends=backends,
        watch=lambda _: None,
    )

    async def main() -> list[int]:
        return await asyncio.gather(*(services.native_failures(root) for root in ("a", "a", "b", "a")))

    assert asyncio.run(main()) == [1, 1, 1, 1]
    assert backends.asked == ["a", "b"]
    services.count_native_failure("a")
    assert asyncio.run(services.native_failures("a")) == 2
