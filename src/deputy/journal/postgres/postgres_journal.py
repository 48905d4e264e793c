"""The Journal port over a Postgres store."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from deputy.core.errors import StorageError
from deputy.core.events import prime as prime_events
from deputy.core.state import prime as prime_states
from deputy.journal.postgres import placed_runs
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.postgres_writer import PostgresWriter
from deputy.journal.postgres.store_address import connect, is_away, storage_error
from deputy.journal.process_identity import ProcessIdentity, this_process
from deputy.journal.sql.group_writer import BEAT_SECONDS
from deputy.journal.sql.sql_journal import SqlJournal, check_id
from deputy.journal.sql.sql_queries import STALE_SECONDS
from deputy.journal.sql.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deputy.engine.ports import RunStart
    from deputy.journal.postgres.store_address import StoreAddress
    from deputy.journal.sql.transaction import SqlLease

MAX_WAIT_SECONDS = 60.0
"""How long everything waits for a database that is away."""
_RECONNECT_SECONDS = 1.0


class PostgresJournal(SqlJournal):
    """The journal of this process in a Postgres store. Its constructor waits for the connection."""

    def __init__(
        self,
        address: StoreAddress,
        folder: Path,
        *,
        owner: ProcessIdentity | None = None,
        mask: Callable[[bytes], bytes] = bytes,
        beat_seconds: float = BEAT_SECONDS,
        stale_seconds: float = STALE_SECONDS,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
        settings: dict[str, str] | None = None,
    ) -> None:
        """`settings` are those of the writing connection."""
        prime_events()
        prime_states()
        writer = PostgresWriter(
            address,
            owner=(this_process() if owner is None else owner).name,
            mask=mask,
            beat_seconds=beat_seconds,
            stale_seconds=stale_seconds,
            max_wait_seconds=max_wait_seconds,
            settings=settings,
        )
        super().__init__(writer, folder, clock=writer.clock, mask=mask)
        # All machines share the clock of the database.
        self.rate_limit_scope = ""
        self._address = address
        self._stale_seconds = stale_seconds
        self._max_wait_seconds = max_wait_seconds
        self._is_healthy = writer.is_healthy
        self._beat_always = writer.beat_always
        self.is_beating = writer.is_beating
        """Whether a heartbeat was written lately."""
        self.commit_times = writer.commit_times
        """The seconds of all commits, and their number."""
        self._listener: Any = None
        self._listen_at = 0.0
        self._heard = 0

    async def close(self) -> None:
        """Write what is pending, release all leases, and close the connections."""
        if self._listener is not None:
            with suppress(Exception):
                await self._listener.close(timeout=2.0)
            self._listener = None
        await super().close()

    async def abandon(self) -> None:
        """Stop without writing or releasing anything, as after a kill; for tests."""
        if self._listener is not None:
            self._listener.terminate()
            self._listener = None
        await super().abandon()

    def rate_limit_shift(self) -> float:
        """What the clock of the database adds to the monotonic clock."""
        return self.clock.now() - time.monotonic()

    # --- runs that workers carry out ----------------------------------------------------------------------------------

    async def begin_placed(self, run: str, event: RunStart, queue: str) -> bool:
        """Make a run with its first record and place it, in one transaction; False if the run exists."""
        check_id(run)
        at, (masked, body) = self._moment(), self._written(event)
        return await self._writer.submit(Transaction.begin_placed, run, at, masked, body, queue) is not None

    async def place(self, run: str) -> bool | None:
        """Put a live run that no process works on back on its queue; None when the run has no queue."""
        return await self.transact(lambda tx: placed_runs.place(tx, run), run)

    async def hand_over(self, lease: SqlLease) -> None:
        """Give a run back to its queue."""
        await self._writer.submit(placed_runs.hand_over, lease)

    async def park(self, lease: SqlLease, awaits: Sequence[str]) -> bool:
        """Release a run until a message comes or one of these children ends; False when that has happened already."""
        return await self._writer.submit(placed_runs.park, lease, tuple(awaits))

    async def acquire_placed(self, run: str, number: int) -> SqlLease | None:
        """Take the lease of a run for a placement; None when another placement or an end came first."""
        at, state = self._moment(), await self.state(run)
        if state is None:
            return None
        return await self.transact(lambda tx: placed_runs.acquire_placed(tx, state, number, at), run)

    async def sweep(self) -> tuple[int, int]:
        """Place again what silent processes own, and what was claimed and never begun; how many of each.

        After an outage every process looks silent, so nothing is done until the connection has worked for long enough.
        """
        if not self._is_healthy():
            return (0, 0)
        return await self.transact(lambda tx: placed_runs.sweep(tx, self._stale_seconds))

    async def enter_worker(
        self, labels: Sequence[str], slots: int | None, *, default: int, keys: Sequence[str] = ()
    ) -> int:
        """Tell the others about this worker, which sends heartbeats from now on; returns its number of slots.

        All workers of a label have the same number; another one is refused. `keys` are the names of its provider keys.
        """
        self._beat_always()
        return await self.transact(
            lambda tx: placed_runs.enter_worker(tx, labels, slots, default, self._stale_seconds, keys)
        )

    async def leave_workers(self) -> None:
        """Tell the others that this worker takes no further runs."""
        await self.transact(placed_runs.leave_workers)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def changes(self) -> int:
        """A number that changes when a run got a message or ended, or when that may have been missed."""
        if self._listener is None or self._listener.is_closed():
            self._heard += 1
            if time.monotonic() >= self._listen_at:
                self._listen_at = time.monotonic() + _RECONNECT_SECONDS
                with suppress(StorageError):
                    self._listener = await self._listen()
        return self._heard

    async def _listen(self) -> Any:
        connection = await connect(self._address)
        try:
            await connection.add_listener("deputy", self._hear)
        except BaseException as error:
            connection.terminate()
            if is_away(error):
                raise storage_error(self._address, error) from error
            raise
        return connection

    def _hear(self, *_: object) -> None:
        self._heard += 1

    def _open(self) -> PostgresQueries:
        return PostgresQueries.open(
            self._address,
            stale_seconds=self._stale_seconds,
            max_wait_seconds=self._max_wait_seconds,
            trusts_silence=self._is_healthy,
            is_closing=lambda: self._is_closed,
        )
