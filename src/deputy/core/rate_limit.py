"""How many requests a provider takes at once: cut when it throttles, grown by success, shared out fairly."""

from __future__ import annotations

from math import isfinite, sqrt
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RECOVERY: Final = 8.0
"""How many slots a full round of successes wins back."""
MOST_SLOTS: Final = 4096
LAPSE_SECONDS: Final = 600.0
"""A provider that has thrown nothing back for so long is asked freely again."""
LEASE_SECONDS: Final = 5.0
"""How long a share lasts when nobody renews it."""


class ConcurrencyLimit(Struct, frozen=True, kw_only=True):
    """How many requests may be under way, for everyone who asks with one key. Times are on a monotonic clock."""

    slots: float
    """A fraction of a slot is progress towards the next."""
    since: float
    cut_at: float

    @property
    def lapses_at(self) -> float:
        """From when on it counts no more."""
        return self.cut_at + LAPSE_SECONDS

    def is_in_force(self, now: float) -> bool:
        """Whether it counts; one that makes no sense, as damage leaves it, does not."""
        return isfinite(self.slots) and self.slots > 0 and self.since <= self.cut_at <= now < self.lapses_at


class SlotUse(Struct, frozen=True, kw_only=True):
    """The share of one process: how many slots it has, and how many it could use."""

    owner: str
    slots: int
    wanted: int
    served_at: float
    """When a request of it last started."""
    until: float

    def is_held(self, now: float) -> bool:
        """Whether it counts: it is renewed in time, and makes sense."""
        return self.slots >= 0 and self.wanted >= 0 and now < self.until <= now + LEASE_SECONDS


class SlotRequest(Struct, frozen=True, kw_only=True):
    """What a process tells when it asks for a share."""

    now: float
    active: int
    """Requests it has under way."""
    wanted: int
    """Those, and the ones that wait for a slot."""
    served_at: float = 0.0
    successes: int = 0
    """Since it last asked."""
    throttled: float | None = None
    """When the request that the provider threw back had started."""


class SlotShare(Struct, frozen=True, kw_only=True):
    """How many requests a process may have under way, of how many in all, and for how long that is so."""

    slots: int
    limit: float
    until: float


class SharedLimit(Struct, frozen=True, kw_only=True):
    """What all who ask with one key agree on; without a limit everyone asks freely."""

    limit: ConcurrencyLimit | None = None
    uses: tuple[SlotUse, ...] = ()


def agree(
    before: SharedLimit, ask: SlotRequest, owner: str, joined: float | None
) -> tuple[SharedLimit, SlotShare | None]:
    """The agreement after what a process has told, and its share. `joined` is when the limit it last knew began.

    All shares together never pass the limit, except by what is under way already. A process that has more under way
    than its share starts nothing until it has less.
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
    """The share of one who cannot ask the others: enough to go on, too little to do harm."""
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
        # Who first threw a request back knew only its own: every other brings half of what it has under way.
        slots = min(MOST_SLOTS, slots + ask.active / 2)
    if ask.throttled is None or ask.throttled <= limit.cut_at:
        # What was under way when the limit was cut does not cut it again.
        return ConcurrencyLimit(slots=slots, since=limit.since, cut_at=limit.cut_at)
    under_way = ask.active + sum(min(use.slots, use.wanted) for use in others)
    return ConcurrencyLimit(slots=cut(slots, under_way), since=limit.since, cut_at=now)


def cut(slots: float, under_way: int) -> float:
    """Half of what was really used; never nothing."""
    return max(1.0, min(slots, float(under_way)) / 2)


def grown(slots: float, successes: int) -> float:
    """What so many successes make of a limit: a round of as many as it has slots wins back `RECOVERY`."""
    return min(float(MOST_SLOTS), sqrt(slots * slots + 2 * RECOVERY * successes))


def shared_out(slots: int, uses: Iterable[SlotUse]) -> dict[str, int]:
    """Whose share is how large: all get alike up to what they want, and what nobody wants is spread over all.

    What cannot be divided goes to whoever was served least recently, so that it goes round.
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
