"""The ports, quotas and budgets that all runs of a process share."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from msgspec import structs

from deputy.core.errors import StorageError
from deputy.core.guard import Policy, Ticket, admit
from deputy.core.limits import IDLE_SECONDS, SpawnCounts
from deputy.core.progress import Progress
from deputy.core.provider_keys import ProviderKeys
from deputy.core.redaction import Redactor
from deputy.engine.agent_context import ToolCatalog
from deputy.engine.budget import LocalBudgets, amount
from deputy.engine.paced_progress import PacedProgress
from deputy.engine.ports.budgets import BudgetOpening, RunSpending, Spawn
from deputy.engine.shown_events import ShownEvents
from deputy.engine.timeouts import SharedTimer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from deputy.core.conversation import ThinkingLevel
    from deputy.core.limits import Budget
    from deputy.core.outcome import Outcome, Rejected
    from deputy.core.request import Grant, Request
    from deputy.core.state import State
    from deputy.engine.agent_context import Approval
    from deputy.engine.ports import (
        Backends,
        Files,
        FlowTool,
        Model,
        RunContext,
        RunStart,
        Tool,
        Tools,
        Worktrees,
        World,
    )
    from deputy.engine.ports.backend import Scripts
    from deputy.engine.ports.budgets import Budgets, Ledger
    from deputy.engine.ports.subtask_services import Subtasks

    Hook: TypeAlias = Callable[[RunContext, RunStart], Awaitable[Outcome | None]]


_OFFERS = 64


class Services:
    """Ports and shared counters of all runs of a process."""

    def __init__(
        self,
        *,
        world: World,
        open_model: Callable[[str], Model],
        open_tools: Callable[[Grant, str], Tools],
        max_cost: Callable[[str, int, int], float | None],
        thinking: Callable[[str], ThinkingLevel | None] = lambda _: None,
        is_compact: Callable[[str, int | None], bool] = lambda _name, _window: False,
        find_window: Callable[[str], Callable[[], Awaitable[int | None]] | None] = lambda _: None,
        windows: Mapping[str, int],
        timer: SharedTimer | None = None,
        files: Files,
        worktrees: Worktrees | None = None,
        backends: Backends | None = None,
        idle_seconds: float = IDLE_SECONDS,
        watch: Callable[[Progress], None],
        policy: Policy | None = None,
        redactor: Redactor | None = None,
        keys: ProviderKeys | None = None,
        base_prompt: str = "",
        has_project_notes: bool = False,
        approval: Approval = "granted",
        can_ask: bool = False,
        flow_tools: tuple[FlowTool, ...] = (),
        subtasks: Subtasks | None = None,
        scripts: Scripts | None = None,
        budgets: Budgets | None = None,
        before_run: tuple[Hook, ...] = (),
    ) -> None:
        self.world = world
        self.open_model = open_model
        self.open_tools = open_tools
        self.max_cost = max_cost
        self.thinking = thinking
        self.is_compact = is_compact
        self._find_window, self._windows = find_window, windows
        self.files = files
        self.worktrees, self.backends = worktrees, backends
        self.idle_seconds = idle_seconds
        self.redactor = redactor or Redactor()
        self.keys = keys or ProviderKeys()
        self.watch = watch
        """Shows progress to the watchers of this process, who redact it."""
        self.policy = policy or Policy()
        self.base_prompt = self.keys.mask(base_prompt)
        self.has_project_notes = has_project_notes
        """Whether agents get the AGENTS.md or CLAUDE.md of their workspace with the task."""
        self.approval: Approval = approval
        self.can_ask, self.flow_tools = can_ask, flow_tools
        self.subtasks, self.scripts = subtasks, scripts
        self.timer = timer or SharedTimer()
        self.budgets: Budgets = budgets or LocalBudgets()
        """The budgets and spawn counts, of this process or of all workers."""
        self.before_run = before_run
        """Called in order before each run works; an outcome ends the run."""
        self._always: dict[tuple[str, int], set[str]] = {}
        """By run and round, the tools that a person always allows; not on record, so that it ends with the process."""
        self._live: dict[str, Request] = {}
        self._on_provider: Counter[str] = Counter()
        self._in_tree: Counter[str] = Counter()
        """Live runs, by provider and by root."""
        self._native_failures: dict[str, int] = {}
        """By root, failures of the native backend; kept as long as the spawn counts."""
        self._counting: dict[str, asyncio.Lock] = {}
        self._offers: dict[tuple[int, ...], ToolCatalog] = {}
        self._aside: set[str] = set()
        self._emitted: dict[str, int] = {}
        """By run, the round that watchers know of."""
        self._paced: dict[str, PacedProgress] = {}
        """The progress of active runs."""
        self._shown: dict[str, ShownEvents] = {}
        """By run, what watchers have seen: a suspended run that continues does not show it again."""

    def always_allowed(self, run: str, round_number: int) -> set[str]:
        """The tools of a run that a person has always allowed in this round; suspending the run keeps them."""
        return self._always.setdefault((run, round_number), set())

    def known_window(self, name: str, model: Model) -> int | None:
        """The context window of a model: from the settings, else from the catalog."""
        return self._windows.get(name, model.context_window)

    async def window(self, run: RunContext, name: str, model: Model) -> int | None:
        """The known context window of a model, else as its server says."""
        window = self.known_window(name, model)
        find = None if window is not None else self._find_window(name)
        # Recorded: the limits of a run must not change when it is replayed.
        return window if find is None else await run.value(f"window:{name}", int | None, find, step="window")

    def emit(self, run: RunContext, progress: Progress) -> None:
        """Show progress of a run to all watchers; a replay shows nothing again."""
        shown = self._shown.get(run.run)
        if shown is None:
            shown = self._shown[run.run] = ShownEvents()
        if not shown.is_new(run, progress):
            return
        paced = self._paced.get(run.run)
        if paced is None:
            paced = self._paced[run.run] = PacedProgress(partial(self._show, run), self.timer)
        paced.emit(structs.replace(progress, session_id=run.run))

    def _close_paced(self, run: str) -> None:
        if (paced := self._paced.pop(run, None)) is not None:
            paced.close()

    def _show(self, run: RunContext, progress: Progress) -> None:
        run.emit(progress)
        self.watch(progress)

    def offer(self, tools: tuple[Tool | FlowTool, ...], *, is_compact: bool = False) -> ToolCatalog:
        """The cached catalog of these tools."""
        # A catalog keeps its tools alive, so their ids cannot be reused while it is cached.
        key = (is_compact, *map(id, tools))
        if key not in self._offers:
            if len(self._offers) >= _OFFERS:
                self._offers.clear()
            self._offers[key] = ToolCatalog(tools, self.keys, is_compact=is_compact)
        return self._offers[key]

    # --- counts -------------------------------------------------------------------------------------------------------

    async def admit(self, request: Request, now: float) -> Ticket | Rejected:
        """Apply the guard to a request; a ticket is counted at once."""
        live, by_provider = len(self._live), dict(self._on_provider)

        def decide(spawned: int, spawns_left: float | None) -> Ticket | Rejected:
            counts = SpawnCounts(spawned=spawned, live=live, live_by_provider=by_provider, spawns_left=spawns_left)
            return admit(request, self.policy, counts, now)

        # Counted before it is decided: others are admitted while this one waits for a store.
        self._count_live(request)
        decision = await self.budgets.spawn(_spawn(request), decide)
        if not isinstance(decision, Ticket):
            self.release(request.session_id)
        return decision

    def restore(self, request: Request) -> None:
        """Count an admitted run, again after a restart or in a later round."""
        self.budgets.restore(_spawn(request))
        self._count_live(request)

    def _count_live(self, request: Request) -> None:
        if request.session_id not in self._live:
            self._live[request.session_id] = request
            self._on_provider[request.provider] += 1
            self._in_tree[request.caller.root_id] += 1

    def release(self, run: str) -> None:
        """A run has ended or was rejected."""
        request = self._live.pop(run, None)
        if request is not None:
            _count_down(self._on_provider, request.provider)
            _count_down(self._in_tree, request.caller.root_id)
            self._drop_tree(request.caller.root_id)

    def _drop_tree(self, root: str) -> None:
        if root not in self._aside and not self._in_tree[root] and self.budgets.forget_tree(root):
            self._native_failures.pop(root, None)

    async def native_failures(self, root: str) -> int:
        """The failures of the native backend in a tree, read from the journal once."""
        if root not in self._native_failures:
            # Children start together: the first one reads, the others wait for it.
            async with self._counting.setdefault(root, asyncio.Lock()):
                if root not in self._native_failures:
                    found = 0 if self.backends is None else await self.backends.native_failures(root)
                    self._native_failures.setdefault(root, found)
            self._counting.pop(root, None)
        return self._native_failures[root]

    def count_native_failure(self, root: str) -> None:
        """Count a failure of the native backend."""
        self._native_failures[root] = self._native_failures.get(root, 0) + 1

    # --- budgets ------------------------------------------------------------------------------------------------------

    async def open_ledger(
        self, run: RunContext, budget: Budget, parent: str | None, *, counts_own: bool = True
    ) -> Ledger:
        """The ledger of a run, with earlier spending of the run and its descendants.

        `counts_own` says whether the direct children of a root count against the spawn quota.
        """
        below = await run.descendants() if run.state.counts.children else ()
        self._aside.discard(run.run)
        return await self.budgets.open(
            BudgetOpening(
                run=run.run,
                root=run.lineage.root_id,
                parent=parent,
                budget=budget,
                used=amount(run.state.usage),
                below=tuple(
                    RunSpending(
                        run=one.run,
                        parent=one.parent,
                        used=amount(one.usage),
                        is_spawn=_is_admitted(one),
                        is_counted=counts_own or one.parent != run.run,
                    )
                    for one in below
                ),
                is_resumed=bool(run.history) or run.is_replaying,
            )
        )

    @contextmanager
    def tracking(self, run: RunContext) -> Generator[None]:
        """Keep a run's counts and ledger while it is active; a suspended run keeps its capped ledger."""
        try:
            yield
        except BaseException as stop:
            # Also on cancellation, which is re-raised.
            self._stopped(run, stop)
            raise
        else:
            self.drop(run.run)
        finally:
            self.release(run.run)
            self._close_paced(run.run)

    def _stopped(self, run: RunContext, stop: BaseException) -> None:
        """Keep the capped ledger of a run that will be resumed; its descendants pay from it."""
        if not (run.is_suspended or _is_storage_trouble(stop)):
            self.drop(run.run)
            return
        self._aside.add(run.run)
        self.budgets.set_aside(run.run)

    def finish(self, state: State) -> None:
        """Forget a run whose end is recorded, and show the end if watchers know the run."""
        is_known = self._emitted.pop(state.run, None) is not None
        self._close_paced(state.run)
        self.drop(state.run)
        if is_known:
            text = Progress(event="completed", label=state.label, session_id=state.run, status=state.status)
            text = structs.replace(text, seconds=state.seconds_worked(state.last_clock))
            text = structs.replace(text, reason=state.reason or None, model=state.model or None)
            if (used := state.usage).requests:
                # It may have ended in another process, whose `tokens` events were not seen here.
                text = structs.replace(text, input=used.input, output=used.output, cost=used.cost)
                text = structs.replace(text, estimated=used.estimated)
            self.watch(text)

    def drop(self, run: str) -> None:
        """Remove a run's ledger and those of its stopped descendants."""
        self.budgets.drop(run)
        self._aside.discard(run)
        self._shown.pop(run, None)
        self._drop_tree(run)

    # --- watchers -----------------------------------------------------------------------------------------------------

    def is_news(self, run: RunContext) -> bool:
        """Whether this round of a run is new to watchers; a resumed suspension is not."""
        is_told = self._emitted.get(run.run) == run.state.round
        self._emitted[run.run] = run.state.round
        return not is_told


def _spawn(request: Request) -> Spawn:
    return Spawn(
        run=request.session_id,
        caller=request.caller.session_id,
        root=request.caller.root_id,
        is_counted=request.is_counted,
        is_capped=bool(request.caller_grant.budget.capped),
    )


def _is_storage_trouble(stop: BaseException) -> bool:
    """Whether storage failed, so that descendants may still be active."""
    if isinstance(stop, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", stop).subgroup(StorageError) is not None
    return isinstance(stop, StorageError)


def _is_admitted(state: State) -> bool:
    lineage = state.lineage
    if lineage is None or state.status == "rejected":
        return False
    # A subtask adds a signature but no depth.
    below = lineage.depth + sum(hop.role == "subtask" for hop in lineage.path)
    return len(lineage.signatures) >= below


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
