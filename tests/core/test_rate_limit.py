"""A limit is halved once per storm, won back by success, and shared out fairly: no process is left with nothing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.core.rate_limit import (
    LAPSE_SECONDS,
    LEASE_SECONDS,
    MOST_SLOTS,
    RECOVERY,
    ConcurrencyLimit,
    SharedLimit,
    SlotRequest,
    SlotUse,
    agree,
    cut,
    grown,
    shared_out,
)


def use(owner, wanted, served_at=0.0, slots=0):
    return SlotUse(owner=owner, slots=slots, wanted=wanted, served_at=served_at, until=LEASE_SECONDS)


def limited(slots, cut_at=0.0, since=0.0, uses=()):
    return SharedLimit(limit=ConcurrencyLimit(slots=slots, since=since, cut_at=cut_at), uses=tuple(uses))


WANTS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@given(slots=st.integers(1, 60), wants=WANTS)
def test_a_limit_is_shared_out_to_the_last_slot_and_fairly(slots, wants):
    uses = [use(str(number), wanted, served_at=number) for number, wanted in enumerate(wants)]
    shares = shared_out(slots, uses)
    assert sum(shares.values()) == slots
    most = max(shares[one.owner] for one in uses)
    for one in uses:
        if shares[one.owner] < one.wanted:
            assert shares[one.owner] >= most - 1


@given(wants=st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_a_single_slot_goes_round(wants):
    served = dict.fromkeys(map(str, range(len(wants))), 0.0)
    order = []
    for turn in range(1, 2 * len(wants) + 1):
        shares = shared_out(1, [use(owner, wants[int(owner)], at) for owner, at in served.items()])
        (chosen,) = [owner for owner, slots in shares.items() if slots]
        served[chosen] = float(turn)
        order.append(chosen)
    assert order == sorted(served) * 2


ACTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["ask", "throttle", "start", "end", "die"]), st.integers(0, 9)),
    max_size=80,
)


@given(acts=ACTS)
def test_whatever_processes_do_their_shares_never_pass_the_limit(acts):
    agreement, now = SharedLimit(), 0.0
    active, wanted, shares, joined = [0] * 4, [0] * 4, [None] * 4, [None] * 4
    for who, act, number in acts:
        now += 0.01
        owner = str(who)
        others = tuple(one for one in agreement.uses if one.owner != owner)
        if act == "die":
            agreement = SharedLimit(limit=agreement.limit, uses=others)
            active[who], wanted[who], shares[who], joined[who] = 0, 0, None, None
        elif act == "end":
            ended = min(number, active[who])
            active[who], wanted[who] = active[who] - ended, wanted[who] - ended
        elif act == "start":
            wanted[who] += number
            if shares[who] is not None:
                active[who] = max(active[who], min(wanted[who], shares[who].slots))
            elif agreement.limit is None:
                active[who] = wanted[who]
        else:
            asked = SlotRequest(
                now=now,
                active=active[who],
                wanted=wanted[who],
                served_at=now,
                successes=number,
                throttled=now if act == "throttle" else None,
            )
            agreement, shares[who] = agree(agreement, asked, owner, joined[who])
            if agreement.limit is not None:
                joined[who] = agreement.limit.since
                assert 1 <= agreement.limit.slots <= MOST_SLOTS
                if shares[who].slots:
                    assert shares[who].slots + sum(one.slots for one in others) <= agreement.limit.slots
            if not wanted[who]:
                shares[who] = None
        # What others reckon with is never less than what is under way.
        output = {one.owner: one.slots for one in agreement.uses}
        assert all(active[n] <= output[str(n)] for n in range(4) if shares[n] is not None)


def test_a_storm_halves_once_however_many_it_throws_back():
    agreement, _ = agree(SharedLimit(), SlotRequest(now=10.0, active=40, wanted=40, throttled=9.0), "a", None)
    assert agreement.limit.slots == 20
    joined = agreement.limit.since
    again, share = agree(agreement, SlotRequest(now=10.1, active=39, wanted=40, throttled=9.9), "a", joined)
    assert (again.limit.slots, share.slots) == (20, 20)
    later, _ = agree(again, SlotRequest(now=12.0, active=20, wanted=40, throttled=11.0), "a", joined)
    assert later.limit.slots == 10


def test_every_process_brings_half_of_what_it_had_under_way():
    agreement, _ = agree(SharedLimit(), SlotRequest(now=10.0, active=40, wanted=40, throttled=9.0), "a", None)
    agreement, share = agree(agreement, SlotRequest(now=10.1, active=20, wanted=25), "b", None)
    assert agreement.limit.slots == 30
    assert share.slots == 0  # the other still has all its forty under way
    agreement, _ = agree(agreement, SlotRequest(now=10.2, active=20, wanted=25), "b", agreement.limit.since)
    assert agreement.limit.slots == 30


def test_a_later_cut_counts_what_all_have_under_way():
    before = limited(40.0, uses=[use("a", 30, slots=20), use("b", 5, slots=10)])
    after, _ = agree(before, SlotRequest(now=1.0, active=7, wanted=7, throttled=0.5), "c", 0.0)
    assert after.limit.slots == (20 + 5 + 7) / 2


def test_a_share_that_is_not_renewed_is_free_again():
    before = limited(4.0, uses=[use("a", 9, slots=4)])
    _, share = agree(before, SlotRequest(now=LEASE_SECONDS - 0.1, active=0, wanted=9), "b", 0.0)
    assert share.slots == 0
    after, share = agree(before, SlotRequest(now=LEASE_SECONDS, active=0, wanted=9), "b", 0.0)
    assert share.slots == 4
    assert [one.owner for one in after.uses] == ["b"]


def test_a_process_that_wants_nothing_has_no_share():
    before = limited(4.0, uses=[use("a", 9, slots=4)])
    after, _ = agree(before, SlotRequest(now=1.0, active=0, wanted=0), "a", 0.0)
    assert after.uses == ()


def test_a_limit_lapses_when_nothing_is_thrown_back_for_long():
    before = limited(4.0)
    assert agree(before, SlotRequest(now=LAPSE_SECONDS - 1, active=1, wanted=1), "a", 0.0)[0].limit is not None
    assert agree(before, SlotRequest(now=LAPSE_SECONDS, active=1, wanted=1), "a", 0.0) == (SharedLimit(), None)


@pytest.mark.parametrize(
    "damaged",
    [
        limited(float("nan")),
        limited(float("inf")),
        limited(-3.0),
        limited(0.0),
        limited(4.0, cut_at=1e300),
        limited(4.0, since=7.0),
    ],
)
def test_a_limit_that_makes_no_sense_is_none(damaged):
    assert agree(damaged, SlotRequest(now=1.0, active=1, wanted=1), "a", 0.0) == (SharedLimit(), None)


@pytest.mark.parametrize("damage", [{"slots": -5}, {"wanted": -1}, {"until": 1e300}, {"until": float("nan")}])
def test_a_share_that_makes_no_sense_is_ignored(damage):
    fields = {"owner": "a", "slots": 4, "wanted": 9, "served_at": 0.0, "until": 2.0, **damage}
    _, share = agree(limited(4.0, uses=[SlotUse(**fields)]), SlotRequest(now=1.0, active=0, wanted=9), "b", 0.0)
    assert share.slots == 4


def test_a_round_of_successes_wins_back_what_it_should():
    assert grown(50.0, 50) == pytest.approx(50 + RECOVERY, rel=0.02)
    sizes = [grown(1.0, successes) for successes in range(0, 20_000_000, 10_000)]
    assert all(before <= after <= MOST_SLOTS for before, after in pairwise(sizes))
    assert sizes[-1] == MOST_SLOTS
    assert cut(100.0, 0) == cut(1.0, 50) == 1
