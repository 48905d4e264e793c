"""The one place where adapters are chosen: a journal, models and tools become a running Deputy."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.agents.workspace import WorkspaceAgents, is_trusted
from deputy.commands.taking import take_and_carry_out
from deputy.config import load_catalog, load_ladder, load_rules, load_user, mcp_servers
from deputy.core.events import Opened
from deputy.core.guard import Policy
from deputy.core.provider_keys import ProviderKeys
from deputy.engine.isolation import keep
from deputy.engine.ports.subtasks import Subtasks
from deputy.engine.root import DELEGATE
from deputy.engine.workshop import Workshop
from deputy.journal import home, transcript
from deputy.journal.pace import JournalPace
from deputy.journal.retention import keep_house
from deputy.journal.sqlite import SqliteJournal
from deputy.processes.ancestry import HOME_VARIABLE
from deputy.processes.outgoing import process_redactor
from deputy.runtimes.local import LocalEngine
from deputy.runtimes.parking import SUSPEND_SECONDS
from deputy.runtimes.real_world import RealWorld

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from deputy.backends.ways import MachineWays
    from deputy.config.settings import UserSettings
    from deputy.core.limits import Amount
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.core.redaction import Redactor
    from deputy.core.request import Grant
    from deputy.core.rules import Rules
    from deputy.engine.desk import Approval
    from deputy.engine.ports import FlowTool, Folder, Model, Ranker, RunContext, Tool, Tools, Workplace
    from deputy.engine.ports.durable import Birth
    from deputy.journal.sqlite import Fsync, Lease
    from deputy.models.make import Models
    from deputy.processes.script import ProgramScripts
    from deputy.tools.interruptible import Stop
    from deputy.tools.mcp import McpServers
    from deputy.tools.worktree import GitWorktrees

_DAY_SECONDS = 86_400.0
_TIDY_SECONDS = 3.0
"""How long git may take at start-up over worktrees of old runs; `prune` sees to those that are left."""
_GRANTS = 64
SEARCHES = 8
"""How many searches and conversions, each a process of its own, run at once."""


class WorkspaceFiles:
    """The workspace and the home, as the flow of a delegation needs them."""

    def __init__(self, root: Path, folder: Path, redactor: Redactor) -> None:
        self._root = root
        self._folder = folder
        self._redactor = redactor
        # Children mostly have the same, and to find out where a path leads asks the system for every part of it.
        self._opened = lru_cache(_GRANTS)(self._open)

    def scratchpad(self, label: str, session_id: str) -> str:
        """Where a subagent's notes are kept."""
        path = str(transcript.scratchpad_path(self._folder, label, session_id))
        # A label that reads like the beginning of a secret would take the id with it when the path is shown.
        is_clean = self._redactor.redact(path) == path
        return path if is_clean else str(transcript.scratchpad_path(self._folder, "", session_id))

    async def note(self, scratchpad: str, content: str) -> None:
        """Add a note to a scratchpad."""
        await asyncio.to_thread(transcript.add_note, Path(scratchpad), content)

    def open(self, grant: Grant, root: str = "") -> Folder:
        """What a grant gives of a directory, which is the workspace unless another is named."""
        return self._opened(grant, root)

    def _open(self, grant: Grant, root: str) -> Folder:
        from deputy.tools.folder import WorkspaceFolder

        return WorkspaceFolder(
            root or self._root,
            grant,
            private=(self._folder,),
            main=self._root,
            untouched=self._untouched if root else None,
        )

    def _untouched(self, root: str, paths: Sequence[str], stop: Stop) -> Callable[[str], bool]:
        from deputy.tools.worktree import untouched

        return untouched(self._folder / home.WORKTREES, os.environ, root, paths, stop)


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A Deputy at work in this process."""

    engine: LocalEngine[Lease]
    journal: SqliteJournal
    models: Models
    workshop: Workshop
    agents: WorkspaceAgents
    ways: MachineWays
    folder: Path
    servers: McpServers


@asynccontextmanager
async def open_runtime(
    *,
    workspace: Path,
    watch: Callable[[Progress], None],
    folder: Path | None = None,
    policy: Policy | None = None,
    approval: Approval = "granted",
    can_ask: bool = False,
    fsync: Fsync | None = None,
    tools: Sequence[Tool] = (),
    private: Sequence[Path] = (),
    rules: Rules | None = None,
    base_prompt: str = "",
    windows: Mapping[str, int] | None = None,
    ranker: Ranker | None = None,
    models: Mapping[str, Model] | None = None,
    suspend_seconds: float = SUSPEND_SECONDS,
    trusts_project: bool | None = None,
) -> AsyncGenerator[Runtime]:
    """Open the journal, the models and the engine; on leaving, what is at work stops where it can go on later.

    `models` are there already, and are asked by these names.
    """
    ground = _lay_out(workspace, folder, rules)
    await asyncio.to_thread(_tidy, ground)
    async with _open_means(ground, fsync, {} if models is None else models) as (journal, opened, servers, keys):
        if trusts_project is None:
            trusts_project = is_trusted(workspace, ground.settings.agents.trusted)
        agents = WorkspaceAgents(workspace, opened.usable, trusts_project=trusts_project)
        own = (ground.folder, *private)
        ways = _find_ways(ground, own, journal, opened)
        workshop = Workshop(
            world=RealWorld(journal.clock.now),
            open_model=opened.open,
            open_tools=_toolboxes(ground, own, tuple(tools), servers),
            ceiling=opened.ceiling,
            thinking=opened.thinking,
            windows=windows or {},
            files=ground.files,
            workplaces=_worktrees(ground),
            ways=ways,
            idle_seconds=ground.rules.idle_seconds,
            redactor=ground.redactor,
            keys=keys,
            watch=watch,
            policy=_policy(ground, policy),
            base_prompt=base_prompt,
            approval=approval,
            can_ask=can_ask,
            flow_tools=_flow_tools(ground, opened, agents, ways),
            scripts=_scripts(ground),
            nested=partial(_nested, journal),
            subtasks=_subtasks(ground, opened, ranker, lambda name: workshop.window(name, opened.open(name))),
        )
        async with _engine(ground, journal, servers, workshop, suspend_seconds) as engine:
            yield Runtime(
                engine=engine,
                journal=journal,
                models=opened,
                workshop=workshop,
                agents=agents,
                ways=ways,
                folder=ground.folder,
                servers=servers,
            )


# --- the steps of opening it ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ground:
    """What everything else stands on: where it works, what the user and the project say, and what must not be told."""

    workspace: Path
    folder: Path
    redactor: Redactor
    files: WorkspaceFiles
    settings: UserSettings
    rules: Rules


def _lay_out(workspace: Path, folder: Path | None, rules: Rules | None) -> _Ground:
    made = home.make_home(home.home_path() if folder is None else folder)
    redactor = process_redactor()
    return _Ground(
        workspace=workspace,
        folder=made,
        redactor=redactor,
        files=WorkspaceFiles(workspace, made, redactor),
        settings=load_user(),
        rules=load_rules(str(workspace)) if rules is None else rules,
    )


def _environment(folder: Path) -> dict[str, str]:
    """Our environment with the home that is in use: a Deputy below a run finds the run's journal there."""
    return {**os.environ, HOME_VARIABLE: str(folder)}


def _tidy(ground: _Ground) -> None:
    """Remove what is old, and end what commands of processes that died have left running."""
    from deputy.journal.reader import Reader
    from deputy.journal.registry import orphaned
    from deputy.processes.sweep import sweep, tag_of
    from deputy.tools.kept_work import KeptWork

    kept_seconds = ground.settings.journal.retention_days * _DAY_SECONDS
    keep_house(ground.folder, time.time(), kept_seconds, KeptWork(os.environ, _TIDY_SECONDS))
    reader = Reader.open(ground.folder)
    if reader is not None:
        with reader:
            sweep(*map(tag_of, orphaned(reader)))


@asynccontextmanager
async def _open_means(
    ground: _Ground, fsync: Fsync | None, given: Mapping[str, Model]
) -> AsyncGenerator[tuple[SqliteJournal, Models, McpServers, ProviderKeys]]:
    """What is open for as long as the runtime is."""
    from deputy.models.catalog import read_catalog
    from deputy.models.make import Models
    from deputy.tools.mcp import McpServers
    from deputy.tools.search_providers import SEARCH_KEYS

    settings = ground.settings
    catalog = read_catalog(load_catalog(str(ground.workspace)))
    providers = (name for provider in catalog.providers.values() for name in provider.keys)
    keys = ProviderKeys((*providers, *SEARCH_KEYS), os.environ)
    async with (
        SqliteJournal(
            ground.folder,
            fsync=fsync or settings.journal.fsync,
            mask=keys.mask_json,
            redact_progress=ground.redactor.redact_json,
        ) as journal,
        Models(
            environ=os.environ,
            catalog=catalog,
            given=given,
            idle_seconds=ground.rules.idle_seconds,
            pace_of=lambda account: JournalPace(journal, account),
        ) as models,
        McpServers(mcp_servers(settings.mcp)) as servers,
    ):
        yield journal, models, servers, keys


def _find_ways(ground: _Ground, private: tuple[Path, ...], journal: SqliteJournal, models: Models) -> MachineWays:
    from deputy.backends.ways import MachineWays
    from deputy.tools.text_files import open_text_files

    return MachineWays(
        environ=_environment(ground.folder),
        provider_of=models.provider_of,
        missing_key=models.missing_key,
        full_name=models.full_name,
        native_failures=partial(_native_failures, journal),
        redactor=ground.redactor,
        open_files=partial(open_text_files, private=private, main=ground.workspace),
        tables=load_ladder(),
    )


def _toolboxes(
    ground: _Ground, private: tuple[Path, ...], own: tuple[Tool, ...], servers: McpServers
) -> Callable[[Grant, str], Tools]:
    # Tools keep nothing of a call, so that all who are granted the same have the same.
    opened = lru_cache(_GRANTS)(
        partial(
            _open_tools,
            ground.workspace,
            ground.folder,
            private,
            own,
            asyncio.Semaphore(SEARCHES),
            ground.rules.tool_seconds,
        )
    )
    return lambda grant, root: opened(servers.tools(), grant, root)


def _worktrees(ground: _Ground) -> GitWorktrees:
    from deputy.tools.worktree import GitWorktrees

    return GitWorktrees(ground.folder / home.WORKTREES, ground.workspace, os.environ, transcript.safe_id)


def _flow_tools(ground: _Ground, models: Models, agents: WorkspaceAgents, ways: MachineWays) -> tuple[FlowTool, ...]:
    from deputy.tools.ask import AskTool
    from deputy.tools.delegate import DelegateTool
    from deputy.tools.note import NoteTool
    from deputy.tools.subtask import SubtaskTool

    delegating = DelegateTool(models.missing_key, models.prices_of, agents, ways.has_program)
    return (NoteTool(ground.files), AskTool(), delegating, SubtaskTool())


def _scripts(ground: _Ground) -> ProgramScripts:
    from deputy.processes.script import ProgramScripts

    return ProgramScripts(ground.workspace, _environment(ground.folder))


def _subtasks(
    ground: _Ground, models: Models, ranker: Ranker | None, window_of: Callable[[str], int | None]
) -> Subtasks:
    from deputy.agents.templates.workspace import WorkspaceTemplates
    from deputy.tools.word_ranker import WordRanker

    said = ground.settings.subtasks
    return Subtasks(
        templates=WorkspaceTemplates(ground.workspace).load,
        ranker=ranker or WordRanker(),
        window_of=window_of,
        missing_key=models.missing_key,
        prices_of=models.prices_of,
        has_default=said.default_template,
        seconds=said.seconds,
    )


def _engine(
    ground: _Ground, journal: SqliteJournal, servers: McpServers, workshop: Workshop, suspend_seconds: float
) -> LocalEngine[Lease]:
    async def workflow(run: RunContext, birth: Birth) -> Outcome:
        # Their tools are known only while they run, and a run may go on in another process than it began in.
        await servers.ready(_wanted_tools(birth))
        # What the run was asked for comes from its caller, and only from the journal where it is resumed.
        birth = workshop.keys.mask_event(birth)
        return await take_and_carry_out(run, birth, workshop)

    async def kept(place: Workplace, label: str, outcome: Outcome) -> Outcome:
        return outcome if workshop.workplaces is None else await keep(workshop.workplaces, place, label, outcome)

    return LocalEngine(
        journal,
        workflow,
        workshop.world,
        clean_up=_end_children,
        keep=kept,
        suspend_seconds=suspend_seconds,
        is_over=workshop.see_off,
        # What works in another folder must not go on in this one.
        adopts=(lambda state: state.workspace == str(ground.workspace)) if ground.settings.journal.adopt else None,
    )


async def _nested(journal: SqliteJournal, root: str) -> Sequence[tuple[str, str, Amount]]:
    """What nested runs of a tree reserve or use."""
    from deputy.journal.nested import nested_amounts

    return await journal.read(lambda reader: list(nested_amounts(reader, root)))


async def _native_failures(journal: SqliteJournal, root: str) -> int:
    """How often our own loop failed in a tree, and something else was taken."""
    return sum(state.counts.native_failures for state in await journal.descendants(root))


def _policy(ground: _Ground, given: Policy | None) -> Policy:
    """The policy with what the user says about each bound that the program leaves as it usually is."""
    rules, said, usual = ground.rules, ground.settings.subtasks, Policy()
    policy = given or usual
    users = {"max_depth": rules.max_depth, "max_spawns": rules.max_spawns, "repairs": rules.repairs}
    # Of a depth and how far it may be raised, both are the user's or neither.
    if (policy.max_subtask_depth, policy.subtask_depth_ceiling) == (
        usual.max_subtask_depth,
        usual.subtask_depth_ceiling,
    ):
        users |= {"max_subtask_depth": said.max_depth, "subtask_depth_ceiling": said.depth_ceiling}
    left = {name: value for name, value in users.items() if getattr(policy, name) == getattr(usual, name)}
    return structs.replace(policy, **left)


async def _end_children(run: str) -> None:
    """End what a run's commands left running when their process died."""
    from deputy.processes.sweep import sweep, tag_of

    await asyncio.to_thread(sweep, tag_of(run))


def _wanted_tools(birth: Birth) -> frozenset[str]:
    """The tools that a run may come to use itself."""
    if isinstance(birth, Opened):
        return frozenset() if birth.command == DELEGATE else birth.grant.tools
    return birth.request.wanted.tools or frozenset()


def _open_tools(
    workspace: Path,
    folder: Path,
    private: tuple[Path, ...],
    own: tuple[Tool, ...],
    slots: asyncio.Semaphore,
    seconds: Mapping[str, float],
    served: tuple[Tool, ...],
    grant: Grant,
    root: str,
) -> Tools:
    from deputy.tools.toolbox import Toolbox, standard_tools
    from deputy.tools.workspace import Workspace

    place = Workspace(root or workspace, grant, private=private, main=workspace)
    standard = standard_tools(place, _environment(folder), slots=slots, run_seconds=seconds.get("Run"))
    return Toolbox((*standard, *own, *served), grant, seconds)
