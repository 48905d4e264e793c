"""The lease table within one transaction: which process may write which run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.journal.sqlite.reader import LeaseHolder
from deputy.journal.sqlite.rows import ADD_LEASES, END_LEASES, HOLDER, execute

if TYPE_CHECKING:
    import sqlite3

    from deputy.journal.sqlite.rows import Row


class LeaseTable:
    """The leases; changes are collected and written together before the next read."""

    def __init__(self, connection: sqlite3.Connection, owner: str) -> None:
        self._connection = connection
        self._owner = owner
        self._given: list[Row] = []
        self._given_up: list[Row] = []

    def give_first(self, run: str) -> int:
        """Grant the first lease of a run and return its epoch; the transaction fails if the run already had one."""
        self._given.append((run, self._owner, 1))
        return 1

    def give(self, run: str, epoch: int) -> None:
        """Grant the lease of a run, replacing its holder."""
        self.write()
        self._connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (run, self._owner, epoch))

    def give_up(self, run: str, epoch: int) -> None:
        """Release a lease, unless another process holds it by now."""
        self._given_up.append((run, epoch, self._owner))

    def has(self, run: str, epoch: int) -> bool:
        """Whether this process holds this lease."""
        self.write()
        query = "SELECT 1 FROM leases WHERE run = ? AND epoch = ? AND owner = ?"
        return self._connection.execute(query, (run, epoch, self._owner)).fetchone() is not None

    def holder(self, run: str) -> LeaseHolder | None:
        """The holder of a run's lease."""
        self.write()
        row = self._connection.execute(HOLDER, (run,)).fetchone()
        return None if row is None else LeaseHolder(owner=row[0] or "", epoch=row[1], beat=row[2])

    def write(self) -> None:
        """Write the collected changes."""
        if self._given:
            execute(self._connection, ADD_LEASES, self._given)
            self._given.clear()
        if self._given_up:
            execute(self._connection, END_LEASES, self._given_up)
            self._given_up.clear()
