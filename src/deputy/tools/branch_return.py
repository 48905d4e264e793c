"""A branch of work from another machine, made a branch of the user's repository."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deputy.core.errors import WorkspaceError
from deputy.tools.git import Git, GitFailed
from deputy.tools.git_mirror import HAVE, is_commit
from deputy.tools.git_snapshot import LISTED_BYTES
from deputy.tools.secret_files import is_withheld

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.snapshot import Snapshot
    from deputy.engine.ports.workspaces import Bundle
    from deputy.processes.child_process import StopSignal
    from deputy.tools.git_mirror import GitMirror
    from deputy.tools.git_snapshot import SourceRepository

_MOST_COMMITS = 200
_UNCOMMITTED = "Uncommitted changes of the workspace at submit"
_RAW = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev")


def attach(
    mirror: GitMirror,
    source: SourceRepository,
    work: Bundle,
    snapshot: Snapshot,
    environ: Mapping[str, str],
    stop: StopSignal,
) -> str:
    """Put the commits of a branch of work on the commit that was checked out at submit; returns the last one."""
    user = Git(source.top, environ, stop).hardened()
    if not _has(user, snapshot.head):
        raise WorkspaceError(
            f"The branch {work.branch} was not fetched: this repository lacks the commit {snapshot.head[:12]},"
            " with which the work began",
            "Run this in the repository that the work was submitted from, or fetch that commit first.",
        )
    tip = _rebuilt(mirror, work, snapshot)
    there = _tip(user, work.branch)
    if there == tip:
        return tip
    if there and not _contains(mirror.git, tip, there):
        raise WorkspaceError(
            f"The branch {work.branch} was not fetched: a branch with this name has other commits here",
            f"Rename yours: git branch -m {work.branch} NAME; then try again.",
        )
    with TemporaryDirectory(prefix="bundle-", dir=mirror.path.parent) as temporary:
        file = Path(temporary) / "bundle"
        mirror.keep(tip)
        mirror.git.run("bundle", "create", "--quiet", str(file), f"{HAVE}/{tip}", f"^{snapshot.head}")
        user.run("bundle", "unbundle", str(file))
    user.run("update-ref", f"refs/heads/{work.branch}", tip, there or "0" * len(tip))
    return tip


def _rebuilt(mirror: GitMirror, work: Bundle, snapshot: Snapshot) -> str:
    """The commits of the work, each with the files that the snapshot left out, on top of the user's commit."""
    git = mirror.git
    with TemporaryDirectory(prefix="index-", dir=mirror.path.parent) as temporary:
        index = git.using(GIT_INDEX_FILE=f"{temporary}/index")
        left_out = [entry for entry in _entries(git, snapshot.head) if is_withheld(entry.partition("\t")[2].split("/"))]
        index.run("read-tree", snapshot.commit)
        index.run("update-index", "-z", "--index-info", given=_given(left_out))
        tree = index.run("write-tree").strip()
        parent = snapshot.head
        if tree != mirror.tree_of(snapshot.head):
            parent = _commit(git, tree, parent, work.tip, _UNCOMMITTED)
        is_checkpoint = is_commit(work.head)
        last = work.head if is_checkpoint else work.tip
        listed = git.run("rev-list", "--reverse", "--first-parent", f"{snapshot.commit}..{last}").split()
        # Of a checkpoint: the files above the last commit.
        listed += [work.tip] if is_checkpoint else []
        for commit in listed if len(listed) <= _MOST_COMMITS else [work.tip]:
            index.run("read-tree", tree)
            changes = _changes(git.run(*_RAW, snapshot.commit, commit, most=LISTED_BYTES))
            index.run("update-index", "-z", "--index-info", given=_given(changes))
            is_own = is_checkpoint and commit == work.tip
            message = "" if is_own else git.run("log", "-1", "--format=%B", commit).strip()
            parent = _commit(git, index.run("write-tree").strip(), parent, commit, message or "Work of a subagent")
    return parent


def _commit(git: Git, tree: str, parent: str, like: str, message: str) -> str:
    """A commit with the date of another, so that the same branch is made twice alike."""
    date = f"{git.run('log', '-1', '--format=%ct', like).strip()} +0000"
    dated = git.using(GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    return dated.run("commit-tree", "-p", parent, "-m", message, tree).strip()


def _entries(git: Git, commit: str) -> list[str]:
    """The files of a commit, as `update-index --index-info` reads them."""
    return [row for row in git.run("ls-tree", "-r", "-z", "--full-tree", commit, most=LISTED_BYTES).split("\0") if row]


def _changes(listed: str) -> list[str]:
    """The changed files, as `update-index --index-info` reads them; those that usually hold secrets too."""
    rows = [row for row in listed.split("\0") if row]
    found: list[str] = []
    for entry, name in zip(rows[::2], rows[1::2], strict=True):
        _, mode, _, content, _ = entry.split(" ")
        found.append(f"{mode} {content}\t{name}")
    return found


def _given(entries: list[str]) -> str:
    return "".join(f"{entry}\0" for entry in entries)


def _has(git: Git, commit: str) -> bool:
    try:
        git.run("cat-file", "-e", f"{commit}^{{commit}}")
    except GitFailed:
        return False
    return True


def _tip(git: Git, branch: str) -> str:
    try:
        return git.run("show-ref", "--verify", "--hash", f"refs/heads/{branch}").strip()
    except GitFailed:
        return ""


def _contains(git: Git, commit: str, ancestor: str) -> bool:
    try:
        git.run("merge-base", "--is-ancestor", ancestor, commit)
    except GitFailed:
        return False
    return True
