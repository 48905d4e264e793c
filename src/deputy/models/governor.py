"""The rate governor: how many requests one provider and key get at once, and when, for all who share it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from deputy.core.errors import RateLimited
from deputy.models.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable

CEILING: Final = 512
_FEWEST, _MOST, _OTHER_FILES = 16, 4096, 256
RECOVERY: Final = 8.0
"""How many slots a full round of successes wins back: each success adds this over the limit."""
WINDOW_SECONDS: Final = 0.1
SHARE: Final = 10
"""No window gets more than a tenth of what a storm threw back."""
MARGIN: Final = 1.25
QUIET_SECONDS: Final = 1.0
LONGEST_JITTER_SECONDS: Final = 1.0


def most_requests() -> int:
    """How many requests this process can have under way: as many as it may open sockets, less what else it opens."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_FEWEST, min(_MOST, allowed - _OTHER_FILES))


class SharedPace(Protocol):
    """When requests to one provider and key may start, for everyone who shares it. Times are on a monotonic clock."""

    def is_calm(self, now: float) -> bool:
        """Whether nobody holds starts back, as far as is known without asking; on the way of every request."""
        ...

    async def hold(self, until: float) -> None:
        """Nobody starts before this time."""
        ...

    async def take(self, now: float, spacing: float) -> float:
        """Take a start now: 0 when it is given, else how many seconds to wait before asking again."""
        ...


class LocalPace:
    """The pace of one process."""

    def __init__(self) -> None:
        self._held_until = float("-inf")
        self._last_start = float("-inf")

    def is_calm(self, now: float) -> bool:
        """Whether nobody holds starts back."""
        return self._held_until <= now

    async def hold(self, until: float) -> None:
        """Nobody starts before this time."""
        self._held_until = max(self._held_until, until)

    async def take(self, now: float, spacing: float) -> float:
        """Take a start now, or learn how long to wait."""
        at = max(self._held_until, self._last_start + spacing)
        if at > now:
            return at - now
        self._last_start = now
        return 0.0


class Governor:
    """Slots for requests: the limit halves when the provider throttles and grows back with success.

    After a throttle, starts are paced one by one along a single line, measured by when they really happened, so
    that a late timer never turns into a burst.
    """

    def __init__(self, *, timing: Timing | None = None, ceiling: int = CEILING, pace: SharedPace | None = None) -> None:
        self.limit = float(ceiling)
        """How many requests may be under way; a fraction of a slot is progress towards the next."""
        self.active = 0
        self._ceiling = float(ceiling)
        self._timing = timing or Timing()
        self._pace = pace or LocalPace()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._line = asyncio.Lock()
        self._in_line = 0
        self._thrown_back = 0
        self._last_throttle = float("-inf")
        self._last_cut = float("-inf")

    async def enter(self, patience_seconds: float = float("inf")) -> float:
        """Wait for a slot and, in a storm, for its time. Returns when the request starts, for `throttled`.

        RateLimited at once when the provider wants to be left alone for longer than the patience lasts.
        """
        await self._take_slot()
        now = self._timing.clock()
        if not self._thrown_back and self._pace.is_calm(now):
            return now
        try:
            return await self._stand_in_line(patience_seconds)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Give the slot back; whoever waits longest gets it."""
        self.active -= 1
        while self._waiting and self.active < int(self.limit):
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.active += 1
                waiter.set_result(None)

    def succeeded(self) -> None:
        """A request was served."""
        self.limit = min(self._ceiling, self.limit + RECOVERY / self.limit)
        if self._thrown_back and not self._in_line and self._timing.clock() - self._last_throttle > QUIET_SECONDS:
            self._thrown_back = 0

    async def throttled(self, started: float, wait_seconds: float) -> None:
        """A request that had started then was thrown back; nobody starts before the wait is over.

        Requests that were already under way when the limit was cut do not cut it again.
        """
        now = self._timing.clock()
        self._thrown_back += 1
        self._last_throttle = now
        if started > self._last_cut:
            self._last_cut = now
            self.limit = max(1.0, min(self.limit, float(self.active)) / 2)
        jitter = min(LONGEST_JITTER_SECONDS, wait_seconds / 10) * self._timing.draw()
        await self._pace.hold(now + wait_seconds + jitter)

    @property
    def spacing(self) -> float:
        """Seconds between two starts in a storm."""
        return MARGIN * WINDOW_SECONDS / max(1, self._thrown_back // SHARE)

    async def _take_slot(self) -> None:
        if self.active < int(self.limit) and not self._waiting:
            self.active += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()
            raise

    async def _stand_in_line(self, patience_seconds: float) -> float:
        self._in_line += 1
        try:
            async with self._line:
                while True:
                    now = self._timing.clock()
                    wait = await self._pace.take(now, self.spacing)
                    if wait <= 0:
                        return now
                    if wait > patience_seconds:
                        raise RateLimited(f"the provider wants to be left alone for {wait:.0f} s", retry_after=wait)
                    await self._timing.sleep(wait)
        finally:
            self._in_line -= 1


class Governors:
    """One governor for each provider and key, made when first asked for."""

    def __init__(
        self,
        *,
        timing: Timing | None = None,
        ceiling: int = CEILING,
        pace_of: Callable[[str], SharedPace] | None = None,
    ) -> None:
        self._timing = timing
        self._ceiling = ceiling
        self._pace_of = pace_of
        self._governors: dict[str, Governor] = {}

    def of(self, account: str) -> Governor:
        """The governor of an account: a provider with a fingerprint of the key."""
        governor = self._governors.get(account)
        if governor is None:
            pace = self._pace_of(account) if self._pace_of is not None else None
            governor = Governor(timing=self._timing, ceiling=self._ceiling, pace=pace)
            self._governors[account] = governor
        return governor
