"""Worktrees of runs on a worker: made from a checkout, stored after each change, restored on another machine."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.errors import StorageError, WorkspaceError
from deputy.engine.ports import NoWorktree, Worktree
from deputy.processes.child_process import interruptible
from deputy.tools.git import Git
from deputy.tools.git_mirror import NO_SETTINGS, explained
from deputy.tools.git_workspaces import CHECKOUTS, WORKTREES
from deputy.tools.git_worktrees import GitWorktrees, prepare, remove_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deputy.core.snapshot import Snapshot
    from deputy.engine.ports import WorktreeChanges
    from deputy.processes.child_process import StopSignal
    from deputy.tools.git_workspaces import GitWorkspaces


class PlacedWorktrees(GitWorktrees):
    """The worktrees of runs whose workspace is a checkout of a snapshot."""

    must_isolate = True

    def __init__(
        self,
        folder: Path,
        workspace: Path,
        environ: Mapping[str, str],
        safe_id: Callable[[str], str],
        workspaces: GitWorkspaces,
        snapshot: Snapshot,
    ) -> None:
        super().__init__(folder, workspace, environ, safe_id, NO_SETTINGS)
        self._workspaces = workspaces
        self._snapshot = snapshot
        self._open: dict[str, tuple[str, Worktree]] = {}
        """The run and the worktree, by root."""
        self._located: set[str] = set()

    async def open(self, run: str, label: str, root: str, base: str = "") -> Worktree | NoWorktree:
        """Make the worktree of a run from the checkout."""
        place = await super().open(run, label, root, base)
        return self._known(run, place) if isinstance(place, Worktree) else place

    async def locate(self, root: str) -> str:
        """The folder of a caller here: its worktree, or a checkout of its files if it is on another machine."""
        if not root or root in self._open:
            return root
        before, _, inside = root.rpartition(f"/{WORKTREES}/")
        name, _, folder = inside.partition("/")
        if not before:
            if await asyncio.to_thread(self._is_checkout, root):
                return root
            raise WorkspaceError(
                f"The folder of its caller, {root}, is not on {os.uname().nodename}", "Submit the work again."
            )
        stored = await self._workspaces.newest_of(name) or self._snapshot
        checkout = f"{name}/{stored.commit}"
        self._located.add(checkout)
        return await self._workspaces.open(checkout, structs.replace(stored, folder=folder))

    def _is_checkout(self, root: str) -> bool:
        checkouts = os.path.realpath(self._folder.parent / CHECKOUTS)
        return os.path.realpath(root).startswith(f"{checkouts}/") and Path(root).is_dir()

    def release(self) -> None:
        """Let the checkouts of callers be removed."""
        for checkout in self._located:
            self._workspaces.release(checkout)

    async def restore(self, run: str, place: Worktree) -> Worktree:
        """The worktree on this machine, with the work that is stored of it."""
        here = self._here(run, place)
        if here.root in self._open:
            return here
        folder = Path(here.folder)
        if here.folder == place.folder and await asyncio.to_thread(folder.is_dir):
            return self._known(run, here)
        checkpoint = await self._workspaces.resume_branch(place.branch)
        await asyncio.to_thread(prepare, folder, place.branch, place.base)
        made = await super().open(run, "", str(self._workspace), place.base)
        if isinstance(made, NoWorktree):
            raise WorkspaceError(
                f"The worktree of {run} was not restored: {made.reason}", "Resume it when that is done."
            )
        if checkpoint:
            await interruptible(partial(self._apply, folder, here.root, checkpoint))
        return self._known(run, here)

    def _here(self, run: str, place: Worktree) -> Worktree:
        """The same with the paths of this machine."""
        folder = os.path.join(os.path.realpath(self._folder), self._safe_id(run))  # noqa: PTH118
        root = os.path.normpath(f"{folder}/{os.path.relpath(place.root, place.folder)}")
        # The record may come from a bad store, and an agent may have put a link there.
        if os.path.commonpath((os.path.realpath(root), folder)) != folder:
            raise WorkspaceError(f"The folder {place.root} of {run} is not in its worktree", "Submit the work again.")
        return structs.replace(place, folder=folder, root=root)

    def _apply(self, folder: Path, root: str, checkpoint: str, stop: StopSignal) -> None:
        with explained("The work so far was not restored", folder):
            git = Git(str(folder), self._environ, stop, variables=NO_SETTINGS).hardened()
            git.run("read-tree", "--reset", "-u", checkpoint)
            git.run("reset", "--mixed", "--quiet")
            # git keeps no empty folders, and the root of the tools must exist.
            Path(root).mkdir(parents=True, exist_ok=True)

    async def close(self, place: Worktree, title: str, named: Sequence[str] = ()) -> WorktreeChanges:
        """Commit the changes and store the branch; a worktree whose work is stored is removed."""
        run, here = self._open.pop(place.root, ("", place))
        done = await super().close(here, title, named)
        if not done.branch:
            self._workspaces.let_go(Path(here.folder))
            return done
        try:
            await self._workspaces.upload(run, here)
        except (WorkspaceError, StorageError) as error:
            host = os.uname().nodename
            text = f"The changes are only on {host}, in {here.folder}: {error}"
            return structs.replace(done, warning=" ".join(filter(None, (done.warning, text))))
        if not done.warning:
            await interruptible(partial(remove_kept, here, self._environ, NO_SETTINGS))
        self._workspaces.let_go(Path(here.folder))
        return done

    async def changed(self, root: str) -> None:
        """Store the files of a worktree after a tool may have changed them."""
        known = self._open.get(root)
        if known is not None:
            await self._workspaces.checkpoint(*known)

    def _known(self, run: str, place: Worktree) -> Worktree:
        self._workspaces.hold(Path(place.folder))
        self._open[place.root] = (run, place)
        return place
