"""The one place where adapters are chosen: a journal, models and tools become a running Deputy."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.commands.taking import take_and_carry_out
from deputy.config import load_catalog, load_rules, load_user, mcp_servers
from deputy.core.events import Opened
from deputy.core.guard import Policy
from deputy.core.redact import Redactor
from deputy.engine.isolation import keep
from deputy.engine.ports.subtasks import Subtasks
from deputy.engine.root import DELEGATE
from deputy.engine.workshop import Workshop
from deputy.journal import home, transcript
from deputy.journal.pace import JournalPace
from deputy.journal.retention import keep_house
from deputy.journal.sqlite import SqliteJournal
from deputy.runtimes.crew import SUSPEND_SECONDS
from deputy.runtimes.local import LocalEngine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from deputy.agents.catalogue import Catalogue
    from deputy.backends.ways import MachineWays
    from deputy.config import SubtaskSettings
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.core.request import Grant
    from deputy.core.role import NoRole, Role
    from deputy.core.rules import Rules
    from deputy.core.subtask.matching import TemplateIndex
    from deputy.engine.desk import Approval
    from deputy.engine.ports import Folder, Ranker, RunContext, Tool, Tools
    from deputy.engine.ports.durable import Birth
    from deputy.journal.sqlite import Fsync, Lease
    from deputy.models.make import Models
    from deputy.tools.mcp import McpServers

_DAY_SECONDS = 86_400.0
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIALS")
_GRANTS = 64
SEARCHES = 8
"""How many searches and conversions, each a process of its own, run at once."""


class RealWorld:
    """The clock and the chance of this machine."""

    def __init__(self) -> None:
        self._random = SystemRandom()

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def draw(self, letters: str, count: int) -> str:
        """So many letters, drawn at random."""
        # One number for all of them, since every draw asks the system.
        base, number = len(letters), self._random.randrange(len(letters) ** count)
        return "".join(letters[number // base**place % base] for place in range(count))


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
        return str(transcript.scratchpad_path(self._folder, label, session_id))

    async def note(self, scratchpad: str, content: str) -> None:
        """Add a note to a scratchpad."""
        await asyncio.to_thread(transcript.add_note, Path(scratchpad), self._redactor.redact(content))

    def open(self, grant: Grant, root: str = "") -> Folder:
        """What a grant gives of a directory, which is the workspace unless another is named."""
        return self._opened(grant, root)

    def _open(self, grant: Grant, root: str) -> Folder:
        from deputy.tools.folder import WorkspaceFolder

        return WorkspaceFolder(root or self._root, grant, private=(self._folder,), main=self._root)


class WorkspaceAgents:
    """The agents whose definitions can be seen from the workspace, read anew whenever one is asked for."""

    def __init__(self, workspace: Path, models: Models, *, trusts_project: bool) -> None:
        self._workspace = workspace
        self._models = models
        self._trusts_project = trusts_project

    def names(self) -> Sequence[str]:
        """The names to choose from."""
        from deputy.agents.roles import names_in

        return names_in(self._catalogue())

    async def find(self, name: str) -> Role | NoRole:
        """What a definition says now, or why it cannot be used."""
        from deputy.agents.roles import find_role

        catalogue = await asyncio.to_thread(self._catalogue)
        return find_role(catalogue, name, self._models.usable, trusts_project=self._trusts_project)

    def _catalogue(self) -> Catalogue:
        from deputy.agents.catalogue import load_agents

        return load_agents(self._workspace, Path.home(), with_shipped=True)


def is_trusted(workspace: Path, trusted: Sequence[str]) -> bool:
    """Whether the user trusts the definitions of a project: it is named, or lies in a folder that is."""
    real = Path(os.path.realpath(workspace))
    return any(real.is_relative_to(os.path.realpath(Path(folder).expanduser())) for folder in trusted if folder)


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
    suspend_seconds: float = SUSPEND_SECONDS,
    trusts_project: bool | None = None,
) -> AsyncGenerator[Runtime]:
    """Open the journal, the models and the engine; on leaving, what is at work stops where it can go on later."""
    from deputy.backends.ways import MachineWays
    from deputy.models.catalog import read_catalog
    from deputy.models.make import Models
    from deputy.processes.script import ProgramScripts
    from deputy.tools.ask import AskTool
    from deputy.tools.delegate import DelegateTool
    from deputy.tools.mcp import McpServers
    from deputy.tools.note import NoteTool
    from deputy.tools.subtask import SubtaskTool
    from deputy.tools.word_ranker import WordRanker
    from deputy.tools.worktree import GitWorktrees

    folder = home.make_home(home.home_path() if folder is None else folder)
    world = RealWorld()
    redactor = Redactor(known_secrets(os.environ))
    files = WorkspaceFiles(workspace, folder, redactor)
    settings = load_user()
    rules = load_rules(str(workspace)) if rules is None else rules
    await asyncio.to_thread(_tidy, folder, world.now(), settings.journal.retention_days * _DAY_SECONDS)
    async with (
        SqliteJournal(folder, fsync=fsync or settings.journal.fsync, redact=redactor.redact_json) as journal,
        Models(
            environ=os.environ,
            catalog=read_catalog(load_catalog(str(workspace))),
            idle_seconds=rules.idle_seconds,
            pace_of=lambda account: JournalPace(journal, account),
        ) as models,
        McpServers(mcp_servers(settings.mcp)) as servers,
    ):
        if trusts_project is None:
            trusts_project = is_trusted(workspace, settings.agents.trusted)
        agents = WorkspaceAgents(workspace, models, trusts_project=trusts_project)
        ways = MachineWays(
            environ=os.environ,
            provider_of=models.provider_of,
            missing_key=models.missing_key,
            full_name=models.full_name,
            native_failures=partial(_native_failures, journal),
            redactor=redactor,
        )
        # Tools keep nothing of a call, so that all who are granted the same have the same.
        toolbox_of = lru_cache(_GRANTS)(
            partial(
                _open_tools,
                workspace,
                (folder, *private),
                tuple(tools),
                asyncio.Semaphore(SEARCHES),
                rules.tool_seconds,
            )
        )
        workplaces = GitWorktrees(folder / home.WORKTREES, workspace, os.environ, transcript.safe_id)
        workshop = Workshop(
            world=world,
            open_model=models.open,
            open_tools=lambda grant, root: toolbox_of(servers.tools(), grant, root),
            ceiling=models.ceiling,
            thinking=models.thinking,
            windows=windows or {},
            files=files,
            workplaces=workplaces,
            ways=ways,
            idle_seconds=rules.idle_seconds,
            redactor=redactor,
            watch=watch,
            policy=_with_depths(policy or Policy(max_depth=rules.max_depth, repairs=rules.repairs), settings.subtasks),
            base_prompt=base_prompt,
            approval=approval,
            can_ask=can_ask,
            flow_tools=(
                NoteTool(files),
                AskTool(),
                DelegateTool(models.missing_key, models.prices_of, agents, ways.has_program),
                SubtaskTool(),
            ),
            scripts=ProgramScripts(workspace, os.environ),
            subtasks=Subtasks(
                templates=_TemplatesOnce(workspace).load,
                ranker=ranker or WordRanker(),
                window_of=lambda name: workshop.window(name, models.open(name)),
                missing_key=models.missing_key,
                prices_of=models.prices_of,
                has_default=settings.subtasks.default_template,
                seconds=settings.subtasks.seconds,
            ),
        )

        async def workflow(run: RunContext, birth: Birth) -> Outcome:
            # Their tools are known only while they run, and a run may go on in another process than it began in.
            await servers.ready(_wanted_tools(birth))
            return await take_and_carry_out(run, birth, workshop)

        engine = LocalEngine(
            journal,
            workflow,
            world,
            clean_up=_end_children,
            keep=partial(keep, workplaces),
            suspend_seconds=suspend_seconds,
            is_over=workshop.forget,
            # What works in another folder must not go on in this one.
            adopts=(lambda state: state.workspace == str(workspace)) if settings.journal.adopt else None,
        )
        async with engine:
            yield Runtime(
                engine=engine,
                journal=journal,
                models=models,
                workshop=workshop,
                agents=agents,
                ways=ways,
                folder=folder,
                servers=servers,
            )


async def _native_failures(journal: SqliteJournal, root: str) -> int:
    """How often our own loop failed in a tree, and something else was taken."""
    return sum(state.counts.native_failures for state in await journal.descendants(root))


def _with_depths(policy: Policy, said: SubtaskSettings) -> Policy:
    """A policy with what the user says about the depth of subtasks, unless the program says it itself."""
    if (policy.max_subtask_depth, policy.subtask_depth_ceiling) != (
        Policy().max_subtask_depth,
        Policy().subtask_depth_ceiling,
    ):
        return policy
    return structs.replace(policy, max_subtask_depth=said.max_depth, subtask_depth_ceiling=said.depth_ceiling)


class _TemplatesOnce:
    """The templates that can be seen from a workspace: read off the loop when they are first asked for."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._reading = asyncio.Lock()
        self._index: TemplateIndex | None = None

    async def load(self) -> TemplateIndex:
        """An index of them."""
        async with self._reading:
            if self._index is None:
                self._index = await asyncio.to_thread(_index_templates, self._workspace)
        return self._index


def _index_templates(workspace: Path) -> TemplateIndex:
    from deputy.agents.templates.find import load_templates
    from deputy.core.subtask.matching import TemplateIndex

    return TemplateIndex(load_templates(workspace, Path.home()).templates)


def _tidy(folder: Path, now: float, kept_seconds: float) -> None:
    """Remove what is old, and end what commands of processes that died have left running."""
    from deputy.journal.reader import Reader
    from deputy.journal.registry import orphaned
    from deputy.processes.sweep import sweep, tag_of

    keep_house(folder, now, kept_seconds)
    reader = Reader.open(folder)
    if reader is not None:
        with reader:
            sweep(*map(tag_of, orphaned(reader)))


async def _end_children(run: str) -> None:
    """End what a run's commands left running when their process died."""
    from deputy.processes.sweep import sweep, tag_of

    await asyncio.to_thread(sweep, tag_of(run))


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables that hold secrets by their names."""
    return tuple(value for name, value in environ.items() if name.upper().endswith(_SECRET_NAMES))


def _wanted_tools(birth: Birth) -> frozenset[str]:
    """The tools that a run may come to use itself."""
    if isinstance(birth, Opened):
        return frozenset() if birth.command == DELEGATE else birth.grant.tools
    return birth.request.wanted.tools or frozenset()


def _open_tools(
    workspace: Path,
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
    standard = standard_tools(place, os.environ, slots=slots, run_seconds=seconds.get("Run"))
    return Toolbox((*standard, *own, *served), grant, seconds)
