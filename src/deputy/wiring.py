"""The one place where adapters are chosen: a journal, models and tools become a running Deputy."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from deputy.config import load_catalog, load_user, mcp_servers
from deputy.core.contract import FileFact
from deputy.core.events import Opened
from deputy.core.redact import Redactor
from deputy.engine.root import DELEGATE
from deputy.engine.workflow import carry_out
from deputy.engine.workshop import Workshop
from deputy.journal import home, transcript
from deputy.journal.pace import JournalPace
from deputy.journal.retention import keep_house
from deputy.journal.sqlite import SqliteJournal
from deputy.runtimes.local import LocalEngine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from deputy.core.guard import Policy
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.core.request import Grant
    from deputy.engine.desk import Approval
    from deputy.engine.ports import RunContext, Tool, Tools
    from deputy.engine.ports.durable import Birth
    from deputy.journal.sqlite import Fsync, Lease
    from deputy.models.make import Models
    from deputy.tools.mcp import McpServers

CONTEXT_BYTES = 200_000
_DAY_SECONDS = 86_400.0
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIALS")
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
        return "".join(self._random.choices(letters, k=count))


class WorkspaceFiles:
    """The workspace and the home, as the flow of a delegation needs them."""

    def __init__(self, root: Path, folder: Path, redactor: Redactor) -> None:
        self._root = root
        self._folder = folder
        self._redactor = redactor

    def scratchpad(self, label: str, session_id: str) -> str:
        """Where a subagent's notes are kept."""
        return str(transcript.scratchpad_path(self._folder, label, session_id))

    async def note(self, scratchpad: str, content: str) -> None:
        """Add a note to a scratchpad."""
        await asyncio.to_thread(transcript.add_note, Path(scratchpad), self._redactor.redact(content))

    async def before_prompt(self, paths: Sequence[str]) -> str:
        """The files that a task names, each under its path."""
        if not paths:
            return ""
        from deputy.tools.context_files import files_before_prompt
        from deputy.tools.workspace import Workspace

        return await asyncio.to_thread(files_before_prompt, paths, Workspace(self._root), CONTEXT_BYTES)

    async def facts(self, paths: Sequence[str]) -> Sequence[FileFact]:
        """What is on disk where artifacts are said to be."""
        return await asyncio.to_thread(lambda: [_fact(self._root, path) for path in paths])


def _fact(root: Path, path: str) -> FileFact:
    place = root / path
    try:
        found = place.stat()
        inside = place.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError):
        return FileFact(path=path, exists=False)
    size = sum(1 for _ in place.iterdir()) if place.is_dir() else found.st_size
    return FileFact(path=path, exists=True, size=size, modified_at=found.st_mtime, is_inside=inside)


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A Deputy at work in this process."""

    engine: LocalEngine[Lease]
    journal: SqliteJournal
    models: Models
    workshop: Workshop
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
    base_prompt: str = "",
    windows: Mapping[str, int] | None = None,
) -> AsyncGenerator[Runtime]:
    """Open the journal, the models and the engine; on leaving, what is at work stops where it can go on later."""
    from deputy.models.catalog import read_catalog
    from deputy.models.make import Models
    from deputy.tools.ask import AskTool
    from deputy.tools.delegate import DelegateTool
    from deputy.tools.mcp import McpServers
    from deputy.tools.note import NoteTool

    folder = home.make_home(home.home_path() if folder is None else folder)
    world = RealWorld()
    redactor = Redactor(known_secrets(os.environ))
    files = WorkspaceFiles(workspace, folder, redactor)
    settings = load_user()
    await asyncio.to_thread(keep_house, folder, world.now(), settings.journal.retention_days * _DAY_SECONDS)
    async with (
        SqliteJournal(folder, fsync=fsync or settings.journal.fsync, redact=redactor.redact_json) as journal,
        Models(
            environ=os.environ,
            catalog=read_catalog(load_catalog(str(workspace))),
            pace_of=lambda account: JournalPace(journal, account),
        ) as models,
        McpServers(mcp_servers(settings.mcp)) as servers,
    ):
        workshop = Workshop(
            world=world,
            open_model=models.open,
            open_tools=partial(_open_tools, workspace, tuple(tools), servers, asyncio.Semaphore(SEARCHES)),
            ceiling=models.ceiling,
            windows=windows or {},
            files=files,
            redactor=redactor,
            watch=watch,
            policy=policy,
            base_prompt=base_prompt,
            approval=approval,
            can_ask=can_ask,
            flow_tools=(NoteTool(files), AskTool(), DelegateTool(models.missing_key)),
        )

        async def workflow(run: RunContext, birth: Birth) -> Outcome:
            # Their tools are known only while they run, and a run may go on in another process than it began in.
            await servers.ready(_wanted_tools(birth))
            return await carry_out(run, birth, workshop)

        async with LocalEngine(journal, workflow, world) as engine:
            yield Runtime(
                engine=engine, journal=journal, models=models, workshop=workshop, folder=folder, servers=servers
            )


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables that hold secrets by their names."""
    return tuple(value for name, value in environ.items() if name.upper().endswith(_SECRET_NAMES))


def _wanted_tools(birth: Birth) -> frozenset[str]:
    """The tools that a run may come to use itself."""
    if isinstance(birth, Opened):
        return frozenset() if birth.command == DELEGATE else birth.grant.tools
    return birth.request.wanted.tools or frozenset()


def _open_tools(
    root: Path, own: tuple[Tool, ...], servers: McpServers, slots: asyncio.Semaphore, grant: Grant
) -> Tools:
    from deputy.tools.toolbox import Toolbox, standard_tools
    from deputy.tools.workspace import Workspace

    standard = standard_tools(Workspace(root, grant), os.environ, slots=slots)
    return Toolbox((*standard, *own, *servers.tools()), grant)
