"""What must hold of a journal that is whole, whatever happened to the process that wrote it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.json import encode as encode_json

from deputy.core.events import AdmissionRefused, Joined, Record, Returned, Spawned
from deputy.core.state import replay
from deputy.engine.ports.queries import DamagedRecord
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.transcript import of_ended, transcript_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Found = Mapping[str, Sequence[Record | DamagedRecord]]


def records_below(reader: SqliteQueries, root: str) -> Found:
    """The records of a run and of all below it."""
    names = [root, *(state.run for state in reader.descendants(root))] if reader.knows(root) else []
    return {name: list(reader.records(name)) for name in names}


def check_records(reader: SqliteQueries, name: str, records: Sequence[Record | DamagedRecord]) -> list[str]:
    """One run by itself: whole, without holes, each key once, one ending a round, and its state follows from it."""
    damaged = [record for record in records if isinstance(record, DamagedRecord)]
    if damaged:
        return [f"{name}: {record.where} {record.what}" for record in damaged]
    problems = []
    if [record.seq for record in records] != list(range(1, len(records) + 1)):
        problems.append(f"{name}: holes {[record.seq for record in records]}")
    keys = Counter(record.key for record in records)
    problems += [f"{name}: key {key!r} stands {count} times" for key, count in keys.items() if count > 1]
    state = reader.state(name)
    if state is None or state != replay(records):
        return [*problems, f"{name}: the state does not follow from the records"]
    if sum(isinstance(record.event, Returned | AdmissionRefused) for record in records) > state.round + 1:
        problems.append(f"{name}: more than one ending in a round")
    return problems


def check_tree(found: Found, root: str) -> list[str]:
    """A child exists exactly when its parent's record says so, and is joined only once it has ended."""
    problems = []
    records = found.get(root, [])
    spawned = [record.event.child for record in records if isinstance(record.event, Spawned)]
    if sorted(spawned) != sorted(name for name in found if name != root):
        problems.append(f"spawned {spawned}, there are {sorted(found)}")
    for record in records:
        if isinstance(record.event, Joined):
            child = found.get(record.event.child, [])
            if not any(isinstance(other.event, Returned) for other in child):
                problems.append(f"{record.event.child} was joined before it ended")
    return problems


def check_claims(home: Path) -> list[str]:
    """Nothing is said to be missing that was never promised."""
    with SqliteQueries.open_any(home) as reader:
        return [reader.damage] if "is missing" in reader.damage else []


def check_done(acks: Sequence[str]) -> list[str]:
    """What must not be repeated was done once."""
    done = Counter(ack for ack in acks if ack.startswith("did "))
    return [f"done {count} times: {what}" for what, count in done.items() if count > 1]


NO_TRANSCRIPT = "has left no transcript"


def check_transcripts(home: Path) -> list[str]:
    """Every transcript that is there can be read."""
    problems = []
    for path in sorted(home.glob("subagent/*.transcript.json")):
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            problems.append(f"unreadable: {path.name}: {error}")
    return problems


def check_ended(reader: SqliteQueries, home: Path, names: Sequence[str]) -> list[str]:
    """All has ended, was delivered, and left its transcript, which says what the records say, or the log why not."""
    problems = [f"{name} has not ended" for name in names if (s := reader.state(name)) is None or s.is_live]
    problems += [f"{name} was not delivered" for name in names if not reader.state(name).is_settled]
    output = b"".join(map(encode_json, reader.errors(100)))
    for name in names:
        made = of_ended(reader, name)
        if made is None:
            continue
        path = transcript_path(home, made.label, name)
        if not path.exists():
            if name.encode() not in output:
                problems.append(f"{name} {NO_TRANSCRIPT}")
        elif json.loads(path.read_bytes()) != json.loads(encode_json(made)):
            problems.append(f"{path.name} is not what the records say")
    return problems
