"""The journal alone, without an engine: records of one run and its child, written one after another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from deputy.core.events import Noted, Opened, Record, Requested, encode
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.core.state import replay
from deputy.journal.reader import Reader
from deputy.journal.sqlite import SqliteJournal

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.journal.transaction import Lease

ROOT, CHILD = "sess_1_root00", "sess_1_child0"
COUNT = 8


def run(home: str, variant: str, tell: Callable[[str], object]) -> None:
    """Write what is still missing; tell each record once it is safe."""
    asyncio.run(_write(Path(home), tell))


async def _write(home: Path, tell: Callable[[str], object]) -> None:
    async with SqliteJournal(home) as journal:
        opened = Opened(lineage=Lineage.root(ROOT))
        lease = await journal.begin(ROOT, opened) or await journal.acquire(ROOT)
        tell(f"{ROOT} requested")
        await _append(journal, lease, tell)
        caller = lease.state.lineage or Lineage.root(ROOT)
        target = Hop("task:child", "task")
        request = Request(session_id=CHILD, target=target, prompt="do", caller=caller, caller_grant=Grant())
        requested = Requested(request=request, parent=ROOT)
        born = await journal.spawn(lease, "spawn", CHILD, requested) or await journal.acquire(CHILD)
        tell(f"{ROOT} spawn")
        await _append(journal, born, tell)


async def _append(journal: SqliteJournal, lease: Lease, tell: Callable[[str], object]) -> None:
    for n in range(COUNT):
        record = await journal.append(lease, f"note {n}", _note(n))
        assert encode(record.event) == encode(_note(n))
        tell(f"{lease.run} note {n}")


def _note(n: int) -> Noted:
    return Noted(content=f"{n}:".ljust(n * n * 150 + 20, "x"))


def check(
    home: str, variant: str, acks: list[str], complete: bool, damaged: str, tell: Callable[[str], object]
) -> list[str]:
    """The invariants that do not hold."""
    reader = Reader.open(Path(home))
    if reader is None:
        return [f"lost {ack}" for ack in acks]
    problems = []
    with reader:
        for name in (ROOT, CHILD):
            records = list(reader.records(name))
            problems += [f"{name}: {record}" for record in records if not isinstance(record, Record)]
            if [record.seq for record in records] != list(range(1, len(records) + 1)):
                problems.append(f"{name}: holes")
            if records and reader.state(name) != replay(records):
                problems.append(f"{name}: the state does not follow from the records")
            notes = [record for record in records if isinstance(record.event, Noted)]
            problems += [f"{name}: wrong data" for n, record in enumerate(notes) if record.event != _note(n)]
            if complete and len(notes) != COUNT:
                problems.append(f"{name}: only {len(notes)} notes in the end")
        for ack in acks:
            name, _, key = ack.partition(" ")
            if not isinstance(reader.get(name, key), Record):
                problems.append(f"lost {ack}")
    return problems
