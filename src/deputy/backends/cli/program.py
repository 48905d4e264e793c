"""What there is to know of one program: how it is called, what it needs, how its output is read."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from msgspec import Struct

from deputy.backends.turn_recorder import TurnRecorder
from deputy.engine.ports.backend import BackendRequest

READING, WRITING, RUNNING = frozenset({"Read", "Grep", "Glob"}), frozenset({"Edit", "Write"}), frozenset({"Run"})

Fields: TypeAlias = dict[str, Any]


class Invocation(Struct, frozen=True, kw_only=True):
    """An assignment as a program is given it."""

    request: BackendRequest
    model: str
    """In the program's own words; empty is its own choice."""
    environ: Mapping[str, str]
    place: str = ""
    """The folder it is kept to."""

    @property
    def tools(self) -> frozenset[str]:
        """The tools that are granted, by our names."""
        return self.request.grant.tools

    @property
    def may_write(self) -> bool:
        """Whether files may be changed; whoever may run commands may."""
        return bool(self.tools & (WRITING | RUNNING))

    @property
    def may_run(self) -> bool:
        """Whether commands may be run."""
        return bool(self.tools & RUNNING)

    @property
    def session(self) -> str:
        """The program's own session to go on with, if any."""
        resume = self.request.resume
        return "" if resume is None else resume.id


class Program(Struct, frozen=True, kw_only=True):
    """One program."""

    name: str
    install: str
    """How to get it."""
    login: str
    """How to log in."""
    arguments: Callable[[Invocation], list[str]]
    read: Callable[[Fields, TurnRecorder, Invocation], None]
    """Takes one line of its output in."""
    providers: tuple[str, ...] = ()
    """Whose models it has, by our names of providers; none is any."""
    separator: str = ""
    """What stands between provider and model in its own names; without one the provider is left out."""
    model_names: Mapping[str, str] = {}
    """Its own names for models that it calls otherwise."""
    always: frozenset[str] = frozenset()
    """Tools, by our names, that it cannot be run without."""
    cannot_hold: Callable[[Invocation], str] = lambda _: ""
    """What of a grant it cannot be kept to, if there is anything."""
    package: str = ""
    """Its npm package, where its version can be read without running it."""
    least_version: tuple[int, ...] = ()
    is_version: Callable[[str], bool] = bool
    """Whether what `--version` says can be this program's."""
    variables: tuple[str, ...] = ()
    """Patterns of the variables that are its own."""
    variables_by: Mapping[str, tuple[str, ...]] = {}
    """Further patterns, when a variable of this name is set or the model is of the provider of this name."""
    settings: Callable[[Invocation], Mapping[str, str]] = lambda _: {}
    """Variables that are set for it, unless the user has set them."""
    keys: tuple[str, ...] = ()
    """Variables that hold a key of its own."""
    login_files: tuple[str, ...] = ()
    """Files of the home directory that are there when it is logged in."""
    polite: signal.Signals = signal.SIGTERM
    """What asks it to end."""
    grace_seconds: float = 1.5
    has_sessions: bool = True
    tells_all: bool = True
    """Whether it tells of every tool that it uses."""
    logged_out: tuple[str, ...] = ()
    """How it says, in lower case, that nobody is logged in …"""
    session_unknown: tuple[str, ...] = ()
    """… that it does not have a session …"""
    model_missing: tuple[str, ...] = ()
    """… that it does not have a model …"""
    refused: tuple[str, ...] = ()
    """… and that it will not do it."""
    status_of_exit: Callable[[int], int | None] = lambda _: None
    """The provider's status, where the exit code tells it."""


def part(fields: Fields, *names: str) -> Fields:
    """The object within objects that these names lead to, or an empty one: others write this, so nothing is sure."""
    value: Any = fields
    for name in names:
        value = cast("Fields", value).get(name) if isinstance(value, dict) else None
    return cast("Fields", value) if isinstance(value, dict) else {}


def parts(value: object) -> list[Fields]:
    """The objects of a list, whatever else is in it."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Fields", item) for item in items if isinstance(item, dict)]


def text_of(value: object) -> str:
    """A text, or the texts of a list of blocks; nothing for anything else."""
    if isinstance(value, str):
        return value
    return "\n".join(block["text"] for block in parts(value) if isinstance(block.get("text"), str))


def texts(value: object) -> list[str]:
    """The texts of a list, whatever else is in it."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


_MOST_TOKENS = 10**9
"""No turn of a program uses so many tokens; a number above is none."""


def number_of(value: object) -> int:
    """A count that is really one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else 0


def billionths(dollars: object) -> int | None:
    """An amount of dollars as we count it; None when it is no amount."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float) or not 0 <= dollars < 1e6:
        return None
    return round(dollars * 1e9)
