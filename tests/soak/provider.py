"""A provider that answers at random: tool calls, reports and every fault; for a soak, in a process of its own.

usage: python -m tests.soak.provider SEED
"""

import asyncio
import random
import sys
from typing import TYPE_CHECKING, cast

from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.testing import ProviderServer
from deputy.testing.faults import FAULTS
from deputy.testing.protocol_streams import render
from deputy.testing.provider import protocol_of, read_request

if TYPE_CHECKING:
    from deputy.testing.protocol_streams import Protocol
    from deputy.testing.provider import Exchange

FAULT_SHARE = 0.2
TURNS = 4
READ = ScriptedCall(name="Read", arguments={"path": "notes.txt"})
SEARCH = ScriptedCall(name="Grep", arguments={"pattern": "alpha"})
COMMAND = ScriptedCall(name="Run", arguments={"command": "sleep 0.05; echo done & echo begun"})
NOTE = ScriptedCall(name="Note", arguments={"content": "alpha is in notes.txt"})


class RandomProvider(ProviderServer):
    """Draws an answer for every request."""

    def __init__(self, seed: int) -> None:
        super().__init__(strict=False)
        self._random = random.Random(seed)

    async def _answer(self, exchange: "Exchange", path: str, headers: dict[str, str], content: bytes) -> None:
        protocol = cast("Protocol", protocol_of(path))
        asked = read_request(protocol, path, headers, content, 0.0)
        events = render(protocol, self._turn(asked.answered), model=asked.model, serial=self._random.randrange(1 << 30))
        if self._random.random() < FAULT_SHARE:
            return await FAULTS[self._random.choice(sorted(FAULTS))](exchange, events)
        await exchange.begin()
        exchange.send_all(events)
        return await exchange.end()

    def _turn(self, answered: int) -> ScriptedTurn:
        if answered >= TURNS or self._random.random() < 0.3:
            return ScriptedTurn(text="The word alpha is in notes.txt. " * self._random.randrange(1, 40))
        return ScriptedTurn(text="Looking.", calls=(self._random.choice((READ, SEARCH, COMMAND, NOTE)),))


async def main(seed: int) -> None:
    async with RandomProvider(seed) as provider:
        print(provider.url, flush=True)
        # The end of its input is the end of the soak.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
