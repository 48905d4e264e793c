"""Retention: ended runs are removed after seven days, or the configured time; pinned runs stay."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from deputy.core.errors import StorageFull, UnknownRun
from deputy.core.state import State
from deputy.journal import home, transcript
from deputy.journal.process_identity import ProcessIdentity, is_gone
from deputy.journal.run_worktrees import clear_worktrees, forget_worktree, worktree_of
from deputy.journal.sqlite import commit_marker
from deputy.journal.sqlite.connection import open_writer, retry_while_busy, typed
from deputy.journal.sqlite.reader import JournalReader

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from pathlib import Path

    from deputy.journal.run_worktrees import WorktreeRemover

    T = TypeVar("T")

DAY_SECONDS = 86_400.0
KEPT_SECONDS = 7 * DAY_SECONDS
_LOOKED_AT = 200
_LONG_LOG = 16 << 20
_FREE_ELSEWHERE = (
    "Free some space on its disk, then try again: removing records needs a little space."
    " The files of the runs to remove are already deleted."
)


class RunTree(Struct, frozen=True, kw_only=True):
    """All runs of one root session: they are removed together."""

    root: str
    states: tuple[State, ...]

    @property
    def last_at(self) -> float:
        """The time of its last event."""
        return max(state.last_at for state in self.states)


def is_prunable(tree: RunTree, before: float, pinned: set[str], *, delivered_only: bool) -> bool:
    """Whether a tree may be removed: all its runs have ended, none is blocked or pinned, and it is old enough."""
    for state in tree.states:
        # A blocked run waits for a person without a limit.
        if state.is_live or state.status == "blocked" or state.run in pinned:
            return False
    roots = [state for state in tree.states if state.parent is None]
    if delivered_only and not all(state.is_delivered for state in roots):
        return False
    return tree.last_at < before and tree.root not in pinned


def find_old(reader: JournalReader, before: float, *, delivered_only: bool = False) -> list[RunTree]:
    """The trees that may be removed, oldest first."""
    pinned = reader.pinned()
    trees = (RunTree(root=root, states=tuple(reader.tree(root))) for root in reader.old_roots(before))
    fit = [tree for tree in trees if tree.states and is_prunable(tree, before, pinned, delivered_only=delivered_only)]
    return sorted(fit, key=lambda tree: tree.last_at)


def prune(
    folder: Path,
    before: float,
    *,
    dry_run: bool = False,
    delivered_only: bool = False,
    worktrees: WorktreeRemover | None = None,
) -> list[RunTree]:
    """Remove old trees with their files, and return them. Worktrees with unmerged work are kept."""
    reader = JournalReader.open(folder)
    if reader is None:
        return []
    with reader:
        trees = find_old(reader, before, delivered_only=delivered_only)
    if dry_run or not trees:
        return trees
    try:
        return _remove_trees(folder, trees, before, worktrees)
    except StorageFull:
        _free_space(folder, trees, before, worktrees)
    try:
        return _remove_trees(folder, trees, before, worktrees)
    except StorageFull as error:
        raise StorageFull(error.path, error.what, _FREE_ELSEWHERE) from error


def _remove_trees(
    folder: Path, trees: Sequence[RunTree], before: float, worktrees: WorktreeRemover | None
) -> list[RunTree]:
    removed = [tree for tree in trees if _write(folder, lambda db, t=tree: _remove_tree(db, folder, t, before))]
    _remove_orphaned(folder, removed, worktrees)
    return removed


def _free_space(folder: Path, trees: Sequence[RunTree], before: float, worktrees: WorktreeRemover | None) -> None:
    """Delete the files of old runs first: removing their records needs space on a full disk."""
    path = folder / home.JOURNAL
    try:
        connection = open_writer(folder, "group")
    except StorageFull:
        # If the journal cannot be opened for writing, no process can resume a run.
        _remove_orphaned(folder, trees, worktrees)
        return
    try:
        with typed(path):
            # The lock keeps other processes from resuming one of them.
            retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"), path)
            old = [tree for tree in trees if not _is_wanted(connection, tree, before)]
            _remove_orphaned(folder, old, worktrees)
            connection.execute("ROLLBACK")
        _empty_log(connection)
    finally:
        connection.close()


def _empty_log(connection: sqlite3.Connection) -> None:
    """Truncate the write-ahead log, unless a reader still uses it."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def prune_expired(
    folder: Path, now: float, kept_seconds: float = KEPT_SECONDS, worktrees: WorktreeRemover | None = None
) -> int:
    """Remove old runs at start-up, except undelivered ones; returns the number of trees removed."""
    home.clear_drafts(folder / home.JOURNAL)
    trees = prune(folder, now - kept_seconds, delivered_only=True, worktrees=worktrees)
    reader = JournalReader.open(folder)
    if reader is not None:
        with reader:
            gone = [
                name for name in reader.owners() if (owner := ProcessIdentity.named(name)) is None or is_gone(owner)
            ]
            _write_missing_transcripts(folder, reader)
        if gone:
            _write(folder, lambda db: db.executemany("DELETE FROM owners WHERE owner = ?", [(name,) for name in gone]))
    return len(trees)


def _write_missing_transcripts(folder: Path, reader: JournalReader) -> None:
    """Write the transcripts that a process did not write before it died."""
    for state in (*reader.unsettled(), *reader.ended(_LOOKED_AT)):
        if not state.is_live and not transcript.transcript_path(folder, state.label or state.agent, state.run).exists():
            made = transcript.of_ended(reader, state.run)
            if made is not None:
                transcript.write_transcript(folder, made)


def pin(folder: Path, run: str, *, pinned: bool) -> None:
    """Pin a run and its tree, or unpin it."""
    reader = JournalReader.open(folder)
    if reader is None:
        raise UnknownRun(run)
    with reader:
        if not reader.knows(run):
            raise UnknownRun(run)
    query = "INSERT OR IGNORE INTO pins VALUES (?)" if pinned else "DELETE FROM pins WHERE run = ?"
    _write(folder, lambda db: db.execute(query, (run,)))


def remove(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
    """Remove all rows of these runs."""
    names = [(run,) for run in runs]
    for query in _REMOVALS:
        connection.executemany(query, names)


_REMOVALS = (
    "DELETE FROM events WHERE run = ?",
    "DELETE FROM runs WHERE run = ?",
    "DELETE FROM leases WHERE run = ?",
    "DELETE FROM inbox WHERE run = ?",
    "DELETE FROM progress WHERE run = ?",
    "DELETE FROM pins WHERE run = ?",
)


def _remove_orphaned(folder: Path, trees: Sequence[RunTree], worktrees: WorktreeRemover | None) -> None:
    """Remove the files of these trees, except worktrees with unmerged work."""
    runs = [state.run for tree in trees for state in tree.states]
    _remove_transcripts(folder, runs)
    if worktrees is not None:
        with _explained(folder):
            clear_worktrees(folder, runs, worktrees)


def remove_files(folder: Path, runs: Sequence[str]) -> None:
    """Remove the transcripts, scratchpads and worktrees of these runs; branches stay."""
    _remove_transcripts(folder, runs)
    with _explained(folder):
        for place in (worktree_of(folder, run) for run in runs):
            shutil.rmtree(place, ignore_errors=True)
            forget_worktree(place)


def _remove_transcripts(folder: Path, runs: Sequence[str]) -> None:
    with _explained(folder):
        for path in (path for run in runs for path in transcript.files_of(folder, run)):
            path.unlink(missing_ok=True)


@contextmanager
def _explained(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        home.explain(folder, error)


def _remove_tree(connection: sqlite3.Connection, folder: Path, tree: RunTree, before: float) -> bool:
    if _is_wanted(connection, tree, before):
        return False
    commit_marker.clear(folder)
    remove(connection, [state.run for state in tree.states])
    return True


def _is_wanted(connection: sqlite3.Connection, tree: RunTree, before: float) -> bool:
    """Whether it was resumed since it was read."""
    query = "SELECT 1 FROM runs WHERE root = ? AND (is_live OR last_at >= ?)"
    return connection.execute(query, (tree.root, before)).fetchone() is not None


def _is_long(log: Path) -> bool:
    try:
        return log.stat().st_size > _LONG_LOG
    except OSError:
        return False


def _write(folder: Path, do: Callable[[sqlite3.Connection], T]) -> T:
    path = folder / home.JOURNAL
    connection = open_writer(folder, "group")
    try:
        with typed(path):
            if _is_long(path.with_name(f"{path.name}-wal")):
                _empty_log(connection)
            retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"), path)
            result = do(connection)
            connection.execute("COMMIT")
        # The removal is committed, even if a full disk prevents the vacuum.
        with suppress(StorageFull), typed(path):
            # `execute` would step this statement once and free one page; a script runs to its end.
            retry_while_busy(lambda: connection.executescript("PRAGMA incremental_vacuum"), path)
        return result
    finally:
        connection.close()
