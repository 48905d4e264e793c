"""What a person is shown before subagents are started: how many, for what, with what, and what it can cost."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.limits import NANOS_PER_DOLLAR
from deputy.core.redaction import Redactor
from deputy.core.role import WRITING_TOOLS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deputy.core.task import Task

GOAL_LENGTH = 60
_MODEL_LENGTH = 80
_READ = 16
"""How many times what is shown is looked at of a text: half a secret does not look like one."""


class Prices(Struct, frozen=True):
    """What is known of a model's prices: the most that so many tokens in and out cost, and its window."""

    ceiling: Callable[[int, int], int | None]
    window: int | None = None

    @property
    def are_known(self) -> bool:
        """Whether a cap on cost can be kept: what a call will cost is reserved before it is made."""
        return self.ceiling(1, 1) is not None


class Ceiling(Struct, frozen=True, kw_only=True):
    """The most that a call can cost: the sum of what is bounded, and what is not."""

    nanos: int = 0
    unbounded: int = 0
    """How many subagents have nothing that bounds their cost."""
    unpriced: int = 0
    """How many of them run on models whose prices nobody knows."""

    @property
    def text(self) -> str:
        """As a person reads it, where nothing that is not known is shown as nothing."""
        bounded = f"at most ${self.nanos / NANOS_PER_DOLLAR:.2f}" if self.nanos else "nothing"
        if not self.unbounded:
            return bounded
        reason = f"no price is known for {self.unpriced}" if self.unpriced else "set a budget to bound it"
        if not self.nanos:
            return f"not bounded ({reason})"
        return f"{bounded} for some, not bounded for {self.unbounded} ({reason})"


def cost_ceiling(tasks: Sequence[Task], prices_of: Callable[[Task], Prices], left: int | None = None) -> Ceiling:
    """The most that the tasks can cost together; `left` is what their caller may still spend, where that is capped."""
    nanos = unbounded = unpriced = 0
    for task in tasks:
        prices = prices_of(task)
        most = most_cost(task, prices)
        nanos += most or 0
        unbounded += most is None
        unpriced += most is None and not prices.are_known
    if left is not None and (unbounded or nanos > left):
        return Ceiling(nanos=max(0, left))
    return Ceiling(nanos=nanos, unbounded=unbounded, unpriced=unpriced)


def cost_not_kept(model: str) -> str:
    """Why a model cannot work under a cap on cost, and what to do."""
    return (
        f"no price is known for {model}, so a cap on its cost cannot be kept: cap `tokens` or `requests` instead, "
        "or name a model that has a price (`deputy models` lists them)"
    )


def most_cost(task: Task, prices: Prices) -> int | None:
    """The most that one task can cost; None where neither its budget nor its prices bound it."""
    budget, price = task.budget, prices.ceiling
    if price(1_000_000, 1_000_000) == 0:
        return 0
    bounds = [budget.cost]
    if budget.tokens is not None:
        # However they are shared between what is read and what is written.
        ways = (price(budget.tokens, 0), price(0, budget.tokens))
        bounds.append(None if None in ways else max(way for way in ways if way is not None))
    if budget.requests is not None and prices.window is not None:
        one = price(prices.window, task.max_output_tokens)
        bounds.append(None if one is None else one * budget.requests)
    return min((bound for bound in bounds if bound is not None), default=None)


def spawn_summary(
    tasks: Sequence[Task],
    *,
    model: str,
    risk: str,
    cost: Ceiling,
    concurrency: int,
    redactor: Redactor | None = None,
) -> str:
    """One approval for a whole call, of two lines whatever its texts are."""
    redactor = redactor or Redactor()
    goals = "; ".join(
        f"[{_flat(task.label, redactor)}{_agent(task, redactor)}] {_flat(task.prompt, redactor)}" for task in tasks
    )
    models = ", ".join(dict.fromkeys(_flat(task.model or model, redactor, _MODEL_LENGTH) for task in tasks))
    tools = ", ".join(dict.fromkeys(_flat(tool, redactor) for task in tasks for tool in task.tools or ("read-only",)))
    facts = (
        f"model: {models}",
        f"tools: {tools}",
        f"policy: {_policy(tasks, concurrency)}",
        f"risk: {risk}",
        f"cost: {cost.text}",
    )
    plural = "s" * (len(tasks) != 1)
    return f"Spawn {len(tasks)} subagent{plural}: {goals}\n{' · '.join(facts)}"


def resume_summary(
    label: str, message: str | None, *, model: str, tools: Collection[str], redactor: Redactor | None = None
) -> str:
    """The approval for going on with a run that has ended, in the same form."""
    redactor = redactor or Redactor()
    goal = "where it stopped" if message is None else _flat(message, redactor)
    named = ", ".join(_flat(tool, redactor) for tool in sorted(tools)) or "none"
    facts = (f"model: {_flat(model, redactor, _MODEL_LENGTH)}", f"tools: {named}", "risk: medium")
    return f"Go on with [{_flat(label, redactor)}]: {goal}\n{' · '.join(facts)}"


def _policy(tasks: Sequence[Task], concurrency: int) -> str:
    """Within what bounds they work."""
    limits = [task.timeout for task in tasks if task.timeout is not None]
    longest = f"at most {max(limits):g} s each" if len(limits) == len(tasks) else "no time limit"
    writers = [task for task in tasks if WRITING_TOOLS.intersection(task.tools or ())]
    places = dict.fromkeys(
        "changes your files in place" if task.isolation == "none" else "changes files on a branch of its own"
        for task in writers
    )
    return ", ".join((f"{min(concurrency, len(tasks))} at once", longest, *places))


def _agent(task: Task, redactor: Redactor) -> str:
    return "" if task.agent is None else f" as {_flat(task.agent, redactor)}"


def _flat(text: str, redactor: Redactor, length: int = GOAL_LENGTH) -> str:
    """Text of others on one line: nothing in it can end the line, move the cursor or turn the direction."""
    # Before it is cut: half a secret does not look like one any more.
    shown = redactor.redact(text[: length * _READ])
    harmless = "".join(letter if unicodedata.category(letter)[0] != "C" else " " for letter in shown)
    flat = " ".join(harmless.split())
    return flat if len(flat) <= length else f"{flat[: length - 1].rstrip()}…"
