"""What carries out a whole assignment outside of our own loop: another agent's program, or whatever speaks for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from deputy.core.conversation import RetryNotice, TextDelta, TokenUsage, ToolCall
from deputy.core.errors import Error
from deputy.core.limits import IDLE_SECONDS
from deputy.core.outcome import NO_USAGE, Usage
from deputy.core.request import Grant

if TYPE_CHECKING:
    from deputy.core.fallback import Candidate


class BackendSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A backend's own conversation, to go on with later."""

    id: str
    counted: Usage = NO_USAGE
    """What the backend has counted over all of it, where it counts so: what a later turn took is told from it."""


class BackendRequest(Struct, frozen=True, kw_only=True):
    """One turn of a backend: a task to begin with, or a message to go on with."""

    session_id: str
    """The delegation; whatever processes the backend starts can be found by it."""
    prompt: str
    """The task, whole. When there is a session to go on with, it is not said again."""
    workspace: str
    """The folder it works in."""
    system: str = ""
    """What it is told before the task."""
    model: str = ""
    """`provider:model`, or a name that only the backend knows; empty is its own choice."""
    grant: Grant = Grant()
    seconds: float | None = None
    """How long it may take; None is as long as it gives signs of life."""
    idle_seconds: float = IDLE_SECONDS
    """How long it may be silent."""
    max_output_tokens: int | None = None
    """The longest answer that is wanted, where the backend can be told."""
    resume: BackendSession | None = None
    """The backend's own session to go on with, just as `BackendResult.own_session` was the last time."""
    message: str = ""
    """What to go on with."""
    spill: str = ""
    """The file that takes its raw output, within a cap; none when empty."""


BackendEvent: TypeAlias = TextDelta | ToolCall | TokenUsage | RetryNotice
"""What a backend tells while it works. A `Used` is what came on top of the last one; their sum is the end's usage."""
Emit: TypeAlias = Callable[[BackendEvent], None]


class ToolUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that the backend's agent used, of its own or of others."""

    name: str
    arguments: str = ""
    """As JSON, cut when long."""
    result: str = ""
    """The beginning of what came back."""
    is_error: bool = False
    is_denied: bool = False
    """Whether it was not permitted, so that nothing was done."""
    may_write: bool = False
    """Whether it could have changed something: then nothing is tried a second time by itself."""


class ContextFill(Struct, frozen=True, kw_only=True):
    """How full the backend's context is, in tokens."""

    used: int
    size: int


class BackendResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one turn of a backend came to rest: in the words of a report, with what it took."""

    kind: Literal["answered", "asked", "limited", "failed"]
    text: str = ""
    """The answer, or the last thing it said; bounded, with a marker where something is missing."""
    error: Error | None = None
    """Why, unless it answered or asked."""
    usage: Usage = NO_USAGE
    """Of this turn alone; its cost is unknown where the backend does not tell it."""
    model: str = ""
    """The model really used, where the backend tells it."""
    own_session: BackendSession | None = None
    """The backend's own conversation; None where it has none or did not come to say so."""
    is_resumable: bool = False
    """Whether it can go on from there; else it starts afresh with what is known."""
    changed: tuple[str, ...] = ()
    """Files of the workspace that it said it wrote; what it changed by commands is not among them."""
    tools_used: tuple[ToolUse, ...] = ()
    is_uncertain: bool = False
    """Whether more may have been done than was told, by one that had the means to change something."""
    context: ContextFill | None = None
    warnings: tuple[str, ...] = ()
    """What is worth knowing and did not keep it from ending so."""

    @property
    def may_have_written(self) -> bool:
        """Whether something may have been changed, so that the same work must not be begun again by itself."""
        return self.is_uncertain or any(use.may_write and not use.is_denied for use in self.tools_used)


class Ready(Struct, frozen=True, kw_only=True):
    """The backend is there and can be tried."""

    path: str = ""
    version: str = ""
    is_logged_in: bool | None = None
    """None where that shows only when it is tried."""


class NotReady(Struct, frozen=True, kw_only=True):
    """The backend cannot be used, and why; the error says what to do."""

    error: Error
    path: str = ""
    version: str = ""


class Backend(Protocol):
    """Something that carries out assignments. A failure is an end, never an exception; cancelling it leaves nothing."""

    @property
    def name(self) -> str:
        """`native`, `acp:<name>`, `cli:<name>`."""
        ...

    async def check(self) -> Ready | NotReady:
        """Whether it can be used; cheap, and remembered."""
        ...

    async def run(self, request: BackendRequest, emit: Emit) -> BackendResult:
        """Carry out one turn. Not repeatable: what it did when it was stopped is unknown."""
        ...


class Backends(Protocol):
    """The ways that there are to carry out what is asked of a model."""

    def candidates(self, model: str, *, falls_back: bool, native_failures: int) -> tuple[Candidate, ...]:
        """Every way but inline, best first."""
        ...

    def missing_key(self, model: str) -> str | None:
        """The provider whose key is missing for a model; None when it can be asked."""
        ...

    def open(self, backend: str) -> Backend | None:
        """The program of this name; None when nothing here speaks to it."""
        ...

    def model_for(self, candidate: Candidate) -> str:
        """The model of a rung as its program is asked for it."""
        ...

    async def has_program(self, model: str) -> bool:
        """Whether a program that is there could carry out what is asked of a model."""
        ...

    async def native_failures(self, root: str) -> int:
        """How often the native backend has failed in the tree of a root session."""
        ...
