"""The shared state of a rate limit: when requests with one key may start, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from deputy.core.rate_limit import SharedLimit, SlotRequest, SlotShare, agree

if TYPE_CHECKING:
    from collections.abc import Callable


class RateLimitStore(Protocol):
    """The shared state for one provider and key. Times are monotonic."""

    def is_calm(self, now: float) -> bool:
        """Whether no hold is known; called for every request, so it does no I/O."""
        ...

    def is_limited(self, now: float) -> bool:
        """Whether a limit is known to apply; called for every request, so it does no I/O."""
        ...

    async def hold(self, until: float) -> None:
        """Allow no start before this time."""
        ...

    async def next_start(self, now: float, spacing: float) -> float:
        """Take a start: 0 if granted, else the seconds to wait before the next try."""
        ...

    def share(self, ask: SlotRequest, on_share: Callable[[SlotShare | None], None]) -> None:
        """Request a share of the limit; `on_share` gets it, or None if there is no limit."""
        ...


class LocalRateLimitStore:
    """A store for one process."""

    def __init__(self) -> None:
        self._held_until = float("-inf")
        self._last_start = float("-inf")
        self._agreement = SharedLimit()
        self._joined: float | None = None

    def is_calm(self, now: float) -> bool:
        """Whether there is no hold."""
        return self._held_until <= now

    def is_limited(self, now: float) -> bool:
        """Whether a limit applies."""
        return self._agreement.limit is not None and self._agreement.limit.is_in_force(now)

    async def hold(self, until: float) -> None:
        """Allow no start before this time."""
        self._held_until = max(self._held_until, until)

    async def next_start(self, now: float, spacing: float) -> float:
        """Take a start, or return the seconds to wait."""
        at = max(self._held_until, self._last_start + spacing)
        if at > now:
            return at - now
        self._last_start = now
        return 0.0

    def share(self, ask: SlotRequest, on_share: Callable[[SlotShare | None], None]) -> None:
        """Take the whole limit."""
        self._agreement, share = agree(self._agreement, ask, "", self._joined)
        self._joined = None if self._agreement.limit is None else self._agreement.limit.since
        on_share(share)
