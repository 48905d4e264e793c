"""The scenario of a seed: the work, its limits, the models' behaviour, and the faults."""

from __future__ import annotations

from random import Random
from typing import Literal

from msgspec import Struct, structs

from deputy.core.limits import Budget
from deputy.core.task import Task

Trouble = Literal["crash", "cancel the root", "cancel a child"]
_OUTAGES = 0.25
TOOLS = ("Read", "Search", "Write", "Tell")


class Disturbance(Struct, frozen=True, kw_only=True):
    """Something that happens from outside, a moment after so many commits of the process's life."""

    what: Trouble
    commits: int
    seconds: float
    child: int = 0


class Outage(Struct, frozen=True, kw_only=True):
    """A disk that takes nothing: so many commits fail, from one of a process's life on."""

    process: int
    first: int
    count: int


class Mood(Struct, frozen=True, kw_only=True):
    """How the models of a scenario tend to behave: chances, each drawn once for all of them."""

    turns: int
    """The most turns with tools before an answer."""
    fails: float
    is_cut: float
    asks: float
    slow: float
    tool_fails: float
    tool_hangs: float


class Scenario(Struct, frozen=True, kw_only=True):
    """One simulated delegation and all that happens to it."""

    seed: int
    tasks: tuple[Task, ...]
    concurrency: int
    budget: Budget
    is_parent: bool
    """Whether a parent agent hands the tasks over by its Delegate tool, or a program hands them over at once."""
    can_ask: bool
    approval: Literal["granted", "ask", "refuse"]
    max_spawns: int
    latency_seconds: float
    downtime_seconds: float
    """How long no process runs after a crash."""
    window: int | None
    seconds: float | None
    """The time limit of the whole."""
    mood: Mood
    disturbances: tuple[tuple[Disturbance, ...], ...]
    """Of one process after another; the last process has none that crashes it."""
    resumes: int
    """How many runs that did not complete are resumed in the end."""
    outages: tuple[Outage, ...] = ()
    """When the storage fails."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing from outside makes the tasks depend on each other."""
        shared = self.budget != Budget() or self.max_spawns < len(self.tasks)
        return not (any(self.disturbances) or self.outages or shared or self.is_parent)


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed, the same for ever."""
    chance = Random(f"scenario {seed}")
    count = chance.choice((1, 2, 2, 3, 3, 4, 5, 6))
    calm = chance.random() < 0.2
    can_ask = chance.random() < 0.3
    # A draw of its own, so that what a seed meant before it still means.
    spawns = Random(f"spawns {seed}").choice((None, *[None] * 8, count - 1)) if not calm else None
    return Scenario(
        seed=seed,
        tasks=tuple(_task(chance, index) for index in range(count)),
        concurrency=chance.randint(1, 4),
        budget=Budget() if calm else structs.replace(_budget(chance, 0.3, 40_000), spawns=spawns),
        is_parent=not calm and chance.random() < 0.3,
        can_ask=can_ask,
        approval=chance.choice(("granted", "granted", "ask" if can_ask else "refuse")),
        max_spawns=64 if calm or chance.random() < 0.9 else chance.randint(1, count),
        latency_seconds=chance.choice((0.0, 0.002, 0.02, 0.1)),
        downtime_seconds=chance.choice((0.0, 0.0, chance.uniform(0.0, 10.0))),
        window=chance.choice((None, None, 6_000, 20_000)),
        seconds=None if chance.random() < 0.8 else round(chance.uniform(6.0, 20.0), 3),
        mood=_mood(chance),
        disturbances=() if calm else _disturbances(chance),
        resumes=chance.choice((0, 0, 1, 2)),
        outages=() if calm else _outages(Random(f"outages {seed}")),
    )


TOKEN_DOLLARS = 0.0001
"""The price of every token of the simulation: a number that no float has exactly."""


def _task(chance: Random, index: int) -> Task:
    timeout = None if chance.random() < 0.6 else round(chance.uniform(0.05, 8.0), 3)
    return Task(
        label=f"task-{index}",
        prompt=f"work of task-{index}",
        model=f"sim:task-{index}",
        max_output_tokens=chance.choice((200, 1000, 4096)),
        tools=TOOLS if chance.random() < 0.9 else ("Read",),
        budget=_budget(chance, 0.2, 15_000),
        timeout=timeout,
        return_format=chance.choice(("text", "text", "json")),
    )


def _budget(chance: Random, likely: float, tokens: int) -> Budget:
    def drawn(least: int, most: int) -> int | None:
        return chance.randint(least, most) if chance.random() < likely else None

    caps = drawn(500, tokens), drawn(500, tokens), drawn(1, 12)
    return Budget(tokens=caps[0], cost=None if caps[1] is None else caps[1] * TOKEN_DOLLARS, requests=caps[2])


def _mood(chance: Random) -> Mood:
    return Mood(
        turns=chance.randint(0, 5),
        fails=chance.choice((0.0, 0.0, 0.05, 0.2)),
        is_cut=chance.choice((0.0, 0.1, 0.5)),
        asks=chance.choice((0.0, 0.0, 0.1, 0.3)),
        slow=chance.choice((0.0, 0.05, 0.3)),
        tool_fails=chance.choice((0.0, 0.2)),
        tool_hangs=chance.choice((0.0, 0.0, 0.1)),
    )


def _disturbances(chance: Random) -> tuple[tuple[Disturbance, ...], ...]:
    """Up to three processes die of it before one lives on; each may be told to stop something meanwhile."""
    dying = [(*_cancels(chance, 0.2), _disturbance(chance, "crash")) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    return (*dying, _cancels(chance, 0.4))


def _outages(chance: Random) -> tuple[Outage, ...]:
    """In one scenario of four the storage fails: for a moment, or for longer than the engine retries."""
    if chance.random() >= _OUTAGES:
        return ()
    return tuple(
        Outage(
            process=chance.randint(0, 2),
            first=chance.choice((chance.randint(0, 8), chance.randint(0, 60))),
            count=chance.choice((1, 1, 2, 5, 40)),
        )
        for _ in range(chance.choice((1, 1, 2)))
    )


def _cancels(chance: Random, likely: float) -> tuple[Disturbance, ...]:
    if chance.random() >= likely:
        return ()
    return tuple(
        _disturbance(chance, chance.choice(("cancel the root", "cancel a child"))) for _ in range(chance.randint(1, 2))
    )


def _disturbance(chance: Random, what: Trouble) -> Disturbance:
    return Disturbance(
        what=what,
        commits=chance.choice((0, chance.randint(0, 8), chance.randint(0, 60))),
        seconds=chance.choice((0.0, chance.uniform(0.0, 0.02), chance.uniform(0.0, 1.0))),
        child=chance.randint(0, 5),
    )
