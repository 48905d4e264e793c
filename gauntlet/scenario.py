"""Scenarios: read from scenarios.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

FILE = Path(__file__).with_name("scenarios.toml")
PARENT = "GAUNTLET-PARENT"


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of a scripted model; a turn without text and calls is the child's report."""

    text: str | None = None
    call: str = ""
    """The kind of tool to call: `read`, `shell` or `explode`."""
    call_as_text: str = ""
    path: str = ""
    offset: int = 0
    command: str = ""
    claims: str = ""
    """A file that the report names as its result, although it does not exist."""
    delegate: tuple[str, ...] = ()
    label: str = ""
    fault: str = ""
    times: int = 1_000_000
    """How many requests get the fault before the good answer."""
    until_resumed: bool = False
    delay: float = 0.0
    stop: str = "end"


class Signal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal, sent when these children have answered, these were asked, and this command runs."""

    kind: str
    after: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    running: str = ""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits that a subject is asked to keep; None: not asked for."""

    child_seconds: float | None = None
    seconds: float | None = None
    requests: int | None = None
    spawns: int | None = None
    depth: int | None = None

    @property
    def asked(self) -> set[str]:
        """The names of the limits that are asked for."""
        return {name for name in self.__struct_fields__ if getattr(self, name) is not None}


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial: what the models do, which limits hold, and the most that each counter may show."""

    name: str
    title: str
    most: dict[str, float]
    children: tuple[str, ...] = ("a", "b", "c")
    child: dict[str, tuple[Turn, ...]] = field(default_factory=dict[str, tuple[Turn, ...]])
    all: tuple[Turn, ...] = (Turn(),)
    """The script of each child that has none of its own."""
    needs: tuple[str, ...] = ()
    limits: Limits = Limits()
    expect: tuple[str, ...] | None = None
    """The children whose reports must reach the caller; by default those without a script of their own."""
    reaches: tuple[str, ...] = ()
    """Children that must have worked: without them the trial showed nothing."""
    bad: dict[str, str] = field(default_factory=dict[str, str])
    """By child: a text that must not reach the caller as a completed result."""
    parent_says: str = "All done."
    signal: Signal | None = None
    tokens: int = 0
    """What the provider reports as the input of each request; 0: what was sent."""
    many: int = 0
    seconds: float = 90.0
    """The hard limit of each start of the subject: it is killed after it."""

    @property
    def names(self) -> tuple[str, ...]:
        """All children that the caller starts."""
        return tuple(f"m{number:04d}" for number in range(self.many)) if self.many else self.children

    @property
    def expected(self) -> tuple[str, ...]:
        """The children whose reports must reach the caller."""
        if self.many:
            return self.names
        if self.expect is not None:
            return self.expect
        good = (name for name in self.children if all(self.ends_well(turn) for turn in self.turns(name)))
        return tuple(good)

    @staticmethod
    def ends_well(turn: Turn) -> bool:
        """Whether a model that meets this turn can still report."""
        hurts = turn.fault and turn.times > 3 and not turn.until_resumed
        return not (hurts or turn.claims or turn.stop == "length" or turn.text == "" or turn.delay)

    def turns(self, name: str) -> tuple[Turn, ...]:
        """The script of a child."""
        return self.child.get(name, self.all)

    def label(self, name: str) -> str:
        """The label under which a child is started."""
        return self.turns(name)[0].label if self.turns(name)[0].label and not self.turns(name)[0].delegate else name


def prompt_of(child: str) -> str:
    """The task of a child; the provider finds the script by the mark in it."""
    return f"GAUNTLET-CHILD-{child}. You are given all that is needed: say what you know about it."


def found(child: str) -> str:
    """The text by which a child's report is recognized."""
    return f"FOUND-{child}:"


def load(path: Path = FILE) -> dict[str, Scenario]:
    """All scenarios by name, in the order of the file."""
    raw: dict[str, Any] = tomllib.loads(path.read_text())
    return {name: msgspec.convert({"name": name, **fields}, Scenario) for name, fields in raw.items()}
