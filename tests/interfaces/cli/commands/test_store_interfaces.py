"""The page, the report and the MCP server on a Postgres store, as real processes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
from tests.interfaces.cli.commands.test_store import Machine, listed
from tests.support.command_house import until
from tests.support.mcp_clients import Wire
from tests.support.postgres import emptied_database

from deputy.journal.postgres.postgres_store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.support.command_house import CommandHouse


class Page:
    """A client of the page that another machine serves."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def open(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        return urlopen(Request(f"{self._url}{path}", data=data, headers=self._headers), timeout=60)

    def get(self, path: str) -> Any:
        with self.open(path) as answer:
            return json.load(answer)


def pins_of(store: PostgresStore) -> set[str]:
    with store.queries() as queries:
        return queries.pinned()


@contextmanager
def page_of(house: CommandHouse, machine: Machine) -> Generator[Page]:
    env: Any = machine.env
    process = house.start("web", "--no-open", **env)
    assert process.stdout is not None
    url, _, token = process.stdout.readline().decode().strip().partition("/#")
    yield Page(url, token.rpartition("=")[2])
    process.terminate()
    assert process.wait(60) == 0


@pytest.mark.rule("store.any")
def test_the_page_shows_and_follows_the_runs_of_other_machines(house: CommandHouse) -> None:
    url = emptied_database()
    here, there = Machine(house, "here", url), Machine(house, "there", url)
    assert here.run("delegate", "--yes", "[look] what is here?").returncode == 0
    with page_of(house, there) as page:
        board = page.get("/api/board")
        root, below = (one["session_id"] for one in listed(there))
        assert root in json.dumps(board)
        assert page.get(f"/api/runs/{root}")["session_id"] == root
        assert "what is here?" in json.dumps(page.get(f"/api/runs/{below}/records"))
        with page.open(f"/api/runs/{root}/report.html") as report:
            assert b"what is here?" in report.read()
        with page.open(f"/api/follow?after={board['cursor']}&run=") as stream:
            assert here.run("delegate", "--yes", "[more] what is new?").returncode == 0
            new = next(one["session_id"] for one in listed(there) if one["session_id"] not in (root, below))
            assert any(new.encode() in line for line in stream)
        with page.open(f"/api/runs/{root}/pin", {}) as pinned:
            assert pinned.status == 202
        store = PostgresStore(url, house.home)
        until(lambda: pins_of(store) == {root})
    assert "Removed 2 runs" in here.run("prune", "--older-than", "0s").stderr


@pytest.mark.rule("store.any")
def test_a_report_is_made_on_any_machine(house: CommandHouse, tmp_path: Path) -> None:
    url = emptied_database()
    here, there = Machine(house, "here", url), Machine(house, "there", url)
    assert here.run("delegate", "--yes", "[look] what is here?").returncode == 0
    root = listed(there)[0]["session_id"]
    made = there.json("report", root, "-o", str(tmp_path / "report.html"))
    assert made["runs"] == 2
    assert "what is here?" in (tmp_path / "report.html").read_text()


@pytest.mark.rule("store.any")
def test_a_delegation_over_mcp_is_in_the_store(house: CommandHouse) -> None:
    url = emptied_database()
    here, there = Machine(house, "here", url), Machine(house, "there", url)
    with Wire(house, "--yes", **here.env) as wire:
        wire.shake_hands()
        tasks = [{"label": "look", "prompt": "what is here?"}]
        answer = wire.answer(wire.call("Delegate", {"tasks": tasks}))
        assert not answer["result"].get("isError"), answer
    assert [(one["status"], bool(one["parent"])) for one in listed(there)] == [
        ("completed", False),
        ("completed", True),
    ]
