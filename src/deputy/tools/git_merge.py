"""Merge a branch into the one that is checked out: computed without touching a file, then one fast-forward."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager, suppress
from shlex import quote
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.errors import DeputyError, Unquoted, UsageError
from deputy.core.project_task import BranchChanges
from deputy.processes.child_process import StopSignal
from deputy.tools.git import OUTSIDE_SUBMODULES, Git, GitFailed
from deputy.tools.secret_files import is_withheld

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

MARK = "refs/deputy/merge"
"""Names the result of a merge while it is applied; it stays if Deputy or git is killed meanwhile."""
_OWN = (".deputy/tasks.json", ".deputy/work/")
"""What commands change in the working tree; git itself refuses to overwrite it."""
_TREE = "the working tree"
_MOST_NAMED = 5
_STAT = ("--stat=78", "--stat-count=40", "--no-ext-diff", "--no-textconv")
_PATCH = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--submodule=short", OUTSIDE_SUBMODULES)
_NAMES = ("--name-only", "-z", "--no-renames", "--no-ext-diff", OUTSIDE_SUBMODULES)
_MOST_PATCHED = 500
_SUBMODULE = "160000"
_UNKNOWN_OPTION = 129


class NothingToMerge(DeputyError):
    """The branch does not exist, or is merged already."""


class MergeConflict(DeputyError):
    """The branch cannot be merged without a person's choice; no file was touched."""


class MergePlan(Struct, frozen=True, kw_only=True):
    """A merge that was computed and not applied."""

    changes: BranchChanges
    into: str
    head: str
    """The commit that is checked out."""
    result: str
    """The commit after the merge: that of the branch, or a new one with both as parents."""
    stat: str
    has_submodules: bool

    @property
    def is_fast_forward(self) -> bool:
        """Whether the branch is merged without a new commit."""
        return self.result == self.changes.commit


class MergeRepository:
    """The repository around a directory; its hooks and the commands in its own settings are not run."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._top = git.run("rev-parse", "--show-toplevel").removesuffix("\n")
        self._prefix = git.run("rev-parse", "--show-prefix").removesuffix("\n")

    def changes(self, branch: str, *, with_patch: bool = False) -> BranchChanges | None:
        """What a branch adds; None if it does not exist or adds nothing."""
        commit = self._commit(f"refs/heads/{branch}")
        head = self._commit("HEAD")
        if not commit or not head or self._contains(head, commit):
            return None
        base = self._git.run("merge-base", head, commit).strip()
        patch = self._patch("diff", base, commit) if with_patch else ""
        return BranchChanges(
            branch=branch, commit=commit, stat=self._git.run("diff", *_STAT, base, commit), patch=patch
        )

    def latest_changes(self) -> str:
        """The uncommitted changes, else those of the last commit, as a patch."""
        return self._patch("diff", "HEAD") or self._patch("show", "--format=", "HEAD")

    def _patch(self, *command: str) -> str:
        """A patch of the files that a subagent may read; empty if it is too large."""
        with suppress(GitFailed):
            names = self._git.run(*command, *_NAMES).split("\0")
            shown = [name for name in names if name and not is_withheld(name.split("/"))][:_MOST_PATCHED]
            return self._git.run("--literal-pathspecs", *command, *_PATCH, "--", *shown) if shown else ""
        return ""

    def plan(self, branch: str, message: str) -> MergePlan:
        """Compute the merge of a branch; no file and no branch is changed."""
        self._check_mark()
        into = self._checked_out()
        if not into:
            raise UsageError("HEAD", Unquoted("no branch checked out"), "check one out: git switch BRANCH")
        changes = self.changes(branch)
        if changes is None:
            found = "is already merged" if self._commit(f"refs/heads/{branch}") else "does not exist here"
            raise NothingToMerge(f"the branch {branch} {found}; nothing was changed")
        self._check_settings(changes)
        self._check_clean()
        head = self._commit("HEAD")
        result = changes.commit if self._contains(changes.commit, head) else self._merged(head, changes, message)
        self._check_untracked(head, result)
        return MergePlan(
            changes=changes,
            into=into,
            head=head,
            result=result,
            stat=self._git.run("diff", *_STAT, head, result),
            has_submodules=_SUBMODULE
            in self._git.run("diff", "--raw", "--no-renames", "--diff-filter=AM", head, result),
        )

    def apply(self, plan: MergePlan) -> None:
        """Apply exactly this plan; refused if another branch or commit is checked out now, or files are in the way."""
        if (self._checked_out(), self._commit("HEAD")) != (plan.into, plan.head):
            raise DeputyError(f"not merged: {plan.into} at {plan.head[:12]} is no longer checked out; merge again")
        self._check_clean()
        self._check_untracked(plan.head, plan.result)
        try:
            self._git.run("update-ref", MARK, plan.result, "0" * len(plan.result))
        except GitFailed as error:
            raise DeputyError("not merged: another merge is under way here; try again when it has ended") from error
        options = ("--quiet", "--no-stat", "--no-autostash", "--no-overwrite-ignore")
        try:
            self._git.run("merge", "--ff-only", *options, plan.result)
        except GitFailed as error:
            if left := self._half_done(plan.result):
                raise DeputyError(f"the merge was interrupted: {error}; {self._recovery(plan.result, left)}") from error
            self._git.run("update-ref", "-d", MARK)
            raise DeputyError(f"not merged, and nothing was changed: {error}") from error
        self._git.run("update-ref", "-d", MARK)

    def _check_mark(self) -> None:
        """Refuse while a merge is half done; the mark of one that is finished or never began is removed."""
        result = self._commit(MARK)
        if not result:
            return
        if left := self._half_done(result):
            raise UsageError(_TREE, Unquoted("a merge that was interrupted"), self._recovery(result, left))
        self._git.run("update-ref", "-d", MARK)

    def _half_done(self, result: str) -> list[str]:
        """The files of a merge that was begun and not finished."""
        head = self._commit("HEAD")
        if head == result or not self._contains(result, head):
            return []
        touched = set(self._git.run("diff", *_NAMES, head, result).split("\0"))
        return [*(path for path in self._changed() if path in touched), *self._in_the_way(head, result)]

    def _recovery(self, result: str, left: list[str]) -> str:
        """The commands that finish an interrupted merge: its files had no changes, so that they lose nothing."""
        head, there = self._commit("HEAD")[:12], f"git -C {quote(self._top)}"
        lock = self._git.run("rev-parse", "--path-format=absolute", "--git-path", "index.lock").removesuffix("\n")
        return (
            f"{_named(left)} may be half written. When no git command runs here, finish it with these commands: "
            f"rm -f {quote(lock)}; {there} diff --name-only --no-renames -z {head} {result} | "
            f"{there} --literal-pathspecs restore --source={result} --staged --worktree --pathspec-from-file=- "
            f"--pathspec-file-nul && {there} reset --soft {result} (`{there} reset --keep {head}` then undoes it)"
        )

    def _check_settings(self, changes: BranchChanges) -> None:
        """Refuse if the merge would need commands of the repository's own settings, such as a filter."""
        needed = [key for key in self._git.overrides if key.startswith(("filter.", "merge."))]
        if needed:
            remedy = f"Deputy does not run it; merge by hand: git merge {changes.commit[:12]}"
            raise UsageError("the repository's settings", Unquoted(f"the command {needed[0]}"), remedy)

    def _check_clean(self) -> None:
        if changed := self._changed():
            raise UsageError(_TREE, Unquoted(f"uncommitted changes in {_named(changed)}"), "commit or stash them first")

    def _check_untracked(self, head: str, result: str) -> None:
        if paths := self._in_the_way(head, result):
            found = Unquoted(f"files that are in no commit and on the branch: {_named(paths)}")
            raise UsageError(_TREE, found, "move them away, then merge again")

    def _changed(self) -> list[str]:
        """The tracked files with uncommitted changes, other than tasks and their documents."""
        options = ("--porcelain", "-z", "--no-renames", "--untracked-files=no", OUTSIDE_SUBMODULES)
        listed = self._git.run("status", *options)
        paths = [line[3:] for line in listed.split("\0") if line]
        return [path for path in paths if not path.removeprefix(self._prefix).startswith(_OWN)]

    def _in_the_way(self, head: str, result: str) -> list[str]:
        """The untracked files, also ignored ones, that the merge would overwrite."""
        added = self._git.run("diff", *_NAMES, "--diff-filter=A", head, result)
        return [path for path in added.split("\0") if path and os.path.lexists(f"{self._top}/{path}")]

    def _merged(self, head: str, changes: BranchChanges, message: str) -> str:
        """A new commit with both as parents; it is in no branch yet."""
        try:
            tree = self._git.run(
                "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", head, changes.commit
            )
        except GitFailed as error:
            by_hand = f"merge it by hand: git merge {changes.commit[:12]}"
            if error.code == _UNKNOWN_OPTION:
                raise DeputyError(f"`deputy merge` needs git 2.38 or newer; {by_hand}") from error
            paths = sorted({path for path in error.output.split("\0")[1:] if path})
            where = f" in {_named(paths)}" if paths else f": {error}"
            raise MergeConflict(f"{changes.branch} conflicts{where}; nothing was changed; {by_hand}") from error
        whose = [part for name in ("name", "email") for part in ("-c", f"user.{name}={self._identity(name)}")]
        parents = ("-p", head, "-p", changes.commit)
        return self._git.run(*whose, "commit-tree", *parents, "-m", message, tree.split("\0")[0].strip()).strip()

    def _identity(self, name: str) -> str:
        """The person's own name or email address; Deputy's where they set none."""
        listed = self._git.run("config", "--show-scope", "-z", "--get-all", f"user.{name}").split("\0")
        pairs = list(zip(listed[::2], listed[1::2], strict=False))
        return next((value for scope, value in reversed(pairs) if scope != "command"), pairs[-1][1])

    def _contains(self, commit: str, ancestor: str) -> bool:
        try:
            self._git.run("merge-base", "--is-ancestor", ancestor, commit)
        except GitFailed as error:
            if error.code != 1:
                raise
            return False
        return True

    def _checked_out(self) -> str:
        """The name of the branch that is checked out; empty if there is none."""
        try:
            return self._git.run("symbolic-ref", "--quiet", "--short", "HEAD").strip()
        except GitFailed:
            return ""

    def _commit(self, ref: str) -> str:
        """The commit of a full ref name; empty if there is none."""
        try:
            return self._git.run("show-ref", "--verify", "--hash", ref).strip()
        except GitFailed:
            return ""


@contextmanager
def open_repository(directory: str, environ: Mapping[str, str]) -> Generator[MergeRepository]:
    """The repository around a directory; a UsageError if there is none."""
    with closing(StopSignal()) as stop:
        try:
            repository = MergeRepository(Git(directory, environ, stop).hardened())
        except GitFailed as error:
            raise UsageError("git", Unquoted(str(error)), "run this in a git repository") from error
        try:
            yield repository
        except GitFailed as error:
            raise DeputyError(f"git failed: {error}") from error


def branch_changes(
    directory: str, environ: Mapping[str, str], branch: str, *, with_patch: bool = True
) -> BranchChanges | None:
    """What a branch adds, or the latest changes without a name; None if there is nothing to show."""
    with suppress(DeputyError), open_repository(directory, environ) as repository:
        if branch:
            return repository.changes(branch, with_patch=with_patch)
        if patch := repository.latest_changes():
            return BranchChanges(branch="", commit="", stat="", patch=patch)
    return None


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(paths[:_MOST_NAMED]) + more
