"""A worker: carries out the runs of queues, each with the settings of the process that submitted it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec import structs

from deputy.core.conditions import Conditions
from deputy.core.errors import StorageError, Unquoted, UsageError, WorkspaceError
from deputy.core.events import Requested, RunOpened
from deputy.core.queue_names import queue_of
from deputy.engine.dispatch import run_workflow
from deputy.engine.ports import WorktreeChanges
from deputy.engine.worktree import with_work, workspace_missing
from deputy.journal import home
from deputy.journal.transcript import safe_id
from deputy.options import DeputyOptions
from deputy.processes.child_process import interruptible
from deputy.runtime.engine import LocalEngine, SystemWorld
from deputy.runtime_parts import (
    RuntimeParts,
    end_children,
    git_workspaces,
    observers,
    prune_store,
    shared_folder,
)
from deputy.stores import dispatch_name, open_store
from deputy.tools.placed_worktrees import PlacedWorktrees
from deputy.wiring import keep_changes, open_workspace

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    from deputy.core.outcome import Outcome
    from deputy.core.snapshot import Snapshot
    from deputy.core.state import State
    from deputy.engine.ports import Dispatch, RunContext, RunStart, Worktree
    from deputy.engine.services import Services
    from deputy.journal.postgres.postgres_journal import PostgresJournal
    from deputy.journal.postgres.postgres_store import PostgresStore
    from deputy.journal.sql.transaction import SqlLease
    from deputy.runtime.active_run import HostedRuns
    from deputy.tools.git_workspaces import GitWorkspaces

SLOTS = 8
"""How many runs a worker carries out at once, if that is not given."""
DRAIN_SECONDS = 30.0
"""How long the steps under way may take to end when a worker leaves."""
SWEEP_SECONDS = 3.0
CLEAN_SECONDS = 300.0
"""How often a worker looks for what killed ones left on its disk."""


class _Place(NamedTuple):
    """A folder of this machine with the settings under which runs use it."""

    workspace: str
    conditions: Conditions
    """They decide approvals, questions and limits."""


class _OpenServices(NamedTuple):
    """Services, and what is open of them."""

    services: Services
    stack: AsyncExitStack


class WorkspaceServices:
    """The services of the workspaces that this worker serves, opened when a run first needs them."""

    def __init__(self, parts: RuntimeParts, journal: PostgresJournal, workspaces: GitWorkspaces) -> None:
        self._parts = parts
        self._options = parts.options
        self._journal = journal
        self._workspaces = workspaces
        self._clean_at = 0.0
        self._opened: dict[_Place | str, _OpenServices] = {}
        """By the folder that trees share, or by the tree that has a checkout of its own."""
        self._of_root: dict[str, _Place | str] = {}
        """Which of them the trees of active runs use."""
        self._opening = asyncio.Lock()

    async def execute(self, run: RunContext, start: RunStart) -> Outcome:
        """The workflow of a run, with the services of its tree."""
        root = run.lineage.root_id
        services = await self._services_of(root, start)
        if isinstance(services, WorkspaceError):
            return workspace_missing(run, services)
        return _with_host(await run_workflow(run, start, services=services))

    def finish(self, state: State) -> None:
        """Forget what the services keep of an ended run."""
        root = state.run if state.lineage is None else state.lineage.root_id
        used = self._of_root.get(root)
        if used is not None:
            self._opened[used].services.finish(state)

    async def keep(self, place: Worktree, label: str, outcome: Outcome) -> Outcome:
        """The outcome of a stopped run with the changes in its worktree, which may come from another machine."""
        try:
            services = await self._services_of(outcome.lineage.root_id)
            if isinstance(services, WorkspaceError):
                raise services
            here = place if services.worktrees is None else await services.worktrees.restore(outcome.session_id, place)
        except (WorkspaceError, StorageError) as error:
            # What is stored of it can be fetched.
            return with_work(outcome, WorktreeChanges(branch=place.branch, warning=str(error)))
        return await keep_changes(services, here, label, outcome)

    async def tidy(self, active: Callable[[], Collection[str]]) -> None:
        """Close what trees that this worker no longer works on had open, and remove what no process uses."""
        async with self._opening:
            self._of_root = {root: used for root, used in self._of_root.items() if root in active()}
            ended = self._opened.keys() - self._of_root.values()
            for used in ended:
                await self._opened.pop(used).stack.aclose()
        if ended or time.monotonic() >= self._clean_at:
            self._clean_at = time.monotonic() + CLEAN_SECONDS
            # Another process may remove the same at this moment.
            with suppress(OSError, WorkspaceError):
                await interruptible(self._workspaces.clean_up)

    async def _services_of(self, root: str, start: RunStart | None = None) -> Services | WorkspaceError:
        """The services of a tree, or the reason why this machine cannot have its folder."""
        # What is known is open: `tidy` forgets a tree before it closes anything. So it waits for no other checkout.
        if root in self._of_root:
            return self._opened[self._of_root[root]].services
        async with self._opening:
            if root not in self._of_root:
                try:
                    self._of_root[root] = await self._find(root, start)
                except WorkspaceError as error:
                    return error
            return self._opened[self._of_root[root]].services

    async def _find(self, root: str, start: RunStart | None) -> _Place | str:
        """Open the services of a tree, unless they are open."""
        first = await self._journal.get(root, "requested")
        top = start if first is None or not isinstance(first.event, RunOpened | Requested) else first.event
        if top is None:
            raise WorkspaceError(f"The store has no record of the tree {root}", "Submit the work again.")
        given = top.conditions or Conditions()
        if given.snapshot is not None:
            if root not in self._opened:
                self._opened[root] = await self._open_snapshot(root, given, given.snapshot)
            return root
        place = _Place(await asyncio.to_thread(self._folder, top.workspace, given), given)
        if place not in self._opened:
            async with AsyncExitStack() as opening:
                services = await self._open(place, opening)
                self._opened[place] = _OpenServices(services, opening.pop_all())
        return place

    def _folder(self, workspace: str, given: Conditions) -> str:
        # A record of the store must not choose folders of this machine: its own config does.
        if given.shared is None or self._parts.settings.workspace.mode != "shared":
            raise WorkspaceError(
                f"The run of {workspace} needs a shared volume, and the worker on {socket.gethostname()} has none",
                'Set `mode = "shared"` and `root` below [workspace] in its config, or submit with `mode = "git"`.',
            )
        return shared_folder(self._parts, given.shared)

    async def _open_snapshot(self, root: str, given: Conditions, snapshot: Snapshot) -> _OpenServices:
        """Open the services of a tree whose workspace is a checkout of its own."""
        folder = await self._workspaces.open(root, snapshot)
        async with AsyncExitStack() as opening:
            opening.callback(self._workspaces.release, root)
            worktrees = PlacedWorktrees(
                self._parts.folder / home.WORKTREES, Path(folder), os.environ, safe_id, self._workspaces, snapshot
            )
            opening.callback(worktrees.release)
            services = await self._open(_Place(folder, given), opening, worktrees)
            return _OpenServices(services, opening.pop_all())

    async def close(self) -> None:
        """Close what is open of all trees."""
        while self._opened:
            await self._opened.popitem()[1].stack.aclose()

    async def _open(self, place: _Place, stack: AsyncExitStack, worktrees: PlacedWorktrees | None = None) -> Services:
        given = place.conditions
        options = DeputyOptions(
            workspace=place.workspace,
            home=self._options.home,
            store=self._options.store,
            policy=given.policy,
            approval=given.approval,
            base_prompt=given.base_prompt,
            trusts_project=given.trusts_project,
            # Those of a snapshot did not travel.
            private=given.private if worktrees is None else (),
        )
        parts = RuntimeParts(options, can_ask=given.can_ask, snapshot=given.snapshot)
        opened = await stack.enter_async_context(open_workspace(parts, self._journal, worktrees=worktrees))
        return opened.services


class Worker:
    """The runs that this process carries out for queues."""

    def __init__(
        self,
        journal: PostgresJournal,
        engine: LocalEngine[SqlLease],
        services: WorkspaceServices,
        dispatch: Dispatch,
        labels: Sequence[str],
        keys: Sequence[str] = (),
    ) -> None:
        """`keys` are the names of its provider keys, which the others see."""
        self.journal = journal
        self.engine = engine
        self._services = services
        self.labels = tuple(labels)
        self._keys = keys
        self._dispatch = dispatch
        self.slots = 0
        self.is_draining = False
        self._is_claiming = False
        self.takeovers = 0
        """How many runs of lost workers it placed again."""

    def problem(self) -> str | None:
        """Why this worker takes no runs now; None when it does."""
        if self.is_draining:
            return "draining: it hands over its runs"
        if not self._is_claiming:
            return "starting: it does not claim runs yet"
        if not self.journal.is_beating():
            return "the store is away: no heartbeat could be written lately"
        return None

    def counts(self) -> HostedRuns:
        """What this worker holds, lost and repeated."""
        return self.engine.hosted()

    async def work(self, slots: int | None, stop: asyncio.Event, is_ready: Callable[[], None]) -> None:
        """Carry out runs until `stop` is set; then let steps end, and hand over what is left."""
        self.slots = await self.journal.enter_worker(self.labels, slots, default=SLOTS, keys=self._keys)
        claims_end = asyncio.Event()

        def claiming() -> None:
            self._is_claiming = True
            is_ready()

        queues = [queue_of(label) for label in self.labels or ("",)]
        async with asyncio.TaskGroup() as group:
            sweeping = group.create_task(self._sweep())
            group.create_task(self._drain(stop, claims_end))
            await self._dispatch.work(
                self.engine.carry_out, queues=queues, slots=self.slots, stop=claims_end, is_ready=claiming
            )
            sweeping.cancel()

    async def _drain(self, stop: asyncio.Event, claims_end: asyncio.Event) -> None:
        await stop.wait()
        self.is_draining = True
        with suppress(StorageError):
            # While the store is away, the others see that the heartbeat stops.
            await self.journal.leave_workers()
        # Claiming stops first, or this worker would claim again what it hands over.
        claims_end.set()
        await self.engine.drain(DRAIN_SECONDS)

    async def _sweep(self) -> None:
        """Place again what other workers lost, and what an error of the store stopped here."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self.takeovers += sum(await self.journal.sweep())
                await self._services.tidy(self.engine.active_roots)
                if not self.is_draining:
                    await self.engine.resume_troubled()
                    await self._dispatch.forget()
            except StorageError:
                # The store may be back at the next sweep.
                continue


@asynccontextmanager
async def open_worker(options: DeputyOptions, labels: Sequence[str] = ()) -> AsyncGenerator[Worker]:
    """Open a worker; on exit, what it still holds is placed again."""
    parts = RuntimeParts(options)
    if parts.store.is_local:
        raise UsageError(
            "store",
            Unquoted("none; workers need one"),
            "set DEPUTY_STORE=postgres://USER@HOST/NAME, and run: deputy store migrate",
        )
    store = cast("PostgresStore", parts.store)
    await asyncio.to_thread(prune_store, parts)
    async with (
        AsyncExitStack() as stack,
        open_store(parts.store, fsync=parts.settings.journal.fsync, mask=parts.keys.mask_json) as opened,
    ):
        journal = cast("PostgresJournal", opened)
        dispatch = _dispatch(store, journal.owner)
        services = await stack.enter_async_context(_services(parts, journal))
        engine = LocalEngine(
            journal,
            services.execute,
            SystemWorld(journal.clock.now),
            clean_up=end_children,
            keep=services.keep,
            is_over=services.finish,
            observers=observers(parts),
            placing=journal,
        )
        async with engine:
            yield Worker(journal, engine, services, dispatch, labels, parts.catalog.keys_in(os.environ))


@asynccontextmanager
async def _services(parts: RuntimeParts, journal: PostgresJournal) -> AsyncGenerator[WorkspaceServices]:
    services = WorkspaceServices(parts, journal, git_workspaces(parts))
    try:
        yield services
    finally:
        await services.close()


def _dispatch(store: PostgresStore, owner: str) -> Dispatch:
    """The engine of the queues."""
    dispatch_name()
    from deputy.placement.dbos_dispatch import DbosDispatch

    return DbosDispatch(store.address.url, store.location, owner, may_use=store.may_use_queues)


def _with_host(outcome: Outcome) -> Outcome:
    """The outcome; the error of a missing key says on which machine it is missing."""
    if not any(error.code == "NO_API_KEY" for error in outcome.errors):
        return outcome
    more = f" It is missing on {socket.gethostname()}: set it in the environment of `deputy worker` there, and resume."
    errors = (
        structs.replace(error, recommendation=error.recommendation + more) if error.code == "NO_API_KEY" else error
        for error in outcome.errors
    )
    return structs.replace(outcome, errors=tuple(errors))
