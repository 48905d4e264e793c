"""Merges in real repositories: what is refused, what a conflict leaves, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import json

from deputy.core.errors import DeputyError, UsageError
from deputy.tools.git_merge import MARK, MergeConflict, NothingToMerge, branch_changes, open_repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.tools.git_merge import MergePlan

BRANCH = "deputy/implement-1-x"


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder, self.environ = folder / "repository", {**os.environ, "HOME": str(folder)}
        self.folder.mkdir()
        (folder / ".gitconfig").write_text(
            "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"
        )
        self.git("init", "-q")
        self.commit(kept="1\n", changed="1\n", gone="1\n")
        self.git("switch", "-qc", BRANCH)
        (self.folder / "gone").unlink()
        self.commit(changed="2\n", new="2\n")
        self.git("switch", "-q", "main")

    def git(self, *arguments: str) -> str:
        run = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=self.environ, check=True, capture_output=True, text=True
        )
        return run.stdout.strip()

    def commit(self, **files: str) -> str:
        for name, content in files.items():
            (self.folder / name).write_text(content)
        self.git("add", "--all")
        self.git("commit", "-qm", "a change")
        return self.git("rev-parse", "HEAD")

    def plan(self, branch: str = BRANCH) -> MergePlan:
        with open_repository(str(self.folder), self.environ) as repository:
            return repository.plan(branch, "Merge task 1: Cache")

    def apply(self, plan: MergePlan) -> None:
        with open_repository(str(self.folder), self.environ) as repository:
            repository.apply(plan)

    def state(self) -> tuple[str, str, dict[str, bytes]]:
        """Everything that a merge could change."""
        files = {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        return self.git("for-each-ref"), self.git("status", "--porcelain", "--ignored"), files


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def merged_files(repository: Repository) -> dict[str, bytes]:
    return repository.state()[2]


@pytest.mark.rule("commands.branch")
def test_a_branch_is_merged_and_its_commit_is_what_was_planned(repository: Repository) -> None:
    before, plan = repository.state(), repository.plan()
    assert repository.state() == before
    assert (plan.into, plan.is_fast_forward, plan.result) == ("main", True, repository.git("rev-parse", BRANCH))
    assert "3 files changed, 2 insertions(+), 2 deletions(-)" in plan.stat
    # The branch moves after the approval.
    repository.git("switch", "-q", BRANCH)
    repository.commit(later="3\n")
    repository.git("switch", "-q", "main")
    repository.apply(plan)
    assert repository.git("rev-parse", "main") == plan.changes.commit
    assert merged_files(repository) == {"kept": b"1\n", "changed": b"2\n", "new": b"2\n"}
    assert (repository.git("status", "--porcelain"), repository.git("for-each-ref", MARK)) == ("", "")


@pytest.mark.rule("commands.branch")
def test_branches_that_diverged_get_a_merge_commit_of_the_person(repository: Repository) -> None:
    head = repository.commit(kept="3\n")
    plan = repository.plan()
    repository.apply(plan)
    assert not plan.is_fast_forward
    shown = repository.git("show", "--no-patch", "--format=%an <%ae>|%s|%P", "main")
    assert shown == f"Ada <ada@example.org>|Merge task 1: Cache|{head} {plan.changes.commit}"
    assert merged_files(repository) == {"kept": b"3\n", "changed": b"2\n", "new": b"2\n"}


@pytest.mark.rule("commands.branch")
def test_a_conflict_names_its_files_and_leaves_all_as_it_was(repository: Repository) -> None:
    repository.commit(changed="3\n")
    before = repository.state()
    with pytest.raises(MergeConflict, match=r"conflicts in changed; nothing was changed; merge it by hand: git merge "):
        repository.plan()
    assert repository.state() == before


def stage(repository: Repository) -> None:
    repository.git("add", "--all")


def detach(repository: Repository) -> None:
    repository.git("checkout", "-q", "--detach")


def ignore(repository: Repository) -> None:
    repository.commit(**{".gitignore": "new\n"})
    (repository.folder / "new").write_text("mine\n")


def filtered(repository: Repository) -> None:
    repository.git("config", "filter.crypt.smudge", "touch ran; cat")


@pytest.mark.rule("commands.branch")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: (it.folder / "kept").write_text("mine\n"), "found uncommitted changes in kept; commit or stash"),
        (lambda it: ((it.folder / "more").write_text("mine\n"), stage(it)), "uncommitted changes in more"),
        (lambda it: (it.folder / "new").write_text("mine\n"), "in no commit and on the branch: new; move them away"),
        (ignore, "in no commit and on the branch: new"),
        (detach, "no branch checked out; check one out: git switch"),
        (filtered, "found the command filter.crypt.smudge; Deputy does not run it; merge by hand: git merge"),
    ],
)
def test_a_tree_that_is_not_ready_is_refused_as_it_is(
    repository: Repository, change: Callable[[Repository], object], message: str
) -> None:
    change(repository)
    before = repository.state()
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        repository.plan()
    assert repository.state() == before


@pytest.mark.rule("commands.branch")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: (it.folder / "changed").write_text("mine\n"), "uncommitted changes in changed"),
        (lambda it: (it.folder / "new").write_text("mine\n"), "in no commit and on the branch: new"),
        (lambda it: it.commit(other="3\n"), "not merged: main at .* is no longer checked out; merge again"),
        (lambda it: it.git("switch", "-qc", "other"), "not merged: main at .* is no longer checked out; merge again"),
        (lambda it: it.git("update-ref", MARK, "HEAD"), "another merge is under way here"),
    ],
)
def test_a_tree_that_changed_during_the_question_is_refused(
    repository: Repository, change: Callable[[Repository], object], message: str
) -> None:
    plan = repository.plan()
    change(repository)
    before = repository.state()
    with pytest.raises(DeputyError, match=message):
        repository.apply(plan)
    assert repository.state() == before


@pytest.mark.rule("commands.branch")
def test_tasks_and_their_documents_may_have_changed_and_keep_their_changes(repository: Repository) -> None:
    (repository.folder / ".deputy").mkdir()
    repository.commit(**{".deputy/tasks.json": "{}\n"})
    (repository.folder / ".deputy/tasks.json").write_text('{"version": 1}\n')
    repository.apply(repository.plan())
    assert (repository.folder / ".deputy/tasks.json").read_text() == '{"version": 1}\n'
    assert repository.git("status", "--porcelain") == "M .deputy/tasks.json"


@pytest.mark.rule("commands.branch")
@pytest.mark.parametrize("branch", ["deputy/never", BRANCH, "main", "main~0", ""])
def test_a_branch_that_is_gone_or_merged_is_nothing_to_merge(repository: Repository, branch: str) -> None:
    repository.git("merge", "-q", BRANCH)
    words = "is already merged" if branch in (BRANCH, "main") else "does not exist here"
    with pytest.raises(NothingToMerge, match=words):
        repository.plan(branch)
    assert branch_changes(str(repository.folder), repository.environ, branch or "-") is None


@pytest.mark.rule("commands.branch")
def test_hooks_of_the_repository_are_not_run(repository: Repository) -> None:
    for name in ("post-merge", "pre-merge-commit", "post-checkout", "reference-transaction", "commit-msg"):
        hook = repository.folder / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {repository.folder}/ran\n")
        hook.chmod(0o755)
    repository.apply(repository.plan())
    assert not (repository.folder / "ran").exists()


@pytest.mark.rule("commands.branch")
def test_a_merge_that_was_killed_half_way_says_how_git_finishes_it(repository: Repository) -> None:
    repository.git("switch", "-q", BRANCH)
    repository.commit(**{".gitattributes": "second filter=slow\n"})
    repository.commit(first="2\n", second="2\n")
    repository.git("switch", "-q", "main")
    plan = repository.plan()
    # The person's own filter stands still in the middle, and git is killed there.
    pipe = repository.folder.parent / "pipe"
    os.mkfifo(pipe)
    repository.git("config", "--global", "filter.slow.smudge", f"echo here > {pipe}; sleep 600")
    source = (
        "import os, sys; from msgspec import json; from deputy.tools.git_merge import MergePlan, open_repository\n"
        "with open_repository(sys.argv[1], os.environ) as it: it.apply(json.decode(sys.argv[2], type=MergePlan))"
    )
    merging = subprocess.Popen(
        [sys.executable, "-c", source, str(repository.folder), json.encode(plan).decode()], env=repository.environ
    )
    assert pipe.read_text() == "here\n"
    git = [int(pid) for pid in Path(f"/proc/{merging.pid}/task/{merging.pid}/children").read_text().split()]
    merging.kill()
    merging.wait()
    for pid in git:
        os.killpg(pid, signal.SIGKILL)
    repository.git("config", "--global", "filter.slow.smudge", "cat")

    assert repository.git("rev-parse", "HEAD") == plan.head
    with pytest.raises(UsageError, match="found a merge that was interrupted") as refused:
        repository.plan()
    commands = str(refused.value).partition("finish it with these commands: ")[2].partition(" (`")
    subprocess.run(["sh", "-ec", commands[0]], env=repository.environ, check=True, cwd="/")
    assert repository.git("rev-parse", "main") == plan.result
    assert repository.git("status", "--porcelain") == ""
    assert merged_files(repository)["second"] == b"2\n"
    with pytest.raises(NothingToMerge, match="is already merged"):
        repository.plan()
    assert repository.git("for-each-ref", MARK) == ""

    undo = commands[2].partition("`")[0]
    subprocess.run(["sh", "-ec", undo], env=repository.environ, check=True, cwd="/")
    assert repository.git("rev-parse", "main") == plan.head


@pytest.mark.rule("commands.branch")
def test_a_merge_that_was_killed_before_it_began_is_forgotten(repository: Repository) -> None:
    plan = repository.plan()
    repository.git("update-ref", MARK, plan.result)
    assert repository.plan() == plan
    assert repository.git("for-each-ref", MARK) == ""


def test_changed_submodules_are_reported(repository: Repository) -> None:
    assert not repository.plan().has_submodules
    repository.git("switch", "-q", BRANCH)
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{repository.git('rev-parse', 'HEAD')},sub")
    repository.git("commit", "-qm", "a submodule")
    repository.git("switch", "-qf", "main")
    assert repository.plan().has_submodules


def test_commands_in_the_settings_of_a_submodule_are_not_run(repository: Repository) -> None:
    sub, ran = repository.folder / "sub", repository.folder.parent / "ran"
    repository.git("init", "-q", str(sub))
    (sub / ".gitattributes").write_text("* filter=own\n")
    (sub / "file").write_text("1\n")
    repository.git("-C", str(sub), "add", "--all")
    repository.git("-C", str(sub), "commit", "-qm", "a change")
    repository.commit()
    repository.git("-C", str(sub), "config", "filter.own.clean", f"touch {ran}; cat")
    (sub / "file").write_text("2\n")
    assert repository.plan().into == "main"
    assert branch_changes(str(repository.folder), repository.environ, "") is not None
    assert not ran.exists()
    assert repository.git("status", "--porcelain") == "M sub"
    assert ran.exists()


@pytest.mark.rule("commands.branch")
def test_the_changes_of_a_branch_hold_no_withheld_file(repository: Repository) -> None:
    repository.git("switch", "-q", BRANCH)
    repository.commit(**{".env": "KEY=hidden\n", "shown": "seen\n"})
    repository.git("switch", "-q", "main")
    changes = branch_changes(str(repository.folder), repository.environ, BRANCH)
    assert changes is not None
    assert "+seen" in changes.patch
    assert "hidden" not in changes.patch


def test_a_branch_whose_patch_is_too_large_is_still_known(repository: Repository) -> None:
    repository.git("switch", "-q", BRANCH)
    repository.commit(large="a line\n" * 700_000)
    repository.git("switch", "-q", "main")
    changes = branch_changes(str(repository.folder), repository.environ, BRANCH)
    assert changes is not None
    assert (changes.patch, "large" in changes.stat) == ("", True)


@pytest.mark.rule("commands.branch")
def test_the_latest_changes_are_the_uncommitted_ones_else_the_last_commit(repository: Repository) -> None:
    def patch() -> str:
        changes = branch_changes(str(repository.folder), repository.environ, "")
        return "" if changes is None else changes.patch

    repository.commit(kept="committed\n")
    assert "+committed" in patch()
    (repository.folder / "kept").write_text("edited\n")
    assert "+edited" in patch()
    assert "+committed" not in patch()
    assert branch_changes("/", repository.environ, "") is None
