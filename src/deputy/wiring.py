"""The only module that chooses adapters: it assembles journal, models, tools and engine."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

from msgspec import structs

from deputy.agents.workspace_agents import WorkspaceAgents
from deputy.config import load_fallback_tables, mcp_servers
from deputy.core.events import RunOpened
from deputy.core.guard import Policy
from deputy.core.task import WRITING_TOOLS
from deputy.engine.call import DELEGATE, RUN
from deputy.engine.dispatch import run_workflow
from deputy.engine.ports.subtask_services import Subtasks
from deputy.engine.refine import REFINE
from deputy.engine.services import Services
from deputy.engine.worktree import keep_worktree
from deputy.journal import home, transcript
from deputy.journal.shared_rate_limit import JournalRateLimitStore
from deputy.project_tasks.claim import claim_task
from deputy.runtime.engine import LocalEngine, SystemWorld
from deputy.runtime.suspension import SUSPEND_SECONDS
from deputy.runtime_parts import (
    RuntimeParts,
    conditions_of,
    end_children,
    observers,
    prune_store,
    queue_of_new_runs,
    with_workspace,
)
from deputy.stores import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from deputy.backends.backend_registry import BackendRegistry
    from deputy.core.conditions import Conditions
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.core.request import Grant
    from deputy.engine.ports import (
        FlowTool,
        PlacingJournal,
        Ranker,
        RunContext,
        Tool,
        Tools,
        Worktree,
    )
    from deputy.engine.ports.durable import RunStart
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_store import SqlStore
    from deputy.journal.sql.transaction import SqlLease
    from deputy.journal.sqlite.connection import Fsync
    from deputy.models.factory import ModelFactory
    from deputy.options import DeputyOptions
    from deputy.processes.evaluator_script import ProgramScripts
    from deputy.tools.git_worktrees import GitWorktrees
    from deputy.tools.mcp_servers import McpServers
    from deputy.tools.placed_worktrees import PlacedWorktrees

_GRANTS = 64
PLACED = frozenset({DELEGATE, RUN, REFINE, "ask"})
"""The commands whose runs workers may carry out; the others change files of the caller's project."""
_MANY = 100_000
SEARCHES = 8
"""The maximum number of search and conversion processes at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """The parts of an open Deputy."""

    engine: LocalEngine[SqlLease]
    journal: SqlJournal
    models: ModelFactory
    services: Services
    agents: WorkspaceAgents
    backends: BackendRegistry
    folder: Path
    store: SqlStore
    servers: McpServers
    queue: str
    """The queue of new runs; empty: all of them start here."""
    queue_for: Callable[[RunStart], str]
    """The queue of a new run; empty: it starts here."""
    conditions_for: Callable[[str, RunStart], Awaitable[Conditions | None]]
    """How workers carry out a new run, if they get it; its workspace is sent to the store."""


@asynccontextmanager
async def open_runtime(
    options: DeputyOptions,
    *,
    tools: Sequence[Tool] = (),
    watch: Callable[[Progress], None] | None = None,
    fsync: Fsync | None = None,
    windows: Mapping[str, int] | None = None,
    ranker: Ranker | None = None,
    suspend_seconds: float = SUSPEND_SECONDS,
) -> AsyncGenerator[Runtime]:
    """Open journal, models and engine; on exit, active runs stop where they can be resumed.

    `watch` gets every event instead of `options.watch`.
    """
    parts = RuntimeParts(options)
    await asyncio.to_thread(prune_store, parts)
    is_shared = parts.settings.workspace.mode == "shared"
    queue = queue_of_new_runs(parts)
    placed = partial(queue_for, queue=queue, is_shared=is_shared)
    shown: Callable[[Progress], None] = watch or options.watch or (lambda progress: None)
    async with (
        open_store(parts.store, fsync=fsync or parts.settings.journal.fsync, mask=parts.keys.mask_json) as journal,
        open_workspace(parts, journal, tools=tools, watch=shown, windows=windows, ranker=ranker) as opened,
        _engine(parts, journal, opened.services, suspend_seconds, placed) as engine,
    ):
        conditions = conditions_of(parts, opened.services)

        async def conditions_for(run: str, start: RunStart) -> Conditions | None:
            return await with_workspace(parts, conditions, run) if placed(start) else None

        yield Runtime(
            engine=engine,
            journal=journal,
            models=opened.models,
            services=opened.services,
            agents=opened.agents,
            backends=opened.backends,
            folder=parts.folder,
            store=parts.store,
            servers=opened.servers,
            queue=queue,
            queue_for=placed,
            conditions_for=conditions_for,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenWorkspace:
    """What the runs of one workspace use."""

    models: ModelFactory
    services: Services
    agents: WorkspaceAgents
    backends: BackendRegistry
    servers: McpServers


@asynccontextmanager
async def open_workspace(
    parts: RuntimeParts,
    journal: SqlJournal,
    *,
    tools: Sequence[Tool] = (),
    watch: Callable[[Progress], None] = lambda _: None,
    windows: Mapping[str, int] | None = None,
    ranker: Ranker | None = None,
    worktrees: PlacedWorktrees | None = None,
) -> AsyncGenerator[OpenWorkspace]:
    """Open the models, tools and services of a workspace over an open journal; `worktrees`: of a checkout."""
    options = parts.options
    async with _open_models(parts, journal) as (opened, servers):
        agents = WorkspaceAgents(
            parts.workspace,
            opened.usable,
            trusts_project=parts.trusts_project,
            own_tools=[tool.name for tool in tools],
            functions=parts.functions,
        )
        backends, policy = _find_backends(parts, journal, opened), _policy(parts, options.policy)
        services = Services(
            world=SystemWorld(journal.clock.now),
            open_model=opened.open,
            open_tools=_toolboxes(parts, tools, servers, worktrees),
            max_cost=opened.max_cost,
            thinking=opened.thinking,
            is_compact=opened.is_compact,
            find_window=opened.find_window,
            windows=windows or {},
            files=parts.files,
            timer=parts.timer,
            worktrees=worktrees or _worktrees(parts),
            backends=backends,
            idle_seconds=parts.effective.idle_seconds,
            redactor=parts.redactor,
            keys=parts.keys,
            watch=watch,
            policy=policy,
            base_prompt=options.base_prompt,
            has_project_notes=parts.trusts_project and parts.settings.agents.notes,
            approval=options.approves,
            can_ask=parts.can_ask,
            flow_tools=_flow_tools(parts, opened, agents, backends, policy),
            scripts=_scripts(parts),
            budgets=parts.store.budgets(journal),
            before_run=(partial(_start_servers, servers), claim_task),
            subtasks=_subtasks(parts, opened, ranker, lambda name: services.known_window(name, opened.open(name))),
        )
        yield OpenWorkspace(models=opened, services=services, agents=agents, backends=backends, servers=servers)


# --- the steps of open_runtime ----------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_models(parts: RuntimeParts, journal: SqlJournal) -> AsyncGenerator[tuple[ModelFactory, McpServers]]:
    """Open the parts that must be closed with the workspace."""
    from deputy.models.factory import ModelFactory
    from deputy.tools.mcp_servers import McpServers

    async with (
        ModelFactory(
            environ=os.environ,
            catalog=parts.catalog,
            # A dict that is empty now may get models later.
            given={} if parts.options.models is None else parts.options.models,
            idle_seconds=parts.effective.idle_seconds,
            pace_of=lambda account: JournalRateLimitStore(journal, account),
            timer=parts.timer,
        ) as models,
        McpServers(mcp_servers(parts.settings.mcp) | parts.mcp_servers) as servers,
    ):
        yield models, servers


def _find_backends(parts: RuntimeParts, journal: SqlJournal, models: ModelFactory) -> BackendRegistry:
    from deputy.backends.backend_registry import BackendRegistry
    from deputy.tools.workspace_text_files import WorkspaceTextFiles

    return BackendRegistry(
        environ=parts.environment,
        provider_of=models.provider_of,
        missing_key=models.missing_key,
        full_name=models.full_name,
        notice=models.notice,
        native_failures=partial(_native_failures, journal),
        redactor=parts.redactor,
        open_files=partial(WorkspaceTextFiles, private=parts.private, main=parts.workspace),
        tables=load_fallback_tables(),
        functions=parts.functions,
    )


def _toolboxes(
    parts: RuntimeParts, own: Sequence[Tool], servers: McpServers, worktrees: PlacedWorktrees | None
) -> Callable[[Grant, str], Tools]:
    slots, seconds = asyncio.Semaphore(SEARCHES), parts.effective.tool_seconds
    is_sandboxed = parts.settings.tools.run.sandbox is not None

    # Tools are stateless, so runs with equal grants share them.
    @lru_cache(_GRANTS)
    def open_tools(served: tuple[Tool, ...], grant: Grant, root: str) -> Tools:
        from deputy.tools.toolbox import Toolbox, standard_tools
        from deputy.tools.workspace import Workspace

        place = Workspace(
            root or parts.workspace,
            grant,
            private=parts.private,
            main=parts.workspace,
            repository="" if worktrees is None else worktrees.repository,
        )
        standard = standard_tools(
            place, parts.environment, slots=slots, run_seconds=seconds.get("Run"), is_sandboxed=is_sandboxed
        )
        changed = None if worktrees is None else partial(worktrees.changed, root)
        return Toolbox((*standard, *own, *served), grant, seconds, parts.timer, changed)

    return lambda grant, root: open_tools(servers.tools(), grant, root)


def _worktrees(parts: RuntimeParts) -> GitWorktrees:
    from deputy.tools.git_worktrees import GitWorktrees

    return GitWorktrees(parts.folder / home.WORKTREES, parts.workspace, os.environ, transcript.safe_id)


def _flow_tools(
    parts: RuntimeParts, models: ModelFactory, agents: WorkspaceAgents, backends: BackendRegistry, policy: Policy
) -> tuple[FlowTool, ...]:
    from deputy.tools.ask import AskTool
    from deputy.tools.delegate import DelegateTool
    from deputy.tools.note import NoteTool
    from deputy.tools.subtask import SubtaskTool

    delegating = DelegateTool(
        models.missing_key, models.prices_of, agents, backends.has_program, max_depth=policy.max_depth
    )
    return (NoteTool(parts.files), AskTool(), delegating, SubtaskTool())


def _scripts(parts: RuntimeParts) -> ProgramScripts:
    from deputy.processes.evaluator_script import ProgramScripts

    return ProgramScripts(parts.workspace, parts.environment)


def _subtasks(
    parts: RuntimeParts, models: ModelFactory, ranker: Ranker | None, window_of: Callable[[str], int | None]
) -> Subtasks:
    from deputy.agents.templates.template_files import WorkspaceTemplates
    from deputy.tools.task_files import WordRanker

    said = parts.settings.subtasks
    return Subtasks(
        templates=WorkspaceTemplates(parts.workspace).load,
        ranker=ranker or WordRanker(),
        window_of=window_of,
        missing_key=models.missing_key,
        prices_of=models.prices_of,
        has_default=said.default_template,
        seconds=said.seconds,
    )


def _engine(
    parts: RuntimeParts,
    journal: SqlJournal,
    services: Services,
    suspend_seconds: float,
    queue_for: Callable[[RunStart], str],
) -> LocalEngine[SqlLease]:
    return LocalEngine(
        journal,
        partial(run_workflow, services=services),
        services.world,
        clean_up=end_children,
        keep=partial(keep_changes, services),
        suspend_seconds=suspend_seconds,
        is_over=services.finish,
        observers=observers(parts),
        # Only runs of this workspace may resume in it; a path means nothing on another machine.
        adopts=(lambda state: state.workspace == str(parts.workspace))
        if parts.settings.journal.adopt and parts.store.is_local
        else None,
        # Any process may meet runs that workers carry out.
        placing=None if parts.store.is_local else cast("PlacingJournal[SqlLease]", journal),
        queue_for=queue_for,
    )


def queue_for(start: RunStart, queue: str, *, is_shared: bool) -> str:
    """The queue of a new run; an agent that changes files in place starts where the files are: here."""
    is_in_place = isinstance(start, RunOpened) and start.command == RUN and bool(start.grant.tools & WRITING_TOOLS)
    return queue if start.command in PLACED and (is_shared or not is_in_place) else ""


async def keep_changes(services: Services, place: Worktree, label: str, outcome: Outcome) -> Outcome:
    """The outcome of a stopped run with the changes in its worktree."""
    return outcome if services.worktrees is None else await keep_worktree(services.worktrees, place, label, outcome)


async def _native_failures(journal: SqlJournal, root: str) -> int:
    """How often the native backend failed in a tree."""
    return sum(state.counts.native_failures for state in await journal.descendants(root))


def _policy(parts: RuntimeParts, given: Policy | None) -> Policy:
    """The given policy, with the user's settings for every limit that has its default value."""
    effective, said, usual = parts.effective, parts.settings.subtasks, Policy()
    # Concurrency limits protect against models; a program may start thousands, unless it sets a policy.
    policy = given or Policy(max_live=_MANY, max_live_per_provider=_MANY)
    users = {"max_depth": effective.max_depth, "max_spawns": effective.max_spawns, "repairs": effective.repairs}
    # The subtask depth and its ceiling belong together: both are the user's or neither.
    if (policy.max_subtask_depth, policy.subtask_depth_ceiling) == (
        usual.max_subtask_depth,
        usual.subtask_depth_ceiling,
    ):
        users |= {"max_subtask_depth": said.max_depth, "subtask_depth_ceiling": said.depth_ceiling}
    left = {name: value for name, value in users.items() if getattr(policy, name) == getattr(usual, name)}
    return structs.replace(policy, **left)


async def _start_servers(servers: McpServers, _run: RunContext, start: RunStart) -> None:
    """Start the MCP servers whose tools a run may use: a resumed run may be in another process than before."""
    await servers.ready(_wanted_tools(start))


def _wanted_tools(start: RunStart) -> frozenset[str]:
    """The tools that the run itself may use."""
    if isinstance(start, RunOpened):
        return frozenset() if start.command == DELEGATE else start.grant.tools
    return start.request.wanted.tools or frozenset()
