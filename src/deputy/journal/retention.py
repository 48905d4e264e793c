"""Retention: ended runs are removed with their files after a time, unless they are pinned."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from deputy.core.errors import StorageFull, UnknownRun
from deputy.core.state import State
from deputy.journal import home, transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from pathlib import Path

    from deputy.journal.sql.sql_queries import SqlQueries
    from deputy.journal.sql.sql_store import SqlStore, SqlTables

DAY_SECONDS = 86_400.0
KEPT_SECONDS = 7 * DAY_SECONDS
_LOOKED_AT = 200
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


def find_old(queries: SqlQueries, before: float, *, delivered_only: bool = False) -> list[RunTree]:
    """The trees that may be removed, oldest first."""
    pinned = queries.pinned()
    trees = (RunTree(root=root, states=tuple(queries.tree(root))) for root in queries.old_roots(before))
    fit = [tree for tree in trees if tree.states and is_prunable(tree, before, pinned, delivered_only=delivered_only)]
    return sorted(fit, key=lambda tree: tree.last_at)


def prune(
    store: SqlStore,
    before: float,
    *,
    dry_run: bool = False,
    delivered_only: bool = False,
    worktrees: WorktreeRemover | None = None,
) -> list[RunTree]:
    """Remove old trees with their files, and return them. Worktrees with unmerged work are kept."""
    queries = store.queries()
    if queries is None:
        return []
    with queries:
        trees = find_old(queries, before, delivered_only=delivered_only)
    if dry_run or not trees:
        return trees
    try:
        return _remove_trees(store, trees, before, worktrees)
    except StorageFull:
        _free_space(store, trees, before, worktrees)
    try:
        return _remove_trees(store, trees, before, worktrees)
    except StorageFull as error:
        raise StorageFull(error.path, error.what, _FREE_ELSEWHERE) from error


def _remove_trees(
    store: SqlStore, trees: Sequence[RunTree], before: float, worktrees: WorktreeRemover | None
) -> list[RunTree]:
    with store.writing() as writer:
        removed = [
            tree for tree in trees if writer.transact(lambda db, t=tree: _remove_tree(db, t, before), removes=True)
        ]
    _remove_orphaned(store.folder, removed, worktrees)
    return removed


def _free_space(store: SqlStore, trees: Sequence[RunTree], before: float, worktrees: WorktreeRemover | None) -> None:
    """Delete the files of old runs first: removing their records needs space on a full disk."""

    def do(tables: SqlTables | None) -> None:
        # The lock keeps other processes from resuming one of them.
        old = [tree for tree in trees if tables is None or not _is_wanted(tables, tree, before)]
        _remove_orphaned(store.folder, old, worktrees)

    store.make_room(do)


def prune_expired(
    store: SqlStore,
    now: float,
    kept_seconds: float = KEPT_SECONDS,
    worktrees: WorktreeRemover | None = None,
    *,
    afterwards: Callable[[], object] = lambda: None,
) -> int:
    """Remove old runs at start-up, except undelivered ones; returns the number of trees removed.

    `afterwards` removes what they needed.
    """
    home.clear_drafts(store.folder / home.JOURNAL)
    with store.pruning() as is_alone:
        # Another process that starts at this moment removes the same.
        trees = prune(store, now - kept_seconds, delivered_only=True, worktrees=worktrees) if is_alone else []
        if is_alone:
            afterwards()
    queries = store.queries()
    if queries is not None:
        with queries:
            gone = queries.ended_owners()
            if store.is_local:
                _write_missing_transcripts(store.folder, queries)
        if gone:
            with store.writing() as writer:
                writer.transact(lambda db: _each(db, "DELETE FROM owners WHERE owner = ?", gone))
    return len(trees)


def _write_missing_transcripts(folder: Path, queries: SqlQueries) -> None:
    """Write the transcripts that a process did not write before it died."""
    for state in (*queries.unsettled(), *queries.ended(_LOOKED_AT)):
        if not state.is_live and not transcript.transcript_path(folder, state.label or state.agent, state.run).exists():
            made = transcript.of_ended(queries, state.run)
            if made is not None:
                transcript.write_transcript(folder, made)


def pin(store: SqlStore, run: str, *, pinned: bool) -> None:
    """Pin a run and its tree, or unpin it."""
    queries = store.queries()
    if queries is None:
        raise UnknownRun(run)
    with queries:
        if not queries.knows(run):
            raise UnknownRun(run)
    query = "INSERT INTO pins VALUES (?) ON CONFLICT (run) DO NOTHING" if pinned else "DELETE FROM pins WHERE run = ?"
    with store.writing() as writer:
        writer.transact(lambda db: db.execute(query, (run,)))


def remove(tables: SqlTables, runs: Sequence[str]) -> None:
    """Remove all rows of these runs, and void the cursors of followers: ids are used again."""
    for query in _REMOVALS:
        _each(tables, query, runs)
    tables.execute("UPDATE generation SET number = number + 1")


def _each(tables: SqlTables, query: str, names: Iterable[str]) -> None:
    for name in names:
        tables.execute(query, (name,))


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


def _remove_tree(tables: SqlTables, tree: RunTree, before: float) -> bool:
    if _is_wanted(tables, tree, before):
        return False
    remove(tables, [state.run for state in tree.states])
    return True


def _is_wanted(tables: SqlTables, tree: RunTree, before: float) -> bool:
    """Whether it was resumed since it was read."""
    query = "SELECT 1 FROM runs WHERE root = ? AND (is_live OR last_at >= ?)"
    return tables.execute(query, (tree.root, before)).fetchone() is not None


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


def orphaned_worktrees(store: SqlStore, before: float, going: Iterable[str]) -> list[Path]:
    """The worktrees of these runs, and unchanged ones whose runs are no longer in the journal."""
    among = store.folder / home.WORKTREES
    places = sorted(path for path in among.iterdir() if path.is_dir()) if among.is_dir() else []
    # The journal is read after the folder: a run is recorded before its worktree is made.
    queries = store.queries() if places else None
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
