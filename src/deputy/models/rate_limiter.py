"""The rate limiter: how many requests to one provider and key run at once, and when they start."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from deputy.core.model_errors import RateLimited
from deputy.core.rate_limit import MOST_SLOTS, SharedLimit, SlotRequest, SlotShare, agree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CEILING: Final = 512
_FEWEST, _OTHER_FILES = 16, 256
WINDOW_SECONDS: Final = 0.1
SHARE: Final = 10
"""A window gets at most a tenth of the requests that a storm of throttles rejected."""
MARGIN: Final = 1.6
"""Extra spacing between starts, because the machine delays some of them."""
CALM_SPACING_SECONDS: Final = 0.001
"""Below this spacing, starts are no longer paced."""
QUIET_SECONDS: Final = 1.0
LONGEST_JITTER_SECONDS: Final = 1.0
TICK_SECONDS: Final = 0.2
"""How often the share is renewed while a limit applies."""
IDLE_SECONDS: Final = 2.0
"""How long an unused share is kept."""


def most_requests() -> int:
    """The most concurrent requests of this process, by its limit on open files."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_FEWEST, min(MOST_SLOTS, allowed - _OTHER_FILES))


def _now() -> float:
    return asyncio.get_running_loop().time()


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


class RateLimiter:
    """Slots for requests: the limit halves when the provider throttles and grows back with success.

    While a limit applies, this process has a share of it, which it renews regularly; before the first throttle there
    is no limit. After a throttle, requests start one by one in a line, spaced by their real start times, so that a
    late timer never causes a burst.
    """

    def __init__(
        self,
        *,
        max_concurrency: int = CEILING,
        store: RateLimitStore | None = None,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.limit = float(max_concurrency)
        """The last known limit on concurrent requests of all processes."""
        self.active = 0
        self._ceiling = max_concurrency
        self._draw = draw
        self._sleep = sleep
        self._store = store or LocalRateLimitStore()
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._share: SlotShare | None = None
        self._asked: SlotRequest | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._successes = 0
        self._cutting: float | None = None
        self._last_cut = float("-inf")
        self._last_start = float("-inf")
        self._last_release = float("-inf")
        self._line = asyncio.Lock()
        self._in_line = 0
        self._retries = 0
        """The number of waiting requests that were throttled before."""
        self._throttled = 0
        """The number of requests that the storm throttled; 0 without a storm."""
        self._granted_slots = 0
        """The starts granted since the last cut."""
        self._last_throttle = float("-inf")
        self._is_closed = False

    async def enter(self, max_wait_seconds: float = float("inf"), *, is_throttle_retry: bool = False) -> float:
        """Wait for a slot and, in a storm, for the start time. Returns the start time, for `throttled`.

        Raises RateLimited at once if the wait would be longer than `max_wait_seconds`.
        """
        self._retries += is_throttle_retry
        try:
            now = _now()
            if not self._has_free_slot(now):
                await self._wait_for_slot(now)
                now = _now()
            if not self._throttled and not is_throttle_retry and self._store.is_calm(now):
                self._last_start = now
                return now
            try:
                return await self._wait_for_turn(max_wait_seconds)
            except BaseException:
                self.release()
                raise
        finally:
            self._retries -= is_throttle_retry

    def release(self) -> None:
        """Release the slot to the longest waiting request."""
        self.active -= 1
        self._last_release = _now()
        self._admit(self._last_release)

    def succeeded(self) -> None:
        """A request succeeded."""
        self._successes += 1
        is_quiet = _now() - self._last_throttle > QUIET_SECONDS
        if is_quiet and not self._in_line and not self._retries:
            self._end_storm()

    async def throttled(self, started: float, wait_seconds: float) -> None:
        """A request was throttled: cut the limit, and allow no start before the wait is over.

        A request that started before the last cut does not cut again.
        """
        now = _now()
        self._throttled += 1
        self._last_throttle = now
        if started > self._last_cut:
            self._last_cut = now
            self._throttled = 1
            self._granted_slots = 0
            self._cutting = started
            self._refresh_share()
        jitter = min(LONGEST_JITTER_SECONDS, wait_seconds / 10) * self._draw()
        await self._store.hold(now + wait_seconds + jitter)

    async def close(self) -> None:
        """Release the share, so that other processes get it at once."""
        self._is_closed = True
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._share is None and self._asked is None:
            return
        released = asyncio.get_running_loop().create_future()
        ask = SlotRequest(now=_now(), active=0, wanted=0)
        # A pending request is answered first: the journal keeps the order.
        self._store.share(ask, lambda _: None if released.done() else released.set_result(None))
        await released
        self._share = None

    # --- the share of the limit ---

    def _room(self, now: float) -> int:
        room = self._ceiling
        if self._share is not None:
            room = min(room, self._share.slots) if now < self._share.until else 0
        # Until the answer comes, do not exceed the number in the pending request.
        return room if self._asked is None else min(room, self._asked.active)

    def _refresh_share(self) -> None:
        if self._asked is not None or self._is_closed:
            return  # the answer to the pending request triggers the next one
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        now = _now()
        is_resting = now - self._last_release < IDLE_SECONDS
        self._asked = SlotRequest(
            now=now,
            active=self.active,
            wanted=self.active + len(self._waiting) or int(is_resting),
            served_at=max(0.0, self._last_start),
            successes=0 if self._share is None else self._successes,
            throttled=self._cutting,
        )
        self._successes, self._cutting = 0, None
        self._store.share(self._asked, self._on_share)

    def _on_share(self, share: SlotShare | None) -> None:
        has_left = self._asked is not None and not self._asked.wanted
        self._asked = None
        self._share = None if has_left else share
        self.limit = min(float(self._ceiling), float("inf") if share is None else share.limit)
        self._admit(_now())
        if self._cutting is not None or (has_left and self._waiting):
            self._refresh_share()
        elif self._share is not None and not self._is_closed:
            self._tick = asyncio.get_running_loop().call_later(TICK_SECONDS, self._refresh_share)

    def _admit(self, now: float) -> None:
        room = self._room(now)
        while self._waiting and self.active < room:
            waiter, _ = self._waiting.popitem(last=False)
            if not waiter.done():
                self.active += 1
                waiter.set_result(None)

    def _is_limit_unknown(self, now: float) -> bool:
        return self._share is None and self._store.is_limited(now)

    def _has_free_slot(self, now: float) -> bool:
        if self._is_limit_unknown(now) or self._waiting or self.active >= self._room(now):
            return False
        self.active += 1
        return True

    async def _wait_for_slot(self, now: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        if self._is_limit_unknown(now):
            self._refresh_share()
        try:
            await waiter
        except asyncio.CancelledError:
            self._waiting.pop(waiter, None)
            if waiter.done() and not waiter.cancelled():
                self.release()
            raise

    # --- the line ---

    @property
    def spacing(self) -> float:
        """The seconds between two starts in a storm: a window has at most as many starts as slots."""
        return max(self._storm_spacing, MARGIN * WINDOW_SECONDS / max(1, int(self.limit)))

    @property
    def _storm_spacing(self) -> float:
        """The spacing for the size of the storm, halved after each round without a throttle."""
        rounds = self._granted_slots // max(1, self._throttled)
        return MARGIN * WINDOW_SECONDS / max(1, self._throttled // SHARE) / 2 ** min(rounds, 32)

    def _end_storm(self) -> None:
        self._throttled = self._granted_slots = 0

    async def _wait_for_turn(self, max_wait_seconds: float) -> float:
        self._in_line += 1
        if not self._store.is_calm(_now()):
            # Even if another process was throttled, the waiting requests must not start at once.
            self._throttled = max(self._throttled, self._in_line)
        try:
            async with self._line:
                while True:
                    now = _now()
                    is_calm = self._store.is_calm(now) and not self._retries
                    if is_calm and self._storm_spacing < CALM_SPACING_SECONDS:
                        self._end_storm()
                    if is_calm and not self._throttled:
                        break
                    wait = self._last_start + self.spacing - now
                    if wait <= 0:
                        wait = await self._store.next_start(now, self.spacing)
                    if wait <= 0:
                        self._granted_slots += 1
                        break
                    if wait > max_wait_seconds:
                        raise RateLimited(f"the provider asks to wait {wait:.0f} s", retry_after=wait)
                    await self._sleep(wait)
                # The next start is spaced from the real start time, however late it is.
                self._last_start = _now()
                return self._last_start
        finally:
            self._in_line -= 1
