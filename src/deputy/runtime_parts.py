"""The paths, settings, keys and files that all parts of a Deputy need, and where its runs go."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import structs

from deputy.agents.workspace_agents import is_trusted
from deputy.config import load_catalog, load_user, mcp_servers
from deputy.config.settings import McpSettings
from deputy.core.conditions import Conditions
from deputy.core.errors import StorageDenied, UsageError, WorkspaceError
from deputy.core.provider_keys import ProviderKeys
from deputy.core.queue_names import queue_of
from deputy.engine.timeouts import SharedTimer
from deputy.journal import home, transcript
from deputy.journal.batched_calls import BatchedCalls
from deputy.journal.retention import prune_expired
from deputy.processes.ancestry import HOME_VARIABLE
from deputy.processes.outgoing import process_redactor
from deputy.stores import STORE_VARIABLE, dispatch_name, find_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deputy.backends.function_backend import AgentFunction
    from deputy.core.redaction import Redactor
    from deputy.core.request import Grant
    from deputy.core.snapshot import Snapshot
    from deputy.engine.ports import Folder, Observer
    from deputy.engine.services import Services
    from deputy.journal.postgres.postgres_store import PostgresStore
    from deputy.journal.sql.sql_store import SqlStore
    from deputy.models.catalog import Catalog
    from deputy.options import DeputyOptions
    from deputy.processes.child_process import StopSignal
    from deputy.tools.git_workspaces import GitWorkspaces

_DAY_SECONDS = 86_400.0
_TIDY_SECONDS = 3.0
"""Time for git to remove old worktrees at start-up; `deputy prune` removes the rest."""
_GRANTS = 64


class WorkspaceFiles:
    """Files of the workspace and the home, as a delegation uses them."""

    def __init__(self, root: Path, folder: Path, redactor: Redactor, snapshot: Snapshot | None = None) -> None:
        """`snapshot` is what the workspace was checked out from, on a worker."""
        self._root = root
        self._folder = folder
        self._redactor = redactor
        self._snapshot = snapshot
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
        # The path in the journal is of the machine that began the run.
        path = self._folder / transcript.FOLDER / Path(scratchpad).name
        await asyncio.to_thread(transcript.add_note, path, content)

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
            approval_id=self._approval_id(root),
        )

    def _approval_id(self, root: str) -> tuple[str, str] | None:
        """What an approval names instead of a path on a worker: each worker makes the folder at a path of its own."""
        if self._snapshot is None:
            return None
        commit = self._snapshot.commit
        if not root:
            return f"snapshot {commit[:12]} of the workspace", commit
        return os.path.relpath(root, os.path.realpath(self._folder)), commit

    def _untouched(self, root: str, paths: Sequence[str], stop: StopSignal) -> Callable[[str], bool]:
        from deputy.tools.git_worktrees import untouched

        return untouched(self._folder / home.WORKTREES, os.environ, root, paths, stop)


class RuntimeParts:
    """The paths, settings, keys and redactor that all other parts need."""

    def __init__(
        self, options: DeputyOptions, *, can_ask: bool | None = None, snapshot: Snapshot | None = None
    ) -> None:
        """`can_ask`: whether questions are answered, if that is not known by the options."""
        self.options = options
        self.can_ask = options.answer is not None if can_ask is None else can_ask
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
        self.files = WorkspaceFiles(self.workspace, self.folder, self.redactor, snapshot)
        self.timer = SharedTimer()

    @cached_property
    def trusts_project(self) -> bool:
        """Whether the agent definitions and notes of the workspace are trusted."""
        given = self.options.trusts_project
        return is_trusted(self.workspace, self.settings.agents.trusted) if given is None else given

    @cached_property
    def catalog(self) -> Catalog:
        """The providers and models."""
        from deputy.models.catalog import read_catalog

        return read_catalog(load_catalog(str(self.workspace)))

    @cached_property
    def keys(self) -> ProviderKeys:
        """The secrets of this process."""
        from deputy.tools.web_search import SEARCH_KEYS

        providers = (name for provider in self.catalog.providers.values() for name in provider.keys)
        # A password in the address of the store is a secret like a provider's key.
        secrets = dict(zip((STORE_VARIABLE, f"{STORE_VARIABLE}_PASSWORD"), self.store.passwords, strict=False))
        return ProviderKeys((*providers, *SEARCH_KEYS, *secrets), {**os.environ, **secrets})

    @property
    def environment(self) -> dict[str, str]:
        """Our environment with the current home, so that a nested Deputy finds the run's journal."""
        return {**os.environ, HOME_VARIABLE: str(self.folder)}


def _remove_bundles(store: SqlStore, kept_seconds: float) -> None:
    """Remove the bundles of a shared store that no run needs."""
    if not store.is_local:
        with cast("PostgresStore", store).bundles() as bundles:
            bundles.remove_unused(kept_seconds)


def prune_store(parts: RuntimeParts) -> None:
    """Remove old runs, and kill programs whose Deputy process has died."""
    from deputy.journal.registry import orphaned
    from deputy.processes.orphans import environment_tag, kill_orphans
    from deputy.tools.git_worktrees import WorktreeCleanup

    kept_seconds = parts.settings.journal.retention_days * _DAY_SECONDS
    # The role of a submitter removes nothing from a shared store: its workers do.
    with suppress(*() if parts.store.is_local else (StorageDenied,)):
        prune_expired(
            parts.store,
            parts.store.now(),
            kept_seconds,
            WorktreeCleanup(os.environ, _TIDY_SECONDS),
            afterwards=partial(_remove_bundles, parts.store, max(kept_seconds, _DAY_SECONDS)),
        )
    queries = parts.store.queries()
    if queries is not None:
        with queries:
            kill_orphans(*map(environment_tag, orphaned(queries)))


def queue_of_new_runs(parts: RuntimeParts) -> str:
    """The queue of new runs; empty without workers, and for runs that use objects of this process."""
    options = parts.options
    if options.here:
        return ""
    if parts.store.is_local or not dispatch_name():
        if options.worker:
            raise UsageError(
                "worker", options.worker, "there are no workers here: set DEPUTY_STORE and DEPUTY_DISPATCH, or omit it"
            )
        return ""
    objects = {
        "tools": options.tools,
        "models": options.models,
        "agents": options.agents,
        "mcp_servers": options.mcp_servers,
    }
    pinned = [name for name, value in objects.items() if value]
    if pinned:
        logging.getLogger("deputy").warning(
            "%s of this Deputy exist only in this process, so its runs stay here; here=True says so too.",
            " and ".join(pinned),
        )
        return ""
    return queue_of(parts.settings.store.worker if options.worker is None else options.worker)


def conditions_of(parts: RuntimeParts, services: Services) -> Conditions:
    """What workers must know of this process to carry out its runs."""
    return Conditions(
        approval=services.approval,
        can_ask=parts.can_ask,
        policy=services.policy,
        base_prompt=services.base_prompt,
        trusts_project=parts.trusts_project,
        private=tuple(map(str, parts.options.private)),
    )


def git_workspaces(parts: RuntimeParts) -> GitWorkspaces:
    """The workspaces that travel through the store."""
    from deputy.tools.git_workspaces import GitWorkspaces

    said = parts.settings.workspace
    return GitWorkspaces(
        parts.folder,
        os.environ,
        cast("PostgresStore", parts.store),
        transcript.safe_id,
        max_bytes=said.max_bytes,
        cache_bytes=said.cache_bytes,
        private=parts.private,
    )


async def with_workspace(parts: RuntimeParts, conditions: Conditions, run: str) -> Conditions:
    """The conditions with the workspace as workers find it: a snapshot that is sent now, or a place on a volume."""
    said, root = parts.settings.workspace, str(parts.workspace)
    if said.mode == "shared":
        return structs.replace(conditions, shared=_below_volume(root, said.root))
    workspaces = git_workspaces(parts)
    sent = await workspaces.send(root)
    await workspaces.use(run, sent.snapshot)
    if sent.left_out:
        logging.getLogger("deputy").warning(
            "Workers get no files of %s: submodules and nested repositories do not travel.", ", ".join(sent.left_out)
        )
    return structs.replace(conditions, snapshot=sent.snapshot)


def _below_volume(folder: str, volume: str) -> str:
    path = os.path.relpath(folder, os.path.realpath(Path(volume or "/").expanduser()))
    if path.startswith(".."):
        raise UsageError(
            "workspace", folder, f"with [workspace] mode shared, work below its root {volume}, or set another root"
        )
    return path


def shared_folder(parts: RuntimeParts, path: str) -> str:
    """The folder on this machine of a path below the shared volume."""
    volume = os.path.realpath(Path(parts.settings.workspace.root or "/").expanduser())
    folder = os.path.realpath(f"{volume}/{path}")
    if os.path.commonpath((folder, volume)) != volume or not os.path.isdir(folder):  # noqa: PTH112
        raise no_folder(folder)
    return folder


def no_folder(folder: str) -> WorkspaceError:
    """The error of a worker that lacks a folder."""
    return WorkspaceError(
        f"The worker on {socket.gethostname()} has no folder {folder}",
        "Mount it there, set [workspace] root to where that machine has the shared volume, or stop that worker.",
    )


def observers(parts: RuntimeParts) -> Sequence[Observer]:
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


async def end_children(run: str) -> None:
    """Kill programs that a run left behind when its process died."""
    from deputy.processes.orphans import environment_tag, kill_orphans

    await asyncio.to_thread(kill_orphans, environment_tag(run))
