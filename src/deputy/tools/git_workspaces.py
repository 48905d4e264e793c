"""Workspaces through git: snapshots at submit, checkouts on a worker, and branches of work that come back."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deputy.core.errors import WorkspaceError
from deputy.engine.ports.workspaces import SentSnapshot, Snapshot
from deputy.processes.child_process import interruptible
from deputy.tools.branch_return import attach
from deputy.tools.git import Git, GitFailed
from deputy.tools.git_mirror import MOST_LINKS, GitMirror, check_id, explained, is_commit, locked
from deputy.tools.git_snapshot import MAX_BYTES, commit_tree, find_source, quoted_path, take_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from deputy.engine.ports import Worktree
    from deputy.engine.ports.workspaces import Bundle, Bundles, BundleStore
    from deputy.processes.child_process import StopSignal

SENT, MIRRORS, CHECKOUTS = "sent", "mirrors", "workspaces"
"""Folders of the home: packed for the store; fetched from it; checked out from a mirror, one per tree of runs."""
CACHE_BYTES = 5_000_000_000
_STALE_SECONDS = 3600.0
_OPENING, _SENDING = "The workspace was not opened", "The workspace was not sent"
_BRINGING = "The branch was not fetched"


class GitWorkspaces:
    """Sends, opens and brings back workspaces through the bundles of a store."""

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        store: BundleStore,
        safe_id: Callable[[str], str],
        *,
        max_bytes: int = MAX_BYTES,
        private: Sequence[Path] = (),
    ) -> None:
        self._home = Path(os.path.realpath(home))
        self._environ = environ
        self._store = store
        self._safe_id = safe_id
        self._max_bytes = max_bytes
        self._private = (home, *private)

    async def send(self, root: str) -> SentSnapshot:
        """Store a snapshot of a workspace; its repository stays as it is."""
        return await interruptible(partial(self.send_now, root))

    async def open(self, run: str, snapshot: Snapshot) -> str:
        """The root of a checkout on this machine; a second call for the same run returns the same."""
        return await interruptible(partial(self.open_now, run, snapshot))

    async def upload(self, run: str, place: Worktree) -> None:
        """Store the branch of a worktree that was made from a checkout."""
        await interruptible(partial(self.upload_now, run, place))

    async def bring(self, branch: str, snapshot: Snapshot, root: str) -> str:
        """Make a stored branch of work a branch of the repository around `root`; returns its commit."""
        return await interruptible(partial(self.bring_now, branch, snapshot, root))

    # --- at submit ----------------------------------------------------------------------------------------------------

    def send_now(self, root: str, stop: StopSignal) -> SentSnapshot:
        """Store a snapshot of a workspace."""
        with explained(_SENDING, self._home), self._store.bundles() as bundles:
            source = find_source(root, self._environ, stop)
            path = self._home / SENT / source.id
            with locked(path):
                mirror = GitMirror(path, self._environ, stop, quoted_path(source.objects) if source.objects else "")
                mirror.make(source.object_format)
                below = _below(bundles, mirror, source.id)
                if below is None:
                    # What it has is of no use to the next snapshot.
                    mirror = _emptied(mirror, source.object_format)
                taken = take_tree(source, path, self._environ, stop, max_bytes=self._max_bytes, private=self._private)
                sent = self._sent(bundles, mirror, source.id, taken.tree, below)
        snapshot = Snapshot(repository=source.id, commit=sent.tip, folder=source.folder, head=source.head)
        is_known = below is not None and sent.tip == below.tip
        return SentSnapshot(snapshot=snapshot, sent_bytes=0 if is_known else sent.size, left_out=taken.left_out)

    def _sent(self, bundles: Bundles, mirror: GitMirror, repository: str, tree: str, below: Bundle | None) -> Bundle:
        if below is not None:
            if mirror.tree_of(below.tip) == tree and bundles.put(below, ()):
                return below
            with suppress(GitFailed):
                tip = commit_tree(mirror.git, tree, below.tip)
                if (sent := mirror.put(bundles, repository, tip, below)) is not None:
                    return sent
        tip = commit_tree(mirror.git, tree)
        sent = mirror.put(bundles, repository, tip, None)
        if sent is None:
            raise WorkspaceError(f"{_SENDING}: the store refused it", "Try again.")
        return sent

    # --- on a worker --------------------------------------------------------------------------------------------------

    def open_now(self, run: str, snapshot: Snapshot, stop: StopSignal) -> str:
        """Check a snapshot out."""
        with explained(_OPENING, self._home):
            path = self._home / MIRRORS / check_id(snapshot.repository)
            folder = self._home / CHECKOUTS / self._safe_id(run)
            with locked(path):
                mirror = GitMirror(path, self._environ, stop)
                mirror.make(_format_of(snapshot.commit))
                (path / "made").touch()
                if not _marker(folder).exists():
                    self._check_out(mirror, folder, snapshot)
            # A folder of the snapshot cannot lead out of it: git checks paths, and the name may come from a bad store.
            root = os.path.realpath(folder / snapshot.folder)
            if os.path.commonpath((root, folder)) != str(folder):
                raise WorkspaceError(f"The workspace {snapshot.folder!r} is not in its repository", "Submit it again.")
            Path(root).mkdir(parents=True, exist_ok=True)
            return root

    def _check_out(self, mirror: GitMirror, folder: Path, snapshot: Snapshot) -> None:
        if not mirror.has(snapshot.commit):
            with self._store.bundles() as bundles:
                mirror.fetch(bundles, snapshot.repository, snapshot.commit, self._store.location)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(GitFailed):
            # A worktree whose creation was killed stays locked, and `prune` keeps it.
            mirror.git.run("worktree", "unlock", "--", str(folder))
        mirror.git.run("worktree", "prune")
        mirror.git.run("worktree", "add", "--quiet", "--detach", "--", str(folder), snapshot.commit)
        # Written last: without it the checkout is made anew.
        _marker(folder).write_text(snapshot.repository)

    def upload_now(self, run: str, place: Worktree, stop: StopSignal) -> None:
        """Store the branch of a worktree."""
        with explained("The work was not stored", self._home):
            path = self._mirror_of(place.folder, stop)
            if path is None:
                return
            with locked(path), self._store.bundles() as bundles:
                mirror = GitMirror(path, self._environ, stop)
                tip = mirror.git.run(
                    "rev-parse", "--verify", "--quiet", f"refs/heads/{place.branch}^{{commit}}"
                ).strip()
                before = bundles.of_branch(place.branch)
                below = before if before is not None and mirror.has(before.tip) else None
                below = below or bundles.find(path.name, place.base)
                if below is not None and below.tip == tip:
                    return
                # A worker keeps all bundles that it fetched, so that one of them can be sent again.
                if below is None or mirror.put(bundles, path.name, tip, below, place.branch) is None:
                    mirror.put(bundles, path.name, tip, None, place.branch)
                bundles.use(run, path.name, tip)

    def _mirror_of(self, folder: str, stop: StopSignal) -> Path | None:
        """The mirror that a worktree belongs to; None if it belongs to another repository."""
        git = Git(folder, self._environ, stop)
        common = git.run("rev-parse", "--path-format=absolute", "--git-common-dir").removesuffix("\n")
        path = Path(os.path.realpath(common))
        return path if path.parent == self._home / MIRRORS else None

    # --- back on a machine with the repository ------------------------------------------------------------------------

    def bring_now(self, branch: str, snapshot: Snapshot, root: str, stop: StopSignal) -> str:
        """Make a stored branch of work a branch of a repository."""
        with explained(_BRINGING, self._home), self._store.bundles() as bundles:
            found = bundles.of_branch(branch)
            if found is None or not is_commit(snapshot.commit):
                raise WorkspaceError(
                    f"The store {self._store.location} has no branch {branch}",
                    "The run left no changes, or they are on the machine that carried it out.",
                )
            source = find_source(root, self._environ, stop)
            if not source.objects or not snapshot.head:
                raise WorkspaceError(
                    f"{branch} cannot be a branch here: {root} was no git repository with a commit at submit",
                    "`deputy export ID` writes the changes as a patch.",
                )
            path = self._home / SENT / check_id(snapshot.repository)
            with locked(path):
                mirror = GitMirror(path, self._environ, stop, quoted_path(source.objects))
                mirror.make(source.object_format)
                mirror.fetch(bundles, found.repository, found.tip, self._store.location)
                return attach(mirror, source, found, snapshot, self._environ, stop)

    # --- bounded disk -------------------------------------------------------------------------------------------------

    def clean_up(self, kept: Iterable[str], stop: StopSignal, *, cache_bytes: int = CACHE_BYTES) -> None:
        """Remove the checkouts of runs that this machine does not carry out, then the oldest mirrors beyond a limit."""
        names = {self._safe_id(run) for run in kept}
        now, used = time.time(), set[str]()
        for folder in _folders(self._home / CHECKOUTS):
            repository = ""
            with suppress(OSError):
                repository = _marker(folder).read_text()
            if folder.name in names or (not repository and now - folder.stat().st_mtime < _STALE_SECONDS):
                used.add(repository)
                continue
            _marker(folder).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
        self._remove_mirrors(used, cache_bytes, stop)

    def _remove_mirrors(self, used: set[str], cache_bytes: int, stop: StopSignal) -> None:
        found = (*_folders(self._home / MIRRORS), *_folders(self._home / SENT))
        room = cache_bytes
        for path in sorted(found, key=_used_at, reverse=True):
            room -= _size(path)
            if room >= 0 or path.name in used:
                continue
            with locked(path):
                listed = ""
                with suppress(GitFailed):
                    mirror = GitMirror(path, self._environ, stop)
                    mirror.git.run("worktree", "prune")
                    listed = mirror.git.run("worktree", "list", "--porcelain")
                # The bare repository itself is one of them.
                if listed.count("worktree ") <= 1:
                    shutil.rmtree(path, ignore_errors=True)


def _below(bundles: Bundles, mirror: GitMirror, repository: str) -> Bundle | None:
    """The snapshot that the next one builds upon; None begins a new chain, so that a chain stays short and small."""
    newest = next((one for one in bundles.latest(repository) if mirror.has(one.tip)), None)
    is_short = newest is not None and newest.links < MOST_LINKS and newest.thin_size <= newest.whole_size
    return newest if is_short else None


def _emptied(mirror: GitMirror, object_format: str) -> GitMirror:
    (mirror.path / "made").unlink(missing_ok=True)
    mirror.make(object_format)
    return mirror


def _format_of(commit: str) -> str:
    return "sha256" if len(commit) == 64 else "sha1"


def _marker(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _folders(path: Path) -> list[Path]:
    try:
        return [one for one in path.iterdir() if one.is_dir() and not one.is_symlink()]
    except OSError:
        return []


def _used_at(path: Path) -> float:
    try:
        return (path / "made").stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total
