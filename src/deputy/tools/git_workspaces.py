"""Workspaces through git: snapshots at submit, checkouts on a worker, and branches of work that come back."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from msgspec import structs

from deputy.core.errors import WorkspaceError
from deputy.core.snapshot import Snapshot
from deputy.engine.ports.workspaces import Bundle, SentSnapshot
from deputy.processes.child_process import interruptible
from deputy.tools.branch_return import attach
from deputy.tools.folder_locks import folders_in, marker, remove_unused, shared_lock
from deputy.tools.git import Git, GitFailed, GitStopped
from deputy.tools.git_mirror import MOST_LINKS, NO_SETTINGS, GitMirror, check_id, explained, is_commit, locked
from deputy.tools.git_snapshot import (
    MAX_BYTES,
    SourceRepository,
    commit_tree,
    find_source,
    quoted_path,
    take_tree,
)
from deputy.tools.git_worktrees import OWN_BRANCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deputy.engine.ports import Worktree
    from deputy.engine.ports.workspaces import Bundles, BundleStore
    from deputy.processes.child_process import StopSignal

SENT, MIRRORS, CHECKOUTS, WORKTREES = "sent", "mirrors", "workspaces", "worktrees"
"""Folders of the home: packed for the store, fetched from it, checked out per tree of runs, and per writing run."""
CACHE_BYTES = 5_000_000_000
_CHECKPOINT = "#checkpoint"
_CHECKPOINTS = 16
_PATCH_BYTES = 64 * 1024 * 1024
_DAY_SECONDS = 86_400.0
"""A chain of checkpoints is not longer."""
_WHY = 2000
"""The most characters of the reason why files were not stored."""
_OPENING, _SENDING = "The workspace was not opened", "The workspace was not sent"
_BRINGING = "The branch was not fetched"


class StoredWork(NamedTuple):
    """Work that was fetched: the repository of the home that has it, and its last commit."""

    folder: str
    tip: str


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
        cache_bytes: int = CACHE_BYTES,
        private: Sequence[Path] = (),
    ) -> None:
        self._home = Path(os.path.realpath(home))
        self._environ = environ
        self._store = store
        self._safe_id = safe_id
        self._max_bytes = max_bytes
        self._cache_bytes = cache_bytes
        self._private = (home, *private)
        self._held: dict[str, int] = {}
        """Open locks of the folders that this process uses, by name; a kill releases them."""

    async def send(self, root: str) -> SentSnapshot:
        """Store a snapshot of a workspace; its repository stays as it is."""
        return await interruptible(partial(self.send_now, root))

    async def open(self, run: str, snapshot: Snapshot) -> str:
        """The root of a checkout on this machine; a second call for the same run returns the same."""
        return await interruptible(partial(self.open_now, run, snapshot))

    def mirror_of(self, snapshot: Snapshot) -> str:
        """The folder of the repository that a snapshot is fetched into."""
        return str(self._home / MIRRORS / check_id(snapshot.repository))

    def release(self, run: str) -> None:
        """Let the checkout of a run be removed."""
        self.let_go(self._home / CHECKOUTS / self._safe_id(run))

    async def use(self, run: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in the store for as long as a run is in the journal."""
        await asyncio.to_thread(self._use, run, snapshot)

    def _use(self, run: str, snapshot: Snapshot) -> None:
        with self._store.bundles() as bundles:
            bundles.use(run, snapshot.repository, snapshot.commit)

    async def upload(self, run: str, place: Worktree) -> None:
        """Store the branch of a worktree that was made from a checkout."""
        await interruptible(partial(self.upload_now, run, place))

    async def newest_of(self, run: str) -> Snapshot | None:
        """What is stored of the work of a run, as a snapshot."""
        return await asyncio.to_thread(self._newest_of, run)

    def _newest_of(self, run: str) -> Snapshot | None:
        with self._store.bundles() as bundles:
            found = bundles.of_run(run)
        if found is not None and found.only_on:
            raise _only_there(found)
        return None if found is None else Snapshot(repository=found.repository, commit=found.tip)

    async def checkpoint(self, run: str, place: Worktree, repository: str) -> None:
        """Store the files of a worktree as they are, so that another machine can go on with them."""
        await interruptible(partial(self.checkpoint_now, run, place, repository))

    async def resume_branch(self, branch: str) -> str:
        """Make the stored branch of a run a branch of the mirror; returns the checkpoint above it, if there is one."""
        return await interruptible(partial(self.resume_now, branch))

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
            self.hold(folder)
            try:
                with locked(path):
                    mirror = GitMirror(path, self._environ, stop)
                    mirror.make(_format_of(snapshot.commit))
                    (path / "made").touch()
                    if not marker(folder).exists():
                        self._check_out(mirror, folder, snapshot)
            except BaseException:
                self.let_go(folder)
                raise
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
        marker(folder).write_text(snapshot.repository)

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

    def checkpoint_now(self, run: str, place: Worktree, repository: str, stop: StopSignal) -> None:
        """Store the files of a worktree as they are, or note that they are only on this machine."""
        try:
            with explained("The work so far was not stored", self._home):
                self._checkpoint(run, place, stop)
        except WorkspaceError as error:
            # The tool whose end is stopped is not recorded, so that it is repeated with the older files.
            if not isinstance(error.__cause__, GitStopped):
                self._miss(run, place, repository, str(error)[:_WHY], stop)
            raise

    def _checkpoint(self, run: str, place: Worktree, stop: StopSignal) -> None:
        path = self._mirror_of(place.folder, stop)
        if path is None:
            return
        git = Git(place.folder, self._environ, stop, variables=NO_SETTINGS).hardened()
        asked = ("--git-path", "index", "--git-path", "objects", "--show-object-format", "HEAD")
        index, objects, object_format, head = git.run("rev-parse", "--path-format=absolute", *asked).splitlines()
        source = SourceRepository(
            id=path.name,
            top=place.folder,
            folder="",
            head=head,
            objects=objects,
            index=index,
            object_format=object_format,
        )
        name = f"{place.branch}{_CHECKPOINT}"
        with locked(path), self._store.bundles() as bundles:
            mirror = GitMirror(path, self._environ, stop)
            last = bundles.of_branch(name)
            tree = take_tree(source, path, self._environ, stop, max_bytes=self._max_bytes).tree
            missed = last.tip if last is not None and last.only_on else ""
            last = last if last is not None and mirror.has(last.tip) else None
            # What says that files are only here must not stay the newest.
            if not missed and mirror.tree_of(head if last is None or last.head != head else last.tip) == tree:
                return
            base = bundles.find(path.name, place.base)
            if last is None or base is None or last.links - base.links >= _CHECKPOINTS:
                below, parents = base, (head,)
            else:
                below, parents = last, (last.tip, head)
            tip = commit_tree(mirror.git, tree, *parents)
            if below is None or mirror.put(bundles, path.name, tip, below, name, head) is None:
                mirror.put(bundles, path.name, tip, None, name, head)
            bundles.use(run, path.name, tip, missed if last is None or last.tip == tip else last.tip)

    def _miss(self, run: str, place: Worktree, repository: str, why: str, stop: StopSignal) -> None:
        """Note that files of a run are only on this machine, so that no other continues with older ones."""
        # An error may name a file whose name is not UTF-8.
        why = why.encode(errors="replace").decode()
        head = ""
        with suppress(GitFailed, OSError):
            head = Git(place.folder, self._environ, stop).run("rev-parse", "HEAD").strip()
        name, host = f"{place.branch}{_CHECKPOINT}", os.uname().nodename
        tip = f"{name}@{host}@{head}@{crc32(why.encode())}"
        with self._store.bundles() as bundles:
            missed = Bundle(repository=repository, tip=tip, branch=name, head=head, only_on=host, why=why)
            bundles.put(missed, ())
            bundles.use(run, repository, tip)

    def resume_now(self, branch: str, stop: StopSignal) -> str:
        """Fetch what is stored of a branch into its mirror."""
        with explained(_OPENING, self._home), self._store.bundles() as bundles:
            stored, last = _stored_of(bundles, branch)
            newest = last or stored
            if newest is None:
                return ""
            path = self._home / MIRRORS / check_id(newest.repository)
            with locked(path):
                mirror = GitMirror(path, self._environ, stop)
                for one in filter(None, (stored, last)):
                    if not one.only_on:
                        mirror.fetch(bundles, one.repository, one.tip, self._store.location)
                last = last if _is_newer(mirror, last, stored) else None
                if last is not None and last.only_on:
                    raise _only_there(last)
                head = last.head if last is not None else newest.tip if stored is None else stored.tip
                mirror.git.run("update-ref", f"refs/heads/{branch}", head)
                return "" if last is None else last.tip

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
            # The names are of a worker: they must not move a branch of the user.
            is_known = branch.startswith(OWN_BRANCHES) and is_commit(snapshot.commit)
            if not is_known or not any(_stored_of(bundles, branch)):
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
                found = self._fetched(bundles, mirror, branch)
                return "" if found is None else attach(mirror, source, found, snapshot, self._environ, stop)

    def patch_now(self, branch: str, snapshot: Snapshot, stop: StopSignal) -> str:
        """The changes of a stored branch as a patch; empty if the store has none."""
        with explained(_BRINGING, self._home):
            found = self.find_now(branch, snapshot, stop)
            if found is None:
                return ""
            options = ("--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
            git = GitMirror(Path(found.folder), self._environ, stop).git
            return git.run("diff", *options, snapshot.commit, found.tip, most=_PATCH_BYTES)

    def find_now(self, branch: str, snapshot: Snapshot, stop: StopSignal) -> StoredWork | None:
        """Fetch a stored branch into a repository of the home, which the repository of the user does not know."""
        with explained(_BRINGING, self._home), self._store.bundles() as bundles:
            path = self._home / MIRRORS / check_id(snapshot.repository)
            with locked(path):
                mirror = GitMirror(path, self._environ, stop)
                mirror.make(_format_of(snapshot.commit))
                found = self._fetched(bundles, mirror, branch)
                return None if found is None else StoredWork(str(path), found.tip)

    def _fetched(self, bundles: Bundles, mirror: GitMirror, branch: str) -> Bundle | None:
        """What is stored of a branch, now in the mirror; of a run that was ended elsewhere, its last checkpoint."""
        stored, last = _stored_of(bundles, branch)
        last = None if last is not None and last.only_on else last
        for one in filter(None, (stored, last)):
            mirror.fetch(bundles, one.repository, one.tip, self._store.location)
        found = last if _is_newer(mirror, last, stored) else stored
        return None if found is None else structs.replace(found, branch=branch)

    # --- bounded disk -------------------------------------------------------------------------------------------------

    def hold(self, folder: Path) -> None:
        """Keep other processes from removing a folder, for as long as this one lives or until it lets go."""
        if str(folder) not in self._held:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held[str(folder)] = shared_lock(folder)

    def let_go(self, folder: Path) -> None:
        """Let a folder be removed."""
        descriptor = self._held.pop(str(folder), None)
        if descriptor is not None:
            os.close(descriptor)

    def clean_up(self, stop: StopSignal) -> None:
        """Remove the checkouts that no process uses, then the mirrors used longest ago beyond a limit."""
        for folder in folders_in(self._home / CHECKOUTS):
            remove_unused(folder)
        for folder in folders_in(self._home / WORKTREES):
            # Work that was not stored stays for a while: a person may want it.
            if self._is_of_mirror(folder) and time.time() - folder.stat().st_mtime > _DAY_SECONDS:
                remove_unused(folder)
        self._remove_mirrors(stop)

    def _is_of_mirror(self, folder: Path) -> bool:
        try:
            return (folder / ".git").read_text().startswith(f"gitdir: {self._home / MIRRORS}/")
        except (OSError, ValueError):
            return False

    def _remove_mirrors(self, stop: StopSignal) -> None:
        found = (*folders_in(self._home / MIRRORS), *folders_in(self._home / SENT))
        room = self._cache_bytes
        for path in sorted(found, key=_used_at, reverse=True):
            room -= _size(path)
            if room >= 0:
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


def _stored_of(bundles: Bundles, branch: str) -> tuple[Bundle | None, Bundle | None]:
    """What is stored of a branch, and of the files that were not committed to it."""
    return _named(bundles, branch), _named(bundles, f"{branch}{_CHECKPOINT}")


def _named(bundles: Bundles, branch: str) -> Bundle | None:
    found = bundles.of_branch(branch)
    # A bad store may name another branch inside.
    return found if found is not None and found.branch == branch else None


def _only_there(missed: Bundle) -> WorkspaceError:
    why = missed.why.rstrip(".")
    return WorkspaceError(
        f"The changed files of the run are only on {missed.only_on}, and could not be stored: {why}",
        f"Solve the problem on {missed.only_on}.",
    )


def _is_newer(mirror: GitMirror, last: Bundle | None, stored: Bundle | None) -> bool:
    """Whether a checkpoint has more than the branch; one from before the branch was stored is in it."""
    if last is None or stored is None or last.head == stored.tip:
        return last is not None
    return not _contains(mirror.git, stored.tip, last.head)


def _contains(git: Git, commit: str, ancestor: str) -> bool:
    try:
        git.run("merge-base", "--is-ancestor", ancestor, commit)
    except GitFailed:
        return False
    return True


def _format_of(commit: str) -> str:
    return "sha256" if len(commit) == 64 else "sha1"


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
