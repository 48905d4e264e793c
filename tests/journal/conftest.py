"""Histories for the tests of the journal."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw, json

from deputy.core.errors import Error
from deputy.core.events import (
    Event,
    ModelCallBegun,
    ModelCallEnded,
    Noted,
    Requested,
    Returned,
    Started,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.outcome import Completed, Outcome, Partial, Usage
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.journal.sqlite.sqlite_journal import SqliteJournal

ROOT = Lineage.root("sess_1_parent")
ERROR = Error(type="timeout", code="TIMEOUT", message="Late.", recoverable=True, recommendation="Resume it.")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def requested(run: str, label: str = "look", **fields: object) -> Requested:
    request = Request(
        session_id=run,
        target=Hop("researcher", "agent"),
        prompt=f"The task of {run}.",
        caller=ROOT,
        caller_grant=Grant(),
        seconds=60.0,
    )
    return Requested(request=request, label=label, command="research", **fields)


def completed(run: str) -> Outcome:
    return Completed(lineage=ROOT.child(run, Hop("researcher", "agent"), "", now=0.0, seconds=None), summary="done")


def partial(run: str) -> Outcome:
    lineage = ROOT.child(run, Hop("researcher", "agent"), "", now=0.0, seconds=None)
    return Partial(lineage=lineage, summary="late", errors=(ERROR,))


def turn(number: int, size: int = 200) -> list[tuple[str, Event]]:
    """The records of one turn: a model call, a tool call, a note."""
    calls = [{"type": "tool_call", "id": f"c{number}", "name": "Read", "arguments": {"path": "a"}}]
    said = {"role": "assistant", "parts": [{"type": "text", "text": f"turn {number} " + "x" * size}, *calls]}
    result = {"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number} " + "y" * size}
    usage = Usage(input=100, output=10, requests=1)
    return [
        (f"model:{number}.begun", ModelCallBegun(model="m")),
        (f"model:{number}", ModelCallEnded(model="m", message=Raw(json.encode(said)), usage=usage)),
        (f"tool:{number}.begun", ToolCallBegun(tool="Read")),
        (f"tool:{number}", ToolCallEnded(tool="Read", call=f"c{number}", message=Raw(json.encode(result)))),
        (f"note:{number}", Noted(content=f"finding {number}")),
    ]


async def fill(home: Path, run: str, turns: int, *, ended: bool = False, size: int = 200, **options: object) -> None:
    """A run with so many turns, in a journal that is closed behind it."""
    async with SqliteJournal(home, **{"fsync": "off", **options}) as journal:
        lease = await journal.begin(run, requested(run))
        assert lease is not None
        await journal.append(lease, "started", Started(backend="native", model="m"))
        for number in range(turns):
            for key, event in turn(number, size):
                journal.append_soon(lease, key, event)
        if ended:
            await journal.finish(lease, "returned:0", Returned(outcome=completed(run)))


@pytest.fixture
def filled(home: Path) -> Callable[..., Path]:
    def make(run: str = "sess_1_aaaaaa", turns: int = 3, **options: object) -> Path:
        asyncio.run(fill(home, run, turns, **options))
        return home

    return make
