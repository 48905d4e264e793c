"""What all delegations of a process share is found out once."""

import asyncio
import time
from types import SimpleNamespace

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
