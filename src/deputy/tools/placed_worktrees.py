"""Worktrees of runs on a worker: made from a checkout, stored after each change, restored on another machine."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from deputy.core.errors import StorageBusy, StorageError, WorkspaceError
from deputy.engine.ports import NoWorktree, Worktree
from deputy.processes.child_process import interruptible
from deputy.tools.git import Git
from deputy.tools.git_mirror import NO_SETTINGS, explained, is_commit
from deputy.tools.git_workspaces import CHECKOUTS, WORKTREES
from deputy.tools.git_worktrees import GitWorktrees, prepare, remove_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deputy.core.snapshot import Snapshot
    from deputy.engine.ports import WorktreeChanges
    from deputy.processes.child_process import StopSignal
    from deputy.tools.git_workspaces import GitWorkspaces


_STORE_SECONDS = 60.0
"""How long a run waits for a store that is away, as its records do."""
_AGAIN_SECONDS = 0.5
_AT = "-"
"""Between a run and the commit of its files, in the name of a checkout."""


class _FolderParts(NamedTuple):
    before: str
    kind: str
    name: str
    folder: str


def _parts(root: str) -> _FolderParts:
    """The parts of the path of a worktree or checkout of any machine."""
    for kind in (WORKTREES, CHECKOUTS):
        before, _, inside = root.rpartition(f"/{kind}/")
        if before:
            name, _, folder = inside.partition("/")
            return _FolderParts(before, kind, name, folder)
    return _FolderParts("", "", "", "")


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
        self._unstored: dict[str, str] = {}
        """Why the files of a worktree were not stored, by root."""
        self._located: set[str] = set()

    @property
    def repository(self) -> str:
        """The mirror that all worktrees belong to."""
        return self._workspaces.mirror_of(self._snapshot)

    async def open(self, run: str, label: str, root: str, base: str = "") -> Worktree | NoWorktree:
        """Make the worktree of a run from the checkout."""
        place = await super().open(run, label, root, base)
        return self._known(run, place) if isinstance(place, Worktree) else place

    async def locate(self, root: str) -> str:
        """The folder of a caller here: its worktree, or a checkout of its files if it is on another machine."""
        if not root or root in self._open or await asyncio.to_thread(self._is_checkout, root):
            return root
        before, kind, name, folder = _parts(root)
        # The caller of a caller may have been elsewhere too: its files are then those of a commit.
        run, _, commit = name.rpartition(_AT)
        if kind == WORKTREES:
            stored = await self._workspaces.newest_of(name) or self._snapshot
            run = name
        elif before and is_commit(commit):
            stored = structs.replace(self._snapshot, commit=commit)
        elif before and name == self._workspace_name:
            stored, run = self._snapshot, name
        else:
            raise WorkspaceError(
                f"The folder of its caller, {root}, is not on {os.uname().nodename}", "Submit the work again."
            )
        checkout = f"{run}{_AT}{stored.commit}"
        self._located.add(checkout)
        return await self._workspaces.open(checkout, structs.replace(stored, folder=folder))

    @property
    def _workspace_name(self) -> str:
        """The name of the checkout of this tree."""
        return _parts(str(self._workspace)).name

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
        unstored = self._unstored.pop(place.root, "")
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
        return structs.replace(done, warning=" ".join(filter(None, (done.warning, unstored))))

    async def changed(self, root: str) -> None:
        """Store the files of a worktree after a tool may have changed them."""
        known = self._open.get(root)
        if known is None:
            return
        try:
            await self._stored(*known)
            self._unstored.pop(root, None)
        except WorkspaceError as error:
            # The tool has done its work: the run goes on, and cannot move to another machine.
            self._unstored[root] = f"While it worked, its files could not be stored for other machines: {error}"

    async def _stored(self, run: str, place: Worktree) -> None:
        """Store the files, also when the store is away for a while."""
        now = asyncio.get_running_loop().time
        until = now() + _STORE_SECONDS
        while True:
            try:
                return await self._workspaces.checkpoint(run, place, self._snapshot.repository)
            except StorageBusy:
                if now() >= until:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    def _known(self, run: str, place: Worktree) -> Worktree:
        self._workspaces.hold(Path(place.folder))
        self._open[place.root] = (run, place)
        return place
