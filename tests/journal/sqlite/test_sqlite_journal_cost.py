"""What a turn's record costs: what the turn is, not what the conversation is."""

import asyncio
from pathlib import Path

import pytest
from msgspec import Raw, json

from deputy.core.events import ModelCallBegun, ModelCallEnded, RunOpened, ToolCallBegun, ToolCallEnded
from deputy.core.outcome import Usage
from deputy.core.request import Lineage
from deputy.journal.sqlite.sqlite_journal import SqliteJournal

RUN = "sess_1_aaaaaa"
MESSAGE = Raw(json.encode({"role": "assistant", "content": "x" * 2000}))


def written() -> int:
    """The bytes that this process has handed to the system to write."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


@pytest.mark.rule("journal.cost")
def test_a_turn_late_in_a_conversation_writes_as_much_as_an_early_one(tmp_path: Path) -> None:
    async def main() -> list[int]:
        costs: list[int] = []
        async with SqliteJournal(tmp_path / "home", fsync="off") as journal:
            lease = await journal.begin(RUN, RunOpened(lineage=Lineage.root(RUN)))
            assert lease is not None
            for number in range(760):
                before = written()
                journal.append_soon(lease, f"model:{number}.begun", ModelCallBegun(model="m"))
                ended = ModelCallEnded(model="m", message=MESSAGE, usage=Usage(input=number, output=9, requests=1))
                await journal.append(lease, f"model:{number}", ended)
                journal.append_soon(lease, f"tool:{number}.begun", ToolCallBegun(tool="Read"))
                await journal.append(lease, f"tool:{number}", ToolCallEnded(tool="Read", message=MESSAGE))
                costs.append(written() - before)
        return costs

    costs = asyncio.run(main())
    # A checkpoint copies what has gathered back into the file, now and then: the same share early and late.
    early, late = sum(costs[5:255]), sum(costs[500:750])
    assert late <= 1.2 * early
