"""Machines that share a store: each has a home of its own, sends workspaces, opens them and brings work back."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.postgres import emptied_database

from deputy.core.snapshot import Snapshot
from deputy.engine.ports import Worktree
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.transcript import safe_id
from deputy.tools.git_snapshot import MAX_BYTES
from deputy.tools.git_workspaces import GitWorkspaces
from deputy.tools.placed_worktrees import PlacedWorktrees

RUN = "sess_1700000000_abc123"


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, capture_output=True, check=True)
    return os.fsdecode(done.stdout)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


class Machine:
    """One machine: a home of its own, and the store that all share."""

    def __init__(self, home: Path, store: PostgresStore, max_bytes: int = MAX_BYTES) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self.home = home
        self.store = store
        self.workspaces = GitWorkspaces(home, os.environ, store, safe_id, max_bytes=max_bytes)

    def send(self, root: Path) -> Snapshot:
        return asyncio.run(self.workspaces.send(str(root))).snapshot

    def open(self, snapshot: Snapshot, run: str = RUN) -> Path:
        return Path(asyncio.run(self.workspaces.open(run, snapshot)))

    async def opened(self, snapshot: Snapshot, run: str = RUN) -> tuple[PlacedWorktrees, Worktree]:
        """The worktree of a run, made from the checkout of its tree."""
        root = await self.workspaces.open("tree", snapshot)
        worktrees = PlacedWorktrees(self.home / "worktrees", Path(root), os.environ, safe_id, self.workspaces, snapshot)
        place = await worktrees.open(run, "scribe", root)
        assert isinstance(place, Worktree)
        return worktrees, place

    def work(self, snapshot: Snapshot, files: dict[str, str], run: str = RUN) -> str:
        """Change files in a worktree, and store its branch."""

        async def worked() -> str:
            worktrees, place = await self.opened(snapshot, run)
            write(Path(place.root), files)
            return (await worktrees.close(place, "scribe: Did it.")).branch

        return asyncio.run(worked())

    def bring(self, branch: str, snapshot: Snapshot, root: Path) -> str:
        return asyncio.run(self.workspaces.bring(branch, snapshot, str(root)))


def content(root: Path) -> dict[str, str]:
    """All files of a folder but those of git; a link as its target."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = os.fsdecode(bytes(path.relative_to(root)))
        if name.partition("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        found[name] = f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
    return found


def bytes_below(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def stored_bytes(store: PostgresStore) -> int:
    session = store.session()
    try:
        return session.fetch("SELECT coalesce(sum(length(body)), 0)::bigint FROM blobs")[0][0]
    finally:
        session.close()


# --- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> PostgresStore:
    return PostgresStore(emptied_database(), tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    write(root, {"a.txt": "first\n", "sub/b.txt": "second\n", ".gitignore": "ignored/\n", "server.key": "secret key\n"})
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "Begin")
    return root


@pytest.fixture
def submitter(tmp_path: Path, store: PostgresStore) -> Machine:
    return Machine(tmp_path / "submitter", store)


@pytest.fixture
def worker(tmp_path: Path, store: PostgresStore) -> Machine:
    return Machine(tmp_path / "worker", store)
