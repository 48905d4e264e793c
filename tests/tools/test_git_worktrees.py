"""Worktrees for runs that change something, on real repositories."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from deputy.core.errors import WorkspaceError
from deputy.engine.ports import NoWorktree, Worktree, WorktreeChanges
from deputy.journal.transcript import safe_id
from deputy.processes.child_process import StopSignal
from deputy.tools.git import Git, GitStopped
from deputy.tools.git_worktrees import GitWorktrees, _is_there, branch_name

RUN = "sess_1700000000_abc123"


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "a.txt").write_text("first\n")
    (root / "sub").mkdir()
    (root / "sub" / "b.txt").write_text("second\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "Begin")
    return root


class Home:
    def __init__(self, tmp_path: Path, workspace: Path) -> None:
        self.folder = tmp_path / "home" / "worktrees"
        self.folder.parent.mkdir(mode=0o700)
        self.worktrees = GitWorktrees(self.folder, workspace, os.environ, safe_id)

    def open(self, run: str = RUN, label: str = "scribe", root: str = "") -> Worktree | NoWorktree:
        return asyncio.run(GitWorktrees.open(self.fresh, run, label, root))

    def close(self, place: Worktree, title: str = "scribe: Done.") -> WorktreeChanges:
        return asyncio.run(GitWorktrees.close(self.fresh, place, title))

    @property
    def fresh(self) -> GitWorktrees:
        """As another process would have it."""
        return GitWorktrees(self.folder, self.worktrees._workspace, os.environ, safe_id)


@pytest.fixture
def home(tmp_path: Path, repository: Path) -> Home:
    return Home(tmp_path, repository)


@pytest.mark.rule("tools.readonly")
def test_work_is_kept_on_a_branch_and_the_tree_it_was_made_from_stays_as_it_is(home: Home, repository: Path):
    place = home.open()
    assert isinstance(place, Worktree)
    assert (place.branch, place.is_behind) == ("deputy/scribe-1700000000_abc123", False)
    assert (Path(place.root) / "a.txt").read_text() == "first\n"
    assert (home.folder.stat().st_mode & 0o777, git(repository, "status", "--porcelain")) == (0o700, "")
    (Path(place.root) / "a.txt").write_text("changed\n")
    (Path(place.root) / "new.txt").write_text("new\n")
    (Path(place.root) / "sub" / "b.txt").unlink()
    done = home.close(place, "scribe: Did\nit.")
    assert done == WorktreeChanges(changed=("a.txt", "new.txt", "sub/b.txt"), branch=place.branch)
    assert git(repository, "show", f"{place.branch}:a.txt") == "changed\n"
    assert git(repository, "log", "-1", "--format=%s%n%b", place.branch).strip() == "scribe: Did it."
    assert (repository / "a.txt").read_text() == "first\n"
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.rule("tools.readonly")
def test_a_worktree_where_nothing_was_done_goes_with_its_branch(home: Home, repository: Path):
    place = home.open()
    assert home.close(place) == WorktreeChanges()
    assert list(home.folder.iterdir()) == []
    assert git(repository, "branch", "--list", "deputy/*") == ""
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert home.close(place) == WorktreeChanges()


@pytest.fixture
def ignoring(repository: Path) -> Path:
    (repository / ".gitignore").write_text("__pycache__\n.pytest_cache\nout/\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "Ignore")
    return repository


@pytest.mark.rule("tools.readonly")
def test_a_worktree_where_only_caches_are_left_goes_with_its_branch(home: Home, ignoring: Path):
    place = home.open()
    for folder in ("__pycache__", "sub/__pycache__", ".pytest_cache/v"):
        (Path(place.root) / folder).mkdir(parents=True)
        (Path(place.root) / folder / "a.pyc").write_bytes(b"compiled")
    assert home.close(place) == WorktreeChanges()
    assert list(home.folder.iterdir()) == []
    assert git(ignoring, "branch", "--list", "deputy/*") == ""


@pytest.mark.rule("tools.readonly")
@pytest.mark.parametrize("path", ["out/a.txt", "out/__pycache__/a.pyc", "__pycache__", ".pytest_cache"])
def test_what_git_ignores_and_is_no_cache_keeps_its_worktree(home: Home, ignoring: Path, path: str):
    place = home.open()
    (Path(place.root) / path).parent.mkdir(parents=True, exist_ok=True)
    (Path(place.root) / path).write_text("work")
    (Path(place.root) / "sub" / "__pycache__").mkdir()
    (Path(place.root) / "sub" / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    done = home.close(place)
    assert (done.branch, place.folder in done.warning) == (place.branch, True)
    assert (Path(place.root) / path).read_text() == "work"


@pytest.mark.rule("resume")
def test_a_run_finds_its_worktree_again_with_what_was_done_there(home: Home, repository: Path):
    place = home.open()
    (Path(place.root) / "new.txt").write_text("half")
    (repository / "a.txt").write_text("later\n")
    git(repository, "commit", "--quiet", "-am", "Go on")
    assert home.open() == place
    assert (Path(place.root) / "new.txt").read_text() == "half"
    assert home.close(place).changed == ("new.txt",)
    shutil.rmtree(place.folder)
    again = home.open()
    assert again == place
    assert (Path(again.root) / "new.txt").read_text() == "half"
    assert home.close(again).changed == ("new.txt",)


@pytest.mark.rule("workspace.shared")
def test_a_worktree_of_another_machine_is_kept_although_its_folder_is_not_seen(home: Home, tmp_path: Path):
    place = home.open()
    assert isinstance(place, Worktree)
    # Only the repository is on the volume that both machines have.
    unseen = home.folder.parent.rename(tmp_path / "unseen")
    other = GitWorktrees(tmp_path / "other", home.worktrees._workspace, os.environ, safe_id)
    assert isinstance(asyncio.run(other.open("sess_1700000001_def456", "other", "")), Worktree)
    unseen.rename(home.folder.parent)
    (Path(place.root) / "a.txt").write_text("changed\n")
    assert home.close(place) == WorktreeChanges(changed=("a.txt",), branch=place.branch)


@pytest.mark.rule("recover")
def test_half_a_worktree_that_a_dead_process_left_is_made_anew(home: Home):
    place = home.open()
    (Path(place.folder) / ".git").unlink()
    again = home.open()
    assert again == place
    assert (Path(again.root) / "a.txt").exists()
    shutil.rmtree(place.folder)
    Path(place.folder).mkdir()
    assert home.open() == place


def own_directory(place: Worktree) -> Path:
    """Where git keeps what is this worktree's own."""
    return Path(git(Path(place.folder), "rev-parse", "--path-format=absolute", "--git-dir").strip())


@pytest.mark.rule("recover")
def test_locks_that_a_killed_git_left_do_not_keep_work_from_being_committed(home: Home, repository: Path):
    place = home.open()
    own = own_directory(place)
    branch = repository / ".git" / "refs" / "heads" / f"{place.branch}.lock"
    for number in range(2):
        (Path(place.root) / "new.txt").write_text(f"{number}")
        for lock in (own / "index.lock", own / "HEAD.lock", branch):
            lock.touch()
        others = repository / ".git" / "index.lock"
        others.touch()
        assert home.close(place) == WorktreeChanges(changed=("new.txt",), branch=place.branch)
        assert git(repository, "show", f"{place.branch}:new.txt") == f"{number}"
        assert others.exists()
    (own / "index.lock").touch()
    assert home.open() == place
    assert not (own / "index.lock").exists()


@pytest.mark.rule("recover")
def test_a_worktree_whose_making_was_killed_is_made_anew(home: Home):
    place = home.open()
    own = own_directory(place)
    (own / "index").rename(own / "index.lock")
    (own / "locked").write_text("initializing\n")
    (Path(place.root) / "a.txt").unlink()
    assert home.open() == place
    assert (Path(place.root) / "a.txt").exists()
    assert home.close(place) == WorktreeChanges()


@pytest.mark.rule("recover")
def test_a_run_that_is_stopped_while_it_looks_for_its_worktree_loses_nothing_there(
    home: Home, repository: Path, tmp_path: Path
):
    place = home.open()
    (Path(place.root) / "new.txt").write_text("half")
    endless = tmp_path / "bin" / "git"
    endless.parent.mkdir()
    endless.write_text("#!/bin/sh\nexec sleep 60\n")
    endless.chmod(0o700)
    environ = {**os.environ, "PATH": f"{endless.parent}:{os.environ['PATH']}"}
    stop = StopSignal()
    stop.request_stop()
    try:
        with pytest.raises(GitStopped):
            _is_there(Git(str(repository), environ, stop), Path(place.folder))
    finally:
        stop.close()
    assert (Path(place.root) / "new.txt").read_text() == "half"


@pytest.mark.rule("tools.readonly")
def test_changes_that_are_not_committed_are_reported(home: Home, repository: Path):
    (repository / "loose.txt").write_text("x")
    assert home.open().is_behind


def test_a_workspace_below_the_root_of_its_repository_is_the_same_folder_there(home: Home, repository: Path):
    place = home.open(root=str(repository / "sub"))
    assert (Path(place.root) / "b.txt").read_text() == "second\n"
    (Path(place.root) / "b.txt").write_text("x")
    (Path(place.folder) / "a.txt").write_text("x")
    assert home.close(place).changed == ("../a.txt", "b.txt")


def test_a_worktree_can_be_made_from_a_worktree(home: Home, repository: Path):
    outer = home.open()
    (Path(outer.root) / "outer.txt").write_text("x")
    git(Path(outer.root), "add", "--all")
    git(Path(outer.root), "commit", "--quiet", "-m", "Half")
    inner = home.open("sess_1_inner0", "inner", outer.root)
    assert (Path(inner.root) / "outer.txt").exists()
    (Path(inner.root) / "inner.txt").write_text("x")
    assert home.close(inner).changed == ("inner.txt",)


def test_work_that_was_committed_elsewhere_is_handed_in_too(home: Home):
    place = home.open()
    git(Path(place.root), "checkout", "--quiet", "-b", "mine")
    (Path(place.root) / "a.txt").write_text("x")
    git(Path(place.root), "commit", "--quiet", "-am", "Mine")
    assert home.close(place) == WorktreeChanges(changed=("a.txt",), branch=place.branch)
    assert git(Path(place.root), "show", f"{place.branch}:a.txt") == "x"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda root: None, "the workspace is not in a git repository"),
        (lambda root: git(root, "init", "--quiet"), "the repository has no commit yet"),
        (
            lambda root: (git(root, "init", "--quiet"), git(root, "config", "core.worktree", "/")),
            "the repository has",
        ),
    ],
)
def test_where_there_can_be_none_it_says_why(tmp_path: Path, make, reason):
    root = tmp_path / "bare"
    root.mkdir()
    make(root)
    home = Home(tmp_path, root)
    assert home.open().reason.startswith(reason)
    assert not home.folder.exists()


def test_without_git_it_says_so(tmp_path: Path, repository: Path):
    worktrees = GitWorktrees(tmp_path / "home", repository, {"PATH": str(tmp_path)}, safe_id)
    assert asyncio.run(worktrees.open(RUN, "x", "")) == NoWorktree(reason="git is not installed")


def test_nothing_that_a_repository_says_is_run(home: Home, repository: Path, tmp_path: Path):
    canary = tmp_path / "canary"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\necho ran >> {canary}\ncat\n")
    evil.chmod(0o755)
    for hook in (
        "post-checkout",
        "pre-commit",
        "post-commit",
        "prepare-commit-msg",
        "commit-msg",
        "reference-transaction",
    ):
        shutil.copy(evil, repository / ".git" / "hooks" / hook)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n*.txt filter=odd.na=me\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--no-verify", "-m", "Attributes")
    settings = {
        "core.fsmonitor": evil,
        "core.hooksPath": repository / ".git" / "hooks",
        "core.pager": evil,
        "core.editor": evil,
        "core.sshCommand": evil,
        "core.alternateRefsCommand": evil,
        "diff.external": evil,
        "commit.gpgSign": "true",
        "gpg.program": evil,
        "filter.evil.clean": evil,
        "filter.evil.smudge": evil,
        "filter.evil.required": "true",
        "filter.odd.na=me.process": evil,
        "diff.evil.command": evil,
        "diff.evil.textconv": evil,
        "merge.evil.driver": evil,
        "alias.status": f"!{evil}",
    }
    for name, value in settings.items():
        git(repository, "config", name, str(value))
    canary.unlink(missing_ok=True)
    place = home.open()
    assert isinstance(place, Worktree), place
    (Path(place.root) / "a.txt").write_text("changed\n")
    done = home.close(place)
    assert (done.changed, done.warning) == (("a.txt",), "")
    assert isinstance(home.open(), Worktree)
    assert not canary.exists()


def test_variables_of_a_git_that_runs_us_do_not_lead_elsewhere(
    home: Home, repository: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert isinstance(home.open(), Worktree)


@pytest.mark.parametrize(
    ("label", "branch"),
    [
        ("security", "deputy/security-1_a"),
        ("../../x", "deputy/x-1_a"),
        ("-rf", "deputy/rf-1_a"),
        ("a b\n~^:?*[", "deputy/a-b-1_a"),
        ("..", "deputy/task-1_a"),
        ("ünï", "deputy/n-1_a"),
        ("x.lock", "deputy/x-lock-1_a"),
    ],
)
def test_a_branch_has_a_name_that_git_takes_whatever_the_label_is(label, branch):
    assert branch_name(label, "sess_1_a") == branch
    subprocess.run(["git", "check-ref-format", f"refs/heads/{branch}"], check=True)


@pytest.mark.rule("workspace.hostile")
def test_a_recorded_worktree_that_is_not_ours_is_left_alone(home: Home, repository: Path):
    place = home.open()
    assert isinstance(place, Worktree)
    (repository / "a.txt").write_text("mine\n")
    (Path(place.root) / "a.txt").write_text("changed\n")
    before = git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")
    foreign = structs.replace(place, folder=str(repository), root=str(repository))
    for one in (foreign, structs.replace(place, branch="main"), structs.replace(place, folder=f"{home.folder}/..")):
        assert home.close(one) == WorktreeChanges()
        with pytest.raises(WorkspaceError, match=r"is not on"):
            asyncio.run(home.fresh.restore(RUN, one))
    assert (git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")) == before
    assert asyncio.run(home.fresh.restore(RUN, place)) == place
    assert home.close(place).changed == ("a.txt",)
