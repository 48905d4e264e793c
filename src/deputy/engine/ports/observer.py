"""Observer: receives what happens to the runs of this process, for logs, traces and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from deputy.core.errors import Error
from deputy.core.outcome import NO_USAGE, Usage

if TYPE_CHECKING:
    from deputy.core.approval import Choice


class SpanIds(Struct, frozen=True, kw_only=True, gc=False):
    """The span of a run in its trace, in hexadecimal digits: the same in every process that executes the run."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    """The span of its parent run, or of its caller; empty at the top of a trace."""
    is_sampled: bool | None = None
    """What the caller decided; None if there is none."""


class ObservedRun(Struct, frozen=True, kw_only=True):
    """One round of a run. All texts that observers get are redacted, on one line, and cut."""

    session_id: str
    root_id: str
    """The id of the run at the root of the tree."""
    parent: str | None
    label: str
    command: str
    round: int
    """0 for the first; each resume of an ended run adds 1."""
    is_resumed: bool
    """Whether the run has earlier records: of an earlier round, or of another process."""
    name: str = ""
    """Its agent, or its label; empty where only words of its prompt would name it."""
    requested_at: float = 0.0
    """When this round was requested: seconds since 1970."""
    span: SpanIds | None = None
    """Set if an observer traces."""
    prompt: str = ""
    """The prompt of its first round. Set if an observer wants content."""


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    status: str
    reason: str
    seconds: float
    usage: Usage
    """The usage of the run itself in all its rounds, without its children."""
    is_elsewhere: bool = False
    """Whether another process ended it, and reports that end too."""
    report: str = ""
    """Its report. Set if an observer wants content."""


class ObservedStep(Struct, frozen=True, kw_only=True):
    """One step that is executed now."""

    run: ObservedRun
    key: str
    """Unique within the run."""
    kind: Literal["model", "tool", "other"]
    name: str
    """The requested model, the tool, or the name of the step."""
    span_id: str = ""
    """Its span in the trace of the run, of model and tool calls. Set if an observer traces."""
    call: str = ""
    """The id of the tool call."""
    arguments: str = ""
    """The arguments of the tool call, as JSON. Set if an observer wants content."""


class StepEnd(Struct, frozen=True, kw_only=True):
    """How a step ended."""

    seconds: float
    error: Error | None = None
    usage: Usage = NO_USAGE
    model: str = ""
    """The model that answered."""
    backend: str = ""
    """The backend whose program made the call, if one did."""
    stop: str = ""
    """Why the model stopped."""
    content: str = ""
    """The message of the model, as JSON, or the result of the tool. Set if an observer wants content."""


class Observer:
    """Override what you need; every method does nothing by default.

    Methods are called on the event loop, so they must return at once. After a method raises, the exception is logged
    and the observer is not called again. Only what happens now is reported: recorded steps that a resumed run replays
    are not, and a suspended run that resumes in the same process is not started again.
    """

    traces: bool = False
    """Whether it needs the ids of spans."""
    wants_content: bool = False
    """Whether it gets prompts, messages, arguments, results and reports: redacted, at most 20,000 characters each."""

    def run_started(self, run: ObservedRun) -> None:
        """A run starts, or is resumed here."""

    def run_ended(self, run: ObservedRun, end: RunEnd) -> None:
        """A run has ended; not called for a run that another process can resume."""

    def step_started(self, step: ObservedStep) -> None:
        """A model call, a tool call or another step starts."""

    def step_ended(self, step: ObservedStep, end: StepEnd) -> None:
        """A step ended: with a result, an error, or a cancellation."""

    def retried(self, run: ObservedRun, reason: str) -> None:
        """A request to a model is repeated within its step, like `retrying (2/4) in 3 s: HTTP 529 overloaded`."""

    def fell_back(self, run: ObservedRun, taken: str, reason: str) -> None:
        """The run continues with another model or backend."""

    def approval_asked(self, run: ObservedRun, question: str) -> None:
        """A person is asked for an approval."""

    def approval_answered(self, run: ObservedRun, question: str, choice: Choice) -> None:
        """An approval was answered, or its time limit was reached."""
