"""What distinguishes a worker from this machine and from the other workers, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from deputy.stores import StoreWorker

_CLOCK_SECONDS = 5.0
"""A clock that is off by less changes nothing that a person would see."""


def worker_text(one: StoreWorker) -> str:
    """A worker in one line."""
    keys = ", ".join(one.keys) or "none"
    return f"{one.host} process {one.pid}: version {one.version}, clock {one.clock_offset_seconds:+.1f} s, keys {keys}"


def worker_differences(
    one: StoreWorker, all_workers: Sequence[StoreWorker], version: str, keys: Collection[str]
) -> Iterator[str]:
    """What to do so that a worker fits the others and this machine, whose version and names of keys are given."""
    if one.version != version:
        yield f"This machine has version {version}: install the same on both."
    if abs(one.clock_offset_seconds) >= _CLOCK_SECONDS:
        yield "Its clock is not that of the database: synchronize it (no limit depends on it, but files and logs do)."
    # Runs of one queue meet any of its workers.
    known = {*keys, *(key for other in all_workers if set(other.labels) == set(one.labels) for key in other.keys)}
    if lacking := sorted(known - set(one.keys)):
        yield (
            f"It lacks {', '.join(lacking)}, set here or on a worker with the same labels: set it in the environment of"
            " `deputy worker` there, or runs that need it fail on it."
        )
