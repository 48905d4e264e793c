"""Where agents work that change something, as the engine needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class Worktree(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A directory of one run's own, on a branch of its own."""

    root: str
    """Where its tools are opened: what corresponds to the directory it was made from."""
    folder: str
    branch: str
    base: str
    """The commit it began with."""
    is_behind: bool = False
    """Whether the directory it was made from had changes that are in no commit, and so not here."""


class NoWorktree(Struct, frozen=True, kw_only=True):
    """Why there can be none."""

    reason: str


class WorktreeChanges(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a workplace came to: files that differ from its beginning, and the branch that has them."""

    changed: tuple[str, ...] = ()
    branch: str = ""
    warning: str = ""
    """What could not be done about it."""


class Worktrees(Protocol):
    """Makes workplaces and takes in what was done there."""

    async def open(self, run: str, label: str, root: str) -> Worktree | NoWorktree:
        """The workplace of a run, made from a directory; of a run that has one already, the same again."""
        ...

    async def close(self, place: Worktree, title: str, named: Sequence[str] = ()) -> WorktreeChanges:
        """Keep what was done on the branch, and the files that are named even where the repository ignores them.

        A workplace where nothing was done is removed.
        """
        ...
