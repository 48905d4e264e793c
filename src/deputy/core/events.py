"""The events of a run: a closed union of past participles, and their JSON form."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast, get_args

from msgspec import UNSET, Raw, Struct, UnsetType, ValidationError, json, to_builtins

from deputy.core.approval import ApprovalRequest
from deputy.core.conditions import Conditions
from deputy.core.conversation import map_text, without_surrogates
from deputy.core.errors import Error, UsageError
from deputy.core.fallback import Routing
from deputy.core.limits import Budget, BudgetUse
from deputy.core.outcome import NO_USAGE, Fallback, Outcome, Rejected, Usage
from deputy.core.request import Grant, Lineage, Request
from deputy.core.subtask.context_settings import PassedContext
from deputy.core.task import Role, TaskOptions

VERSION = 1
"""The version of the events' JSON. It rises only when a field changes its meaning, not for new kinds and fields."""
CANCEL = "cancel"
"""The topic of cancel messages, which every run receives."""
ANSWER = "answer"
APPROVAL = "approval"


class _Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """Base of all events. Each class names its stored kind in `tag`, so renaming a class never changes the journal."""

    @property
    def kind(self) -> str:
        """The stored name of this kind."""
        return str(self.__struct_config__.tag)


# --- start ------------------------------------------------------------------------------------------------------------


class RunOpened(_Event, frozen=True, kw_only=True, tag="run_opened"):
    """A root session started: the run of a person or program at depth 0."""

    lineage: Lineage
    prompt: str = ""
    label: str = ""
    command: str = ""
    model: str = ""
    seconds: float | None = None
    workspace: str = ""
    """The absolute path of its folder; a resumed run works there too."""
    grant: Grant = Grant()
    role: Role | None = None
    routing: Routing = Routing()
    arguments: Raw | UnsetType = UNSET
    conditions: Conditions | None = None
    """If workers carry it out, how."""


class Requested(_Event, frozen=True, kw_only=True, tag="requested"):
    """A delegation was requested."""

    request: Request
    label: str = ""
    command: str = ""
    model: str = ""
    parent: str | None = None
    """The run that requested it, if it is in this journal."""
    call: str = ""
    """The parent's tool call; one call spawns once."""
    options: TaskOptions = TaskOptions()
    workspace: str = ""
    """Its folder, if it has no parent in the journal and is the top of its tree."""
    conditions: Conditions | None = None
    """If workers carry it out and it is the top of its tree, how."""


class Admitted(_Event, frozen=True, kw_only=True, tag="admitted"):
    """The guard admitted it: its lineage and grant."""

    lineage: Lineage
    grant: Grant


class AdmissionRefused(_Event, frozen=True, kw_only=True, tag="admission_refused"):
    """The guard refused it, which ended it."""

    outcome: Rejected


class Started(_Event, frozen=True, kw_only=True, tag="started"):
    """Its target started."""

    backend: str = ""
    model: str = ""
    asked: str = ""
    """The requested name of the model, if it differs."""
    scratchpad: str = ""


# --- work -------------------------------------------------------------------------------------------------------------


class MessageAdded(_Event, frozen=True, kw_only=True, tag="message_added"):
    """A message that neither a model nor a tool made entered the conversation: a task, an answer, a correction."""

    message: Raw
    warnings: tuple[str, ...] = ()
    passed: PassedContext | None = None
    """The passed context in it, if it is the task of a subtask."""
    starts_over: bool = False
    """Whether a new conversation begins with it."""


class ModelCallBegun(_Event, frozen=True, kw_only=True, tag="model_call_begun"):
    """A model call begins."""

    model: str
    call: str = ""
    is_repeatable: bool = True
    tools: tuple[str, ...] = ()
    """Of the first call: the tools that the model is offered."""


class ModelCallEnded(_Event, frozen=True, kw_only=True, tag="model_call_ended"):
    """A model call ended, with a message or an error."""

    model: str
    message: Raw | UnsetType = UNSET
    usage: Usage = NO_USAGE
    stop: str = ""
    salvaged: str = ""
    """The text of the model, if it is a call written as text that became a tool call."""
    error: Error | None = None
    window: int | None = None
    budgets: tuple[BudgetUse, ...] = ()
    """The use of its own budgets and of those that it shares."""
    backend: str = ""
    """The backend whose program made the call, if one did."""
    turn: Raw | UnsetType = UNSET
    """That program's report on its turn: its session, tools used, files changed."""
    context_tokens: int | None = None
    """The tokens in the context after the call; None if only a program knows."""
    context_window: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether a limit, a cancel or a failure ended our own call before its answer was complete."""
        return self.error is not None and self.turn is UNSET


class ToolCallBegun(_Event, frozen=True, kw_only=True, tag="tool_call_begun"):
    """A tool call begins."""

    tool: str
    call: str = ""
    arguments: Raw | UnsetType = UNSET
    is_repeatable: bool = True


class ToolCallEnded(_Event, frozen=True, kw_only=True, tag="tool_call_ended"):
    """A tool call ended, with a result or an error."""

    tool: str
    call: str = ""
    message: Raw | UnsetType = UNSET
    error: Error | None = None
    changed: tuple[str, ...] = ()
    trace: str = ""
    """The stack trace of an exception in the tool."""


class StepBegun(_Event, frozen=True, kw_only=True, tag="step_begun"):
    """Another step begins."""

    step: str
    is_repeatable: bool = True


class StepEnded(_Event, frozen=True, kw_only=True, tag="step_ended"):
    """Another step ended."""

    step: str
    result: Raw | UnsetType = UNSET
    error: Error | None = None


class StepLost(_Event, frozen=True, kw_only=True, tag="step_lost"):
    """The process died during a step that must not be repeated; its effect is unknown."""

    step: str


class Noted(_Event, frozen=True, kw_only=True, tag="noted"):
    """The subagent wrote a note."""

    content: str


class Retried(_Event, frozen=True, kw_only=True, tag="retried"):
    """A failed attempt is retried."""

    what: str
    attempt: int
    reason: str
    seconds: float = 0.0


class FellBack(_Event, frozen=True, kw_only=True, tag="fell_back"):
    """The run changed to the next candidate."""

    fallback: Fallback
    left: str = ""
    """The backend that failed; empty if it was not tried."""
    backend: str = ""
    model: str = ""


class FinalTurnBegun(_Event, frozen=True, kw_only=True, tag="final_turn_begun"):
    """A soft limit was reached, and the final turn began."""

    limit: str
    reason: str = ""


class Validated(_Event, frozen=True, kw_only=True, tag="validated"):
    """The return was checked."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Repaired(_Event, frozen=True, kw_only=True, tag="repaired"):
    """The return was sent back with its problems."""

    attempt: int
    problems: tuple[str, ...] = ()


# --- others -----------------------------------------------------------------------------------------------------------


class ValueDrawn(_Event, frozen=True, kw_only=True, tag="value_drawn"):
    """A random value was drawn; a replay returns the same."""

    value: str


class Slept(_Event, frozen=True, kw_only=True, tag="slept"):
    """A sleep until this time began."""

    until: float


class Spawned(_Event, frozen=True, kw_only=True, tag="spawned"):
    """A child run was created, in the same transaction as this record."""

    child: str


class Joined(_Event, frozen=True, kw_only=True, tag="joined"):
    """A child ended; its outcome is in the child's own record."""

    child: str
    round: int = 0
    waited: float = 0.0
    """The seconds that the child waited for a person in this round."""
    waited_until: float = 0.0


class QuestionAsked(_Event, frozen=True, kw_only=True, tag="question_asked"):
    """The run waits for a message."""

    topic: str
    question: str = ""
    until: float | None = None
    """The time after which it counts as refused, in seconds since 1970; None means never."""
    request: ApprovalRequest | None = None
    digest: str = ""
    """The digest of the request, which a decision must name."""


class QuestionAnswered(_Event, frozen=True, kw_only=True, tag="question_answered"):
    """The message arrived."""

    topic: str
    body: Raw


# --- ends -------------------------------------------------------------------------------------------------------------


class CancelRequested(_Event, frozen=True, kw_only=True, tag="cancel_requested"):
    """Cancellation was requested."""

    reason: str = ""


class Returned(_Event, frozen=True, kw_only=True, tag="returned"):
    """The run ended; each round has one such record."""

    outcome: Outcome
    trace: str = ""
    """The stack trace of the exception that ended it."""


class Delivered(_Event, frozen=True, kw_only=True, tag="delivered"):
    """The result reached the caller."""

    to: str = ""


class ResumeChanges(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits and the model that a resume replaces, for this round and later ones."""

    budget: Budget = Budget()
    """New caps on the use of all rounds; a resource without one keeps its cap."""
    model: str = ""


NO_CHANGES = ResumeChanges()


class Resumed(_Event, frozen=True, kw_only=True, tag="resumed"):
    """A new round after the end, with its own outcome."""

    round: int
    message: Raw | UnsetType = UNSET
    seconds: float | None = None
    deadline: float | None = None
    """The deadline inherited from the caller; None if only its own limit counts."""
    request: ApprovalRequest | None = None
    """The approval that the round needs; None if it needs none."""
    approval_timeout_seconds: float | None = None
    changes: ResumeChanges = NO_CHANGES
    is_dismissed: bool = False
    """Its question stays unanswered: this round only ends the run as cancelled."""


class Adopted(_Event, frozen=True, kw_only=True, tag="adopted"):
    """Another process took the run over."""

    owner: str
    previous_owner: str = ""


class Unrecognised(Struct, frozen=True, kw_only=True):
    """A record of a newer version: kept unchanged, ignored by the fold."""

    kind: str
    version: int
    body: Raw


Known: TypeAlias = (
    RunOpened
    | Requested
    | Admitted
    | AdmissionRefused
    | Started
    | MessageAdded
    | ModelCallBegun
    | ModelCallEnded
    | ToolCallBegun
    | ToolCallEnded
    | StepBegun
    | StepEnded
    | StepLost
    | Noted
    | Retried
    | FellBack
    | FinalTurnBegun
    | Validated
    | Repaired
    | ValueDrawn
    | Slept
    | Spawned
    | Joined
    | QuestionAsked
    | QuestionAnswered
    | CancelRequested
    | Returned
    | Delivered
    | Resumed
    | Adopted
)
Event: TypeAlias = Known | Unrecognised
E = TypeVar("E", bound=Event)


class Moment(Struct, frozen=True, gc=False):
    """A point in time, by two clocks."""

    at: float
    """Seconds since 1970, by the wall clock."""
    clock: float
    """Seconds by the journal's clock, which wall-clock changes, suspends and reboots do not move."""


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """An event with its run, sequence number, key and time."""

    run: str
    seq: int
    key: str
    at: float
    clock: float
    """Seconds by the journal's clock, for limits and durations."""
    event: Event


# --- JSON -------------------------------------------------------------------------------------------------------------


class _Header(Struct, gc=False):
    kind: str
    v: int


_BEGINNING = b'{"v":%d,' % VERSION


def encode(event: Event) -> bytes:
    """The event as JSON: version, kind, fields."""
    return bytes(event.body) if isinstance(event, Unrecognised) else _BEGINNING + json.encode(event)[1:]


def written(event: E) -> tuple[E, bytes]:
    """The event as it will be read back, and its JSON. Lone surrogates become `?`; other invalid data is an error."""
    try:
        body = encode(event)
        _header().decode(body)
    except UnicodeEncodeError:
        body = _BEGINNING + json.encode(map_text(to_builtins(event, builtin_types=(Raw,)), without_surrogates))[1:]
        return cast("E", decode(body)), body
    except (ValueError, RecursionError) as error:
        raise UsageError("event", event.kind, f"it must be JSON that can be read back ({error})") from error
    return event, body


def decode(body: bytes) -> Event:
    """Decode an event. A newer version's is kept as `Unrecognised`; other problems are a ValueError."""
    # An event of this version is decoded once, unless its kind is unknown.
    with suppress(ValidationError):
        if body.startswith(_BEGINNING):
            return _decoder().decode(body)
    header = _header().decode(body)
    if header.v > VERSION or header.kind not in kinds():
        return Unrecognised(kind=header.kind, version=header.v, body=Raw(body))
    return _decoder().decode(body)


_LIMITS = frozenset({"TIMEOUT", "BUDGET_SPENT", "CONTEXT_EXHAUSTED"})


def errors_of(event: Event) -> tuple[Error, ...]:
    """The errors in an event."""
    match event:
        case ModelCallEnded(error=error):
            # The outcome names the limit too, whether the final turn reached it once more or not.
            return () if error is None or error.type == "cancelled" or error.code in _LIMITS else (error,)
        case ToolCallEnded(error=error) | StepEnded(error=error):
            return () if error is None else (error,)
        case Returned(outcome=outcome) | AdmissionRefused(outcome=outcome):
            # A task that goes back to its caller is no failure of its own; the reasons are beside it.
            return tuple(error for error in outcome.errors if error.code != "DO_IT_YOURSELF") or outcome.errors
        case _:
            return ()


TRACE_LENGTH = 16_000
"""The characters of a stack trace that are kept, from its end."""


def trace_of(event: Event) -> str:
    """The stack trace in an event."""
    return event.trace if isinstance(event, ToolCallEnded | Returned) else ""


@cache
def kinds() -> frozenset[str]:
    """The stored names of all kinds."""
    return frozenset(str(event.__struct_config__.tag) for event in get_args(Known))


@cache
def _decoder() -> json.Decoder[Any]:
    return json.Decoder(Known)


@cache
def _header() -> json.Decoder[_Header]:
    return json.Decoder(_Header)


def prime() -> None:
    """Build the decoders, for the same reason as `state.prime`."""
    _decoder()
    _header()
