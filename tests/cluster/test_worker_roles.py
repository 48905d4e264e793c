"""A store with roles of least privilege: one role submits, another carries out, a third answers."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.cluster.test_worker_processes import WorkerHouse, house
from tests.support.postgres import administer

from deputy.journal.postgres.store_address import PostgresSession, StoreAddress, driver
from deputy.stores import store_roles

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["house"]


def user(url: str, role: str) -> str:
    """The address of a new login with a role."""
    name = f"{role}_{StoreAddress(url).database}"
    administer(f"CREATE ROLE {name} LOGIN IN ROLE deputy_{role}")
    return url.replace("postgres@", f"{name}@")


@pytest.mark.rule("store.roles")
def test_a_submitter_places_runs_that_a_worker_carries_out(house: WorkerHouse, tmp_path: Path) -> None:
    with closing(PostgresSession(StoreAddress(house.url))) as session:
        session.run(store_roles())
    worker, submitter = user(house.url, "worker"), user(house.url, "submitter")
    house.worker(DEPUTY_HOME=str(tmp_path / "other"), DEPUTY_STORE=worker)
    shown = house.run("delegate", "--yes", "-t", "a=Where is `Elbe`?", DEPUTY_STORE=submitter)
    assert shown.returncode == 0, shown.stderr
    assert "lacks a right" not in shown.stderr, shown.stderr
    with closing(PostgresSession(StoreAddress(submitter))) as session:
        for statement in (
            "UPDATE leases SET owner = 'me'",
            "INSERT INTO leases (run, owner, epoch) VALUES ('x', 'me', 1)",
            "UPDATE dbos.workflow_status SET status = 'PENDING'",
            "INSERT INTO inbox (run, topic, key, body, sum) VALUES ('x', 'approval', 'k', '', '')",
            "DELETE FROM runs",
        ):
            with pytest.raises(driver().InsufficientPrivilegeError):
                session.run(statement)
