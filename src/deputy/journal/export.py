"""Export of a run as a folder that is readable without Deputy: events, transcripts, notes, outcome."""

from __future__ import annotations

import os
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from deputy.core.errors import UsageError
from deputy.core.events import encode
from deputy.core.request import timestamp
from deputy.engine.ports.queries import DamagedRecord
from deputy.journal.home import explain
from deputy.journal.registry import show_run
from deputy.journal.transcript import markdown, safe_id, shown_label, transcribe
from deputy.processes.outgoing import outgoing_json, outgoing_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from deputy.core.events import Record
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries

SCHEMA = 1
"""The version of the folder's format."""

BELOW = "subagents"


def export(queries: Queries, state: State, place: Path, now: float) -> dict[str, Any]:
    """Write a run and its descendants into a new folder; returns the content of its `export.json`."""
    try:
        place.mkdir(0o700, parents=False)
    except FileExistsError as error:
        raise UsageError("--to", str(place), "it already exists; name a folder that does not exist") from error
    except FileNotFoundError as error:
        raise UsageError("--to", str(place), "its parent folder does not exist; create it first") from error
    except OSError as error:
        explain(place, error)
    try:
        return _fill(queries, state, place, now)
    except BaseException as error:
        # An incomplete export would look complete.
        rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            explain(place, error)
        raise


def _fill(queries: Queries, top: State, place: Path, now: float) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    below = queries.descendants(top.run)
    if below:
        (place / BELOW).mkdir(0o700)
    for state in (top, *below):
        # Label and id are made safe: they cannot leave the folder.
        name = f"{BELOW}/{shown_label(state.label or state.agent)}-{safe_id(state.run)}"
        folder = place if state is top else place / name
        if state is not top:
            folder.mkdir(0o700)
        _write_run(queries, state, folder, now)
        runs.append(
            {
                "session_id": state.run,
                "parent": state.parent,
                "label": state.label or state.command,
                "status": state.status,
                "folder": "." if state is top else name,
            }
        )
    text = {"schema": SCHEMA, "session_id": top.run, "exported_at": timestamp(now), "runs": runs}
    _write(place / "export.json", [_pretty(text)])
    return text


def _write_run(queries: Queries, state: State, folder: Path, now: float) -> None:
    _write(folder / "events.jsonl", map(_line, queries.records(state.run)))
    _write(folder / "outcome.json", [_pretty(show_run(queries, state.run))])
    transcript = transcribe(queries.records(state.run))
    if transcript is None:
        return
    _write(folder / "transcript.json", [_pretty(transcript)])
    _write(folder / "transcript.md", [_readable(markdown(transcript))])
    if transcript.notes:
        _write(folder / "notes.md", (_readable(f"{note.rstrip()}\n\n") for note in transcript.notes))


def _readable(text: str) -> bytes:
    """A text without terminal escapes and secrets."""
    return outgoing_text(text).encode(errors="replace")


def _line(record: Record | DamagedRecord) -> bytes:
    if isinstance(record, DamagedRecord):
        return outgoing_json({"damaged": record.where, "what": record.what}) + b"\n"
    fields = {"run": record.run, "seq": record.seq, "key": record.key, "at": record.at}
    return outgoing_json({**fields, "event": Raw(encode(record.event))}) + b"\n"


def _pretty(value: Any) -> bytes:
    return outgoing_json(value, indent=2) + b"\n"


def _write(path: Path, pieces: Iterable[bytes] | Iterator[bytes]) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.writelines(pieces)
