"""The Journal port over one SQLite file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deputy.core.errors import StorageFailed
from deputy.core.events import prime as prime_events
from deputy.core.state import prime as prime_states
from deputy.journal import home
from deputy.journal.process_identity import ProcessIdentity, this_process
from deputy.journal.sql.group_writer import BEAT_SECONDS
from deputy.journal.sql.sql_journal import SqlJournal
from deputy.journal.sql.sql_queries import STALE_SECONDS
from deputy.journal.sqlite.connection import MAX_WAIT_SECONDS
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_writer import SqliteWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deputy.journal.clock import Clock
    from deputy.journal.sqlite.connection import Fsync


class SqliteJournal(SqlJournal):
    """The journal of this process in a file of the home."""

    def __init__(
        self,
        folder: Path,
        *,
        fsync: Fsync = "group",
        owner: ProcessIdentity | None = None,
        clock: Clock | None = None,
        mask: Callable[[bytes], bytes] = bytes,
        beat_seconds: float = BEAT_SECONDS,
        stale_seconds: float = STALE_SECONDS,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self.path = folder / home.JOURNAL
        # Before any thread starts.
        prime_events()
        prime_states()
        writer = SqliteWriter(
            folder,
            fsync=fsync,
            owner=(this_process() if owner is None else owner).name,
            clock=clock,
            mask=mask,
            beat_seconds=beat_seconds,
            stale_seconds=stale_seconds,
            max_wait_seconds=max_wait_seconds,
        )
        super().__init__(writer, folder, clock=writer.clock, mask=mask)
        self._stale_seconds = stale_seconds
        self._watcher: SqliteQueries | None = None

    async def close(self) -> None:
        """Write what is pending, release all leases, and close the file."""
        await self._close_readers()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        await self._writer.close()

    async def changes(self) -> int:
        """A number that changes when any process, this one included, has written."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._changes)

    def _changes(self) -> int:
        # The number is only comparable within one connection.
        if self._watcher is None:
            self._watcher = self._open()
        return self._watcher.changes()

    def _open(self) -> SqliteQueries:
        queries = SqliteQueries.open(self.folder, is_written=True, stale_seconds=self._stale_seconds)
        if queries is None:
            raise StorageFailed(self.location, "it was deleted", "Restore the file, or start Deputy again.")
        return queries
