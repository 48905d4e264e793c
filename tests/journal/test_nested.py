"""Reservations of nested runs: halves of what is left, and released when the nested run is over."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from deputy import Budget, Deputy
from deputy.core.limits import NOTHING
from deputy.journal.nested import nested_amounts, reserve
from deputy.journal.process_identity import this_process
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.core.limits import Amount


def ran(home: Path, **options: object) -> str:
    """A run that has ended in this home."""

    async def main() -> str:
        async with Deputy("offline:scout", workspace=home.parent, home=home, **options) as deputy:
            return (await deputy.run("Look.")).session_id

    return asyncio.run(main())


def counted(home: Path, root: str) -> list[Amount]:
    with SqliteQueries.open(home) as queries:
        return [amount for _, _, amount in nested_amounts(queries, root)]


def end_owner(home: Path) -> None:
    """Make it look as if every process with a reservation ran before the last boot."""
    boot = this_process().boot.encode()
    with closing(sqlite3.connect(home / "journal.db")) as journal, journal:
        for name, body in journal.execute("SELECT id, body FROM nested").fetchall():
            journal.execute("UPDATE nested SET body = ? WHERE id = ?", (body.replace(boot, b"before"), name))


@pytest.mark.rule("lineage.env")
def test_nested_runs_that_start_together_get_half_of_what_is_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = ran(home, budget=Budget(spawns=9, requests=200))
    budgets = [reserve(SqliteStore(home), run, f"sess_1_{n}", 64, SqliteStore(home)).budget for n in range(6)]
    assert [budget.spawns for budget in budgets] == [5, 2, 1, 1, 0, 0]
    assert all(budget.requests > 0 for budget in budgets)
    assert sum(budget.requests for budget in budgets) < 200
    assert {budget.tokens for budget in budgets} == {None}


@pytest.mark.rule("lineage.env")
@pytest.mark.parametrize("place", ["home", "elsewhere"])
def test_a_reservation_is_released_when_its_process_ended_before_the_run_began(tmp_path: Path, place: str) -> None:
    home, own = tmp_path / "home", tmp_path / place
    run = ran(home)
    ran(own)
    held = reserve(SqliteStore(home), run, "sess_1_nested", 64, SqliteStore(own)).budget.spawns
    assert [amount.spawns for amount in counted(home, run)] == [held]
    end_owner(home)
    assert counted(home, run) == [NOTHING]


@pytest.mark.rule("lineage.env")
def test_a_nested_run_of_another_home_counts_for_what_it_used(tmp_path: Path) -> None:
    home, own = tmp_path / "home", tmp_path / "elsewhere"
    run, nested = ran(home), ran(own)
    reserve(SqliteStore(home), run, nested, 64, SqliteStore(own))
    [amount] = counted(home, run)
    assert (amount.spawns, amount.requests > 0) == (1, True)
    # Without its journal, what it used is unknown: the reservation stays, also after its process.
    end_owner(home)
    (own / "journal.db").unlink()
    assert [amount.spawns for amount in counted(home, run)] == [32]
