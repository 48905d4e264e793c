"""What a store of SQL tables must offer: its tables within a transaction, and how it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from deputy.core.events import Moment
    from deputy.engine.ports.budgets import Budgets
    from deputy.journal.sql.rows import LeaseRow, Row
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_queries import SqlQueries
    from deputy.journal.sqlite.connection import Fsync

    T = TypeVar("T")


class SqlResult(Protocol):
    """The rows of a statement."""

    def fetchone(self) -> Any:
        """The next row; None when there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows."""
        ...


Bulk: TypeAlias = Literal["events", "progress", "runs", "states", "leases", "released", "placed"]
"""What is written in bulk: records, progress, new or moved runs, states of runs that stay, new leases, ended ones, and
those of new runs that wait for a worker."""


class SqlTables(Protocol):
    """The tables within a transaction. Statements are those that both stores understand, with `?` for values."""

    def execute(self, query: str, values: Sequence[Any] = (), /) -> SqlResult:
        """Execute a statement."""
        ...

    def put(self, what: Bulk, rows: Sequence[Row]) -> None:
        """Write many rows of one kind."""
        ...

    def add_event(self, row: Row) -> bool:
        """Add a record unless its key exists; whether it was added."""
        ...

    def serialize(self, what: str) -> None:
        """Let no other transaction that names this go on until this one has ended."""
        ...

    def holds(self, run: str, epoch: int, owner: str) -> bool:
        """Whether a process holds this lease; no other process can take it before the transaction ends."""
        ...

    def holder(self, run: str) -> LeaseRow | None:
        """The lease of a run, which no other process changes before the transaction ends."""
        ...

    def grant(self, run: str, owner: str, epoch: int) -> None:
        """Write the lease of a run, replacing its holder."""
        ...

    def announce(self, runs: Sequence[str], callers: Sequence[str]) -> None:
        """Tell other processes which runs ended or got a message; `callers` are those of the ended ones."""
        ...

    def has_ended(self, owner: str) -> bool:
        """Whether a process has certainly ended."""
        ...

    def moment(self) -> Moment:
        """The current time by the journal's clock and by the wall clock."""
        ...

    def queries(self) -> SqlQueries:
        """The queries over these tables, with the rows of this transaction."""
        ...


class StoreWriter(Protocol):
    """Writes to a store outside of a running journal, one transaction after another."""

    def transact(self, do: Callable[[SqlTables], T], *, removes: bool = False) -> T:
        """Run a function in one transaction; `removes`: it removes records."""
        ...


class SqlStore(Protocol):
    """Where a journal is, and how commands without an engine reach it."""

    @property
    def folder(self) -> Path:
        """The home, with transcripts and worktrees."""
        ...

    @property
    def location(self) -> str:
        """The path or address of the journal, for messages."""
        ...

    @property
    def name(self) -> str:
        """What tells this store from others."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether only this machine uses it."""
        ...

    @property
    def passwords(self) -> tuple[str, ...]:
        """The secrets in its address."""
        ...

    def journal(self, *, fsync: Fsync, mask: Callable[[bytes], bytes]) -> SqlJournal:
        """Open the journal of this process for writing; blocks until it is reached."""
        ...

    def budgets(self, journal: SqlJournal) -> Budgets:
        """The budgets of the trees of this journal: of this process, or of all workers."""
        ...

    def queries(self) -> SqlQueries | None:
        """Open it for reading; None when there is no journal."""
        ...

    def checked_queries(self) -> SqlQueries | None:
        """The same after a check of the tables that list runs; raises StorageCorrupt when one is damaged."""
        ...

    def now(self) -> float:
        """The time by the clock that dates its runs: a wrong clock of one machine removes no runs of others."""
        ...

    def writing(self) -> AbstractContextManager[StoreWriter]:
        """Open it for writing."""
        ...

    def pruning(self) -> AbstractContextManager[bool]:
        """Whether this process may remove old runs now: on a shared store one process at a time does."""
        ...

    def make_room(self, do: Callable[[SqlTables | None], None]) -> None:
        """On a full disk: free what can be freed beside the journal, while no other process can resume a run.

        The function gets None when the journal cannot be opened for writing.
        """
        ...
