"""The only module that chooses adapters: it assembles journal, models, tools and engine."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.agents.workspace_agents import WorkspaceAgents, is_trusted
from deputy.config import load_catalog, load_fallback_tables, load_user, mcp_servers
from deputy.config.settings import McpSettings
from deputy.core.events import RunOpened
from deputy.core.guard import Policy
from deputy.core.provider_keys import ProviderKeys
from deputy.engine.call import DELEGATE
from deputy.engine.dispatch import run_workflow
from deputy.engine.ports.subtask_services import Subtasks
from deputy.engine.services import Services
from deputy.engine.timeouts import SharedTimer
from deputy.engine.worktree import keep_worktree
from deputy.journal import home, transcript
from deputy.journal.batched_calls import BatchedCalls
from deputy.journal.retention import prune_expired
from deputy.journal.shared_rate_limit import JournalRateLimitStore
from deputy.processes.ancestry import HOME_VARIABLE
from deputy.processes.outgoing import process_redactor
from deputy.project_tasks.claim import claim_task
from deputy.runtime.engine import LocalEngine, SystemWorld
from deputy.runtime.suspension import SUSPEND_SECONDS
from deputy.stores import STORE_VARIABLE, find_store, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from deputy.backends.function_backend import AgentFunction
    from deputy.backends.registry import BackendRegistry
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.core.redaction import Redactor
    from deputy.core.request import Grant
    from deputy.engine.ports import FlowTool, Folder, Model, Observer, Ranker, RunContext, Tool, Tools, Worktree
    from deputy.engine.ports.durable import RunStart
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_store import SqlStore
    from deputy.journal.sql.transaction import SqlLease
    from deputy.journal.sqlite.connection import Fsync
    from deputy.models.factory import ModelFactory
    from deputy.options import DeputyOptions
    from deputy.processes.child_process import StopSignal
    from deputy.processes.evaluator_script import ProgramScripts
    from deputy.tools.git_worktrees import GitWorktrees
    from deputy.tools.mcp_servers import McpServers

_DAY_SECONDS = 86_400.0
_TIDY_SECONDS = 3.0
"""Time for git to remove old worktrees at start-up; `deputy prune` removes the rest."""
_GRANTS = 64
_MANY = 100_000
SEARCHES = 8
"""The maximum number of search and conversion processes at once."""


class WorkspaceFiles:
    """Files of the workspace and the home, as a delegation uses them."""

    def __init__(self, root: Path, folder: Path, redactor: Redactor) -> None:
        self._root = root
        self._folder = folder
        self._redactor = redactor
        # Children mostly have the same grant, and resolving a path costs a system call per part.
        self._opened = lru_cache(_GRANTS)(self._open)
        self._scratchpads: BatchedCalls[Path, None] = BatchedCalls(
            lambda paths: asyncio.get_running_loop().run_in_executor(None, transcript.begin_scratchpads, paths)
        )

    async def begin_scratchpad(self, label: str, session_id: str) -> str:
        """The path of a subagent's notes; the file exists from the start."""
        path = transcript.scratchpad_path(self._folder, label, session_id, self._redactor)
        # A label that looks like the start of a secret would redact the id behind it.
        if self._redactor.redact(str(path)) != str(path):
            path = transcript.scratchpad_path(self._folder, "", session_id, self._redactor)
        await self._scratchpads.ask(path)
        return str(path)

    async def note(self, scratchpad: str, content: str) -> None:
        """Add a note to a scratchpad."""
        await asyncio.to_thread(transcript.add_note, Path(scratchpad), content)

    def open(self, grant: Grant, root: str = "") -> Folder:
        """Open the workspace, or another directory, with the rights of a grant."""
        return self._opened(grant, root)

    def _open(self, grant: Grant, root: str) -> Folder:
        from deputy.tools.workspace_folder import WorkspaceFolder

        return WorkspaceFolder(
            root or self._root,
            grant,
            private=(self._folder,),
            main=self._root,
            untouched=self._untouched if root else None,
        )

    def _untouched(self, root: str, paths: Sequence[str], stop: StopSignal) -> Callable[[str], bool]:
        from deputy.tools.git_worktrees import untouched

        return untouched(self._folder / home.WORKTREES, os.environ, root, paths, stop)


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
    parts = _RuntimeParts(options)
    await asyncio.to_thread(_prune_expired, parts)
    models: Mapping[str, Model] = {} if options.models is None else options.models
    async with _open_services(parts, fsync, models) as (journal, opened, servers, keys):
        trusts_project = options.trusts_project
        if trusts_project is None:
            trusts_project = is_trusted(parts.workspace, parts.settings.agents.trusted)
        agents = WorkspaceAgents(
            parts.workspace,
            opened.usable,
            trusts_project=trusts_project,
            own_tools=[tool.name for tool in tools],
            functions=parts.functions,
        )
        backends, policy = _find_backends(parts, journal, opened), _policy(parts, options.policy)
        services = Services(
            world=SystemWorld(journal.clock.now),
            open_model=opened.open,
            open_tools=_toolboxes(parts, tools, servers),
            max_cost=opened.max_cost,
            thinking=opened.thinking,
            is_compact=opened.is_compact,
            find_window=opened.find_window,
            windows=windows or {},
            files=parts.files,
            timer=parts.timer,
            worktrees=_worktrees(parts),
            backends=backends,
            idle_seconds=parts.effective.idle_seconds,
            redactor=parts.redactor,
            keys=keys,
            watch=watch or options.watch or (lambda progress: None),
            policy=policy,
            base_prompt=options.base_prompt,
            has_project_notes=trusts_project and parts.settings.agents.notes,
            approval=options.approves,
            can_ask=options.answer is not None,
            flow_tools=_flow_tools(parts, opened, agents, backends, policy),
            scripts=_scripts(parts),
            budgets=parts.store.budgets(journal),
            before_run=(partial(_start_servers, servers), claim_task),
            subtasks=_subtasks(parts, opened, ranker, lambda name: services.known_window(name, opened.open(name))),
        )
        async with _engine(parts, journal, services, suspend_seconds) as engine:
            yield Runtime(
                engine=engine,
                journal=journal,
                models=opened,
                services=services,
                agents=agents,
                backends=backends,
                folder=parts.folder,
                store=parts.store,
                servers=servers,
            )


# --- the steps of open_runtime ----------------------------------------------------------------------------------------


class _RuntimeParts:
    """The paths, settings and redactor that all other parts need."""

    def __init__(self, options: DeputyOptions) -> None:
        self.workspace = options.root
        self.effective = options.settings
        self.observer = options.observer
        self.functions: Mapping[str, AgentFunction] = options.agents or {}
        self.mcp_servers = mcp_servers(McpSettings(servers=dict(options.mcp_servers or {})), "Deputy")
        self.settings = load_user()
        self.folder = home.make_home(options.folder or home.home_path())
        self.store = find_store(self.folder, options.store)
        self.private = (self.folder, *map(Path, options.private))
        self.redactor = process_redactor()
        self.files = WorkspaceFiles(self.workspace, self.folder, self.redactor)
        self.timer = SharedTimer()

    @property
    def environment(self) -> dict[str, str]:
        """Our environment with the current home, so that a nested Deputy finds the run's journal."""
        return {**os.environ, HOME_VARIABLE: str(self.folder)}


def _prune_expired(parts: _RuntimeParts) -> None:
    """Remove old runs, and kill programs whose Deputy process has died."""
    from deputy.journal.registry import orphaned
    from deputy.processes.orphans import environment_tag, kill_orphans
    from deputy.tools.git_worktrees import WorktreeCleanup

    kept_seconds = parts.settings.journal.retention_days * _DAY_SECONDS
    prune_expired(parts.store, parts.store.now(), kept_seconds, WorktreeCleanup(os.environ, _TIDY_SECONDS))
    queries = parts.store.queries()
    if queries is not None:
        with queries:
            kill_orphans(*map(environment_tag, orphaned(queries)))


@asynccontextmanager
async def _open_services(
    parts: _RuntimeParts, fsync: Fsync | None, given: Mapping[str, Model]
) -> AsyncGenerator[tuple[SqlJournal, ModelFactory, McpServers, ProviderKeys]]:
    """Open the parts that must be closed with the runtime."""
    from deputy.models.catalog import read_catalog
    from deputy.models.factory import ModelFactory
    from deputy.tools.mcp_servers import McpServers
    from deputy.tools.web_search import SEARCH_KEYS

    settings = parts.settings
    catalog = read_catalog(load_catalog(str(parts.workspace)))
    providers = (name for provider in catalog.providers.values() for name in provider.keys)
    # A password in the address of the store is a secret like a provider's key.
    secrets = dict(zip((STORE_VARIABLE, f"{STORE_VARIABLE}_PASSWORD"), parts.store.passwords, strict=False))
    keys = ProviderKeys((*providers, *SEARCH_KEYS, *secrets), {**os.environ, **secrets})
    async with (
        open_store(parts.store, fsync=fsync or settings.journal.fsync, mask=keys.mask_json) as journal,
        ModelFactory(
            environ=os.environ,
            catalog=catalog,
            given=given,
            idle_seconds=parts.effective.idle_seconds,
            pace_of=lambda account: JournalRateLimitStore(journal, account),
            timer=parts.timer,
        ) as models,
        McpServers(mcp_servers(settings.mcp) | parts.mcp_servers) as servers,
    ):
        yield journal, models, servers, keys


def _find_backends(parts: _RuntimeParts, journal: SqlJournal, models: ModelFactory) -> BackendRegistry:
    from deputy.backends.registry import BackendRegistry
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


def _toolboxes(parts: _RuntimeParts, own: Sequence[Tool], servers: McpServers) -> Callable[[Grant, str], Tools]:
    slots, seconds = asyncio.Semaphore(SEARCHES), parts.effective.tool_seconds
    is_sandboxed = parts.settings.tools.run.sandbox is not None

    # Tools are stateless, so runs with equal grants share them.
    @lru_cache(_GRANTS)
    def open_tools(served: tuple[Tool, ...], grant: Grant, root: str) -> Tools:
        from deputy.tools.toolbox import Toolbox, standard_tools
        from deputy.tools.workspace import Workspace

        place = Workspace(root or parts.workspace, grant, private=parts.private, main=parts.workspace)
        standard = standard_tools(
            place, parts.environment, slots=slots, run_seconds=seconds.get("Run"), is_sandboxed=is_sandboxed
        )
        return Toolbox((*standard, *own, *served), grant, seconds, parts.timer)

    return lambda grant, root: open_tools(servers.tools(), grant, root)


def _worktrees(parts: _RuntimeParts) -> GitWorktrees:
    from deputy.tools.git_worktrees import GitWorktrees

    return GitWorktrees(parts.folder / home.WORKTREES, parts.workspace, os.environ, transcript.safe_id)


def _flow_tools(
    parts: _RuntimeParts, models: ModelFactory, agents: WorkspaceAgents, backends: BackendRegistry, policy: Policy
) -> tuple[FlowTool, ...]:
    from deputy.tools.ask import AskTool
    from deputy.tools.delegate import DelegateTool
    from deputy.tools.note import NoteTool
    from deputy.tools.subtask import SubtaskTool

    delegating = DelegateTool(
        models.missing_key, models.prices_of, agents, backends.has_program, max_depth=policy.max_depth
    )
    return (NoteTool(parts.files), AskTool(), delegating, SubtaskTool())


def _scripts(parts: _RuntimeParts) -> ProgramScripts:
    from deputy.processes.evaluator_script import ProgramScripts

    return ProgramScripts(parts.workspace, parts.environment)


def _subtasks(
    parts: _RuntimeParts, models: ModelFactory, ranker: Ranker | None, window_of: Callable[[str], int | None]
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
    parts: _RuntimeParts, journal: SqlJournal, services: Services, suspend_seconds: float
) -> LocalEngine[SqlLease]:
    async def kept(place: Worktree, label: str, outcome: Outcome) -> Outcome:
        return outcome if services.worktrees is None else await keep_worktree(services.worktrees, place, label, outcome)

    return LocalEngine(
        journal,
        partial(run_workflow, services=services),
        services.world,
        clean_up=_end_children,
        keep=kept,
        suspend_seconds=suspend_seconds,
        is_over=services.finish,
        observers=_observers(parts),
        # Only runs of this workspace may resume in it; a path means nothing on another machine.
        adopts=(lambda state: state.workspace == str(parts.workspace))
        if parts.settings.journal.adopt and parts.store.is_local
        else None,
    )


def _observers(parts: _RuntimeParts) -> Sequence[Observer]:
    """The given observer, and one that exports if the OTEL_* variables name a collector."""
    given = () if parts.observer is None else (parts.observer,)
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return given
    from deputy.observe.otel_export import exporting_observer, is_exporting

    if not is_exporting(os.environ) or any(observer.traces for observer in given):
        return given
    exporting = exporting_observer(partial(_waiting, parts.store))
    return given if exporting is None else (exporting, *given)


def _waiting(store: SqlStore) -> tuple[float, int]:
    from deputy.journal.journal_metrics import waiting_in

    queries = store.queries()
    if queries is None:
        return 0.0, 0
    with queries:
        return waiting_in(queries)


async def _native_failures(journal: SqlJournal, root: str) -> int:
    """How often the native backend failed in a tree."""
    return sum(state.counts.native_failures for state in await journal.descendants(root))


def _policy(parts: _RuntimeParts, given: Policy | None) -> Policy:
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


async def _end_children(run: str) -> None:
    """Kill programs that a run left behind when its process died."""
    from deputy.processes.orphans import environment_tag, kill_orphans

    await asyncio.to_thread(kill_orphans, environment_tag(run))


async def _start_servers(servers: McpServers, _run: RunContext, start: RunStart) -> None:
    """Start the MCP servers whose tools a run may use: a resumed run may be in another process than before."""
    await servers.ready(_wanted_tools(start))


def _wanted_tools(start: RunStart) -> frozenset[str]:
    """The tools that the run itself may use."""
    if isinstance(start, RunOpened):
        return frozenset() if start.command == DELEGATE else start.grant.tools
    return start.request.wanted.tools or frozenset()
