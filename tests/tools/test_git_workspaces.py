"""Workspaces through a real Postgres, with real git: bundles, the way back, errors and bounded disk."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import json, structs
from tests.support.workspace_machine import RUN, Machine, content, git, stored_bytes, write

from deputy.core.errors import WorkspaceError
from deputy.core.snapshot import Snapshot
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.transcript import safe_id
from deputy.processes.child_process import StopSignal
from deputy.tools.git_merge import open_repository
from deputy.tools.git_mirror import MOST_LINKS
from deputy.tools.git_workspaces import GitWorkspaces

# --- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("workspace.thin")
def test_the_next_bundle_is_small_and_an_equal_one_is_not_sent(
    submitter: Machine, worker: Machine, repository: Path, store: PostgresStore
):
    write(repository, {f"many/{number}.py": os.urandom(2000).hex() for number in range(100)})
    first = asyncio.run(submitter.workspaces.send(str(repository)))
    whole = stored_bytes(store)
    assert first.sent_bytes == whole > 100_000
    assert asyncio.run(submitter.workspaces.send(str(repository))).sent_bytes == 0
    write(repository, {"a.txt": "changed\n"})
    second = asyncio.run(submitter.workspaces.send(str(repository)))
    assert 0 < second.sent_bytes < 1000
    assert stored_bytes(store) == whole + second.sent_bytes
    # A worker that has the first fetches only the second, and one that has neither fetches both.
    worker.open(first.snapshot, "first")
    assert (worker.open(second.snapshot, "second") / "a.txt").read_text() == "changed\n"
    other = Machine(worker.home.with_name("other"), store)
    assert (other.open(second.snapshot) / "a.txt").read_text() == "changed\n"


@pytest.mark.rule("workspace.thin")
def test_a_chain_of_bundles_ends(submitter: Machine, worker: Machine, repository: Path, store: PostgresStore):
    write(repository, {"many.bin": os.urandom(50_000).hex()})
    sent = [changed_and_sent(submitter, repository, number) for number in range(MOST_LINKS + 3)]
    snapshot = sent[-1]
    with store.bundles() as bundles:
        links = [bundle.links for bundle in bundles.latest(snapshot.repository)]
    assert links[:3] == [1, 0, MOST_LINKS]
    assert (worker.open(snapshot) / "a.txt").read_text() == f"{MOST_LINKS + 2}\n"


def changed_and_sent(submitter: Machine, repository: Path, number: int) -> Snapshot:
    write(repository, {"a.txt": f"{number}\n"})
    return submitter.send(repository)


@pytest.mark.rule("workspace.thin")
def test_a_snapshot_is_sent_whole_when_the_one_before_it_is_gone(
    submitter: Machine, worker: Machine, repository: Path, store: PostgresStore
):
    submitter.send(repository)
    session = store.session()
    session.run("DELETE FROM bundles; DELETE FROM blobs")
    session.close()
    write(repository, {"a.txt": "changed\n"})
    assert (worker.open(submitter.send(repository)) / "a.txt").read_text() == "changed\n"


# --- the way back -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("workspace.return")
def test_the_work_comes_back_as_a_branch_that_merges(submitter: Machine, worker: Machine, repository: Path):
    snapshot = submitter.send(repository)
    branch = worker.work(snapshot, {"a.txt": "by the worker\n", "new.txt": "new\n"})
    tip = submitter.bring(branch, snapshot, repository)
    assert git(repository, "log", "--format=%s", f"main..{branch}").split("\n")[:-1] == ["scribe: Did it."]
    # Secrets that were not sent are not deleted by the branch.
    assert git(repository, "diff", "--name-status", f"main..{branch}").split() == ["M", "a.txt", "A", "new.txt"]
    assert submitter.bring(branch, snapshot, repository) == tip
    with open_repository(str(repository), os.environ) as opened:
        opened.apply(opened.plan(branch, "Merge"))
    assert (repository / "a.txt").read_text() == "by the worker\n"
    assert (repository / "server.key").read_text() == "secret key\n"
    git(repository, "fsck", "--strict")


@pytest.mark.rule("workspace.return")
def test_uncommitted_changes_are_a_commit_of_their_own_below_the_work(
    submitter: Machine, worker: Machine, repository: Path
):
    write(repository, {"sub/b.txt": "uncommitted\n"})
    snapshot = submitter.send(repository)
    branch = worker.work(snapshot, {"a.txt": "by the worker\n"})
    submitter.bring(branch, snapshot, repository)
    log = git(repository, "log", "--format=%s", f"main..{branch}").splitlines()
    assert log == ["scribe: Did it.", "Uncommitted changes of the workspace at submit"]
    # The same changes, committed meanwhile, do not conflict.
    git(repository, "commit", "--quiet", "-am", "Mine")
    with open_repository(str(repository), os.environ) as opened:
        opened.apply(opened.plan(branch, "Merge"))
    assert content(repository) == {
        ".gitignore": "ignored/\n",
        "a.txt": "by the worker\n",
        "server.key": "secret key\n",
        "sub/b.txt": "uncommitted\n",
    }


@pytest.mark.rule("workspace.return")
def test_a_resumed_run_adds_to_its_branch(submitter: Machine, worker: Machine, repository: Path):
    snapshot = submitter.send(repository)
    branch = worker.work(snapshot, {"a.txt": "once\n"})
    first = submitter.bring(branch, snapshot, repository)
    assert worker.work(snapshot, {"a.txt": "twice\n"}) == branch
    second = submitter.bring(branch, snapshot, repository)
    assert git(repository, "rev-parse", f"{second}^").strip() == first
    assert git(repository, "show", f"{branch}:a.txt") == "twice\n"


@pytest.mark.rule("workspace.errors")
def test_a_branch_that_cannot_be_fetched_says_why_and_changes_nothing(
    submitter: Machine, worker: Machine, repository: Path, tmp_path: Path
):
    snapshot = submitter.send(repository)
    branch = worker.work(snapshot, {"a.txt": "by the worker\n"})
    with pytest.raises(WorkspaceError, match=r"has no branch deputy/none. The run left no changes"):
        submitter.bring("deputy/none", snapshot, repository)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    git(stranger, "init", "--quiet")
    git(stranger, "commit", "--quiet", "--allow-empty", "-m", "Other")
    with pytest.raises(WorkspaceError, match=r"lacks the commit .* Run this in the repository that"):
        submitter.bring(branch, snapshot, stranger)
    git(repository, "branch", branch, "main")
    git(repository, "checkout", "--quiet", branch)
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "Mine")
    with pytest.raises(WorkspaceError, match=r"a branch with this name has other commits here. Rename yours"):
        submitter.bring(branch, snapshot, repository)
    assert git(repository, "log", "-1", "--format=%s", branch) == "Mine\n"


@pytest.mark.rule("workspace.hostile")
def test_a_worker_cannot_move_a_branch_of_the_user(
    submitter: Machine, worker: Machine, repository: Path, store: PostgresStore
):
    snapshot = submitter.send(repository)
    branch = worker.work(snapshot, {"a.txt": "by the worker\n"})
    with store.bundles() as bundles:
        stored = bundles.of_branch(branch)
        assert stored is not None
        session = store.session()
        body = json.encode(structs.replace(stored, branch="main"))
        session.fetch("UPDATE bundles SET body = $1 WHERE branch = $2", body, branch)
        before = git(repository, "rev-parse", "main")
        with pytest.raises(WorkspaceError, match=rf"has no branch {branch}"):
            submitter.bring(branch, snapshot, repository)
        session.fetch("UPDATE bundles SET branch = 'main' WHERE branch = $1", branch)
        session.close()
    with pytest.raises(WorkspaceError, match=r"has no branch main"):
        submitter.bring("main", snapshot, repository)
    assert git(repository, "rev-parse", "main") == before


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("workspace.size")
def test_a_workspace_beyond_the_limit_is_refused_before_anything_is_sent(
    tmp_path: Path, store: PostgresStore, repository: Path
):
    submitter = Machine(tmp_path / "submitter", store, max_bytes=1000)
    write(repository, {"data/large.csv": "x" * 900, "ignored/huge": "x" * 5000})
    submitter.send(repository)
    write(repository, {"data/larger.csv": "x" * 950})
    with pytest.raises(WorkspaceError, match=r"data/larger.csv .* \.gitignore, raise `max_bytes`.* Nothing was sent"):
        submitter.send(repository)


@pytest.mark.rule("workspace.errors")
@pytest.mark.parametrize("lost", ["DELETE FROM bundle_uses; DELETE FROM bundles", "UPDATE blobs SET body = 'x'"])
def test_a_snapshot_that_the_store_lacks_or_has_damaged(
    submitter: Machine, worker: Machine, repository: Path, store: PostgresStore, lost: str
):
    snapshot = submitter.send(repository)
    session = store.session()
    session.run(lost)
    session.close()
    with pytest.raises(WorkspaceError, match=r"The store postgres://.* lacks .* Submit the work again"):
        worker.open(snapshot)
    # Sent again, it is whole; nothing half fetched is in the way.
    session = store.session()
    session.run("DELETE FROM bundles; DELETE FROM blobs")
    session.close()
    assert (worker.open(submitter.send(repository)) / "a.txt").read_text() == "first\n"


@pytest.mark.rule("workspace.errors")
def test_a_worker_without_git_says_so(submitter: Machine, tmp_path: Path, store: PostgresStore, repository: Path):
    snapshot = submitter.send(repository)
    workspaces = GitWorkspaces(tmp_path / "bare", {**os.environ, "PATH": str(tmp_path)}, store, safe_id)
    (tmp_path / "bare").mkdir()
    with pytest.raises(WorkspaceError, match=r"git is not installed on .* Install git"):
        asyncio.run(workspaces.open(RUN, snapshot))


@pytest.mark.rule("workspace.errors")
@pytest.mark.parametrize(
    "bad", [Snapshot(repository="../../etc", commit="0" * 40), Snapshot(repository="0" * 32, commit="--upload-pack=x")]
)
def test_names_from_a_bad_store_become_no_path_and_no_option(worker: Machine, bad: Snapshot):
    with pytest.raises(WorkspaceError, match=r"Submit the work again"):
        worker.open(bad)


@pytest.mark.rule("workspace.errors")
def test_a_full_disk_of_a_worker_is_named(submitter: Machine, repository: Path, small_disk: Path, store: PostgresStore):
    write(repository, {"large.bin": os.urandom(3_000_000).hex()})
    snapshot = submitter.send(repository)
    worker = Machine(small_disk / "home", store)
    with pytest.raises(WorkspaceError, match=r"the disk of .* is full. Free some space"):
        worker.open(snapshot)
    assert list(worker.home.rglob("bundle-*")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=False)
    if done.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


# --- bounded disk -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("workspace.bounded")
def test_checkouts_and_mirrors_are_removed_when_no_process_uses_them(
    submitter: Machine, worker: Machine, repository: Path, store: PostgresStore
):
    snapshot = submitter.send(repository)
    live, ended = worker.open(snapshot, "live"), worker.open(snapshot, "ended")
    worker.workspaces.release("ended")
    # Another process on the same machine respects what this one uses.
    other = Machine(worker.home, store)
    clean_up(other, 10**9)
    assert (live.exists(), ended.exists()) == (True, False)
    mirror = worker.home / "mirrors" / snapshot.repository
    clean_up(other, 0)
    assert (mirror.exists(), content(live)["a.txt"]) == (True, "first\n")
    worker.workspaces.release("live")
    clean_up(other, 0)
    assert (mirror.exists(), live.exists()) == (False, False)
    assert (worker.open(snapshot, "ended") / "a.txt").read_text() == "first\n"


@pytest.mark.rule("workspace.bounded")
def test_the_checkout_and_worktree_of_a_killed_worker_are_removed(
    submitter: Machine, worker: Machine, repository: Path
):
    snapshot = submitter.send(repository)
    # A process that opens both and is killed.
    child = os.fork()
    if child == 0:
        asyncio.run(worker.opened(snapshot))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    worktree = worker.home / "worktrees" / RUN
    assert (worker.home / "workspaces" / "tree" / "a.txt").exists()
    clean_up(worker, 10**9)
    assert (list((worker.home / "workspaces").iterdir()), worktree.exists()) == ([], True)
    # Work that is not stored stays for a day.
    os.utime(worktree, (0, 0))
    clean_up(worker, 0)
    assert (worktree.exists(), (worker.home / "mirrors" / snapshot.repository).exists()) == (False, False)


@pytest.mark.rule("workspace.bounded")
def test_a_process_that_opens_a_checkout_while_it_is_removed_makes_it_anew(
    submitter: Machine, worker: Machine, repository: Path
):
    snapshot = submitter.send(repository)
    root = worker.open(snapshot)
    worker.workspaces.release(RUN)
    lock = root.with_name(f"{root.name}.lock")
    descriptor = os.open(lock, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with ThreadPoolExecutor() as pool:
        opening = pool.submit(worker.open, snapshot)
        inode = f":{os.fstat(descriptor).st_ino} "
        while not any("-> FLOCK" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()):
            assert not opening.done()
        shutil.rmtree(root)
        root.with_name(f"{root.name}.json").unlink()
        lock.unlink()
        os.close(descriptor)
        assert (opening.result() / "a.txt").read_text() == "first\n"
    clean_up(Machine(worker.home, worker.store), 10**9)
    assert (root / "a.txt").exists()


def clean_up(machine: Machine, cache_bytes: int) -> None:
    workspaces = GitWorkspaces(machine.home, os.environ, machine.store, safe_id, cache_bytes=cache_bytes)
    with closing(StopSignal()) as stop:
        workspaces.clean_up(stop)


@pytest.mark.rule("workspace.bounded")
def test_a_checkout_whose_making_was_killed_is_made_anew(submitter: Machine, worker: Machine, repository: Path):
    snapshot = submitter.send(repository)
    root = worker.open(snapshot)
    root.with_name(f"{root.name}.json").unlink()
    (root / "a.txt").unlink()
    assert (worker.open(snapshot) / "a.txt").read_text() == "first\n"


@pytest.mark.rule("workspace.bounded")
def test_bundles_that_no_run_uses_are_removed_from_the_store(
    submitter: Machine, worker: Machine, repository: Path, store: PostgresStore
):
    old = submitter.send(repository)
    write(repository, {"a.txt": "changed\n"})
    new = submitter.send(repository)
    session = store.session()
    add = "INSERT INTO runs VALUES ($1, NULL, $1, true, false, 0, NULL, '', '')"
    session.fetch(add, RUN)
    with store.bundles() as bundles:
        bundles.use(RUN, new.repository, new.commit)
        # The old one is below the new one.
        assert bundles.remove_unused(0) == 0
        session.fetch("DELETE FROM runs WHERE run = $1", RUN)
        assert bundles.remove_unused(3600) == 0
        assert bundles.remove_unused(0) == 2
        assert bundles.find(old.repository, old.commit) is None
    session.close()
    assert stored_bytes(store) == 0
