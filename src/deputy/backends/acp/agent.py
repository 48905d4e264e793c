"""The description of an ACP agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.backends.cli.program import Fields, Invocation, Program

if TYPE_CHECKING:
    from deputy.backends.turn_recorder import TurnRecorder


class AcpAgent(Struct, frozen=True, kw_only=True):
    """One agent: its program, and how it is limited to a grant."""

    name: str
    """As in `acp:<name>`."""
    program: Program
    mode: Callable[[Invocation], str] = lambda _: ""
    """The mode in which it asks before each action or cannot exceed the grant; empty if it has no modes."""
    meta: Callable[[Invocation], Mapping[str, Any]] = lambda _: {}
    """The `_meta` field of a new session."""
    keyed_logins: Mapping[str, tuple[str, ...]] = {}
    """Logins without a person: by their ids, the variables that can have the key."""
    missing_is_empty: bool = False
    """Whether a missing file is read as an empty one: after a refusal it would not create the file."""
    fails_in_words: bool = False
    """Whether it reports a provider's failure as its answer, with a usage of zero."""
    notice: str = ""
    """The beginning of messages that are not part of the answer."""
    takes_model: bool = False
    """Whether the model is an argument of its program; else it is set in the session."""


def says_nothing(_fields: Fields, _recorder: TurnRecorder, _order: Invocation) -> None:
    """The reader of an ACP program: its lines are messages, not events."""
