"""The worktrees of runs: removed with their runs, unless they hold unmerged work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from deputy.journal import home
from deputy.journal.sqlite.reader import JournalReader
from deputy.journal.transcript import safe_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class WorktreeRemover(Protocol):
    """Inspects and removes git worktrees."""

    def holds_work(self, folder: Path) -> bool:
        """Whether a worktree has work that is in no other place."""
        ...

    def remove(self, folder: Path) -> None:
        """Remove a worktree."""
        ...


def worktree_of(folder: Path, run: str) -> Path:
    """The folder of a run's worktree, if it has one."""
    return folder / home.WORKTREES / safe_id(run)


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
    reader = JournalReader.open(folder) if places else None
    if reader is None:
        return []
    with reader:
        known = set(map(safe_id, reader.ids()))
    gone = set(map(safe_id, going))
    return [
        place for place in places if place.name in gone or (place.name not in known and _is_unchanged(place, before))
    ]


def _is_unchanged(place: Path, since: float) -> bool:
    try:
        return place.stat().st_mtime <= since
    except OSError:
        # Another process removes it at this moment.
        return False
