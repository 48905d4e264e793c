"""What all who ask one provider with one key agree on: when requests may start, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from deputy.core.rate_limit import SharedLimit, SlotRequest, SlotShare, agree

if TYPE_CHECKING:
    from collections.abc import Callable


class RateLimitStore(Protocol):
    """When requests to one provider and key may start, and how many, for everyone who shares it.

    Times are on a monotonic clock.
    """

    def is_calm(self, now: float) -> bool:
        """Whether nobody holds starts back, as far as is known without asking; on the way of every request."""
        ...

    def is_limited(self, now: float) -> bool:
        """Whether a limit is in force, as far as is known without asking; on the way of every request."""
        ...

    async def hold(self, until: float) -> None:
        """Nobody starts before this time."""
        ...

    async def next_start(self, now: float, spacing: float) -> float:
        """Take a start now: 0 when it is given, else how many seconds to wait before asking again."""
        ...

    def share(self, ask: SlotRequest, on_share: Callable[[SlotShare | None], None]) -> None:
        """Ask for a share of the limit; told when it is known to all, None when there is no limit."""
        ...


class LocalRateLimitStore:
    """The pace of one process."""

    def __init__(self) -> None:
        self._held_until = float("-inf")
        self._last_start = float("-inf")
        self._agreement = SharedLimit()
        self._joined: float | None = None

    def is_calm(self, now: float) -> bool:
        """Whether nobody holds starts back."""
        return self._held_until <= now

    def is_limited(self, now: float) -> bool:
        """Whether a limit is in force."""
        return self._agreement.limit is not None and self._agreement.limit.is_in_force(now)

    async def hold(self, until: float) -> None:
        """Nobody starts before this time."""
        self._held_until = max(self._held_until, until)

    async def next_start(self, now: float, spacing: float) -> float:
        """Take a start now, or learn how long to wait."""
        at = max(self._held_until, self._last_start + spacing)
        if at > now:
            return at - now
        self._last_start = now
        return 0.0

    def share(self, ask: SlotRequest, on_share: Callable[[SlotShare | None], None]) -> None:
        """Have the whole limit."""
        self._agreement, share = agree(self._agreement, ask, "", self._joined)
        self._joined = None if self._agreement.limit is None else self._agreement.limit.since
        on_share(share)
