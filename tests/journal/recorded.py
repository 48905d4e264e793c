"""Record the journals under tests/corpus/journals: `make record-journals`, once per release.

Every later version must read and replay what an earlier one stored, so old recordings are never replaced: a new one is
made beside them when the stored format changes.
"""

import asyncio
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

import pytest
from tests.journal.stored_names import STORED_NAMES, stored_names
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy import __version__
from deputy.core.limits import Budget
from deputy.core.task import Task
from deputy.journal.home import JOURNAL

CORPUS = Path(__file__).parents[1] / "corpus" / "journals"
PARENT = "You work for a person"
SUBAGENT = "You are a subagent"


def main() -> None:
    """Write a journal with one run, or tree of runs, for every way that a run can go."""
    with tempfile.TemporaryDirectory(prefix="deputy-") as folder, pytest.MonkeyPatch.context() as environment:
        house = House(Path(folder), environment)
        house.model = "script:recorded"
        record(house)
        with sqlite3.connect(house.home / JOURNAL) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        place = CORPUS / f"{__version__}.db"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(house.home / JOURNAL, place)
    STORED_NAMES.write_text("\n".join(stored_names()) + "\n")
    sys.stdout.write(f"{place}: {place.stat().st_size:,} bytes\n{STORED_NAMES}\n")


def record(house: House) -> None:
    """The runs of a recording, one after another."""
    (house.workspace / "notes.txt").write_text("retries: 3\n")
    _completed(house)
    _partial(house)
    _blocked_and_answered(house)
    _fan_out(house)
    _subtask(house)
    _resumed(house)
    _repaired(house)
    asyncio.run(_cancelled(house))


def _completed(house: House) -> None:
    house.script(talk(turn("", call("Read", path="notes.txt"), call("Note", content="It says 3.")), turn("Three.")))
    house.one(Task(label="completed", prompt="How many retries?"))


def _partial(house: House) -> None:
    house.script(talk(turn("", call("Note", content="Half of it.")), turn("As far as it goes.")))
    house.one(Task(label="partial", prompt="Count everything.", budget=Budget(requests=2)))


def _blocked_and_answered(house: House) -> None:
    house.script(talk(turn("Which one?\n[AWAITING_HUMAN_INPUT]"), turn("The blue one.")))
    outcome = house.one(Task(label="blocked", prompt="Choose one."))
    house.resume(outcome.session_id, "the blue one")


def _fan_out(house: House) -> None:
    tasks = [Task(label=f"part {number}", prompt=f"Part {number}.") for number in (1, 2, 3)]
    house.script(*(talk(turn(f"Done {number}."), when=f"Part {number}.") for number in (1, 2, 3)))
    asyncio.run(house.delegate(*tasks))


def _subtask(house: House) -> None:
    wanted = {"type": "verification", "description": "Verify the retry limit.", "inputs": {"limit": 3}}
    asks = turn("", call("Subtask", requests=[wanted]))
    house.script(talk(asks, turn("Verified."), when=PARENT), talk(turn("It holds."), when=SUBAGENT))
    asyncio.run(house.run("Verify it."))


def _resumed(house: House) -> None:
    house.script(talk(*[turn("more ", stop="length")] * 4, turn("All of it.")))
    outcome = house.one(Task(label="resumed", prompt="Write a lot."))
    house.resume(outcome.session_id)


def _repaired(house: House) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    house.script(talk(turn('{"n": "three"}'), turn('{"n": 3}')))
    house.one(Task(label="repaired", prompt="How many?", schema=schema))


async def _cancelled(house: House) -> None:
    house.script(talk(turn("", call("Note", content="seen")), turn("never", delay_seconds=600)), strict=False)
    async with house.open() as runtime:
        run = await house.begin(runtime, Task(label="cancelled", prompt="Look around."))
        await house.until(lambda: any(seen.event == "note" and seen.content == "seen" for seen in house.seen))
        await runtime.engine.cancel(run)
        await runtime.engine.result(run)


if __name__ == "__main__":
    main()
