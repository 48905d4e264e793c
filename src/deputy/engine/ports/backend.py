"""The ports for programs: agents outside our own loop, the files they may use, and evaluator scripts."""

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
    from collections.abc import Sequence

    from deputy.core.fallback import Candidate
    from deputy.core.refinement import ScriptOutput


class BackendSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The id of a backend's own session, needed to resume it."""

    id: str
    counted: Usage = NO_USAGE
    """The backend's running totals, if it reports totals; a later turn's usage is the difference."""


class BackendRequest(Struct, frozen=True, kw_only=True):
    """The input of one backend turn: a task, or a message that continues a session."""

    session_id: str
    """The delegation's id; the backend's processes carry it so that orphans can be found."""
    prompt: str
    """The whole task; not sent again when `resume` is set."""
    workspace: str
    system: str = ""
    model: str = ""
    """`provider:model`, or a name that only the backend knows; empty means the backend's default."""
    grant: Grant = Grant()
    seconds: float | None = None
    """The timeout of the turn; None means that only the idle limit applies."""
    idle_seconds: float = IDLE_SECONDS
    max_output_tokens: int | None = None
    """The output limit, for backends that accept one."""
    resume: BackendSession | None = None
    """The session to resume, from `BackendResult.own_session`."""
    message: str = ""
    spill: str = ""
    """A file for the raw output, up to a cap; empty means none."""


BackendEvent: TypeAlias = TextDelta | ToolCall | TokenUsage | RetryNotice
"""What a backend streams. A `TokenUsage` is an increment; their sum is the result's usage."""
Emit: TypeAlias = Callable[[BackendEvent], None]


class ToolUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that the backend's agent made."""

    name: str
    arguments: str = ""
    result: str = ""
    is_error: bool = False
    is_denied: bool = False
    """Whether permission was denied, so that nothing ran."""
    may_write: bool = False
    """Whether the call could have changed something; such work is never repeated automatically."""


class ContextFill(Struct, frozen=True, kw_only=True):
    """How full the backend's context is, in tokens."""

    used: int
    size: int


class BackendResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one backend turn."""

    kind: Literal["answered", "asked", "limited", "failed"]
    text: str = ""
    """The answer, or the last text; shortened with a marker."""
    error: Error | None = None
    """The reason, unless `kind` is answered or asked."""
    usage: Usage = NO_USAGE
    """The usage of this turn; the cost is unknown if the backend does not report it."""
    is_metered: bool = True
    """Whether it calls a model, so that a missing usage is estimated."""
    model: str = ""
    """The model that was used, if the backend reports it."""
    own_session: BackendSession | None = None
    """The backend's session; None if it has none or ended before it reported one."""
    is_resumable: bool = False
    """Whether the session can be resumed; if not, the next turn starts a new one."""
    changed: tuple[str, ...] = ()
    """Workspace files that the backend reported as written; changes made by commands are not included."""
    tools_used: tuple[ToolUse, ...] = ()
    is_uncertain: bool = False
    """Whether a backend with write access may have done more than it reported."""
    context: ContextFill | None = None
    warnings: tuple[str, ...] = ()
    """Problems that did not change the result."""

    @property
    def may_have_written(self) -> bool:
        """Whether the turn may have changed something, so that the work must not be repeated."""
        return self.is_uncertain or any(use.may_write and not use.is_denied for use in self.tools_used)


class Ready(Struct, frozen=True, kw_only=True):
    """The backend can be used."""

    path: str = ""
    version: str = ""
    is_logged_in: bool | None = None
    """None if only a real call would show it."""


class NotReady(Struct, frozen=True, kw_only=True):
    """The backend cannot be used; the error says why and what to do."""

    error: Error
    path: str = ""
    version: str = ""


class Backend(Protocol):
    """Runs turns of an external agent. Failures are results, not exceptions; cancelling stops all its processes."""

    @property
    def name(self) -> str:
        """`native`, `acp:<name>`, `cli:<name>`, `python:<name>`."""
        ...

    async def check(self) -> Ready | NotReady:
        """Check whether the backend can be used; cheap and cached."""
        ...

    async def run(self, request: BackendRequest, emit: Emit) -> BackendResult:
        """Run one turn. Not repeatable: after an interruption its effects are unknown."""
        ...


class Backends(Protocol):
    """The registry of models and programs that a delegation may use."""

    def candidates(self, model: str, *, falls_back: bool) -> tuple[Candidate, ...]:
        """The candidates for a model, best first, without inline."""
        ...

    def notice(self, model: str, /) -> str:
        """A warning about the name of a model, which the outcome shows; empty without one."""
        ...

    def missing_key(self, model: str) -> str | None:
        """The provider whose key is missing for a model; None if the model can be called."""
        ...

    def open(self, backend: str) -> Backend | None:
        """The backend of this name; None if there is none."""
        ...

    def model_for(self, candidate: Candidate) -> str:
        """The candidate's model in the notation of its program."""
        ...

    async def has_program(self, model: str) -> bool:
        """Whether an installed program can run this model."""
        ...

    async def native_failures(self, root: str) -> int:
        """The number of failures of the native backend in the tree of a root session."""
        ...


# --- files and scripts for programs -----------------------------------------------------------------------------------


class NotServed(Struct, frozen=True, kw_only=True):
    """The reason why a file is refused."""

    reason: str
    is_missing: bool = False
    """Whether the file does not exist."""


class TextFiles(Protocol):
    """The text files of one workspace. All methods may block; none raises because of a path."""

    def refusal(self, path: str, *, for_writing: bool) -> NotServed | None:
        """The reason why a path is refused; None if it is allowed."""
        ...

    def read(self, path: str, first_line: int, lines: int | None) -> str | NotServed:
        """Lines of a file, starting at `first_line`, counted from 1."""
        ...

    def write(self, path: str, content: str) -> NotServed | None:
        """Write a whole file; None on success."""
        ...


OpenTextFiles: TypeAlias = Callable[[str, Grant], TextFiles]
"""Opens the files below a root within a grant."""


class Scripts(Protocol):
    """Runs scripts with a timeout and bounded output; leaves no process behind."""

    async def run(self, argv: Sequence[str], given: str, *, seconds: float, owner: str) -> ScriptOutput:
        """Run a script with text on stdin. A script that cannot run or times out has a special exit code."""
        ...
