"""A workspace of about 1,800 files through a Postgres store: snapshot, first bundle, checkout, and the next bundle.

Wall times depend on the load of the machine; the CPU of git is printed beside them. Postgres syncs its commits.
"""

import argparse
import asyncio
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.support.postgres import migrated

from deputy.engine.ports.workspaces import SentSnapshot
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.transcript import safe_id
from deputy.testing.postgres_server import OwnServer
from deputy.tools.git_workspaces import GitWorkspaces

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=1800)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "server").mkdir()
        server = OwnServer(folder / "server", fsync=True)
        store = PostgresStore(migrated(server.start()), folder)
        try:
            measure(folder, store, said.files)
        finally:
            server.stop("immediate")


def measure(folder: Path, store: PostgresStore, files: int) -> None:
    root = folder / "repository"
    size = fill(root, files)
    print(f"{files:,} files, {size / 1e6:.1f} MB")
    submitter, worker = (machine(folder / name, store) for name in ("submitter", "worker"))
    first = timed("snapshot, bundle and upload", lambda: asyncio.run(submitter.send(str(root))))
    show("first bundle", first)
    timed("fetch and checkout", lambda: asyncio.run(worker.open("first", first.snapshot)))
    timed("snapshot without a change", lambda: asyncio.run(submitter.send(str(root))))
    (root / "package_3/module_1.py").write_text("VALUE = 1\n")
    second = timed("snapshot after a change", lambda: asyncio.run(submitter.send(str(root))))
    show("next bundle", second)
    timed("fetch and checkout", lambda: asyncio.run(worker.open("second", second.snapshot)))


def machine(home: Path, store: PostgresStore) -> GitWorkspaces:
    home.mkdir()
    return GitWorkspaces(home, os.environ, store, safe_id)


def fill(root: Path, files: int) -> int:
    """Python files of seeded words: they pack about as well as source code."""
    made, words = random.Random(7), [f"name_{number}" for number in range(2000)]
    for number in range(files):
        path = root / f"package_{number % 40}" / f"module_{number // 40}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{made.choice(words)} = {made.choice(words)}({made.choice(words)})" for _ in range(120))
        path.write_text("\n".join(lines) + "\n")
    identity = ("-c", "user.name=x", "-c", "user.email=x")
    # A clone has its objects in one pack.
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "-qm", "x"), ("repack", "-adq")):
        subprocess.run(["git", *identity, *command], cwd=root, check=True)
    return sum(path.stat().st_size for path in root.rglob("*.py"))


def timed(what: str, do: Callable[[], T]) -> T:
    began, used = time.perf_counter(), os.times()
    result = do()
    ended, now = time.perf_counter(), os.times()
    cpu = sum(now[:4]) - sum(used[:4])
    print(f"{what:<28} {ended - began:6.2f} s   {cpu:5.2f} s CPU with git")
    return result


def show(what: str, sent: SentSnapshot) -> None:
    print(f"{what:<28} {sent.sent_bytes:,} bytes")


if __name__ == "__main__":
    main()
