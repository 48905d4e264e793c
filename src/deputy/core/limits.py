"""Time, budget and quota: what a delegation may use, and what a child may have of its caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, structs

from deputy.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# --- time -------------------------------------------------------------------------------------------------------------


class WallLimit(Struct, frozen=True):
    """How long a kind of delegation may take: when nothing is said, and at the most."""

    default_seconds: float
    max_seconds: float


_SIMPLE = WallLimit(300, 3600)

WALL_LIMITS: Mapping[str, WallLimit] = {
    "research": WallLimit(3600, 7200),
    "plan": WallLimit(1800, 3600),
    "implement": WallLimit(7200, 14400),
    "revise": WallLimit(1800, 3600),
    "review": WallLimit(3600, 7200),
    "task": _SIMPLE,
    "todo": _SIMPLE,
    "errors": _SIMPLE,
    "meta": _SIMPLE,
}
OTHER = "other"
"""Every kind of delegation that has no limit of its own."""

OTHER_WALL_LIMIT = WallLimit(3600, 7200)
MOST_SECONDS = 30 * 86_400
"""The longest that anybody may let a delegation take."""


class WallSetting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit as a person sets it; what is not said stays as it is."""

    default: Annotated[float, Meta(ge=1, le=MOST_SECONDS)] | None = None
    max: Annotated[float, Meta(ge=1, le=MOST_SECONDS)] | None = None


IDLE_SECONDS = 300.0
TOOL_SECONDS = 120.0
FINAL_TURN_SECONDS = 60.0
FINAL_TURN_OUTPUT_TOKENS = 4096

_CALLER_RESERVE = 0.10
_CALLER_RESERVE_SECONDS = 5.0
_FINAL_TURN_SHARE = 0.20
_WARN_SHARE = 0.80


def wall_seconds(kind: str, asked: float | None = None, limits: Mapping[str, WallLimit] = WALL_LIMITS) -> float:
    """The time limit of a delegation of this kind; asking for more than the maximum is an error that names it."""
    limit = limits.get(kind, OTHER_WALL_LIMIT)
    if asked is None:
        return limit.default_seconds
    if not 0 < asked <= limit.max_seconds:
        raise UsageError("timeout", asked, f"{kind} takes more than 0 and at most {limit.max_seconds:g} seconds")
    return asked


def inherited_deadline(now: float, caller_deadline: float | None, seconds: float | None) -> float | None:
    """When a child must end: by its own limit, and early enough for its caller to finish in time."""
    own = None if seconds is None else now + seconds
    if caller_deadline is None:
        return own
    reserve = max((caller_deadline - now) * _CALLER_RESERVE, _CALLER_RESERVE_SECONDS)
    given = caller_deadline - reserve
    return given if own is None else min(own, given)


class RunningTool(Struct, frozen=True):
    """A tool call under way; no limit of its own means that it waits for something that has one."""

    started_at: float
    limit_seconds: float | None = TOOL_SECONDS


def silent_seconds(now: float, last_sign_at: float, running: Sequence[RunningTool] = ()) -> float:
    """How long nothing was heard; a running tool is a sign of life until its own limit."""
    signs = (now if tool.limit_seconds is None else tool.started_at + tool.limit_seconds for tool in running)
    return max(0.0, now - max((last_sign_at, *signs)))


def is_hung(
    now: float, last_sign_at: float, running: Sequence[RunningTool] = (), idle_seconds: float = IDLE_SECONDS
) -> bool:
    """Whether the silence has lasted so long that the turn must end, as retryable."""
    return silent_seconds(now, last_sign_at, running) >= idle_seconds


# --- depth of subtasks ------------------------------------------------------------------------------------------------


def depth_allowed(asked: Sequence[int], limit: int, ceiling: int) -> int:
    """How deep a chain of subtasks may go, given what the requests on the way down said, the nearest last.

    A request may lower the limit, or raise it as far as the ceiling; what it says then binds all below it.
    """
    allowed, most = min(limit, ceiling), ceiling
    for depth in asked:
        allowed = most = min(depth, most)
    return allowed


# --- soft and hard limits ---------------------------------------------------------------------------------------------

LimitLevel = Literal["clear", "warned", "final_turn", "stop"]
"""Where a use stands against its limit: go on; tell the subagent; one last turn without tools; end now."""


class Limit(Struct, frozen=True, kw_only=True):
    """A limit that is soft first: a warning, then a last turn, and only then the hard stop."""

    warn: float
    soft: float
    hard: float

    def level(self, used: float) -> LimitLevel:
        """Where this much use stands."""
        if used >= self.hard:
            return "stop"
        if used >= self.soft:
            return "final_turn"
        return "warned" if used >= self.warn else "clear"


def final_turn_seconds(seconds: float) -> float:
    """How much of a time limit belongs to the last turn."""
    return min(FINAL_TURN_SECONDS, seconds * _FINAL_TURN_SHARE)


def context_limit(window_tokens: int, output_tokens: int = FINAL_TURN_OUTPUT_TOKENS) -> Limit:
    """The limit on tokens in the conversation; the last turn's output has its room inside the window."""
    return _limit(window_tokens, min(output_tokens, window_tokens * 0.5))


def budget_limit(cap: int, last_turn: int) -> Limit:
    """The limit on something counted (tokens, cost, requests); the last turn is paid from inside the cap."""
    return _limit(cap, min(last_turn, cap))


def _limit(hard: float, reserve: float) -> Limit:
    soft = hard - reserve
    return Limit(warn=min(hard * _WARN_SHARE, soft), soft=soft, hard=hard)


class Part(Struct, frozen=True, kw_only=True):
    """A part of a conversation, as much of it as matters for what the last turn can hold."""

    tokens: int
    kind: Literal["task", "note", "tool_result", "other"]


def fit_for_final_turn(parts: Sequence[Part], room_tokens: int) -> tuple[int, ...]:
    """Which parts (by index) the last turn drops so that it fits: the oldest tool results, never anything else."""
    excess = sum(part.tokens for part in parts) - room_tokens
    dropped: list[int] = []
    for index, part in enumerate(parts):
        if excess <= 0:
            break
        if part.kind == "tool_result":
            dropped.append(index)
            excess -= part.tokens
    return tuple(dropped)


# --- budgets ----------------------------------------------------------------------------------------------------------

NANOS_PER_DOLLAR = 1_000_000_000
"""Costs are whole billionths of a dollar, so that sums are exact."""

Resource = Literal["tokens", "cost", "requests", "spawns"]
_RESOURCES: tuple[Resource, ...] = ("tokens", "cost", "requests", "spawns")


class Amount(Struct, frozen=True, kw_only=True, gc=False):
    """How much of each resource; cost in billionths of a dollar, None where no price is known."""

    tokens: int = 0
    cost: int | None = 0
    requests: int = 0
    spawns: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            tokens=self.tokens + other.tokens,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
            requests=self.requests + other.requests,
            spawns=self.spawns + other.spawns,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            tokens=self.tokens - other.tokens,
            cost=None if self.cost is None or other.cost is None else self.cost - other.cost,
            requests=self.requests - other.requests,
            spawns=self.spawns - other.spawns,
        )


NOTHING = Amount()


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that may be used of each resource; None is no cap of its own."""

    tokens: int | None = None
    cost: int | None = None
    requests: int | None = None
    spawns: int | None = None

    @property
    def capped(self) -> Sequence[Resource]:
        """The resources that have a cap."""
        return [name for name in _RESOURCES if getattr(self, name) is not None]

    def excess(self, ceiling: Budget) -> tuple[tuple[str, int], ...]:
        """The caps that are stated here and lie above the ceiling's; a cap that is not stated is inherited."""
        pairs = ((name, getattr(self, name), getattr(ceiling, name)) for name in _RESOURCES)
        return tuple((name, cap) for name, cap, top in pairs if cap is not None and top is not None and cap > top)

    def narrowed(self, other: Budget) -> Budget:
        """The tighter of the two caps, resource by resource."""
        return Budget(**{name: _tighter(getattr(self, name), getattr(other, name)) for name in _RESOURCES})


class BudgetUse(Struct, frozen=True, kw_only=True, gc=False):
    """How much of a budget is used of one resource."""

    resource: Resource
    used: int
    cap: int


class Shortfall(Struct, frozen=True, kw_only=True):
    """Why a reservation was refused."""

    resource: Resource
    wanted: int | None
    left: int

    @property
    def message(self) -> str:
        """One sentence for people and models."""
        if self.wanted is None:
            return f"the {self.resource} budget cannot be kept: no price is known for this model"
        return f"the {self.resource} budget has {max(self.left, 0)} left and this needs {self.wanted}"


class Account(Struct, frozen=True, kw_only=True, gc=False):
    """A budget with what was spent of it and what is held for work under way."""

    budget: Budget = Budget()
    spent: Amount = NOTHING
    held: Amount = NOTHING

    def remaining(self, resource: Resource) -> int | None:
        """What can still be reserved of a resource; None where there is no cap."""
        cap: int | None = getattr(self.budget, resource)
        if cap is None:
            return None
        used: int | None = getattr(self.spent + self.held, resource)
        return 0 if used is None else cap - used

    def uses(self) -> tuple[BudgetUse, ...]:
        """How much is used, or held for work under way, of each resource that has a cap."""
        if not self.budget.capped:
            return ()
        taken = self.spent + self.held
        return tuple(
            BudgetUse(resource=name, used=used, cap=getattr(self.budget, name))
            for name in self.budget.capped
            if (used := getattr(taken, name)) is not None
        )

    def reserve(self, amount: Amount) -> Account | Shortfall:
        """The account with this amount held, or why it cannot be: the check and the hold are one operation."""
        for resource in self.budget.capped:
            left = self.remaining(resource)
            wanted: int | None = getattr(amount, resource)
            # A resource that is not asked for is not refused, even when its cap is already passed.
            if left is not None and wanted != 0 and (wanted is None or wanted > left):
                return Shortfall(resource=resource, wanted=wanted, left=left)
        return structs.replace(self, held=self.held + _priced(amount))

    def commit(self, held: Amount, spent: Amount) -> Account:
        """The account after work ended: the hold is gone and what was really used is spent."""
        return structs.replace(self, held=self.held - _priced(held), spent=self.spent + spent)


def reserve_all(accounts: Sequence[Account], amount: Amount) -> tuple[Account, ...] | Shortfall:
    """Hold an amount in every account of a chain (task, then tree), or in none of them."""
    held: list[Account] = []
    for account in accounts:
        match account.reserve(amount):
            case Shortfall() as shortfall:
                return shortfall
            case Account() as after:
                held.append(after)
    return tuple(held)


def _priced(held: Amount) -> Amount:
    # A hold of unknown cost only exists where cost has no cap; taking it back must leave nothing behind.
    return held if held.cost is not None else structs.replace(held, cost=0)


def _tighter(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


# --- quotas -----------------------------------------------------------------------------------------------------------


class SpawnCounts(Struct, frozen=True, kw_only=True):
    """How many subagents there are: spawned in this tree, alive in this process, alive per provider."""

    spawned: int = 0
    live: int = 0
    live_by_provider: dict[str, int] = {}
    spawns_left: int | None = None
    """What is left of the budgets on spawns, its caller's and those above; None where there is no cap."""

    def entered(self, provider: str, *, is_counted: bool = True) -> SpawnCounts:
        """The census with one more."""
        return SpawnCounts(
            spawned=self.spawned + is_counted,
            live=self.live + 1,
            live_by_provider={**self.live_by_provider, provider: self.live_by_provider.get(provider, 0) + 1},
        )
