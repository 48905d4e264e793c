"""The concurrency limit of a provider: cut on throttling, grown by success, shared fairly between processes."""

from __future__ import annotations

from math import isfinite, sqrt
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RECOVERY: Final = 8.0
"""Slots that a full round of successes adds."""
MOST_SLOTS: Final = 16_384
LAPSE_SECONDS: Final = 600.0
"""Without throttling for this long, the limit ends."""
LEASE_SECONDS: Final = 5.0


class ConcurrencyLimit(Struct, frozen=True, kw_only=True):
    """The number of concurrent requests with one key. Times are monotonic."""

    slots: float
    """A fraction of a slot is progress towards the next."""
    since: float
    cut_at: float

    @property
    def lapses_at(self) -> float:
        """When the limit ends."""
        return self.cut_at + LAPSE_SECONDS

    def is_in_force(self, now: float) -> bool:
        """Whether the limit applies; damaged values do not."""
        return isfinite(self.slots) and self.slots > 0 and self.since <= self.cut_at <= now < self.lapses_at


class SlotUse(Struct, frozen=True, kw_only=True):
    """The share of one process: the slots that it has, and those that it could use."""

    owner: str
    slots: int
    wanted: int
    served_at: float
    until: float

    def is_held(self, now: float) -> bool:
        """Whether it is valid: renewed in time, and not damaged."""
        return self.slots >= 0 and self.wanted >= 0 and now < self.until <= now + LEASE_SECONDS


class SlotRequest(Struct, frozen=True, kw_only=True):
    """The request of a process for a share."""

    now: float
    active: int
    wanted: int
    served_at: float = 0.0
    successes: int = 0
    throttled: float | None = None


class SlotShare(Struct, frozen=True, kw_only=True):
    """The slots of a process, the total limit, and the end of this share."""

    slots: int
    limit: float
    until: float


class SharedLimit(Struct, frozen=True, kw_only=True):
    """The limit and shares of all processes that use one key; without a limit requests are free."""

    limit: ConcurrencyLimit | None = None
    uses: tuple[SlotUse, ...] = ()


def agree(
    before: SharedLimit, ask: SlotRequest, owner: str, joined: float | None
) -> tuple[SharedLimit, SlotShare | None]:
    """The new state after a request for a share, and the share. `joined` is the start of the limit it last knew.

    All shares together never exceed the limit, except for requests that are already running. A process with more
    running requests than its share starts none until it has fewer.
    """
    others = [use for use in before.uses if use.owner != owner and use.is_held(ask.now)]
    limit = _limit_after(before.limit, others, ask, joined)
    if limit is None:
        return SharedLimit(), None
    until = ask.now + LEASE_SECONDS
    mine = SlotUse(owner=owner, slots=0, wanted=ask.wanted, served_at=ask.served_at, until=until)
    fair = shared_out(int(limit.slots), [*others, mine])[owner]
    free = int(limit.slots) - sum(use.slots for use in others)
    share = SlotShare(slots=max(0, min(fair, free)), limit=limit.slots, until=until)
    mine = replace(mine, slots=max(ask.active, share.slots))
    return SharedLimit(limit=limit, uses=(*others, mine) if ask.wanted else tuple(others)), share


def least(now: float) -> SlotShare:
    """The share of a process that cannot reach the store: enough to continue, too little to do harm."""
    return SlotShare(slots=1, limit=1.0, until=now + LEASE_SECONDS)


def _limit_after(
    limit: ConcurrencyLimit | None, others: Sequence[SlotUse], ask: SlotRequest, joined: float | None
) -> ConcurrencyLimit | None:
    now = ask.now
    if limit is None or not limit.is_in_force(now):
        if ask.throttled is None:
            return None
        return ConcurrencyLimit(slots=cut(MOST_SLOTS, ask.active), since=now, cut_at=now)
    slots = grown(limit.slots, ask.successes)
    if joined != limit.since:
        # The first cut knew only one process: every other process adds half of its running requests.
        slots = min(MOST_SLOTS, slots + ask.active / 2)
    if ask.throttled is None or ask.throttled <= limit.cut_at:
        # A request that was already running at the last cut does not cut again.
        return ConcurrencyLimit(slots=slots, since=limit.since, cut_at=limit.cut_at)
    under_way = ask.active + sum(min(use.slots, use.wanted) for use in others)
    return ConcurrencyLimit(slots=cut(slots, under_way), since=limit.since, cut_at=now)


def cut(slots: float, under_way: int) -> float:
    """Half of the slots in use, at least 1."""
    return max(1.0, min(slots, float(under_way)) / 2)


def grown(slots: float, successes: int) -> float:
    """The limit after some successes: as many as it has slots add `RECOVERY`."""
    return min(float(MOST_SLOTS), sqrt(slots * slots + 2 * RECOVERY * successes))


def shared_out(slots: int, uses: Iterable[SlotUse]) -> dict[str, int]:
    """The share of each process: equal parts up to what each wants; unwanted slots are spread over all.

    The remainder goes to the process that was served least recently.
    """
    line = sorted(uses, key=lambda use: (use.served_at, use.owner))
    modest_first = sorted(line, key=lambda use: use.wanted)
    shares: dict[str, int] = {}
    for place, use in enumerate(modest_first):
        if use.wanted > slots // (len(line) - place):
            break
        shares[use.owner] = use.wanted
        slots -= use.wanted
    rest = [use.owner for use in line if use.owner not in shares] or [use.owner for use in line]
    each, over = divmod(slots, max(1, len(rest)))
    for place, owner in enumerate(rest):
        shares[owner] = shares.get(owner, 0) + each + (place < over)
    return shares
