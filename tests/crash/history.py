"""A root session with three children, carried out through the durable seam on the real journal, and what must hold.

Variants: ok; off (the journal is told not to sync); early (told before it is durable); nosum (checksums always fit);
again (a step that must not be repeated is declared repeatable); grouped (children are joined in a task group);
linkless (the file system knows no hard links).
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from invariants import (
    check_claims,
    check_done,
    check_ended,
    check_records,
    check_transcripts,
    check_tree,
    records_below,
)
from msgspec import Raw

from deputy.core.errors import StorageCorrupt, StorageTooNew
from deputy.core.events import (
    ModelCallBegun,
    ModelCallEnded,
    Noted,
    Record,
    Requested,
    RunOpened,
    ToolCallBegun,
    ToolCallEnded,
    decode,
    encode,
)
from deputy.core.outcome import Completed, Usage
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.core.state import State, decode_state, encode_state, replay
from deputy.engine.ports.queries import DamagedRecord
from deputy.journal.home import JOURNAL
from deputy.journal.retention import prune_expired
from deputy.journal.sql import rows
from deputy.journal.sqlite.file_repair import repair
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore
from deputy.journal.transcript import transcribe
from deputy.runtime.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext, RunStart

    Tell = Callable[[str], object]

ROOT = "sess_1_root00"
LABELS = ("one", "two", "three")


class World:
    """A real clock, and chance from a fixed seed."""

    def __init__(self) -> None:
        self._chance = random.Random(1)

    def now(self) -> float:
        return time.time()

    wall = now

    def random_string(self, letters: str, count: int) -> str:
        return "".join(self._chance.choices(letters, k=count))


def run(home: str, variant: str, tell: Tell) -> None:
    """Carry the history out, or on from where it was left; tell what is promised and what is done."""
    if variant == "nosum":
        _forget_checksums()
    if variant == "linkless":
        os.link = _refuse
    asyncio.run(_History(Path(home), variant, tell).carry_out())


class _History:
    def __init__(self, home: Path, variant: str, tell: Tell) -> None:
        self._home = home
        self._variant = variant
        self._tell = tell

    async def carry_out(self) -> None:
        await asyncio.to_thread(prune_expired, SqliteStore(self._home), time.time())
        fsync = "off" if self._variant == "off" else "group"
        async with (
            SqliteJournal(self._home, fsync=fsync) as journal,
            LocalEngine(journal, self.flow, World()) as engine,
        ):
            if await engine.submit(ROOT, RunOpened(lineage=Lineage.root(ROOT), label="root", prompt="three things")):
                self._tell(f"promised {ROOT} requested")
            else:
                await engine.adopt()
            state = await engine.get(ROOT)
            if state is not None and state.is_live:
                await engine.send(ROOT, "answer", {"text": "yes"}, key="the answer")
            outcome = await engine.result(ROOT)
            self._tell(f"ended {outcome.summary}")
            await engine.deliver(ROOT, "person")
            self._tell("delivered")

    async def flow(self, run: RunContext, start: RunStart) -> Outcome:
        return await (self.root(run) if isinstance(start, RunOpened) else self.child(run))

    async def root(self, run: RunContext) -> Outcome:
        await self.promise(run, "note", run.record("note", Noted(content=_text(run, "note"))))
        children = []
        for label in LABELS:
            name = await run.new_id(f"id {label}")
            await self.promise(run, f"spawn {label}", run.spawn(f"spawn {label}", _requested(run, name, label)))
            children.append((label, name))
        ends = await self.join_all(run, children)
        answer = await self.promise(run, "ask", run.recv("ask", "answer", "Go on?"))
        summary = " ".join([*ends, json.loads(bytes(answer))["text"]])
        return Completed(lineage=run.state.lineage or Lineage.root(run.run), summary=summary)

    async def join_all(self, run: RunContext, children: list[tuple[str, str]]) -> list[str]:
        if self._variant != "grouped":
            return [await self.joined(run, label, name) for label, name in children]
        async with asyncio.TaskGroup() as group:
            joining = [group.create_task(self.joined(run, label, name)) for label, name in children]
        return [task.result() for task in joining]

    async def joined(self, run: RunContext, label: str, name: str) -> str:
        outcome = await self.promise(run, f"join {label}", run.join(f"join {label}", name))
        return outcome.summary

    async def child(self, run: RunContext) -> Outcome:
        for turn in range(2):
            key = f"model {turn}"
            await self.promise(run, key, run.step(key, self.ask_model, turn, run, begun=ModelCallBegun(model="m")))
            key = f"tool {turn}"
            call = ToolCallBegun(tool="Write", call=key)
            await self.promise(
                run,
                key,
                run.step(key, self.use_tool, turn, run, begun=call, repeatable=self._variant == "again"),
            )
        await self.promise(run, "note", run.record("note", Noted(content=_text(run, "note"))))
        return Completed(lineage=run.state.lineage or Lineage.root(run.run), summary=f"{run.state.label} done")

    async def promise(self, run: RunContext, key: str, doing):
        if self._variant == "early":
            self._tell(f"promised {run.run} {key}")
        result = await doing
        # A result is promised when nothing but reading goes on before it is durable, and no earlier.
        await run.durable()
        if self._variant != "early":
            self._tell(f"promised {run.run} {key}")
        return result

    async def ask_model(self, turn: int, run: RunContext) -> ModelCallEnded:
        message = Raw(json.dumps({"role": "assistant", "content": _text(run, f"model {turn}")}).encode())
        return ModelCallEnded(model="m", message=message, usage=Usage(input=100, output=10, requests=1))

    async def use_tool(self, turn: int, run: RunContext) -> ToolCallEnded:
        self._tell(f"did {run.run} tool {turn}")
        message = Raw(json.dumps({"role": "tool", "content": _text(run, f"tool {turn}")}).encode())
        return ToolCallEnded(tool="Write", call=f"tool {turn}", message=message)


def _text(run: RunContext, key: str) -> str:
    """What stands under a key, the same whenever it is made: long enough to need pages of its own now and then."""
    return _expected(run.state.label, key)


def _expected(label: str, key: str) -> str:
    return f"{label} {key} ".ljust(random.Random(f"{label} {key}").choice((40, 300, 2_000, 9_000)), "x")


def _requested(run: RunContext, name: str, label: str) -> Requested:
    caller = run.state.lineage or Lineage.root(run.run)
    target = Hop(f"task:{label}", "task")
    request = Request(session_id=name, target=target, prompt=label, caller=caller, caller_grant=Grant())
    return Requested(request=request, label=label)


def _get_ready() -> None:
    """What a process does once, and its forks need not: the decoders of states and events."""
    decode_state(encode_state(State()))
    decode(encode(Noted(content="")))


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _forget_checksums() -> None:
    rows._checksum = lambda *_: b"same"


# --- what must hold ---------------------------------------------------------------------------------------------------


def check(home: str, variant: str, acks: list[str], complete: bool, damaged: str, tell: Tell) -> list[str]:
    """The invariants that do not hold."""
    if variant == "nosum":
        _forget_checksums()
    place = Path(home)
    if damaged:
        problems = _check_damaged(place, acks, damaged)
        return problems + _check_repaired(place, acks)
    reader = SqliteQueries.open(place)
    if reader is None:
        return ["the journal has gone"] if any(ack.startswith("promised") for ack in acks) else []
    with reader:
        return _check_whole(reader, place, acks, complete=complete)


def _check_whole(reader: SqliteQueries, home: Path, acks: list[str], *, complete: bool) -> list[str]:
    problems = _check_promises(reader, acks) + check_claims(home)
    found = records_below(reader, ROOT)
    for name, records in found.items():
        problems += check_records(reader, name, records)
        state = reader.state(name)
        label = "root" if state is None else state.label
        whole = [record for record in records if isinstance(record, Record)]
        problems += [f"{name}: wrong data under {r.key!r}" for r in whole if not _is_right(label, r)]
    problems += check_tree(found, ROOT) + check_transcripts(home) + check_done(acks)
    if complete:
        problems += check_ended(reader, home, list(found))
        if len(found) != 1 + len(LABELS):
            problems.append(f"{len(found)} runs in the end")
    return problems


def _check_promises(reader: SqliteQueries, acks: list[str]) -> list[str]:
    problems = []
    for ack in acks:
        word, _, rest = ack.partition(" ")
        if word == "promised":
            name, _, key = rest.partition(" ")
            record = reader.get(name, key)
            if not isinstance(record, Record):
                problems.append(f"lost: {ack} ({record})")
        elif word in ("ended", "delivered"):
            state = reader.state(ROOT)
            if state is None or state.is_live or (word == "delivered" and not state.is_settled):
                problems.append(f"lost: {ack}")
    return problems


def _is_right(label: str, record: Record) -> bool:
    """Whether a record holds what was written under its key."""
    match record.event:
        case Noted(content=content):
            return content == _expected(label, record.key)
        case ModelCallEnded(message=message) | ToolCallEnded(message=message):
            return json.loads(bytes(message))["content"] == _expected(label, record.key)
        case _:
            return True


def _check_damaged(home: Path, acks: list[str], damaged: str) -> list[str]:
    """A damaged journal is refused, or nothing that is read of it is wrong and what is missing is said to be."""
    is_of_journal = damaged.startswith(JOURNAL)
    try:
        with SqliteQueries.open_any(home) as reader:
            return _check_read(reader, acks)
    except StorageTooNew as error:
        # A file that says it is newer is left alone, whatever made it say so.
        return [] if damaged.startswith(f"{JOURNAL} ") else [f"unreadable: {error}"]
    except StorageCorrupt as error:
        return [] if is_of_journal and "deputy doctor --repair" in str(error) else [f"unreadable: {error}"]


def _check_read(reader: SqliteQueries, acks: list[str], said: Collection[str] = ()) -> list[str]:
    """Nothing that is read is wrong, and what is missing is said to be, here or in what was said before."""
    problems = []
    names = {ack.split()[1] for ack in acks if ack.startswith("promised")}
    for name in sorted(names):
        records = list(reader.records(name))
        whole = [record for record in records if isinstance(record, Record)]
        transcribe(records)
        label = next((r.event.label for r in whole if isinstance(r.event, RunOpened | Requested)), None)
        if label is not None:
            problems += [f"{name}: wrong data under {r.key!r}" for r in whole if not _is_right(label, r)]
        state = reader.state(name)
        if len(whole) == len(records) and whole and state != replay(whole):
            problems.append(f"{name}: the state does not follow from the records, and nothing says so")
        missing = {ack.split(maxsplit=2)[2] for ack in acks if ack.startswith(f"promised {name} ")}
        missing -= {record.key for record in whole}
        if missing and len(whole) == len(records) and name not in said:
            problems.append(f"{name}: {sorted(missing)} are gone, and nothing says so")
    return problems


def _check_repaired(home: Path, acks: list[str]) -> list[str]:
    """A repaired journal is whole, nothing in it is wrong, and it was said what it lacks."""
    try:
        damage = _damage_of(home)
    except StorageTooNew:
        return []
    if not damage:
        return []
    repaired = repair(home)
    names = {ack.split()[1] for ack in acks if ack.startswith("promised")}
    # Where records could not be read, or the end of the log is missing, any run may lack something.
    is_said_of_all = "events" in repaired.unread or repaired.is_end_lost
    said = names if is_said_of_all else {*repaired.lost, *repaired.incomplete}
    with SqliteQueries.open_any(home) as reader:
        lacking = reader.examine()
        problems = [f"repaired: {problem}" for problem in _check_read(reader, acks, said)]
        problems += [
            f"repaired: {run} lacks records, and it was not said" for run in set(lacking) - {*repaired.incomplete}
        ]
        live = [state.run for state in reader.live() if state.run in repaired.lost]
        problems += [f"repaired: {run} is there, and was said to be lost" for run in live]
        whole = set(reader.ids()) - set(lacking)
        return problems + [
            f"repaired: {run}: {reader.damage}"
            for run in sorted(whole)
            if any(isinstance(r, DamagedRecord) for r in reader.records(run))
        ]


def _damage_of(home: Path) -> str:
    try:
        with SqliteQueries.open_any(home) as reader:
            reader.examine()
            return reader.damage
    except StorageCorrupt as error:
        return error.what


_get_ready()
