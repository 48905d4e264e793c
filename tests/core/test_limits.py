from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from deputy.core.errors import UsageError
from deputy.core.limits import (
    FINAL_TURN_SECONDS,
    MOST_AT_ONCE,
    MOST_SECONDS,
    MOST_TASKS,
    NOTHING,
    OTHER_WALL_LIMIT,
    WALL_LIMITS,
    Account,
    Amount,
    Budget,
    BudgetUse,
    Part,
    RunningTool,
    Shortfall,
    WallLimit,
    budget_is_spent,
    budget_limit,
    context_is_full,
    context_limit,
    cost_text,
    dollars_text,
    final_turn_message,
    final_turn_seconds,
    fit_for_final_turn,
    inherited_deadline,
    is_hung,
    nearly_full,
    nothing_read,
    priced,
    prompt_too_long,
    repeats_itself,
    repeats_text,
    reserve_all,
    time_is_nearly_up,
    time_is_up,
)


@pytest.mark.rule("time.wall")
def test_the_time_limits_are_those_of_the_specification():
    hour = 3600
    assert {
        "research": WallLimit(hour, 2 * hour),
        "plan": WallLimit(hour / 2, hour),
        "implement": WallLimit(2 * hour, 4 * hour),
        "revise": WallLimit(hour / 2, hour),
        "review": WallLimit(hour, 2 * hour),
        "task": WallLimit(300, hour),
        "todo": WallLimit(300, hour),
        "errors": WallLimit(300, hour),
        "meta": WallLimit(300, hour),
    } == WALL_LIMITS
    assert WallLimit(hour, 2 * hour) == OTHER_WALL_LIMIT
    assert (30 * 24 * hour, 1000, 100) == (MOST_SECONDS, MOST_TASKS, MOST_AT_ONCE)


@pytest.mark.rule("time.inherit")
@pytest.mark.parametrize(
    ("caller_deadline", "seconds", "deadline"),
    [
        (None, None, None),
        (None, 60.0, 160.0),
        (1100.0, None, 1000.0),  # a tenth of the 1000 s that are left
        (1100.0, 60.0, 160.0),
        (1100.0, 5000.0, 1000.0),
        (120.0, None, 115.0),  # at least 5 s
        (103.0, None, 98.0),  # already over
    ],
)
def test_a_child_ends_early_enough_for_its_caller_to_finish(caller_deadline, seconds, deadline):
    assert inherited_deadline(100.0, caller_deadline, seconds) == deadline


@pytest.mark.rule("time.inherit")
@given(st.floats(0, 1e9), st.floats(0, 1e6), st.floats(0.001, 1e6) | st.none())
def test_no_child_outlives_its_caller(now, left, seconds):
    deadline = inherited_deadline(now, now + left, seconds)
    assert deadline is not None
    assert deadline <= now + left - 4.999


@pytest.mark.rule("time.idle")
def test_a_running_tool_is_a_sign_of_life_until_its_own_limit():
    assert not is_hung(now=399.9, last_sign_at=100.0)
    assert is_hung(now=400.0, last_sign_at=100.0)
    tool = RunningTool(started_at=150.0, limit_seconds=100.0)
    assert not is_hung(now=549.9, last_sign_at=100.0, running=[tool])
    assert is_hung(now=550.0, last_sign_at=100.0, running=[tool])
    assert not is_hung(now=1e6, last_sign_at=100.0, running=[RunningTool(started_at=150.0, limit_seconds=None)])
    assert is_hung(now=130.0, last_sign_at=100.0, idle_seconds=30.0)
    usual = RunningTool(started_at=150.0)
    assert not is_hung(now=569.9, last_sign_at=100.0, running=[usual])
    assert is_hung(now=570.0, last_sign_at=100.0, running=[usual])


@pytest.mark.rule("time.handin")
def test_a_limit_is_soft_first_and_the_last_turn_lies_inside_it():
    limit = budget_limit(3600, 60)
    assert (limit.soft, limit.hard) == (3540, 3600)
    assert [limit.level(used) for used in (0, 2880, 3540, 3599.9, 3600)] == [
        "clear",
        "warned",
        "final_turn",
        "final_turn",
        "stop",
    ]


@pytest.mark.rule("time.handin")
def test_a_short_time_limit_keeps_most_of_its_time_for_the_work():
    assert (final_turn_seconds(10), final_turn_seconds(3600)) == (2, FINAL_TURN_SECONDS)


@pytest.mark.rule("time.handin")
def test_the_last_turn_has_room_in_the_window_and_is_paid_from_the_budget():
    assert (context_limit(200_000, 4096).soft, context_limit(200_000, 4096).hard) == (195_904, 200_000)
    assert (context_limit(4096, 4096).soft, context_limit(4096, 4096).hard) == (2048, 4096)
    assert (budget_limit(1000, 100).warn, budget_limit(1000, 100).soft) == (800, 900)
    assert budget_limit(100, 500).level(0) == "final_turn"
    assert context_limit(200_000) == context_limit(200_000, 4096)
    assert (budget_limit(1000, 300).warn, final_turn_seconds(300), final_turn_seconds(301)) == (700, 60, 60)


@pytest.mark.rule("time.handin")
@given(st.integers(1, 1_000_000), st.integers(0, 2_000_000))
def test_a_use_past_the_limit_always_stops_and_a_use_below_it_never_does(hard, used):
    assert (budget_limit(hard, 100).level(used) == "stop") is (used >= hard)


@pytest.mark.rule("time.handin")
def test_the_subagent_and_its_caller_read_which_limit_was_reached():
    assert time_is_up(60).message == "The time limit of 60 s was reached."
    assert time_is_up(None).message == "The time limit inherited from the caller was reached."
    assert time_is_nearly_up(60).message == "The time limit of 60 s was nearly reached."
    assert time_is_nearly_up(None).message == "The time limit inherited from the caller was nearly reached."
    assert budget_is_spent("cost", 0.5).message == "The budget of $0.50 is spent."
    assert repeats_itself(3).message == "The same call had the same result 3 times."
    assert context_is_full(8192).recoverable
    limits = (time_is_up(60), context_is_full(8192), budget_is_spent("cost", 0.5), repeats_text("m"), nothing_read("m"))
    assert [final_turn_message(limit) for limit in limits] == [
        "Your time limit is nearly reached.",
        "Your context is full.",
        "Your budget is nearly spent.",
        "You repeated yourself.",
        "A limit is reached.",
    ]


def test_a_context_that_is_nearly_full_is_a_warning_from_four_fifths():
    assert nearly_full(6553, 8192) == ""
    assert nearly_full(6554, 8192) == "80% of a context of 8,192 tokens is used."


@pytest.mark.parametrize(
    ("model", "tokens", "window", "refusal", "message", "remedy"),
    [
        ("ollama:m", 9000, 8192, "", "ollama:m has about 9,000 tokens; its context window has 8,192.", "LENGTH=36000,"),
        ("llamacpp:m", 4000, None, "", "more than its context window.", "llama-server with -c 16384,"),
        ("acme:m", 9000, 8192, "no", "its context window has 8,192.", "Use a model with a larger context window, or"),
        ("acme:m", 9000, None, "no", "of about 9,000 tokens, as too long: no", "larger context window"),
        ("acme:m", 8191, 8192, "no", "no The server's own context window seems smaller than 8,192 tokens.", "larger"),
        ("acme:m", 8192, 8192, "no", "its context window has 8,192.", "larger context window"),
    ],
)
def test_a_first_request_that_does_not_fit_says_how_to_get_a_larger_window(
    model, tokens, window, refusal, message, remedy
):
    error = prompt_too_long(model, tokens, window, refusal)
    assert error.message.endswith(message)
    assert remedy in error.recommendation


@pytest.mark.rule("time.handin")
def test_the_last_turn_drops_the_oldest_tool_results_until_it_fits():
    parts = [
        Part(tokens=100, kind="task"),
        Part(tokens=300, kind="tool_result"),
        Part(tokens=50, kind="note"),
        Part(tokens=200, kind="tool_result"),
        Part(tokens=200, kind="tool_result"),
        Part(tokens=10, kind="other"),
    ]
    assert fit_for_final_turn(parts, 860) == ()
    assert fit_for_final_turn(parts, 859) == (1,)
    assert fit_for_final_turn(parts, 500) == (1, 3)


@pytest.mark.rule("time.handin")
@given(
    st.lists(
        st.builds(Part, tokens=st.integers(0, 99), kind=st.sampled_from(["task", "note", "tool_result", "other"])),
        max_size=20,
    ),
    st.integers(0, 500),
)
def test_the_task_and_the_notes_are_never_dropped(parts, room):
    dropped = fit_for_final_turn(parts, room)
    assert all(parts[index].kind == "tool_result" for index in dropped)
    kept = sum(part.tokens for index, part in enumerate(parts) if index not in dropped)
    all_results = sum(part.tokens for part in parts if part.kind == "tool_result")
    fits_at_all = sum(part.tokens for part in parts) - all_results <= room
    assert kept <= room or not fits_at_all


@pytest.mark.rule("budget")
def test_a_reservation_holds_what_is_asked_and_refuses_what_is_not_there():
    account = Account(budget=Budget(tokens=100))
    held = account.reserve(Amount(tokens=60))
    assert isinstance(held, Account)
    refused = held.reserve(Amount(tokens=41))
    assert refused == Shortfall(resource="tokens", wanted=41, left=40)
    assert refused.message == "the tokens budget has 40 tokens left, and this needs up to 41 tokens"
    assert isinstance(held.reserve(Amount(tokens=40)), Account)


@pytest.mark.rule("budget")
def test_a_commit_frees_the_hold_and_spends_what_was_used():
    held = Account(budget=Budget(tokens=100)).reserve(Amount(tokens=60))
    assert isinstance(held, Account)
    after = held.commit(Amount(tokens=60), Amount(tokens=25))
    assert (after.held, after.spent, after.remaining("tokens")) == (NOTHING, Amount(tokens=25), 75)
    assert held.commit(Amount(tokens=60), NOTHING).remaining("tokens") == 100


@pytest.mark.rule("budget")
def test_a_cost_cap_refuses_a_model_without_a_price_and_no_cap_takes_it():
    unknown = Amount(cost=None)
    refused = Account(budget=Budget(cost=10)).reserve(unknown)
    assert isinstance(refused, Shortfall)
    assert "no price is known" in refused.message
    taken = Account().reserve(unknown)
    assert isinstance(taken, Account)
    assert taken.commit(unknown, NOTHING) == Account()


@pytest.mark.rule("budget")
def test_after_a_call_of_unknown_cost_nothing_of_a_cost_cap_is_left():
    account = Account(budget=Budget(cost=10, tokens=100)).commit(NOTHING, Amount(tokens=5, cost=None))
    assert (account.remaining("cost"), account.remaining("tokens")) == (0, 95)
    assert isinstance(account.reserve(Amount(cost=0.01)), Shortfall)


@pytest.mark.rule("budget")
def test_work_that_needs_none_of_a_resource_is_allowed_above_its_cap():
    over = Account(budget=Budget(spawns=1), spent=Amount(spawns=2))
    assert isinstance(over.reserve(Amount(tokens=5)), Account)
    assert over.reserve(Amount(spawns=1)) == Shortfall(resource="spawns", wanted=1, left=-1)


@pytest.mark.rule("budget")
def test_every_resource_is_added_and_subtracted():
    more, less = Amount(tokens=5, cost=0.5, requests=3, spawns=2), Amount(tokens=1, cost=0.25, requests=1, spawns=1)
    assert more + less == Amount(tokens=6, cost=0.75, requests=4, spawns=3)
    assert more - less == Amount(tokens=4, cost=0.25, requests=2, spawns=1)
    assert (more + Amount(cost=None)).cost is (more - Amount(cost=None)).cost is (Amount(cost=None) + more).cost is None


@pytest.mark.rule("budget")
def test_the_use_of_a_budget_is_what_is_spent_and_held():
    account = Account(budget=Budget(tokens=9, cost=1), spent=Amount(tokens=2, cost=None), held=Amount(tokens=3))
    assert account.uses() == (BudgetUse(resource="tokens", used=5, cap=9),)
    assert account.uses()[0].needed == 0
    assert Account(spent=Amount(tokens=2)).uses() == ()


@pytest.mark.rule("guard.subset")
def test_caps_are_compared_replaced_and_narrowed_resource_by_resource():
    ours, other = Budget(tokens=5, cost=1, spawns=2), Budget(tokens=5, cost=0.5, requests=3)
    assert ours.capped == ["tokens", "cost", "spawns"]
    assert ours.excess(other) == (("cost", 1.0),)
    assert ours.replaced(other) == Budget(tokens=5, cost=0.5, requests=3, spawns=2)
    assert ours.narrowed(other) == other.narrowed(ours) == Budget(tokens=5, cost=0.5, requests=3, spawns=2)


@pytest.mark.rule("budget")
def test_a_chain_of_accounts_is_reserved_whole_or_not_at_all():
    task, tree = Account(budget=Budget(requests=5)), Account(budget=Budget(requests=2))
    held = reserve_all([task, tree], Amount(requests=2))
    assert isinstance(held, tuple)
    assert [account.remaining("requests") for account in held] == [3, 0]
    assert reserve_all(held, Amount(requests=1)) == Shortfall(resource="requests", wanted=1, left=0)


CENTS = st.integers(0, 60).map(lambda cents: cents / 100)
AMOUNTS = st.builds(Amount, tokens=st.integers(0, 60), cost=CENTS, requests=st.integers(0, 3))


@pytest.mark.rule("budget")
@given(st.lists(st.tuples(AMOUNTS, st.sampled_from(["commit", "release", "keep"])), max_size=30))
def test_held_and_spent_never_exceed_the_budget(steps):
    account = Account(budget=Budget(tokens=100, cost=1, requests=5))
    for amount, then in steps:
        after = account.reserve(amount)
        if isinstance(after, Shortfall):
            continue
        account = after
        if then == "commit":
            account = account.commit(amount, amount)
        elif then == "release":
            account = account.commit(amount, NOTHING)
        used = account.spent + account.held
        assert used.tokens <= 100
        assert used.cost is not None
        assert used.cost <= 1
        assert used.requests <= 5


@pytest.mark.rule("cost.unit")
@given(st.lists(st.integers(0, 10**12), max_size=30))
def test_sums_of_dollars_are_exact_to_nine_places(nanos):
    account = Account()
    for one in nanos:
        account = account.commit(NOTHING, Amount(cost=one / 10**9))
    assert account.spent.cost == float(Decimal(sum(nanos)) / 10**9)
    capped = Account(budget=Budget(cost=10_000), spent=account.spent)
    assert capped.remaining("cost") == float(10_000 - Decimal(sum(nanos)) / 10**9)


@pytest.mark.rule("cost.unit")
def test_a_budget_is_in_dollars_to_nine_places():
    assert Budget(cost=0.1 + 0.2) == Budget(cost=0.3)
    assert json.encode(Budget(cost=2)) == b'{"cost":2.0}'
    assert json.decode(b'{"cost":10000}', type=Budget).cost == 10_000


@pytest.mark.rule("cost.unit")
@pytest.mark.parametrize("cost", [10_000.01, 500_000, 500_000_000, float("inf"), float("nan"), -1, True, "0.5"])
def test_a_cost_in_another_unit_is_refused_with_the_unit(cost):
    with pytest.raises(UsageError, match=r"budget.cost: found .*; a cost is in US dollars, at most 10,000 \(0.5 is"):
        Budget(cost=cost)


@pytest.mark.parametrize("caps", [{"tokens": -1}, {"tokens": 1.5}, {"requests": True}, {"spawns": "3"}])
def test_a_cap_that_is_no_number_is_refused_by_its_name(caps):
    with pytest.raises(UsageError) as refused:
        Budget(**caps)
    assert refused.value.field == f"budget.{next(iter(caps))}"


@pytest.mark.rule("cost.unit")
@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0, "$0.00"),
        (0.00003, "under $0.0001"),
        (0.0001, "$0.0001"),
        (0.0033, "$0.0033"),
        (0.01, "$0.01"),
        (0.5, "$0.50"),
        (1234.5, "$1,234.50"),
    ],
)
def test_dollars_are_shown_with_the_places_that_matter(dollars, text):
    assert dollars_text(dollars) == text
    assert cost_text(dollars) == (text if dollars else "free")


def test_a_count_of_one_is_singular_and_a_cost_may_be_unknown():
    assert (priced("spawns", 1), priced("spawns", 2), priced("tokens", 1200)) == ("1 spawn", "2 spawns", "1,200 tokens")
    assert cost_text(None) == "unknown"


@pytest.mark.rule("cost.unit")
def test_a_shortfall_names_the_unit():
    short = Account(budget=Budget(cost=0.01)).reserve(Amount(cost=0.0234))
    assert isinstance(short, Shortfall)
    assert short.message == "the cost budget has $0.01 left, and this needs up to $0.02"
    short = Account(budget=Budget(requests=1), spent=Amount(requests=1)).reserve(Amount(requests=1))
    assert isinstance(short, Shortfall)
    assert short.message == "the requests budget has 0 requests left, and this needs up to 1 request"
