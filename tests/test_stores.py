"""Which store the journal is in, and who may say so."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.postgres import emptied_database

from deputy import Deputy, Task
from deputy.core.errors import UsageError
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import StoreAddress
from deputy.processes.environment import scrubbed
from deputy.processes.outgoing import process_redactor
from deputy.stores import find_store, open_queries, store_url

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "correct-horse-7"
URL = f"postgres://me:{PASSWORD}@db.example:5433/deputy"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DEPUTY_STORE", raising=False)
    file = tmp_path / ".config" / "deputy" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def test_the_store_is_named_by_the_call_the_environment_or_the_users_own_config(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store_url() == ""
    assert find_store(config.parent).is_local
    config.write_text(f'[store]\nurl = "{URL}"\n')
    assert store_url() == URL
    assert find_store(config.parent).location == "postgres://me@db.example:5433/deputy"
    monkeypatch.setenv("DEPUTY_STORE", "postgres://env@db/x")
    assert store_url() == "postgres://env@db/x"
    assert store_url("postgres://given@db/x") == "postgres://given@db/x"


@pytest.mark.rule("store.any")
def test_a_project_cannot_name_a_store(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deputy.toml").write_text(f'[store]\nurl = "{URL}"\n')
    monkeypatch.chdir(tmp_path)
    assert store_url() == ""
    with pytest.raises(UsageError, match="store"):
        asyncio.run(_opened(tmp_path))


async def _opened(workspace: Path) -> None:
    async with Deputy("offline:scout", workspace=workspace, home=workspace / "home"):
        raise AssertionError("a project named a store")


@pytest.mark.rule("store.secret")
def test_the_password_is_hidden_and_reaches_no_program(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("environment", "config"):
        if name == "environment":
            monkeypatch.setenv("DEPUTY_STORE", URL)
        else:
            monkeypatch.delenv("DEPUTY_STORE")
            config.write_text(f'[store]\nurl = "{URL}"\n')
        assert PASSWORD not in process_redactor().redact(f"it was {PASSWORD}."), name
    assert "DEPUTY_STORE" not in scrubbed({"DEPUTY_STORE": URL, "PATH": "/bin"})
    assert PASSWORD not in StoreAddress(URL).location


@pytest.mark.rule("store.secret")
def test_a_library_call_runs_on_a_store_and_its_records_hide_the_password(config: Path, tmp_path: Path) -> None:
    url = emptied_database().replace("postgres@", f"postgres:{PASSWORD}@")
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    async def work() -> str:
        async with Deputy("offline:scout", workspace=workspace, home=tmp_path / "home", store=url) as deputy:
            (done,) = await deputy.delegate([Task(label="look", prompt=f"Where is {PASSWORD}?")])
            return done.session_id

    run = asyncio.run(work())
    assert not (tmp_path / "home" / "journal.db").exists()
    with PostgresQueries.open(StoreAddress(url)) as queries:
        records = [*queries.records(run)]
        assert len(records) > 3
        assert PASSWORD not in repr(records)
    # Without a store, the same home has no journal.
    assert open_queries(tmp_path / "home") is None


def test_a_store_without_its_driver_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(UsageError, match=r"pip install 'deputy-agents\[postgres\]'"):
        find_store(tmp_path, URL).queries()


@pytest.mark.rule("store.any")
def test_without_a_store_nothing_of_postgres_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom deputy.stores import open_queries\n"
        f"open_queries(Path({str(tmp_path)!r}))\n"
        "print([name for name in sys.modules if 'asyncpg' in name or 'journal.postgres' in name])"
    )
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "[]\n"
