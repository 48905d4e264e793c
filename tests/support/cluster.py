"""Workers of one store inside a test: engines that get their runs from the real tables of the queues."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.support.postgres import emptied_queue_database

from deputy.core.errors import LeaseLost
from deputy.core.queue_names import QUEUE
from deputy.journal.postgres.postgres_journal import PostgresJournal
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress, connect
from deputy.runtime.engine import LocalEngine, SystemWorld

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from deputy.engine.ports import Workflow

_QUICK = {"synchronous_commit": "off"}
_LOOK_SECONDS = 0.005
_CLAIM = (
    "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = $1 WHERE workflow_uuid IN (SELECT workflow_uuid"
    " FROM dbos.workflow_status WHERE status = 'ENQUEUED' AND starts_with(workflow_uuid, $2) FOR UPDATE SKIP LOCKED)"
    " RETURNING workflow_uuid"
)
_DONE = "UPDATE dbos.workflow_status SET status = 'SUCCESS' WHERE workflow_uuid = $1"


class ClusterHost:
    """Processes on one database: workers, and those that only submit."""

    def __init__(self, folder: Path, suspend_seconds: float = 0.0, stale_seconds: float = 15.0, **options: Any) -> None:
        """`options` are those of the journals."""
        self.address = StoreAddress(emptied_queue_database())
        self.claims: list[tuple[str, str]] = []
        """Every claim: the owner of the worker, and `run/number`."""
        self._folder = folder
        self._suspend_seconds = suspend_seconds
        self._options: dict[str, Any] = {"settings": _QUICK, "stale_seconds": stale_seconds, **options}
        self._journals: dict[int, PostgresJournal] = {}

    @asynccontextmanager
    async def start(
        self, workflow: Workflow, *, claims: bool = True, only: str = ""
    ) -> AsyncGenerator[LocalEngine[Any]]:
        """A process whose runs are placed; with `claims` it is a worker too, `only` for runs that begin so."""
        async with self.write() as journal:
            engine = LocalEngine(
                journal,
                workflow,
                SystemWorld(journal.clock.now),
                suspend_seconds=self._suspend_seconds,
                placing=journal,
                queue_for=lambda start: "" if start.label == "pinned" else QUEUE,
            )
            async with engine:
                self._journals[id(engine)] = journal
                if not claims:
                    yield engine
                    return
                async with self.claiming(engine, only):
                    yield engine

    @asynccontextmanager
    async def claiming(self, engine: LocalEngine[Any], only: str = "") -> AsyncGenerator[None]:
        """Let an engine claim runs."""
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = []
            tasks.append(group.create_task(self._claim(engine, only, group, tasks)))
            yield
            for task in tasks:
                task.cancel()

    async def _claim(
        self, engine: LocalEngine[Any], only: str, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]
    ) -> None:
        owner = self.journal(engine).owner
        connection = await connect(self.address)
        try:
            while True:
                for (name,) in await connection.fetch(_CLAIM, owner, only):
                    self.claims.append((owner, name))
                    tasks.append(group.create_task(self._carry_out(engine, name)))
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            connection.terminate()

    async def _carry_out(self, engine: LocalEngine[Any], name: str) -> None:
        run, _, number = name.rpartition("/")
        # A cancellation takes the run over, as another worker may; the queues of DBOS see to it in the same way.
        with suppress(LeaseLost):
            await engine.carry_out(run, int(number))
        await asyncio.to_thread(self.execute, _DONE, name)

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[PostgresJournal]:
        """The journal of another process."""
        journal = await asyncio.to_thread(PostgresJournal, self.address, self._folder, **self._options)
        async with journal:
            yield journal

    def journal(self, engine: LocalEngine[Any]) -> PostgresJournal:
        """The journal of an engine."""
        return self._journals[id(engine)]

    async def sweep(self, engine: LocalEngine[Any]) -> tuple[int, int]:
        """Sweep, as long after the last outage."""
        journal: Any = self.journal(engine)
        journal._writer._healthy_since -= 3600
        return await journal.sweep()

    async def crash(self, dying: Any) -> None:
        """End a process like kill -9, and let its heartbeat be old."""
        journal = dying if isinstance(dying, PostgresJournal) else self.journal(dying)
        await journal.abandon()
        await asyncio.to_thread(self.silence, journal.owner)

    def silence(self, owner: str) -> None:
        """Make the heartbeat of a process old."""
        self.execute("UPDATE owners SET beat = beat - interval '1 hour' WHERE owner = $1", owner)

    def execute(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement."""
        session = PostgresSession(self.address)
        try:
            return session.fetch(query, *values)
        finally:
            session.close()

    def read(self) -> PostgresQueries:
        """The queries of another process."""
        return PostgresQueries.open(self.address)

    def lease(self, run: str) -> dict[str, Any]:
        """The lease of a run."""
        names = ("owner", "epoch", "placed", "is_placed", "is_parked")
        return dict(
            zip(names, self.execute(f"SELECT {', '.join(names)} FROM leases WHERE run = $1", run)[0], strict=True)
        )
