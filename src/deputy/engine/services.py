"""What all delegations of a process share: models, tools, bounds, counts and purses."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import structs

from deputy.core.errors import StorageError
from deputy.core.guard import Policy, Ticket, admit
from deputy.core.limits import IDLE_SECONDS, NOTHING, Amount, Budget, SpawnCounts
from deputy.core.progress import Progress, redacted
from deputy.core.provider_keys import ProviderKeys
from deputy.core.redaction import Redactor
from deputy.engine.agent_context import ToolCatalog
from deputy.engine.budget import BudgetLedger, amount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from deputy.core.conversation import ThinkingLevel
    from deputy.core.outcome import Rejected
    from deputy.core.request import Grant, Request
    from deputy.core.state import State
    from deputy.engine.agent_context import Approval
    from deputy.engine.ports import Backends, Files, FlowTool, Model, RunContext, Tool, Tools, Worktrees, World
    from deputy.engine.ports.evaluator_scripts import Scripts
    from deputy.engine.ports.subtask_services import Subtasks


_OFFERS = 64


class Services:
    """The ports that delegations are carried out with, and what they have taken of the common bounds."""

    def __init__(
        self,
        *,
        world: World,
        open_model: Callable[[str], Model],
        open_tools: Callable[[Grant, str], Tools],
        max_cost_nanos: Callable[[str, int, int], int | None],
        thinking: Callable[[str], ThinkingLevel | None] = lambda _: None,
        windows: Mapping[str, int],
        files: Files,
        worktrees: Worktrees | None = None,
        backends: Backends | None = None,
        idle_seconds: float = IDLE_SECONDS,
        watch: Callable[[Progress], None],
        policy: Policy | None = None,
        redactor: Redactor | None = None,
        keys: ProviderKeys | None = None,
        base_prompt: str = "",
        approval: Approval = "granted",
        can_ask: bool = False,
        flow_tools: tuple[FlowTool, ...] = (),
        subtasks: Subtasks | None = None,
        scripts: Scripts | None = None,
        nested: Callable[[str], Awaitable[Sequence[tuple[str, str, Amount]]]] | None = None,
    ) -> None:
        self.world = world
        self.open_model = open_model
        self.open_tools = open_tools
        self.max_cost_nanos = max_cost_nanos
        self.thinking = thinking
        self._windows = windows
        self.files = files
        self.worktrees = worktrees
        self.backends = backends
        self.idle_seconds = idle_seconds
        self.redactor = redactor or Redactor()
        self.keys = keys or ProviderKeys()
        self._watch = watch
        self.policy = policy or Policy()
        self.base_prompt = self.keys.mask(base_prompt)
        self.approval: Approval = approval
        self.can_ask = can_ask
        self.flow_tools = flow_tools
        self.subtasks = subtasks
        self.scripts = scripts
        self._read_nested = nested
        self._nested_spawns: dict[str, dict[str, int]] = {}
        """By the root of the tree, how many spawns each nested run counts for."""
        self._spawned: dict[str, set[str]] = {}
        """Who was ever admitted, by the root of the tree; kept while anybody of the tree is at work."""
        self._counted: Counter[str] = Counter()
        """How many of them count, as long."""
        self._live: dict[str, Request] = {}
        self._on_provider: Counter[str] = Counter()
        self._in_tree: Counter[str] = Counter()
        """How many are alive, by provider and by the root of their tree."""
        self._ledgers: dict[str, BudgetLedger] = {}
        self._native_failures: dict[str, int] = {}
        """How often the native backend failed, by the root of the tree; kept as long as its census."""
        self._counting: dict[str, asyncio.Lock] = {}
        self._offers: dict[tuple[int, ...], ToolCatalog] = {}
        self._aside: set[str] = set()
        """Who was put aside, and will be taken up again."""
        self._emitted: dict[str, int] = {}
        """The round of each run that watchers know of."""
        self._waiting: dict[str, str] = {}
        """By run, what watchers were last told that it waits for: it may be taken up again only to wait on."""

    def window(self, name: str, model: Model) -> int | None:
        """How much a model can hold: what the user says, else what the catalog knows."""
        return self._windows.get(name, model.context_window)

    def watch(self, progress: Progress) -> None:
        """Tell the watchers of this process, without secrets."""
        self._watch(redacted(progress, self.redactor))

    def emit(self, run: RunContext, progress: Progress) -> None:
        """Tell whoever watches, here or elsewhere, what happens to a run; what it waits for is told once."""
        if progress.event == "waiting":
            if self._waiting.get(run.run) == (progress.content or ""):
                return
            self._waiting[run.run] = progress.content or ""
        elif self._waiting:
            self._waiting.pop(run.run, None)
        text = structs.replace(progress, session_id=run.run)
        run.emit(text)
        self.watch(text)

    def offer(self, tools: tuple[Tool | FlowTool, ...]) -> ToolCatalog:
        """These tools as models are told of them; who has the same tools shares what is told."""
        # An offer holds its tools, so that no others can have their identities while it is kept.
        key = tuple(map(id, tools))
        if key not in self._offers:
            if len(self._offers) >= _OFFERS:
                self._offers.clear()
            self._offers[key] = ToolCatalog(tools, self.keys)
        return self._offers[key]

    # --- counts -------------------------------------------------------------------------------------------------------

    def admit(self, request: Request, now: float) -> Ticket | Rejected:
        """Admit a request against what is alive now; a ticket is counted as it is handed out."""
        spawned = self._spawned.get(request.caller.root_id, ())
        ledger = self._ledgers.get(request.caller.session_id)
        # Whoever was admitted before a crash is in what its caller has spent already.
        is_paid = ledger is None or request.session_id in spawned
        spawn_counts = SpawnCounts(
            spawned=self._counted[request.caller.root_id],
            live=len(self._live),
            live_by_provider=self._on_provider,
            spawns_left=None if ledger is None or is_paid else ledger.remaining("spawns"),
        )
        decision = admit(request, self.policy, spawn_counts, now)
        if isinstance(decision, Ticket):
            if ledger is not None and not is_paid:
                ledger.reserve(_SPAWN)
                ledger.commit(_SPAWN, _SPAWN)
            self.restore(request)
        return decision

    def restore(self, request: Request) -> None:
        """Count a delegation that is admitted, be it again in another process or round."""
        root = request.caller.root_id
        self._count_spawn(root, request.session_id, is_counted=request.is_counted)
        if request.session_id not in self._live:
            self._live[request.session_id] = request
            self._on_provider[request.provider] += 1
            self._in_tree[root] += 1

    def _count_spawn(self, root: str, run: str, *, is_counted: bool) -> None:
        admitted = self._spawned.setdefault(root, set())
        if run not in admitted:
            admitted.add(run)
            self._counted[root] += is_counted

    def release(self, run: str) -> None:
        """A delegation is over, or was never let in."""
        request = self._live.pop(run, None)
        if request is not None:
            _count_down(self._on_provider, request.provider)
            _count_down(self._in_tree, request.caller.root_id)
            self._drop_tree(request.caller.root_id)

    def _drop_tree(self, root: str) -> None:
        if root not in self._ledgers and root not in self._aside and not self._in_tree[root]:
            self._spawned.pop(root, None)
            self._counted.pop(root, None)
            self._native_failures.pop(root, None)
            self._nested_spawns.pop(root, None)

    async def native_failures(self, root: str) -> int:
        """How often the native backend has failed in a tree, counted from the journal once."""
        if root not in self._native_failures:
            # Children start together, and each count looks at all of them; trees do not wait for each other.
            async with self._counting.setdefault(root, asyncio.Lock()):
                if root not in self._native_failures:
                    found = 0 if self.backends is None else await self.backends.native_failures(root)
                    self._native_failures.setdefault(root, found)
            self._counting.pop(root, None)
        return self._native_failures[root]

    def count_native_failure(self, root: str) -> None:
        """It failed once more."""
        self._native_failures[root] = self._native_failures.get(root, 0) + 1

    async def count_nested(self, root: str) -> None:
        """Count what runs of processes that a tree has started reserve or use, each in place of what it was before."""
        ledger = self._ledgers.get(root)
        if self._read_nested is None or ledger is None or not ledger.has_programs:
            return
        known = self._nested_spawns.setdefault(root, {})
        for nested, above, spent in await self._read_nested(root):
            self._ledgers.get(above, ledger).recount(nested, spent)
            self._counted[root] += spent.spawns - known.get(nested, 0)
            known[nested] = spent.spawns

    # --- purses -------------------------------------------------------------------------------------------------------

    async def open_ledger(
        self, run: RunContext, budget: Budget, parent: str | None, *, counts_own: bool = True
    ) -> BudgetLedger:
        """The purse of a run, with what it and the runs below it spent before this process knew of them.

        `counts_own` says of a root whether those that it spawns itself count among the spawns of its tree.
        """
        below = await run.descendants() if run.state.counts.children else ()
        # Every admission puts a signature on the lineage; one that was only asked for is not in anybody's count.
        admitted = {one.run for one in below if _is_admitted(one)}
        if parent is None:
            for one in below:
                if one.run in admitted:
                    self._count_spawn(run.run, one.run, is_counted=counts_own or one.parent != run.run)
        self._aside.discard(run.run)
        if (kept := self._ledgers.get(run.run)) is not None:
            return kept
        above = None if parent is None else self._ledgers.get(parent)
        root = run.run if run.state.lineage is None else run.state.lineage.root_id
        ledger = self._ledgers[run.run] = BudgetLedger(budget, above, partial(self.count_nested, root))
        if run.history or run.is_replaying:
            # What was started before this process took the run up may still count.
            ledger.note_programs()
        ledger.count(amount(run.state.usage))
        if above is not None:
            above.count_from(run.run, amount(run.state.usage))
        for state in below:
            spawned = _SPAWN if state.run in admitted else NOTHING
            ledger.count_from(state.run, amount(state.usage) + spawned)
        return ledger

    @contextmanager
    def tracking(self, run: RunContext) -> Generator[None]:
        """While a run is at work: at its end it is forgotten, and when it is stopped, its purse may be kept."""
        try:
            yield
        except BaseException as stop:
            # A cancel stops a run too; it is only seen here, and goes on.
            self._stopped(run, stop)
            raise
        else:
            self.drop(run.run)
        finally:
            self.release(run.run)

    def _stopped(self, run: RunContext, stop: BaseException) -> None:
        """A run stopped before its end. One to be taken up again leaves a purse that has caps to who pays from it."""
        if not (run.is_suspended or _is_storage_trouble(stop)):
            self.drop(run.run)
            return
        self._aside.add(run.run)
        ledger = self._ledgers.get(run.run)
        if ledger is not None and not ledger.is_capped:
            del self._ledgers[run.run]

    def finish(self, state: State) -> None:
        """The end of a run is on record: tell who watches it, unless it never began here, and forget it."""
        is_known = self._emitted.pop(state.run, None) is not None
        self.drop(state.run)
        if is_known:
            text = Progress(event="completed", label=state.label, session_id=state.run, status=state.status)
            self.watch(structs.replace(text, reason=state.reason or None))

    def drop(self, run: str) -> None:
        """A run is over, and its purse with it; so are those below it that were stopped."""
        ledger = self._ledgers.pop(run, None)
        self._aside.discard(run)
        self._waiting.pop(run, None)
        self._drop_tree(run)
        if ledger is not None and ledger.is_capped:
            for below in [name for name, other in self._ledgers.items() if other.is_below(ledger)]:
                del self._ledgers[below]

    # --- watchers -----------------------------------------------------------------------------------------------------

    def is_news(self, run: RunContext) -> bool:
        """Whether nobody was told yet that this round of a run began; one that is taken up again has begun."""
        is_told = self._emitted.get(run.run) == run.state.round
        self._emitted[run.run] = run.state.round
        return not is_told


_SPAWN = Amount(spawns=1)


def _is_storage_trouble(stop: BaseException) -> bool:
    """Whether a run was stopped by its storage, while those below it may still be at work."""
    if isinstance(stop, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", stop).subgroup(StorageError) is not None
    return isinstance(stop, StorageError)


def _is_admitted(state: State) -> bool:
    lineage = state.lineage
    if lineage is None or state.status == "rejected":
        return False
    # A subtask is no deeper as a delegation, and has a signature like every other.
    below = lineage.depth + sum(hop.role == "subtask" for hop in lineage.path)
    return len(lineage.signatures) >= below


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
