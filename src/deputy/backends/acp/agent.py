"""What there is to know of one agent that speaks the protocol, beside what holds for every program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.backends.cli.program import Fields, Invocation, Program

if TYPE_CHECKING:
    from deputy.backends.turn_recorder import TurnRecorder


class AcpAgent(Struct, frozen=True, kw_only=True):
    """One agent: the program that speaks for it, and how it is kept to a grant."""

    name: str
    """As in `acp:<name>`."""
    program: Program
    mode: Callable[[Invocation], str] = lambda _: ""
    """The mode that asks before it does anything, or cannot do more; nothing where there is only one."""
    meta: Callable[[Invocation], Mapping[str, Any]] = lambda _: {}
    """What a session is opened with beyond the protocol."""
    keyed_logins: Mapping[str, tuple[str, ...]] = {}
    """Its ways to log in that need nobody: by their ids, the variables of which one holds the key."""
    missing_is_empty: bool = False
    """Whether a file that is not there is to be read as an empty one: any refusal keeps it from making a new one."""
    fails_in_words: bool = False
    """Whether it tells a provider's failure as its answer; only that nothing was used gives it away."""
    notice: str = ""
    """How it begins what it says beside its answer, each in one piece; only that gives it away."""
    takes_model: bool = False
    """Whether its program is called with the model; else the session is told."""


def says_nothing(_fields: Fields, _recorder: TurnRecorder, _order: Invocation) -> None:
    """What such a program prints is no event but a message, which is read elsewhere."""
