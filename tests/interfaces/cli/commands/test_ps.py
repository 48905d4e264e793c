"""The commands over the journal: what people and programs see of it, also when it is empty, damaged or refused."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import Raw
from tests.support import fork_server

from deputy.core.errors import Error
from deputy.core.events import ModelCallEnded, Noted, Requested, Returned, Started
from deputy.core.outcome import Partial, Usage
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.interfaces.cli import deputy
from deputy.interfaces.cli.commands.stored_runs import age_seconds
from deputy.journal.clock import Clock
from deputy.journal.sqlite.sqlite_journal import SqliteJournal

RUN, DONE = "sess_1_aaaaaa", "sess_1_bbbbbb"
ERROR = Error(type="timeout", code="TIMEOUT", message="Late.", recoverable=True, recommendation="Resume it.")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def journal(home: Path) -> Path:
    """A journal with a run that was interrupted and one that ended as partial, a second after 1970."""

    async def main() -> None:
        async with SqliteJournal(home, fsync="off", clock=Clock(wall=lambda: 1.0, monotonic=lambda: 1.0)) as journal:
            for run in (RUN, DONE):
                caller = Lineage.root("sess_1_parent")
                request = Request(
                    session_id=run,
                    target=Hop("researcher", "agent"),
                    prompt="Look.",
                    caller=caller,
                    caller_grant=Grant(),
                )
                lease = await journal.begin(run, Requested(request=request, label="look \x1b[31mhere"))
                assert lease is not None
                assert lease.state.lineage is not None
                await journal.append(lease, "started", Started(backend="native", model="m"))
                said = Raw(b'{"role":"assistant","content":"I found \\u001b[2Jit."}')
                usage = Usage(input=45_000, output=2100, requests=1, cost=0.14 if run == DONE else None)
                await journal.append(lease, "model:0", ModelCallEnded(model="m", message=said, usage=usage))
                await journal.append(lease, "note", Noted(content="a finding"))
                if run == DONE:
                    outcome = Partial(lineage=lease.state.lineage, summary="late", report="So far.", errors=(ERROR,))
                    await journal.finish(lease, "returned:0", Returned(outcome=outcome))

    asyncio.run(main())
    return home


def call(*arguments: str) -> Result:
    return CliRunner().invoke(deputy, arguments, catch_exceptions=False)


def told(*arguments: str) -> dict[str, object]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.rule("registry.entry")
@pytest.mark.rule("cost.unit")
def test_ps_lists_what_is_live_and_with_all_what_ended(journal: Path) -> None:
    (entry,) = told("ps")["delegations"]
    assert entry["session_id"] == RUN
    assert (entry["status"], entry["delegation_depth"]) == ("interrupted", 1)
    assert entry["delegation_path"] == ["orchestrator", "researcher"]
    assert entry["usage"]["input"] == 45_000
    assert {"label", "deadline", "timeout", "command", "subagent", "task_number", "started_at"} <= set(entry)
    assert [entry["status"] for entry in told("ps", "--all")["delegations"]] == ["interrupted", "partial"]
    shown = call("ps")
    line = shown.stdout.splitlines()[1]
    assert line.split()[:2] == ["aaaa", "interrupted"], "the short id"
    assert shown.stderr == "To continue what was interrupted: deputy resume aaaa\n"
    assert line.split()[4:7] == ["45k", "2.1k", "unknown"]
    assert call("ps", "--all").stdout.splitlines()[2].split()[4:7] == ["45k", "2.1k", "$0.14"]
    assert [one["usage"]["cost"] for one in told("ps", "--all")["delegations"]] == [None, 0.14]
    assert "\x1b" not in line


def test_show_has_the_entry_and_the_outcome(journal: Path) -> None:
    shown = told("show", DONE)
    assert (shown["status"], shown["session_id"]) == ("partial", DONE)
    assert shown["outcome"]["errors"][0]["code"] == "TIMEOUT"
    assert told("show", RUN)["outcome"] is None
    page = call("show", DONE).stdout
    assert shown["usage"]["cost"] == 0.14
    assert "cost $0.14" in " ".join(page.split())
    for part in ("⚠ partial", "partial: late", "→ Resume it.", "So far.", "orchestrator → researcher"):
        assert part in page


@pytest.mark.rule("cost.unit")
def test_where_there_is_no_room_for_the_tokens_the_cost_stays(house) -> None:
    assert house.run("delegate", "-t", "a=x", "--yes", "--model", "offline:scout").returncode == 0
    terminal = house.terminal("ps", "--all", columns=58)
    assert terminal.end() == 0
    heading, call, *_ = terminal.text.replace("\r\n", "\n").splitlines()
    assert heading.split() == ["ID", "STATUS", "AGE", "LEFT", "COST", "DELEGATION"]
    assert call.split()[4:] == ["free", "delegate"]


@pytest.mark.rule("transcript")
def test_transcript_shows_the_conversation_without_its_control_characters(journal: Path) -> None:
    page = call("transcript", RUN).stdout
    assert "I found it." in page
    assert "\x1b" not in page
    assert [message["role"] for message in told("transcript", RUN)["messages"]] == ["user", "assistant"]
    assert told("transcript", DONE)["outcome"] == "timeout"


@pytest.mark.rule("errors.log")
def test_errors_shows_what_went_wrong(journal: Path) -> None:
    (error,) = told("errors")["errors"]
    assert (error["type"], error["code"], error["count"]) == ("timeout", "TIMEOUT", 1)
    assert error["context"]["session_id"] == DONE
    assert "timeout/TIMEOUT" in call("errors").stdout


@pytest.mark.rule("disk")
def test_prune_and_pin(journal: Path) -> None:
    assert told("pin", DONE) == {"session_id": DONE, "pinned": True}
    assert told("prune")["pruned"] == []
    told("pin", DONE, "--off")
    # The interrupted run belongs to the same root session, and keeps all of it.
    assert told("prune", "--older-than", "0s")["pruned"] == []
    assert len(told("ps", "--all")["delegations"]) == 2


def test_an_age_is_read_with_its_unit() -> None:
    assert [age_seconds(text) for text in ("7d", "12h", "30m", "5s", "1.5w")] == [604800, 43200, 1800, 5, 907200]


@pytest.mark.parametrize("age", ["", "d", "-1d", "nan", "inf", "1e999d", "7 days", "7"])
def test_what_is_no_age_is_refused(age: str, journal: Path) -> None:
    result = run_deputy(journal, "prune", "--older-than", age)
    assert result.returncode == 2
    assert "--older-than" in result.stderr


@pytest.mark.parametrize("name", ["show", "transcript", "watch"])
def test_an_id_that_is_a_secret_is_not_said_again(name: str, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "plainvalue77")
    for secret in ("plainvalue77", f"ghp_{'a1b2c3' * 6}"):
        result = call(name, secret)
        assert result.exit_code == 3
        assert "no run has the id" in result.stderr
        assert secret not in result.output


@pytest.mark.parametrize("name", ["show", "transcript", "pin"])
@pytest.mark.parametrize("there", [True, False])
def test_an_unknown_id_is_reported(name: str, there: bool, home: Path, request: pytest.FixtureRequest) -> None:
    if there:
        request.getfixturevalue("journal")
    result = call(name, "sess_0_nobody")
    assert result.exit_code == 3
    assert "no run has the id 'sess_0_nobody'" in result.stderr


@pytest.mark.parametrize("name", ["ps", "errors", "prune"])
def test_a_home_that_is_not_there_is_empty_and_stays_away(name: str, home: Path) -> None:
    assert call(name).exit_code == 0
    assert call(name, "--json").exit_code == 0
    assert not home.exists()


def run_deputy(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deputy", *arguments]
    return fork_server.run(command, env={**os.environ, "DEPUTY_HOME": str(home)}, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [("ps",), ("errors", "--json"), ("prune",)])
def test_a_corrupt_journal_is_one_clear_line(arguments: tuple[str, ...], home: Path) -> None:
    home.mkdir(0o700)
    (home / "journal.db").write_bytes(b"garbage" * 1000)
    result = run_deputy(home, *arguments)
    assert result.returncode == 1
    assert result.stderr.startswith(f"deputy: {home}/journal.db: ")
    assert "Traceback" not in result.stderr
    assert "Run `deputy doctor --repair`" in result.stderr


@pytest.fixture
def damaged(journal: Path) -> Path:
    """The same with its first page gone: nothing is written to it any more."""
    file = journal / "journal.db"
    file.write_bytes(bytes(4096) + file.read_bytes()[4096:])
    return journal


@pytest.mark.parametrize("arguments", [("watch", RUN, "--json"), ("resume", RUN), ("pin", DONE), ("prune",)])
def test_a_command_on_a_damaged_journal_says_what_helps(arguments: tuple[str, ...], damaged: Path) -> None:
    before = (damaged / "journal.db").read_bytes()
    result = run_deputy(damaged, *arguments)
    assert result.returncode == 1
    assert result.stderr.startswith(f"deputy: {damaged}/journal.db: ")
    assert "Run `deputy doctor --repair`" in result.stderr
    assert "Traceback" not in result.stderr
    assert (damaged / "journal.db").read_bytes() == before


def test_ps_starts_without_what_it_does_not_need(journal: Path) -> None:
    script = (
        "import sys; from deputy.interfaces.cli import deputy; deputy.main(['ps'], standalone_mode=False);"
        "heavy = {'asyncio', 'aiohttp', 'rich', 'concurrent', 'subprocess', 'socket', 'yaml'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    environment = {**os.environ, "DEPUTY_HOME": str(journal)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
