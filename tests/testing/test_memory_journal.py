"""The journal in memory passes the same suite as the real one, so that what is simulated on it means something."""

from contextlib import asynccontextmanager
from random import Random

import pytest

from deputy.runtime.engine import LocalEngine
from deputy.testing import run_in_virtual_time
from deputy.testing.memory_journal import MemoryDisk, MemoryJournal
from deputy.testing.runtime_suite import CASES
from deputy.testing.virtual_clock import VirtualWorld


class MemoryHost:
    def __init__(self) -> None:
        self._disk = MemoryDisk()
        self._journals: dict[int, MemoryJournal] = {}

    @asynccontextmanager
    async def start(self, workflow):
        world = VirtualWorld(Random(len(self._journals)))
        journal = MemoryJournal(self._disk, f"process {len(self._journals)}", world.now)
        engine = LocalEngine(journal, workflow, world)
        self._journals[id(engine)] = journal
        async with engine:
            yield engine
        await journal.close()

    async def crash(self, engine) -> None:
        self._journals[id(engine)].crash()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_memory_journal_carries_an_engine(case):
    run_in_virtual_time(case(MemoryHost()))
