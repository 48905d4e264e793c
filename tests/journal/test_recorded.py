"""Journals that an earlier version recorded: read, folded and replayed by this one."""

import asyncio
import json
import re
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.journal.recorded import CORPUS
from tests.journal.stored_names import KEYS, STORED_NAMES, stored_names
from tests.support.house import House

from deputy.core.events import AdmissionRefused, CancelRequested, Record, Returned, Unrecognised, decode, encode
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Outcome
from deputy.core.state import replay
from deputy.journal.home import JOURNAL
from deputy.journal.sql.rows import state_row
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.transcript import transcribe
from deputy.models.script_model import ScriptModel

RECORDED = sorted(CORPUS.glob("*.db"))
MODEL = "script:recorded"


def records_of(folder: Path) -> dict[str, list[Record]]:
    """All records of a journal, by run."""
    with SqliteQueries.open(folder) as reader:
        return {run: [one for one in reader.records(run) if isinstance(one, Record)] for run in reader.ids()}


def in_order(value: Any) -> Any:
    """A JSON value whose lists of words are sorted: sets have no order."""
    if isinstance(value, dict):
        return {name: in_order(item) for name, item in value.items()}
    if isinstance(value, list):
        inner = [in_order(item) for item in value]
        return sorted(inner) if all(isinstance(item, str) for item in inner) else inner
    return value


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A home with a copy of a recorded journal."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    shutil.copyfile(request.param, folder / JOURNAL)
    (folder / JOURNAL).chmod(0o600)
    return folder


def test_the_stored_names_are_as_they_are_listed() -> None:
    assert STORED_NAMES.read_text().splitlines() == list(stored_names()), "make record-journals writes the list anew"


def test_there_is_a_recording() -> None:
    assert RECORDED


def test_every_record_is_read_and_written_alike(home: Path) -> None:
    connection = sqlite3.connect(home / JOURNAL)
    rows = connection.execute("SELECT kind, body FROM events").fetchall()
    connection.close()
    assert len(rows) > 100
    for kind, body in rows:
        event = decode(body)
        assert not isinstance(event, Unrecognised), kind
        assert event.kind == kind
        assert in_order(json.loads(encode(event))) == in_order(json.loads(body))


def test_every_key_is_a_listed_one(home: Path) -> None:
    listed = [re.compile(re.escape(key).replace("N", r"\d+").replace("BACKEND", r"[\w:-]+")) for key in KEYS]
    keys = {record.key for records in records_of(home).values() for record in records}
    bare = {re.sub(r"^round:\d+/", "", key).removesuffix(".begun").removesuffix(".asked") for key in keys}
    assert {key for key in bare if not any(one.fullmatch(key) for one in listed)} == set()


def test_stored_states_are_the_fold_of_their_records(home: Path) -> None:
    with SqliteQueries.open(home) as reader:
        stored = {run: reader.state(run) for run in reader.ids()}
    assert stored == {run: replay(records) for run, records in records_of(home).items()}
    statuses = {state.label: state.status for state in stored.values()}
    assert statuses["completed"] == statuses["blocked"] == statuses["resumed"] == statuses["repaired"] == "completed"
    assert (statuses["partial"], statuses["cancelled"]) == ("partial", "cancelled")


def test_every_transcript_can_be_made(home: Path) -> None:
    for records in records_of(home).values():
        assert transcribe(records, replay(records)).messages or records[0].event.kind == "run_opened"


def test_every_flow_comes_to_the_same_outcome_again_and_asks_no_model(home: Path, tmp_path: Path) -> None:
    replayed = 0
    for run, records in records_of(home).items():
        ends = [index for index, one in enumerate(records) if isinstance(one.event, Returned | AdmissionRefused)]
        end = records[ends[-1]].event
        if isinstance(end, AdmissionRefused) or any(isinstance(one.event, CancelRequested) for one in records):
            continue
        copy = tmp_path / f"replay-{replayed}"
        shutil.copytree(home, copy)
        cut_off(copy, run, records[: ends[-1]])
        outcome = asyncio.run(outcome_of(copy, tmp_path, run))
        # The usage of children is summed at the end, and they may have been resumed since.
        assert unworded(structs.replace(outcome, usage=end.outcome.usage)) == unworded(end.outcome)
        replayed += 1
    assert replayed >= 10


def unworded(outcome: Outcome) -> Outcome:
    """An outcome without the words of its errors, summary and remedy, which a later version may change."""
    errors = tuple(structs.replace(one, message="", recommendation="") for one in outcome.errors)
    summary = "-" if outcome.errors else outcome.summary
    return structs.replace(outcome, summary=summary, errors=errors, next_steps="")


def cut_off(folder: Path, run: str, records: Sequence[Record]) -> None:
    """A run as it was when all but its end was written: its process died just then."""
    state = replay(records)
    body, total = state_row(state)
    with sqlite3.connect(folder / JOURNAL) as connection:
        # As after a reboot: the clock goes on from the last record, so that a recording of this boot does not expire.
        connection.execute("DELETE FROM clocks")
        connection.execute("DELETE FROM events WHERE run = ? AND seq > ?", (run, records[-1].seq))
        connection.execute(
            "UPDATE runs SET is_live = 1, is_settled = 0, state = ?, sum = ?, last_at = ? WHERE run = ?",
            (body, total, state.last_at, run),
        )
    connection.close()


async def outcome_of(folder: Path, place: Path, run: str) -> Outcome:
    workspace = place / "workspace"
    workspace.mkdir(exist_ok=True)
    house = House.__new__(House)
    house.workspace, house.home, house.seen, house.model = workspace, folder, [], MODEL
    house._news = asyncio.Event()
    # A model that knows nothing to say: whatever it is asked fails the run.
    house.given = {MODEL: ScriptModel(ModelScript(conversations=()), name=MODEL)}
    async with house.open() as runtime:
        assert await runtime.engine.ensure_running(run)
        return await runtime.engine.result(run)
