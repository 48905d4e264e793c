"""A damaged journal: every command that reads shows the truth, or says on stderr that something is damaged."""

import asyncio
import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import Raw

from deputy.core.errors import Error, StorageCorrupt
from deputy.core.events import ModelCallEnded, Noted, Requested, Returned, Spawned, Started
from deputy.core.outcome import Blocked, Completed, Partial, Usage
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.interfaces.cli import deputy
from deputy.journal.clock import Clock
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

ROOT, CHILD, ASKING, OPEN = "sess_1_rootaa", "sess_1_childa", "sess_1_asking", "sess_1_openaa"
ERROR = Error(type="timeout", code="TIMEOUT", message="Late.", recoverable=True, recommendation="Resume it.")
COMMANDS = (
    ("ps", "--json"),
    ("ps", "--all", "--json"),
    ("show", ROOT),
    ("show", CHILD, "--json"),
    ("stats", "--json"),
    ("errors", "--json"),
    ("transcript", CHILD, "--json"),
)


async def _fill(home: Path) -> None:
    at = iter(range(1, 1000))
    async with SqliteJournal(home, fsync="off", clock=Clock(wall=lambda: float(next(at)))) as journal:
        above = Lineage.root("sess_1_parent")
        for run in (ROOT, CHILD, ASKING, OPEN):
            request = Request(
                session_id=run,
                target=Hop("researcher", "agent"),
                prompt="Look for the login.",
                caller=above,
                caller_grant=Grant(),
            )
            lease = await journal.begin(run, Requested(request=request, label="look", command="research"))
            assert lease is not None
            lineage = lease.state.lineage
            assert lineage is not None
            await journal.append(lease, "started", Started(backend="native", model="m"))
            for number in range(6):
                said = Raw(b'{"role":"assistant","content":"%b"}' % (b"I found it. " * 20))
                usage = Usage(input=1000, output=10 + number, requests=1)
                await journal.append(lease, f"model:{number}", ModelCallEnded(model="m", message=said, usage=usage))
                await journal.append(lease, f"note:{number}", Noted(content=f"finding {number}"))
            if run == ROOT:
                above = lineage
                await journal.append(lease, "spawn:0", Spawned(child=CHILD))
                ended = Completed(lineage=lineage, summary="2 of 2 subagents completed", report="All of it.")
                await journal.finish(lease, "returned:0", Returned(outcome=ended))
            elif run == CHILD:
                ended = Partial(lineage=lineage, summary="late", report="So far.", errors=(ERROR,))
                await journal.finish(lease, "returned:0", Returned(outcome=ended))
            elif run == ASKING:
                ended = Blocked(lineage=lineage, summary="which one?", question="Which login?", errors=(ERROR,))
                await journal.finish(lease, "returned:0", Returned(outcome=ended))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    asyncio.run(_fill(tmp_path / "whole"))
    shutil.copytree(tmp_path / "whole", tmp_path / "home")
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def _look(*arguments: str) -> tuple[str, str, int]:
    try:
        result = CliRunner().invoke(deputy, arguments, catch_exceptions=False)
    except StorageCorrupt as error:
        # The program says it on stderr, and exits with 1.
        return "", str(error), 1
    return result.stdout, result.stderr, result.exit_code


def _damage(home: Path, content: bytes) -> None:
    shutil.rmtree(home)
    shutil.copytree(home.with_name("whole"), home)
    (home / "journal.db").write_bytes(content)


def _examined(home: Path) -> str:
    reader = SqliteQueries.open_any(home)
    assert reader is not None
    with reader:
        reader.examine()
        return reader.damage


def test_an_outcome_that_is_damaged_is_said_to_be(home: Path) -> None:
    content = (home / "journal.db").read_bytes()
    place = content.index(b"2 of 2 subagents completed")
    _damage(home, content[:place] + b"3" + content[place + 1 :])
    out, err, _ = _look("show", ROOT)
    assert "3 of 2" not in out
    assert f"{ROOT!r} record" in err
    assert "its checksum does not fit; showing what can still be read" in err
    assert _look("ps", "--all", "--json")[1] == ""
    assert "its checksum does not fit" in _examined(home)
    assert "checksum" in _look("doctor")[0]
    _, err, _ = _look("export", ROOT, "--to", str(home.parent / "exported"))
    assert "its checksum does not fit" in err


def test_what_is_shown_of_a_damaged_journal_is_true_or_said_to_be_damaged(home: Path) -> None:
    truth = {command: _look(*command) for command in COMMANDS}
    assert all(err == "" and code == 0 for _, err, code in truth.values())
    content = (home / "journal.db").read_bytes()
    used = [place for place, byte in enumerate(content) if byte]
    chance = random.Random(11)
    said = 0
    for number in range(60):
        flipped = bytearray(content)
        for place in chance.sample(used, 1 if number % 2 else 12):
            flipped[place] ^= 1 << chance.randrange(8)
        _damage(home, bytes(flipped))
        for command, (out, _, _) in truth.items():
            found, err, code = _look(*command)
            assert found == out or err, (number, command)
            assert "Traceback" not in err
            assert code == 0 or err
            said += bool(err)
    assert said > 60


def test_a_whole_journal_is_not_said_to_be_damaged(home: Path) -> None:
    assert _examined(home) == ""


@pytest.mark.rule("journal.first")
@pytest.mark.parametrize("command", [("run", "work"), ("delegate", "-t", "a=work", "--tasks", "tasks.json")])
def test_a_journal_that_is_deleted_under_a_run_is_reported(house, command):
    call = {"name": "Run", "arguments": {"command": 'rm -f "$DEPUTY_HOME"/journal.db*'}}
    model = house.script("deleting", {"times": 9, "turns": [{"calls": [call]}, {"text": "All is well."}]})
    (house.workspace / "tasks.json").write_text('[{"label": "a", "prompt": "work", "tools": ["Run"]}]')
    words = command if command[0] == "run" else (command[0], *command[3:])
    run = house.run(*words, "--yes", "--model", model)
    assert run.returncode == 1, run
    assert "journal.db: it was deleted or replaced while it was written to." in run.stderr + run.stdout
    assert "Traceback" not in run.stderr
    assert "deputy resume" not in run.stderr


def test_a_repair_says_what_it_kept_and_what_was_lost(home: Path) -> None:
    content = (home / "journal.db").read_bytes()
    place = content.index(b"2 of 2 subagents completed")
    _damage(home, content[:place] + b"3" + content[place + 1 :])
    out, _, code = _look("doctor", "--repair")
    kept = next(path for path in home.iterdir() if path.name.startswith("damaged-"))
    assert code == 0
    assert out.splitlines() == [
        f"Damaged: {ROOT!r} record 16: its checksum does not fit.",
        "The new journal has 4 runs with 59 records.",
        f"1 run lacks records: {ROOT}. Such a run can be shown, but not resumed.",
        "These tables had rows that could not be read: events.",
        f"The damaged files are in {kept}.",
    ]
    out, err, _ = _look("show", ROOT)
    assert ROOT in out
    assert f"deputy: {home}/journal.db: {ROOT!r} record 'returned:0': it is missing" in err
    assert f"1 run lacks records: {ROOT}" in " ".join(_look("doctor")[0].split())
    assert _look("doctor", "--repair")[0] == f"The journal in {home} is not damaged.\n"
    assert json.loads(_look("doctor", "--repair", "--json")[0]) == {"damage": None, "repaired": None}


def test_a_repair_is_reported_as_json(home: Path) -> None:
    content = (home / "journal.db").read_bytes()
    _damage(home, bytes(4096) + content[4096:])
    assert "deputy doctor --repair" in _look("ps")[1]
    output = json.loads(_look("doctor", "--repair", "--json")[0])
    assert output["damage"] == "file is not a database"
    assert output["repaired"].pop("kept").startswith(f"{home}/damaged-")
    unread = ["errors", "events", "inbox", "leases", "pins", "runs"]
    assert output["repaired"] == {
        "runs": 0,
        "records": 0,
        "incomplete": [],
        "lost": [],
        "unread": unread,
        "is_end_lost": True,
    }
