"""Commands on a Postgres store: every one from any machine, and clear errors when it cannot be used."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.command_house import CommandHouse, until
from tests.support.mcp_clients import Wire
from tests.support.postgres import administer, emptied_database, empty_database, fresh_database

from deputy.core.errors import StorageDenied
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

NEW = "its tables have version 9, and this Deputy knows versions up to 1. Upgrade Deputy on this machine."


class Machine:
    """A machine of its own: another home, the same store."""

    def __init__(self, house: CommandHouse, name: str, url: str) -> None:
        self._house = house
        self.env = {"DEPUTY_HOME": str(house.home.parent / name), "DEPUTY_STORE": url}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._house.run(*arguments, **self.env)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)


@pytest.mark.rule("store.any")
def test_every_command_works_from_another_machine(house: CommandHouse, tmp_path: Path) -> None:
    url = emptied_database()
    here, there = Machine(house, "here", url), Machine(house, "there", url)
    (house.workspace / "prices.py").write_text("def price(): return 1\n")
    done = here.run("delegate", "--yes", "[look] where is price computed?", "--json")
    assert done.returncode == 0, done.stderr
    assert not (house.home.parent / "here" / "journal.db").exists()
    root, below = (one["session_id"] for one in listed(there))
    assert "✓ completed" in there.run("show", root).stdout
    assert there.run("export", root, "--to", str(tmp_path / "out")).returncode == 0
    assert "where is price computed?" in there.run("transcript", below).stdout
    assert there.run("pin", root).returncode == 0
    assert "Removed 0 runs" in here.run("prune", "--older-than", "0s").stderr
    assert there.run("pin", "--off", root).returncode == 0
    assert "Removed 2 runs in 1 tree" in there.run("prune", "--older-than", "0s").stderr
    assert listed(here) == []
    assert here.json("store", "status")["runs"] == 0


@pytest.mark.rule("store.any")
def test_an_approval_reaches_the_machine_that_waits_for_it(house: CommandHouse) -> None:
    url = emptied_database()
    here, there = Machine(house, "here", url), Machine(house, "there", url)
    write = {"name": "Write", "arguments": {"content": "made\n", "path": "new.txt"}}
    script = house.script("m", {"turns": [{"calls": [write]}, {"text": "Done."}]})
    terminal = house.terminal("run", "do it", "--model", script, **here.env)
    terminal.until("Go ahead?")
    waiting = until(lambda: [one for one in listed(there) if one["status"] == "waiting"])
    run = waiting[0]["session_id"]
    digest = there.json("approve", run)["digest"]
    assert there.run("approve", run, "--digest", digest).returncode == 0
    assert terminal.end() == 0
    assert (house.workspace / "new.txt").read_text() == "made\n"


def listed(machine: Machine) -> list[dict[str, Any]]:
    return machine.json("ps", "--all")["delegations"]


@pytest.mark.rule("store.any")
def test_mcp_reads_the_store(house: CommandHouse) -> None:
    url = emptied_database()
    here, there = Machine(house, "here", url), Machine(house, "there", url)
    assert here.run("delegate", "--yes", "[look] what is here?").returncode == 0
    root = next(one["session_id"] for one in listed(there) if not one["parent"])
    house.env |= there.env
    with Wire(house) as wire:
        wire.shake_hands()
        answer = wire.answer(wire.call("DelegateStatus", {"session_id": root}))
    assert answer["result"]["structuredContent"]["status"] == "completed"


def test_migrate_prepares_an_empty_database_once(house: CommandHouse) -> None:
    machine = Machine(house, "here", empty_database())
    assert "it has no tables of Deputy yet. Run `deputy store migrate`." in machine.run("ps").stderr
    assert machine.run("delegate", "--yes", "[look] what is here?").returncode != 0
    assert machine.json("store", "migrate")["version_before"] == 0
    again = machine.run("store", "migrate")
    assert "Nothing had to change." in again.stdout
    assert machine.run("ps").returncode == 0


@pytest.mark.rule("store.schema")
def test_a_database_that_cannot_hold_every_text_is_refused_before_anything_is_made(house: CommandHouse) -> None:
    url = empty_database()
    name = StoreAddress(url).database
    administer(f"DROP DATABASE {name}")
    administer(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    machine = Machine(house, "here", url)
    refused = house.run("store", "migrate", **machine.env, DEPUTY_DISPATCH="dbos")
    assert refused.returncode == 1
    assert "the database has the encoding SQL_ASCII, and Deputy needs UTF8. Create it anew" in refused.stderr
    assert "it has no tables of Deputy yet" in machine.run("ps").stderr


@pytest.mark.rule("store.any")
def test_a_run_of_another_store_is_unknown_and_the_store_is_named(house: CommandHouse) -> None:
    url = emptied_database()
    assert house.run("delegate", "--yes", "[look] what is here?").returncode == 0
    root = json.loads(house.run("ps", "--all", "--json").stdout)["delegations"][0]["session_id"]
    unknown = Machine(house, "here", url).run("show", root)
    assert unknown.returncode == 3
    assert f"searched {StoreAddress(url).location}. Another store is named by DEPUTY_STORE" in unknown.stderr
    assert "searched" not in house.run("show", "sess_1_nothere").stderr


@pytest.mark.rule("cluster.place")
def test_a_label_of_workers_is_refused_where_there_are_none(house: CommandHouse) -> None:
    for env in ({}, {"DEPUTY_STORE": emptied_database()}):
        refused = house.run("delegate", "--yes", "--worker", "gpu", "[look] what is here?", **env)
        assert refused.returncode == 2
        assert "there are no workers here: set DEPUTY_STORE and DEPUTY_DISPATCH, or omit it" in refused.stderr
        assert json.loads(house.run("ps", "--all", "--json", **env).stdout)["delegations"] == []


@pytest.mark.rule("store.schema")
def test_a_store_that_cannot_be_used_says_what_to_do(house: CommandHouse) -> None:
    def said(url: str, *command: str) -> str:
        done = Machine(house, "here", url).run(*(command or ("ps",)))
        assert done.returncode not in (0, 70), done.stderr
        assert "hunter2hunter2" not in done.stderr + done.stdout
        return " ".join(done.stderr.split())

    away = said("postgres://me:hunter2hunter2@127.0.0.1:9/x")
    assert away.startswith("deputy: postgres://me@127.0.0.1:9/x: cannot reach it")
    assert "Start the server, or check host, port and network" in away
    assert "give postgres://…" in said("mysql://me:hunter2hunter2@127.0.0.1/x")
    newer = fresh_database()
    with closing(PostgresSession(StoreAddress(newer))) as session:
        session.run("UPDATE schema_version SET version = 9, oldest = 9")
    assert NEW in said(newer)
    assert NEW in said(newer, "store", "migrate")
    assert NEW in said(newer, "worker")
    assert NEW in said(newer, "delegate", "--yes", "[look] what is here?")


@pytest.mark.rule("store.schema")
def test_older_tables_are_refused_by_every_command_before_anything_is_written(house: CommandHouse) -> None:
    url = fresh_database()
    machine = Machine(house, "here", url)
    with closing(PostgresSession(StoreAddress(url))) as session:
        session.run("UPDATE schema_version SET version = 0, oldest = 0")
    old = "its tables have version 0, and this Deputy needs 1. Run `deputy store migrate`."
    for command in (("ps",), ("delegate", "--yes", "[look] what is here?"), ("store", "status"), ("worker",)):
        refused = machine.run(*command)
        assert refused.returncode == 1, refused.stderr
        assert old in " ".join(refused.stderr.split())
    checked = " ".join(machine.run("doctor").stdout.split())
    assert "✗ store" in checked
    assert "Run `deputy store migrate`." in checked
    # Nothing was written before it was refused.
    with closing(PostgresSession(StoreAddress(url))) as session:
        assert session.fetch("SELECT count(*) FROM runs") == [(0,)]


@pytest.mark.rule("store.schema")
def test_a_standby_can_be_read_and_a_run_on_it_is_refused(house: CommandHouse) -> None:
    url = fresh_database()
    administer(f"ALTER DATABASE {StoreAddress(url).database} SET default_transaction_read_only = on")
    machine = Machine(house, "here", url)
    assert listed(machine) == []
    refused = machine.run("delegate", "--yes", "[look] what is here?")
    assert refused.returncode == 1, refused.stderr
    assert "it is read-only. Name the primary server, not a standby" in " ".join(refused.stderr.split())


@pytest.mark.rule("store.schema")
@pytest.mark.skipif("DEPUTY_TEST_POSTGRES" in os.environ, reason="changes who may connect to the server")
def test_a_wrong_password_is_refused_by_the_server_and_shown_nowhere(house: CommandHouse) -> None:
    url = fresh_database()
    name = f"careful_{StoreAddress(url).database}"
    administer(f"CREATE ROLE {name} LOGIN PASSWORD 'right-horse-1'")
    with closing(PostgresSession(StoreAddress(url))) as session:
        file, rules = session.fetch("SELECT f, pg_read_file(f) FROM current_setting('hba_file') f")[0]
        rules = f"local all {name} scram-sha-256\n{rules}".replace("'", "''")
        session.run(f"COPY (SELECT line FROM regexp_split_to_table('{rules}', E'\\n') line) TO '{file}'")
        session.fetch("SELECT pg_reload_conf()")
    wrong = url.replace("postgres@", f"{name}:wrong-horse-1@")
    until(lambda: _is_refused(wrong))
    for command in (("ps",), ("delegate", "--yes", "[look] what is here?"), ("store", "migrate"), ("worker",)):
        refused = house.run(*command, DEPUTY_STORE=wrong, DEPUTY_DISPATCH="dbos")
        assert refused.returncode == 1, refused.stderr
        assert "the server refused the user or the password" in " ".join(refused.stderr.split())
        assert "horse" not in refused.stderr + refused.stdout


def _is_refused(url: str) -> bool:
    try:
        PostgresSession(StoreAddress(url)).close()
    except StorageDenied:
        return True
    return False


@pytest.mark.rule("store.roles")
def test_a_role_with_the_documented_rights_works(house: CommandHouse) -> None:
    url = fresh_database()
    name = f"worker_{StoreAddress(url).database}"
    printed = Machine(house, "admin", url).run("store", "roles")
    assert printed.returncode == 0, printed.stderr
    with closing(PostgresSession(StoreAddress(url))) as session:
        session.run(printed.stdout)
    administer(f"CREATE ROLE {name} LOGIN IN ROLE deputy_worker")
    machine = Machine(house, "here", url.replace("postgres@", f"{name}@"))
    done = machine.run("delegate", "--yes", "[look] what is here?")
    assert done.returncode == 0, done.stderr
    assert machine.json("store", "status")["runs"] == 2
    assert "Removed 2 runs" in machine.run("prune", "--older-than", "0s").stderr


@pytest.mark.rule("store.schema")
@pytest.mark.parametrize("command", [("delegate", "--yes", "[look] what is here?"), ("store", "migrate")])
def test_a_role_that_may_only_read_is_refused(house: CommandHouse, command: tuple[str, ...]) -> None:
    is_made = command[0] == "delegate"
    url = fresh_database() if is_made else empty_database()
    name = f"reader_{StoreAddress(url).database}"
    administer(f"CREATE ROLE {name} LOGIN")
    if is_made:
        with closing(PostgresSession(StoreAddress(url))) as session:
            session.run(f"GRANT USAGE ON SCHEMA deputy TO {name}")
            session.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA deputy TO {name}")
    machine = Machine(house, "here", url.replace("postgres@", f"{name}@"))
    done = machine.run(*command)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert f"the role '{name}' lacks a right" in said
    assert "Grant it (`deputy store roles` prints the rights of each role), or name another role" in said
    # Reading works, and there is nothing to read.
    assert not is_made or listed(machine) == []


@pytest.mark.rule("store.roles")
def test_the_name_of_a_machine_forges_no_line(house: CommandHouse) -> None:
    machine = Machine(house, "here", emptied_database())
    with closing(PostgresSession(StoreAddress(machine.env["DEPUTY_STORE"]))) as session:
        session.fetch("SELECT beat('a/b/7/c/d', 1, $1, $1, 0)", "\x1b[2Jevil\nforged")
        session.fetch("UPDATE owners SET slots = 1, labels = ARRAY[$1]", "gpu\nforged")
    for command, lines in ((("workers",), 2), (("store", "status"), 4)):
        shown = machine.run(*command).stdout.splitlines()
        assert len(shown) == lines
        assert "evil forged" in shown[-1]
