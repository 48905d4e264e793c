"""The local engine does what every durable engine must."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from deputy.journal.owner import Owner, this_process
from deputy.journal.sqlite import SqliteJournal
from deputy.runtimes.local import LocalEngine
from deputy.testing.runtime_conformance import CASES, Host


class RealWorld:
    def __init__(self) -> None:
        self._chance = random.Random(1)

    def now(self) -> float:
        return time.time()

    def draw(self, letters: str, count: int) -> str:
        return "".join(self._chance.choices(letters, k=count))


class LocalHost:
    """Engines one after another on one home; each belongs to a process that others take for dead at once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._journals: dict[int, SqliteJournal] = {}
        self._started = 0

    @asynccontextmanager
    async def start(self, workflow) -> AsyncGenerator[LocalEngine]:
        self._started += 1
        owner: Owner = msgspec.structs.replace(this_process(), boot=f"boot{self._started}")
        journal = SqliteJournal(self._home, owner=owner)
        engine = LocalEngine(journal, workflow, RealWorld())
        self._journals[id(engine)] = journal
        async with engine:
            yield engine
        await journal.close()

    async def crash(self, engine: LocalEngine) -> None:
        await self._journals[id(engine)].abandon()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_conformance(case: Callable[[Host], Awaitable[None]], tmp_path: Path) -> None:
    asyncio.run(case(LocalHost(tmp_path / "home")))
