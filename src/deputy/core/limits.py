"""Time limits, budgets and quotas of a delegation, and the part of them that a child may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from deputy.core.errors import CATALOG, UsageError, new_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deputy.core.errors import Error


# --- time -------------------------------------------------------------------------------------------------------------


class WallLimit(Struct, frozen=True):
    """The default and maximum time of a kind of delegation."""

    default_seconds: float
    max_seconds: float


WALL_LIMITS: Mapping[str, WallLimit] = {
    "research": WallLimit(3600, 7200),
    "plan": WallLimit(1800, 3600),
    "implement": WallLimit(7200, 14400),
    "revise": WallLimit(1800, 3600),
    "review": WallLimit(3600, 7200),
    **dict.fromkeys(("task", "todo", "errors", "meta"), WallLimit(300, 3600)),
}
OTHER = "other"

OTHER_WALL_LIMIT = WallLimit(3600, 7200)
MOST_SECONDS = 30 * 86_400


class WallSetting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit in a config file; None keeps the default."""

    default: Annotated[float, Meta(ge=1, le=MOST_SECONDS)] | None = None
    max: Annotated[float, Meta(ge=1, le=MOST_SECONDS)] | None = None


MOST_TASKS, MOST_AT_ONCE = 1000, 100
"""The most that a user may allow for one call of their own."""
IDLE_SECONDS = 300.0
TOOL_SECONDS = 120.0
FINAL_TURN_SECONDS = 60.0
FINAL_TURN_OUTPUT_TOKENS = 4096

_CALLER_RESERVE = 0.10
_CALLER_RESERVE_SECONDS = 5.0
_FINAL_TURN_SHARE = 0.20
_WARN_SHARE = 0.80


def inherited_deadline(now: float, caller_deadline: float | None, seconds: float | None) -> float | None:
    """The deadline of a child: its own limit, and early enough for its caller to finish in time."""
    own = None if seconds is None else now + seconds
    if caller_deadline is None:
        return own
    reserve = max((caller_deadline - now) * _CALLER_RESERVE, _CALLER_RESERVE_SECONDS)
    given = caller_deadline - reserve
    return given if own is None else min(own, given)


class RunningTool(Struct, frozen=True):
    """A running tool call; without a limit it waits for something that has its own."""

    started_at: float
    limit_seconds: float | None = TOOL_SECONDS


def is_hung(
    now: float, last_sign_at: float, running: Sequence[RunningTool] = (), idle_seconds: float = IDLE_SECONDS
) -> bool:
    """Whether the idle limit is reached; a running tool is a sign of life until its own limit."""
    signs = (now if tool.limit_seconds is None else tool.started_at + tool.limit_seconds for tool in running)
    return now - max((last_sign_at, *signs)) >= idle_seconds


# --- depth of subtasks ------------------------------------------------------------------------------------------------


def depth_allowed(asked: Sequence[int], limit: int, ceiling: int) -> int:
    """The maximum depth of a chain of subtasks, given the limits that its requests ask for, from the top down.

    A request may lower the limit, or raise it up to the ceiling, for everything below it.
    """
    allowed, most = min(limit, ceiling), ceiling
    for depth in asked:
        allowed = most = min(depth, most)
    return allowed


# --- soft and hard limits ---------------------------------------------------------------------------------------------

LimitLevel = Literal["clear", "warned", "final_turn", "stop"]
"""The state of a limit: continue; warn the subagent; one final turn without tools; end now."""


class Limit(Struct, frozen=True, kw_only=True):
    """A limit in three stages: a warning, a final turn, a hard stop."""

    warn: float
    soft: float
    hard: float

    def level(self, used: float) -> LimitLevel:
        """The level for this use."""
        if used >= self.hard:
            return "stop"
        if used >= self.soft:
            return "final_turn"
        return "warned" if used >= self.warn else "clear"


def final_turn_seconds(seconds: float) -> float:
    """The part of a time limit that is reserved for the final turn."""
    return min(FINAL_TURN_SECONDS, seconds * _FINAL_TURN_SHARE)


def context_limit(window_tokens: int, output_tokens: int = FINAL_TURN_OUTPUT_TOKENS) -> Limit:
    """The limit on tokens in the conversation, with room for the final turn's output."""
    return _limit(window_tokens, min(output_tokens, window_tokens * 0.5))


def budget_limit(cap: float, last_turn: float) -> Limit:
    """The limit on tokens, cost or requests; the cap includes the final turn."""
    return _limit(cap, min(last_turn, cap))


def _limit(hard: float, reserve: float) -> Limit:
    soft = hard - reserve
    return Limit(warn=min(hard * _WARN_SHARE, soft), soft=soft, hard=hard)


def time_is_up(seconds: float | None) -> Error:
    """The time limit was reached; None if the task has only the rest of its caller's time."""
    limit = "inherited from the caller" if seconds is None else f"of {seconds:g} s"
    return new_error("TIMEOUT", f"The time limit {limit} was reached.")


def time_is_nearly_up(seconds: float | None) -> Error:
    """The rest of the time is kept for the final turn."""
    limit = "inherited from the caller" if seconds is None else f"of {seconds:g} s"
    return new_error("TIMEOUT", f"The time limit {limit} was nearly reached.")


def context_is_full(window: int) -> Error:
    """The context window is full."""
    remedy = CATALOG["TIMEOUT"].remedy
    return new_error("CONTEXT_EXHAUSTED", f"The context of {window:,} tokens is full.", remedy, recoverable=True)


_LARGER_WINDOW: Mapping[str, str] = {
    "ollama": "Start Ollama with OLLAMA_CONTEXT_LENGTH={size}",
    "llamacpp": "Start llama-server with -c {size}",
    "lmstudio": "Load the model with `lms load --context-length {size}`",
    "vllm": "Start vLLM with --max-model-len {size}",
}


def prompt_too_long(model: str, tokens: int, window: int | None, refusal: str = "") -> Error:
    """The first request does not fit, so there is nothing that could be reported; `refusal` has the server's words."""
    provider, size = model.partition(":")[0], max(16_384, 4 * tokens)
    remedy = _LARGER_WINDOW.get(provider, "Use a model with a larger context window").format(size=size)
    has = f"its context window has {window:,}" if window else "that is more than its context window"
    message = f"The first request to {model} has about {tokens:,} tokens; {has}."
    if refusal and (window is None or tokens < window):
        smaller = f" The server's own context window seems smaller than {window:,} tokens." if window else ""
        message = f"The server refused the first request, of about {tokens:,} tokens, as too long: {refusal}{smaller}"
    return new_error("PROMPT_TOO_LONG", message, f"{remedy}, or give it a smaller task.")


def nearly_full(tokens: int, window: int) -> str:
    """A warning once most of the context window is used, else ""."""
    share = tokens / window
    return f"{share:.0%} of a context of {window:,} tokens is used." if share >= _WARN_SHARE else ""


def budget_is_spent(resource: Resource, cap: float) -> Error:
    """The budget has only enough left for the final turn."""
    return new_error("BUDGET_SPENT", f"The budget of {priced(resource, cap)} is spent.")


def repeats_itself(times: int) -> Error:
    """The same call had the same result too often."""
    return new_error("REPETITION", f"The same call had the same result {times} times.")


def repeats_text(model: str) -> Error:
    """The model wrote the same text again and again."""
    return new_error("REPETITION", f"{model} wrote the same text again and again.")


def nothing_read(model: str) -> Error:
    """A report about the workspace without a look at it."""
    return new_error("NOTHING_READ", f"{model} looked at no file, so its report is not based on the workspace.")


def final_turn_message(limit: Error) -> str:
    """The reason for the final turn, for the subagent."""
    return _TO_THE_SUBAGENT.get(limit.type, "A limit is reached.")


_TO_THE_SUBAGENT: Mapping[str, str] = {
    "timeout": "Your time limit is nearly reached.",
    "context_exhausted": "Your context is full.",
    "budget": "Your budget is nearly spent.",
    "repetition": "You repeated yourself.",
}


class Part(Struct, frozen=True, kw_only=True):
    """A part of a conversation, with its size."""

    tokens: int
    kind: Literal["task", "note", "tool_result", "other"]


def fit_for_final_turn(parts: Sequence[Part], room_tokens: int) -> tuple[int, ...]:
    """The indexes of the parts that the final turn drops to fit: only tool results, the oldest first."""
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

MAX_COST = 10_000
"""The highest cost of a budget, in dollars; a higher number is probably in another unit."""
IN_DOLLARS = "a cost is in US dollars, at most 10,000 (0.5 is 50 cents)"

Resource = Literal["tokens", "cost", "requests", "spawns"]
_RESOURCES: tuple[Resource, ...] = ("tokens", "cost", "requests", "spawns")


def exact(dollars: float) -> float:
    """Dollars to 9 places: up to millions, every sum of rounded amounts is then the exact sum, rounded."""
    return round(dollars, 9)


def added(one: float | None, other: float | None) -> float | None:
    """The sum of two costs; unknown if one of them is."""
    return None if one is None or other is None else exact(one + other)


def dollars_text(dollars: float) -> str:
    """Dollars for people."""
    if 0 < dollars < 0.0001:
        return "under $0.0001"
    return f"${dollars:,.2f}" if dollars >= 0.01 or not dollars else f"${dollars:.4f}"


def cost_text(cost: float | None) -> str:
    """The cost of a request for people: dollars, `unknown`, or `free`."""
    return "unknown" if cost is None else dollars_text(cost) if cost else "free"


def priced(resource: Resource, count: float) -> str:
    """An amount of a resource as text."""
    return dollars_text(count) if resource == "cost" else f"{count:,} {resource[:-1] if count == 1 else resource}"


class Amount(Struct, frozen=True, kw_only=True, gc=False):
    """An amount of each resource; cost in dollars, None if no price is known."""

    tokens: int = 0
    cost: float | None = 0.0
    requests: int = 0
    spawns: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            tokens=self.tokens + other.tokens,
            cost=added(self.cost, other.cost),
            requests=self.requests + other.requests,
            spawns=self.spawns + other.spawns,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            tokens=self.tokens - other.tokens,
            cost=added(self.cost, None if other.cost is None else -other.cost),
            requests=self.requests - other.requests,
            spawns=self.spawns - other.spawns,
        )


NOTHING = Amount()


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cap on each resource, the cost in US dollars; None means no cap."""

    tokens: int | None = None
    cost: float | None = None
    requests: int | None = None
    spawns: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "requests", "spawns"):
            cap = getattr(self, name)
            if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 0):
                raise UsageError(f"budget.{name}", cap, "give a whole number of at least 0, or None for no cap")
        cost: Any = self.cost
        if cost is None:
            return
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost <= MAX_COST:
            raise UsageError("budget.cost", cost, IN_DOLLARS)
        structs.force_setattr(self, "cost", exact(float(cost)))

    @property
    def capped(self) -> Sequence[Resource]:
        """The resources with a cap."""
        return [name for name in _RESOURCES if getattr(self, name) is not None]

    def excess(self, ceiling: Budget) -> tuple[tuple[Resource, float], ...]:
        """The caps above the ceiling's; a missing cap is inherited."""
        found: list[tuple[Resource, float]] = []
        for name in self.capped:
            cap, top = getattr(self, name), getattr(ceiling, name)
            if top is not None and cap > top:
                found.append((name, cap))
        return tuple(found)

    def replaced(self, other: Budget) -> Budget:
        """The caps of the other budget, and our own where it has none."""
        return structs.replace(self, **{name: getattr(other, name) for name in other.capped})

    def narrowed(self, other: Budget) -> Budget:
        """The tighter of the two caps, resource by resource."""
        return Budget(**{name: _tighter(getattr(self, name), getattr(other, name)) for name in _RESOURCES})


class BudgetUse(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The use of one resource of a budget."""

    resource: Resource
    used: int | float
    cap: int | float
    needed: float = 0.0
    """What a call that was refused would have used."""


class Shortfall(Struct, frozen=True, kw_only=True):
    """Why a reservation was refused."""

    resource: Resource
    wanted: float | None
    left: float

    @property
    def message(self) -> str:
        """One sentence for people and models."""
        if self.wanted is None:
            return f"the {self.resource} budget cannot be enforced: no price is known for this model"
        left, wanted = priced(self.resource, max(self.left, 0)), priced(self.resource, self.wanted)
        return f"the {self.resource} budget has {left} left, and this needs up to {wanted}"


class Account(Struct, frozen=True, kw_only=True, gc=False):
    """A budget with its spent amount, and the amount held for running work."""

    budget: Budget = Budget()
    spent: Amount = NOTHING
    held: Amount = NOTHING

    def remaining(self, resource: Resource) -> float | None:
        """The rest of a resource that can be reserved; None if there is no cap."""
        cap: float | None = getattr(self.budget, resource)
        if cap is None:
            return None
        used: float | None = getattr(self.spent + self.held, resource)
        return 0 if used is None else exact(cap - used)

    def uses(self) -> tuple[BudgetUse, ...]:
        """The spent and held amount of each resource with a cap."""
        if not self.budget.capped:
            return ()
        taken = self.spent + self.held
        return tuple(
            BudgetUse(resource=name, used=used, cap=getattr(self.budget, name))
            for name in self.budget.capped
            if (used := getattr(taken, name)) is not None
        )

    def reserve(self, amount: Amount) -> Account | Shortfall:
        """The account with this amount held, or the shortfall: check and hold are one operation."""
        for resource in self.budget.capped:
            left = self.remaining(resource)
            wanted: float | None = getattr(amount, resource)
            # Work that needs none of a resource is allowed even above its cap.
            if left is not None and wanted != 0 and (wanted is None or wanted > left):
                return Shortfall(resource=resource, wanted=wanted, left=left)
        return structs.replace(self, held=self.held + _priced(amount))

    def commit(self, held: Amount, spent: Amount) -> Account:
        """The account after work ended: the hold is released and the real use is spent."""
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
    # A hold of unknown cost exists only without a cost cap; releasing it must change nothing.
    return held if held.cost is not None else structs.replace(held, cost=0)


def _tighter(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


# --- quotas -----------------------------------------------------------------------------------------------------------


class SpawnCounts(Struct, frozen=True, kw_only=True):
    """Counts of subagents: spawned in this tree, running in this process, running per provider."""

    spawned: int = 0
    live: int = 0
    live_by_provider: dict[str, int] = {}
    spawns_left: float | None = None
    """The rest of the spawn budgets of the caller and above; None if there is no cap."""

    def entered(self, provider: str, *, is_counted: bool = True) -> SpawnCounts:
        """The counts with one more subagent."""
        return SpawnCounts(
            spawned=self.spawned + is_counted,
            live=self.live + 1,
            live_by_provider={**self.live_by_provider, provider: self.live_by_provider.get(provider, 0) + 1},
        )
