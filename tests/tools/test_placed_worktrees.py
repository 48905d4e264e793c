"""Worktrees on workers: stored after each change, and restored on another machine."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.support.postgres import fresh_database
from tests.support.workspace_machine import RUN, Machine, content, git, stored_bytes, write

from deputy.core.errors import StorageBusy, WorkspaceError
from deputy.core.snapshot import Snapshot
from deputy.engine.ports import Worktree, WorktreeChanges
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.transcript import safe_id
from deputy.tools.git import Git, GitFailed
from deputy.tools.placed_worktrees import PlacedWorktrees

ONLY_HERE = f"only on {os.uname().nodename}, and could not be stored: .* raise `max_bytes`"


async def changed(machine: Machine, snapshot: Snapshot, files: dict[str, str]) -> Worktree:
    """A run that changes files and is lost with its machine."""
    worktrees, place = await machine.opened(snapshot)
    write(Path(place.root), files)
    await worktrees.changed(place.root)
    return place


async def restored(machine: Machine, snapshot: Snapshot, place: Worktree) -> tuple[PlacedWorktrees, Worktree]:
    root = await machine.workspaces.open("tree", snapshot)
    worktrees = PlacedWorktrees(
        machine.home / "worktrees", Path(root), os.environ, safe_id, machine.workspaces, snapshot
    )
    return worktrees, await worktrees.restore(RUN, place)


@pytest.fixture
def other(tmp_path: Path, store: PostgresStore) -> Machine:
    return Machine(tmp_path / "other", store)


@pytest.mark.rule("workspace.moves")
def test_a_run_goes_on_with_its_files_on_another_machine(
    submitter: Machine, worker: Machine, other: Machine, repository: Path
):
    write(repository, {"sub/c.txt": "uncommitted\n"})
    snapshot = submitter.send(repository / "sub")
    lost = asyncio.run(changed(worker, snapshot, {"b.txt": "half\n", "new.txt": "new\n", "../a.txt": "up\n"}))
    (Path(lost.root) / "c.txt").unlink()

    async def moved() -> tuple[str, dict[str, str]]:
        worktrees, place = await restored(other, snapshot, lost)
        assert place.root.startswith(str(other.home))
        found = content(Path(place.root))
        write(Path(place.root), {"b.txt": "done\n"})
        return (await worktrees.close(place, "scribe: Did it.")).branch, found

    branch, found = asyncio.run(moved())
    assert found == {"b.txt": "half\n", "c.txt": "uncommitted\n", "new.txt": "new\n"}
    submitter.bring(branch, snapshot, repository)
    named = git(repository, "diff", "--name-status", f"{branch}^..{branch}").split()
    assert named == ["M", "a.txt", "M", "sub/b.txt", "A", "sub/new.txt"]
    assert git(repository, "show", f"{branch}:sub/b.txt") == "done\n"


@pytest.mark.rule("workspace.moves")
def test_deleted_files_and_own_commits_of_an_agent_move_too(
    submitter: Machine, worker: Machine, other: Machine, repository: Path
):
    snapshot = submitter.send(repository)

    async def work() -> Worktree:
        worktrees, place = await worker.opened(snapshot)
        write(Path(place.root), {"a.txt": "committed\n"})
        git(Path(place.root), "commit", "--quiet", "-am", "Mine")
        (Path(place.root) / "sub/b.txt").unlink()
        await worktrees.changed(place.root)
        write(Path(place.root), {"a.txt": "later\n"})
        await worktrees.changed(place.root)
        return place

    _, place = asyncio.run(restored(other, snapshot, asyncio.run(work())))
    assert content(Path(place.root)) == {".gitignore": "ignored/\n", "a.txt": "later\n"}
    assert git(Path(place.root), "log", "-1", "--format=%s").strip() == "Mine"
    assert git(Path(place.root), "status", "--porcelain").split() == ["M", "a.txt", "D", "sub/b.txt"]


@pytest.mark.rule("workspace.moves")
def test_a_further_round_on_another_machine_adds_to_the_branch(
    submitter: Machine, worker: Machine, other: Machine, repository: Path
):
    snapshot = submitter.send(repository)
    place = asyncio.run(changed(worker, snapshot, {"a.txt": "half\n"}))
    branch = worker.work(snapshot, {"a.txt": "once\n"})
    # Its work is in the store, so nothing of it stays on the machine.
    assert not Path(place.folder).exists()

    async def again() -> dict[str, str]:
        worktrees, here = await restored(other, snapshot, place)
        found = content(Path(here.root))
        write(Path(here.root), {"new.txt": "twice\n"})
        await worktrees.close(here, "scribe: Again.")
        return found

    assert asyncio.run(again())["a.txt"] == "once\n"
    submitter.bring(branch, snapshot, repository)
    assert git(repository, "log", "--format=%s", f"main..{branch}").splitlines() == [
        "scribe: Again.",
        "scribe: Did it.",
    ]


@pytest.mark.rule("workspace.moves")
def test_only_changes_are_stored_and_chains_of_checkpoints_end(
    submitter: Machine, worker: Machine, other: Machine, repository: Path, store: PostgresStore
):
    write(repository, {"large.bin": os.urandom(50_000).hex()})
    snapshot = submitter.send(repository)
    before = stored_bytes(store)

    async def work() -> Worktree:
        worktrees, place = await worker.opened(snapshot)
        await worktrees.changed(place.root)
        assert stored_bytes(store) == before
        for number in range(20):
            write(Path(place.root), {"a.txt": f"{number}\n"})
            await worktrees.changed(place.root)
        return place

    place = asyncio.run(work())
    assert stored_bytes(store) - before < 20_000
    with store.bundles() as bundles:
        last = bundles.of_branch(f"{place.branch}#checkpoint")
    assert last is not None
    assert last.links <= 17
    _, here = asyncio.run(restored(other, snapshot, place))
    assert (Path(here.root) / "a.txt").read_text() == "19\n"


@pytest.mark.rule("workspace.errors")
def test_changes_that_cannot_be_stored_stay_and_are_named(tmp_path: Path, repository: Path):
    store = PostgresStore(fresh_database(), tmp_path)
    submitter, worker = Machine(tmp_path / "submitter", store), Machine(tmp_path / "worker", store)
    snapshot = submitter.send(repository)

    async def work() -> tuple[Worktree, str]:
        worktrees, place = await worker.opened(snapshot)
        write(Path(place.root), {"a.txt": "changed\n"})
        session = store.session()
        session.run("ALTER TABLE blobs ADD CHECK (length(body) < 10) NOT VALID")
        session.close()
        done = await worktrees.close(place, "scribe: Did it.")
        return place, done.warning

    place, warning = asyncio.run(work())
    assert f"The changes are only on {os.uname().nodename}, in {place.folder}: " in warning
    assert git(Path(place.folder), "show", f"{place.branch}:a.txt") == "changed\n"


@pytest.mark.rule("workspace.moves")
def test_a_subagent_on_another_machine_gets_the_files_of_its_caller(
    submitter: Machine, worker: Machine, other: Machine, repository: Path
):
    snapshot = submitter.send(repository)
    caller = asyncio.run(changed(worker, snapshot, {"a.txt": "by the caller\n"}))

    async def child(recorded: str) -> tuple[str, WorktreeChanges]:
        root = await other.workspaces.open("tree", snapshot)
        folder = other.home / "worktrees"
        worktrees = PlacedWorktrees(folder, Path(root), os.environ, safe_id, other.workspaces, snapshot)
        found = await worktrees.locate(recorded)
        assert found.startswith(str(other.home))
        place = await worktrees.open("sess_1700000001_child1", "helper", found)
        assert isinstance(place, Worktree)
        write(Path(place.root), {"new.txt": "by the child\n"})
        text = (Path(found) / "a.txt").read_text()
        done = await worktrees.close(place, "helper: Did it.")
        worktrees.release()
        return text, done

    text, done = asyncio.run(child(caller.root))
    assert (text, done.changed) == ("by the caller\n", ("new.txt",))
    submitter.bring(done.branch, snapshot, repository)
    assert git(repository, "show", f"{done.branch}:a.txt") == "by the caller\n"


@pytest.mark.rule("workspace.moves")
def test_a_subagent_of_a_subagent_gets_the_files_on_a_third_machine(
    submitter: Machine, worker: Machine, other: Machine, repository: Path, tmp_path: Path, store: PostgresStore
):
    snapshot = submitter.send(repository / "sub")
    caller = asyncio.run(changed(worker, snapshot, {"b.txt": "by the caller\n"}))

    async def located(machine: Machine, recorded: str) -> str:
        root = await machine.workspaces.open("tree", snapshot)
        folder = machine.home / "worktrees"
        worktrees = PlacedWorktrees(folder, Path(root), os.environ, safe_id, machine.workspaces, snapshot)
        return await worktrees.locate(recorded)

    third = Machine(tmp_path / "third", store)
    child = asyncio.run(located(other, caller.root))
    grandchild = asyncio.run(located(third, child))
    assert grandchild.startswith(str(third.home))
    assert (Path(grandchild) / "b.txt").read_text() == "by the caller\n"
    # The checkout of the tree itself is known by its name, too.
    whole = asyncio.run(located(third, str(other.open(snapshot, "tree"))))
    assert content(Path(whole)) == content(repository / "sub")


@pytest.mark.rule("workspace.moves")
def test_the_work_of_a_run_that_was_ended_from_elsewhere_is_its_last_checkpoint(
    submitter: Machine, worker: Machine, other: Machine, repository: Path
):
    snapshot = submitter.send(repository)
    lost = asyncio.run(changed(worker, snapshot, {"a.txt": "half\n"}))
    (Path(lost.root) / "a.txt").write_text("more\n")
    asyncio.run(committed(worker, snapshot, lost, "b.txt"))
    submitter.bring(lost.branch, snapshot, repository)
    assert git(repository, "show", f"{lost.branch}:a.txt") == "more\n"
    assert git(repository, "log", "--format=%s", f"{snapshot.head}..{lost.branch}").split("\n")[:2] == [
        "Work of a subagent",
        "Own commit",
    ]


async def committed(machine: Machine, snapshot: Snapshot, place: Worktree, name: str) -> None:
    """An agent commits a file itself, and leaves others changed."""
    worktrees, _ = await restored(machine, snapshot, place)
    write(Path(place.root), {name: "committed\n"})
    git(Path(place.root), "add", name)
    git(Path(place.root), "commit", "--quiet", "-m", "Own commit")
    await worktrees.changed(place.root)


@pytest.mark.rule("workspace.moves")
def test_work_that_is_too_large_to_be_stored_goes_on_here_and_only_here(
    submitter: Machine, other: Machine, repository: Path, tmp_path: Path, store: PostgresStore
):
    small = Machine(tmp_path / "small", store, max_bytes=10_000)
    snapshot = submitter.send(repository)

    async def work() -> WorktreeChanges:
        worktrees, place = await small.opened(snapshot)
        write(Path(place.root), {"a.txt": "first\n"})
        await worktrees.changed(place.root)
        write(Path(place.root), {"big.txt": "x" * 20_000})
        await worktrees.changed(place.root)
        with pytest.raises(WorkspaceError, match=ONLY_HERE):
            await restored(other, snapshot, place)
        with pytest.raises(WorkspaceError, match=ONLY_HERE):
            await other.workspaces.newest_of(RUN)
        return await worktrees.close(place, "scribe: Did it.")

    done = asyncio.run(work())
    assert "its files could not be stored for other machines" in done.warning
    submitter.bring(done.branch, snapshot, repository)
    assert git(repository, "show", f"{done.branch}:big.txt") == "x" * 20_000


@pytest.mark.rule("workspace.moves")
def test_work_that_was_not_stored_because_of_a_full_disk_is_not_continued_elsewhere(
    submitter: Machine, worker: Machine, other: Machine, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    snapshot, real = submitter.send(repository), Git.run

    def full(self: Git, *arguments: str, **more: Any) -> str:
        if "commit-tree" in arguments:
            raise GitFailed(128, "fatal: unable to write file: No space left on device")
        return real(self, *arguments, **more)

    async def work() -> WorktreeChanges:
        worktrees, place = await worker.opened(snapshot)
        write(Path(place.root), {"a.txt": "first\n"})
        await worktrees.changed(place.root)
        with monkeypatch.context() as patched:
            patched.setattr(Git, "run", full)
            write(Path(place.root), {"a.txt": "second\n"})
            await worktrees.changed(place.root)
        full_disk = f"only on {os.uname().nodename}, and could not be stored: .*disk of .* is full. Free some space"
        with pytest.raises(WorkspaceError, match=full_disk):
            await restored(other, snapshot, place)
        # With space again, it can move.
        await worktrees.changed(place.root)
        _, moved = await restored(other, snapshot, place)
        assert (Path(moved.root) / "a.txt").read_text() == "second\n"
        with monkeypatch.context() as patched:
            patched.setattr(Git, "run", full)
            write(Path(place.root), {"a.txt": "third\n"})
            await worktrees.changed(place.root)
        return await worktrees.close(place, "scribe: Did it.")

    assert "its files could not be stored for other machines" in asyncio.run(work()).warning


@pytest.mark.rule("workspace.moves")
def test_a_run_with_work_that_was_too_large_moves_again_once_its_branch_is_stored(
    submitter: Machine, other: Machine, repository: Path, tmp_path: Path, store: PostgresStore
):
    small = Machine(tmp_path / "small", store, max_bytes=10_000)
    snapshot = submitter.send(repository)

    async def work() -> None:
        worktrees, place = await small.opened(snapshot)
        write(Path(place.root), {"big.txt": "x" * 20_000})
        await worktrees.changed(place.root)
        done = await worktrees.close(place, "scribe: Did it.")
        assert done.branch == place.branch
        _, moved = await restored(other, snapshot, place)
        assert (Path(moved.root) / "big.txt").read_text() == "x" * 20_000
        # The next round is on the first machine, and too large again.
        worktrees, place = await restored(small, snapshot, place)
        write(Path(place.root), {"big.txt": "y" * 20_000})
        await worktrees.changed(place.root)
        with pytest.raises(WorkspaceError, match=ONLY_HERE):
            await restored(Machine(tmp_path / "third", store), snapshot, place)

    asyncio.run(work())


@pytest.mark.rule("workspace.moves")
@pytest.mark.parametrize("text", ["first\n", "changed\n"])
def test_a_run_moves_again_once_its_large_files_are_gone(
    submitter: Machine, other: Machine, repository: Path, tmp_path: Path, store: PostgresStore, text: str
):
    small = Machine(tmp_path / "small", store, max_bytes=10_000)
    snapshot = submitter.send(repository)

    async def work() -> None:
        worktrees, place = await small.opened(snapshot)
        write(Path(place.root), {"big.txt": "x" * 20_000})
        await worktrees.changed(place.root)
        (Path(place.root) / "big.txt").unlink()
        write(Path(place.root), {"a.txt": text})
        await worktrees.changed(place.root)
        _, moved = await restored(other, snapshot, place)
        assert content(Path(moved.root)) == content(Path(place.root))
        stored = await other.workspaces.newest_of(RUN)
        assert stored is not None
        assert content(Path(await other.workspaces.open("of_caller", stored)))["a.txt"] == text

    asyncio.run(work())


@pytest.mark.rule("store.away")
def test_a_step_waits_for_a_store_that_is_away_before_it_counts(
    submitter: Machine, worker: Machine, other: Machine, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    snapshot, tries = submitter.send(repository), [0]
    real = PostgresStore.bundles

    def away(store: PostgresStore) -> Any:
        tries[0] += 1
        if tries[0] in (2, 3):
            raise StorageBusy(store.location, "the server is restarted")
        return real(store)

    monkeypatch.setattr(PostgresStore, "bundles", away)
    lost = asyncio.run(changed(worker, snapshot, {"a.txt": "stored\n"}))
    assert tries[0] > 3
    _, place = asyncio.run(restored(other, snapshot, lost))
    assert (Path(place.root) / "a.txt").read_text() == "stored\n"


@pytest.mark.rule("workspace.hostile")
def test_a_record_cannot_choose_a_folder_of_the_worker(
    submitter: Machine, worker: Machine, other: Machine, repository: Path, tmp_path: Path
):
    snapshot = submitter.send(repository)
    lost = asyncio.run(changed(worker, snapshot, {"new.txt": "new\n"}))
    for root in (str(tmp_path), "/etc", f"{lost.folder}/../.."):
        with pytest.raises(WorkspaceError, match=r"is not in its worktree"):
            asyncio.run(restored(other, snapshot, structs.replace(lost, root=root)))

    async def located(root: str) -> str:
        worktrees, _ = await worker.opened(snapshot)
        return await worktrees.locate(root)

    for root in ("/etc", str(repository)):
        with pytest.raises(WorkspaceError, match=r"is not on"):
            asyncio.run(located(root))
