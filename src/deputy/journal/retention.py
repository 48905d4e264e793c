"""Retention: ended runs are removed with their files after a time, unless they are pinned."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from deputy.core.errors import StorageFull, UnknownRun
from deputy.core.state import State
from deputy.journal import home, transcript
from deputy.journal.process_identity import has_ended
from deputy.journal.sqlite import commit_marker
from deputy.journal.sqlite.connection import open_writer, retry_while_busy, typed
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from pathlib import Path

    T = TypeVar("T")

DAY_SECONDS = 86_400.0
KEPT_SECONDS = 7 * DAY_SECONDS
_LOOKED_AT = 200
_LONG_LOG = 16 << 20
_FREE_ELSEWHERE = (
    "Free some space on its disk, then try again: removing records needs a little space."
    " The files of the runs to remove are already deleted."
)


class WorktreeRemover(Protocol):
    """Inspects and removes git worktrees."""

    def holds_work(self, folder: Path) -> bool:
        """Whether a worktree has work that is in no other place."""
        ...

    def remove(self, folder: Path) -> None:
        """Remove a worktree."""
        ...


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


def find_old(queries: SqliteQueries, before: float, *, delivered_only: bool = False) -> list[RunTree]:
    """The trees that may be removed, oldest first."""
    pinned = queries.pinned()
    trees = (RunTree(root=root, states=tuple(queries.tree(root))) for root in queries.old_roots(before))
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
    queries = SqliteQueries.open(folder)
    if queries is None:
        return []
    with queries:
        trees = find_old(queries, before, delivered_only=delivered_only)
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
    """Truncate the write-ahead log, unless a queries still uses it."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def prune_expired(
    folder: Path, now: float, kept_seconds: float = KEPT_SECONDS, worktrees: WorktreeRemover | None = None
) -> int:
    """Remove old runs at start-up, except undelivered ones; returns the number of trees removed."""
    home.clear_drafts(folder / home.JOURNAL)
    trees = prune(folder, now - kept_seconds, delivered_only=True, worktrees=worktrees)
    queries = SqliteQueries.open(folder)
    if queries is not None:
        with queries:
            gone = [name for name in queries.owners() if has_ended(name)]
            _write_missing_transcripts(folder, queries)
        if gone:
            _write(folder, lambda db: db.executemany("DELETE FROM owners WHERE owner = ?", [(name,) for name in gone]))
    return len(trees)


def _write_missing_transcripts(folder: Path, queries: SqliteQueries) -> None:
    """Write the transcripts that a process did not write before it died."""
    for state in (*queries.unsettled(), *queries.ended(_LOOKED_AT)):
        if not state.is_live and not transcript.transcript_path(folder, state.label or state.agent, state.run).exists():
            made = transcript.of_ended(queries, state.run)
            if made is not None:
                transcript.write_transcript(folder, made)


def pin(folder: Path, run: str, *, pinned: bool) -> None:
    """Pin a run and its tree, or unpin it."""
    queries = SqliteQueries.open(folder)
    if queries is None:
        raise UnknownRun(run)
    with queries:
        if not queries.knows(run):
            raise UnknownRun(run)
    query = "INSERT OR IGNORE INTO pins VALUES (?)" if pinned else "DELETE FROM pins WHERE run = ?"
    _write(folder, lambda db: db.execute(query, (run,)))


def remove(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
    """Remove all rows of these runs, and void the cursors of followers: ids are used again."""
    names = [(run,) for run in runs]
    for query in _REMOVALS:
        connection.executemany(query, names)
    connection.execute("UPDATE generation SET number = number + 1")


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


# --- worktrees --------------------------------------------------------------------------------------------------------


def worktree_of(folder: Path, run: str) -> Path:
    """The folder of a run's worktree, if it has one."""
    return folder / home.WORKTREES / transcript.safe_id(run)


def remove_worktree(place: Path, worktrees: WorktreeRemover) -> None:
    """Remove a worktree and the file beside it."""
    if place.is_dir():
        worktrees.remove(place)
    forget_worktree(place)


def forget_worktree(place: Path) -> None:
    """Remove the file beside a worktree."""
    place.with_name(f"{place.name}.json").unlink(missing_ok=True)


def clear_worktrees(folder: Path, runs: Iterable[str], worktrees: WorktreeRemover) -> None:
    """Remove the worktrees of these runs, except those with unmerged work."""
    for place in (worktree_of(folder, run) for run in runs):
        if not place.is_dir() or not worktrees.holds_work(place):
            remove_worktree(place, worktrees)


def orphaned_worktrees(folder: Path, before: float, going: Iterable[str]) -> list[Path]:
    """The worktrees of these runs, and unchanged ones whose runs are no longer in the journal."""
    among = folder / home.WORKTREES
    places = sorted(path for path in among.iterdir() if path.is_dir()) if among.is_dir() else []
    # The journal is read after the folder: a run is recorded before its worktree is made.
    queries = SqliteQueries.open(folder) if places else None
    if queries is None:
        return []
    with queries:
        known = set(map(transcript.safe_id, queries.ids()))
    gone = set(map(transcript.safe_id, going))
    return [
        place for place in places if place.name in gone or (place.name not in known and _is_unchanged(place, before))
    ]


def _is_unchanged(place: Path, since: float) -> bool:
    try:
        return place.stat().st_mtime <= since
    except OSError:
        # Another process removes it at this moment.
        return False
