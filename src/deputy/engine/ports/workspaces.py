"""Workspaces that travel: a snapshot of the files at submit, and the branches of work that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from deputy.core.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from deputy.engine.ports.tool import Worktree


class SentSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot that is in the store."""

    snapshot: Snapshot
    sent_bytes: int
    """Zero if the store had it."""
    left_out: tuple[str, ...] = ()
    """Submodules and nested repositories, whose files are not in it."""


class Bundle(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A git bundle in the store: the commits up to `tip` that come after `needs`."""

    repository: str
    tip: str
    needs: str = ""
    """The tip of the bundle that it builds upon; empty for a whole one."""
    branch: str = ""
    """The name of a branch of work; empty for a snapshot."""
    parts: tuple[str, ...] = ()
    """The hashes of its parts."""
    size: int = 0
    links: int = 0
    """How many bundles are below it."""
    whole_size: int = 0
    """The bytes of the lowest bundle of its chain, and of those above it."""
    thin_size: int = 0
    head: str = ""
    """Of a checkpoint: the commit that was checked out."""
    only_on: str = ""
    """Of a checkpoint that could not be stored: the machine that has the files."""
    why: str = ""
    """The reason for that, and what to do."""


class Bundles(Protocol):
    """The bundles in a store. All methods block."""

    def latest(self, repository: str) -> Sequence[Bundle]:
        """The newest snapshots of a repository, newest first."""
        ...

    def find(self, repository: str, tip: str) -> Bundle | None:
        """The bundle with this tip."""
        ...

    def of_branch(self, branch: str) -> Bundle | None:
        """The newest bundle of a branch of work."""
        ...

    def of_run(self, run: str) -> Bundle | None:
        """The newest bundle of the work of a run."""
        ...

    def put(self, bundle: Bundle, parts: Iterable[bytes]) -> bool:
        """Store a bundle, or keep one that is there; False if the bundle that it builds upon is gone."""
        ...

    def part(self, name: str) -> bytes | None:
        """The content of a part; None if it is missing or damaged."""
        ...

    def use(self, run: str, repository: str, tip: str, instead_of: str = "") -> None:
        """Keep a bundle, and those that it builds upon, for as long as a run is in the journal."""
        ...

    def remove_unused(self, kept_seconds: float) -> int:
        """Remove the older bundles that no run uses; returns their number."""
        ...


class BundleStore(Protocol):
    """Where bundles are."""

    @property
    def location(self) -> str:
        """Its address, for messages."""
        ...

    def bundles(self) -> AbstractContextManager[Bundles]:
        """Open the bundles."""
        ...


class Workspaces(Protocol):
    """Sends workspaces to the store, opens them on a worker, and brings the work back."""

    async def send(self, root: str) -> SentSnapshot:
        """Store a snapshot of a workspace; its repository stays as it is."""
        ...

    async def open(self, run: str, snapshot: Snapshot) -> str:
        """The root of a checkout on this machine; a second call for the same run returns the same."""
        ...

    def release(self, run: str) -> None:
        """Let the checkout of a run be removed."""
        ...

    async def use(self, run: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in the store for as long as a run is in the journal."""
        ...

    async def upload(self, run: str, place: Worktree) -> None:
        """Store the branch of a worktree that was made from a checkout."""
        ...

    async def checkpoint(self, run: str, place: Worktree, repository: str) -> None:
        """Store the files of a worktree as they are, so that another machine can go on with them."""
        ...

    async def resume_branch(self, branch: str) -> str:
        """Make the stored branch of a run a branch of the mirror; returns the checkpoint above it, if there is one."""
        ...

    async def bring(self, branch: str, snapshot: Snapshot, root: str) -> str:
        """Make a stored branch of work a branch of the repository around `root`; returns its commit."""
        ...
