"""The least journal there is, on plain SQLite, and ways to break it: what the detectors are tried on.

Variants: ok; nosync (the system syncs whenever it likes); early (acknowledged before it is committed); lossy (an
acknowledged record in seven is never written); twice (a key is used again after a crash); rewrite (one JSON file,
rewritten in place); renamed (one JSON file, replaced without a sync); deaf (errors of storage are swallowed);
nosum (checksums are not looked at); untyped (errors come as the library raises them).
"""

from __future__ import annotations

import json
import os
import sqlite3
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 12


class StorageError(Exception):
    """What storage trouble is called here too."""


def run(home: str, variant: str, tell: Callable[[str], object]) -> int:
    """Write what is still missing of the history; tell each record once it is safe."""
    if variant in ("rewrite", "renamed"):
        return _run_file(Path(home), variant, tell)
    try:
        return _run_sqlite(Path(home), variant, tell)
    except (sqlite3.Error, OSError) as error:
        if variant == "deaf":
            return 0
        if variant == "untyped":
            raise
        raise StorageError(str(error)) from error


def _run_sqlite(home: Path, variant: str, tell: Callable[[str], object]) -> int:
    connection = _open(home)
    connection.execute(f"PRAGMA synchronous = {'OFF' if variant == 'nosync' else 'FULL'}")
    unique = "" if variant == "twice" else "UNIQUE"
    connection.execute(f"CREATE TABLE IF NOT EXISTS records (n INTEGER PRIMARY KEY, key TEXT {unique}, body, sum)")
    done = connection.execute("SELECT count(*) FROM records").fetchone()[0]
    for n in range(done if variant != "twice" else 0, COUNT):
        body = _body(n)
        if variant == "early":
            tell(f"k{n}")
        if variant != "lossy" or n % 7 != 5:
            query = "INSERT OR IGNORE INTO records (key, body, sum) VALUES (?, ?, ?)"
            connection.execute(query, (f"k{n}", body, _sum(body)))
        if variant != "early":
            tell(f"k{n}")
    connection.close()
    return COUNT


def _run_file(home: Path, variant: str, tell: Callable[[str], object]) -> int:
    path = home / "records.json"
    records = json.loads(path.read_text()) if path.exists() else []
    for n in range(len(records), COUNT):
        records.append([f"k{n}", _body(n), _sum(_body(n))])
        target = path if variant == "rewrite" else home / "records.new"
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(file, json.dumps(records).encode())
        os.close(file)
        if variant == "renamed":
            target.rename(path)
        tell(f"k{n}")
    return COUNT


def check(
    home: str, variant: str, acks: list[str], complete: bool, damaged: str, tell: Callable[[str], object]
) -> list[str]:
    """The invariants that do not hold; of damaged files only wrong data counts."""
    try:
        rows = _read(Path(home), variant)
    except (sqlite3.Error, ValueError) as error:
        return [] if damaged else [f"unreadable: {error}"]
    if damaged and variant != "nosum":
        rows = [row for row in rows if _sum(row[1]) == row[2]]
    problems = [f"wrong sum of {key}" for key, body, total in rows if _sum(body) != total and not damaged]
    problems += [f"wrong data of {key}" for key, body, _ in rows if damaged and body not in BODIES]
    keys = [key for key, _, _ in rows]
    if len(set(keys)) < len(keys):
        problems.append("a key stands twice")
    if keys != [f"k{n}" for n in range(len(keys))] and variant != "twice" and not damaged:
        problems.append(f"holes: {keys}")
    if not damaged:
        problems += [f"lost {ack}" for ack in acks if ack not in keys]
    if complete and len(keys) != COUNT:
        problems.append(f"only {len(keys)} records in the end")
    return problems


def _read(home: Path, variant: str) -> list[tuple[str, str, str]]:
    if variant in ("rewrite", "renamed"):
        path = home / "records.json"
        return json.loads(path.read_text()) if path.exists() else []
    if not (home / "plain.db").exists():
        return []
    connection = _open(home)
    if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        return []
    return connection.execute("SELECT key, body, sum FROM records ORDER BY n").fetchall()


def _open(home: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(home / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


BODIES = frozenset(f"{n}:".ljust(n * 700 + 20, "x") for n in range(COUNT))


def _body(n: int) -> str:
    return f"{n}:".ljust(n * 700 + 20, "x")


def _sum(body: str) -> str:
    return blake2b(str(body).encode(), digest_size=8).hexdigest()
