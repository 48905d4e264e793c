"""What a person is shown before subagents are started."""

import pytest

from deputy.core.approval import Ceiling, Prices, cost_ceiling, most_cost, spawn_summary
from deputy.core.limits import Budget
from deputy.core.redaction import Redactor
from deputy.core.task import Task

DOLLAR = 1_000_000_000
PRICED = Prices(lambda given, taken: 3_000 * given + 15_000 * taken, 200_000)
UNPRICED = Prices(lambda given, taken: None, 200_000)
FREE = Prices(lambda given, taken: 0)


def task(label: str = "one", prompt: str = "Look around.", **more) -> Task:
    return Task(label=label, prompt=prompt, **more)


def shown(*tasks: Task, **more) -> str:
    fields = {"model": "acme:m", "risk": "medium", "cost": Ceiling(nanos=DOLLAR), "concurrency": 2, **more}
    return spawn_summary(tasks, **fields)


@pytest.mark.rule("delegate.approve")
def test_it_shows_count_labels_goals_models_tools_policy_risk_and_cost():
    two = task("two", "Write it down.", model="acme:big", tools=("Read", "Write"), agent="scribe")
    assert shown(task(prompt="x" * 100), two) == (
        f"Spawn 2 subagents: [one] {'x' * 59}…; [two as scribe] Write it down.\n"
        "model: acme:m, acme:big · tools: read-only, Read, Write · policy: 2 at once, no time limit,"
        " changes files on a branch of its own · risk: medium · cost: at most $1.00"
    )


@pytest.mark.rule("delegate.approve")
def test_a_time_limit_is_shown_when_every_task_has_one():
    assert "policy: 1 at once, at most 90 s each" in shown(task(timeout=90.0))
    assert "no time limit" in shown(task(timeout=90.0), task())


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("evil", ["\n", "\r\n", "\x1b[2J", "\x85", "\u2028", "\u202e", "\x00", "\v"])
def test_no_text_forges_a_line_or_reaches_the_terminal(evil):
    name = f"a{evil}cost: nothing"
    text = shown(task(name[:32], f"do{evil}risk: none", model=f"acme:{evil}m", agent=f"x{evil}y", tools=(f"R{evil}",)))
    assert len(text.splitlines()) == 2
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "\u202e" not in text


@pytest.mark.rule("delegate.approve")
def test_configured_keys_are_hidden_also_where_the_goal_is_cut():
    secret = "hunter2-configured-value"
    text = shown(task(prompt=f"{'x' * 50} {secret} and more"), task(label=secret), redactor=Redactor([secret]))
    assert "hunter2" not in text
    assert secret[:8] not in text


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize(
    ("budget", "most"),
    [
        (Budget(cost=2 * DOLLAR), 2 * DOLLAR),
        (Budget(tokens=1000), 15_000_000),
        (Budget(requests=2), 2 * (3_000 * 200_000 + 15_000 * 4096)),
        (Budget(cost=2 * DOLLAR, tokens=1000), 15_000_000),
        (Budget(), None),
    ],
)
def test_the_most_that_a_task_can_cost_is_what_its_tightest_bound_says(budget, most):
    assert most_cost(task(budget=budget), PRICED) == most


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize(
    ("tasks", "left", "text"),
    [
        ([(Budget(cost=DOLLAR), PRICED)] * 2, None, "at most $2.00"),
        ([(Budget(), PRICED)], None, "not bounded (set a budget to bound it)"),
        ([(Budget(), UNPRICED)], None, "not bounded (no price is known for 1)"),
        ([(Budget(tokens=1000), UNPRICED)], None, "not bounded (no price is known for 1)"),
        (
            [(Budget(cost=DOLLAR), PRICED), (Budget(), PRICED)],
            None,
            "at most $1.00 for some, not bounded for 1 (set a budget to bound it)",
        ),
        ([(Budget(), FREE)], None, "nothing"),
        ([(Budget(), PRICED)], 3 * DOLLAR, "at most $3.00"),
        ([(Budget(cost=DOLLAR), PRICED)], 3 * DOLLAR, "at most $1.00"),
    ],
)
def test_what_is_not_known_is_never_shown_as_nothing(tasks, left, text):
    made = [task(str(number), budget=budget) for number, (budget, _) in enumerate(tasks)]
    assert cost_ceiling(made, lambda one: tasks[int(one.label)][1], left).text == text
