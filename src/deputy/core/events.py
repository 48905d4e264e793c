"""Everything that can happen to a delegation: a closed union of past participles, and its JSON on disk."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from msgspec import UNSET, Raw, Struct, UnsetType, json, to_builtins

from deputy.core.approval import ApprovalRequest
from deputy.core.errors import Error, UsageError
from deputy.core.fallback import Routing
from deputy.core.limits import BudgetUse
from deputy.core.outcome import NO_USAGE, Fallback, Outcome, Rejected, Usage
from deputy.core.request import Grant, Lineage, Request
from deputy.core.role import Role
from deputy.core.subtask.passed_context import PassedContext
from deputy.core.task import TaskOptions

VERSION = 1
"""Of the events' JSON. It rises only when an old field changes its meaning; new kinds and new fields need no rise."""


CANCEL = "cancel"
"""The topic that every run listens to: what comes under it is a `CancelRequested`."""
ANSWER = "answer"
"""The topic of a person's words."""
APPROVAL = "approval"
"""The topic of a yes or no that a person is asked for."""


class _Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """Base of all events. Each class names its stored kind in `tag`, so renaming a class never changes the journal."""

    @property
    def kind(self) -> str:
        """The name of this kind, as JSON has it."""
        return str(self.__struct_config__.tag)


# --- birth ------------------------------------------------------------------------------------------------------------


class RunOpened(_Event, frozen=True, kw_only=True, tag="run_opened"):
    """A root session began: a person's or program's run at depth 0."""

    lineage: Lineage
    prompt: str = ""
    label: str = ""
    command: str = ""
    model: str = ""
    seconds: float | None = None
    workspace: str = ""
    """The folder it works in, from its root; whoever resumes it works there too."""
    grant: Grant = Grant()
    role: Role | None = None
    """The definition of the agent that it is, where it is one."""
    routing: Routing = Routing()
    arguments: Raw | UnsetType = UNSET
    """What the command was called with, where that is more than a prompt."""


class Requested(_Event, frozen=True, kw_only=True, tag="requested"):
    """A delegation was asked for."""

    request: Request
    label: str = ""
    command: str = ""
    model: str = ""
    parent: str | None = None
    """The run that asked, when it is one of the journal's."""
    call: str = ""
    """The parent's tool call; the pair of them never spawns twice."""
    options: TaskOptions = TaskOptions()
    workspace: str = ""
    """The folder it works in, where nobody of the journal's asked for it: it is the top of its tree then."""


class Admitted(_Event, frozen=True, kw_only=True, tag="admitted"):
    """The guard let it in: where it stands, and what it may use."""

    lineage: Lineage
    grant: Grant


class AdmissionRefused(_Event, frozen=True, kw_only=True, tag="admission_refused"):
    """The guard kept it out, which is how it ended."""

    outcome: Rejected


class Started(_Event, frozen=True, kw_only=True, tag="started"):
    """Its target went to work."""

    backend: str = ""
    model: str = ""
    asked: str = ""
    """What the model was asked for by, where that is another name."""
    scratchpad: str = ""


# --- work -------------------------------------------------------------------------------------------------------------


class MessageAdded(_Event, frozen=True, kw_only=True, tag="message_added"):
    """A message entered the conversation that no model and no tool made: the task, an answer, a correction."""

    message: Raw
    warnings: tuple[str, ...] = ()
    """What should have been in it and could not be."""
    passed: PassedContext | None = None
    """What of a parent's context is in it, where it is a subtask's task."""


class ModelCallBegun(_Event, frozen=True, kw_only=True, tag="model_call_begun"):
    """A model is about to be asked."""

    model: str
    call: str = ""
    """The idempotency key sent along."""
    is_repeatable: bool = True


class ModelCallEnded(_Event, frozen=True, kw_only=True, tag="model_call_ended"):
    """A model answered, or failed to."""

    model: str
    message: Raw | UnsetType = UNSET
    usage: Usage = NO_USAGE
    stop: str = ""
    error: Error | None = None
    window: int | None = None
    """How much the model can hold, where its provider said so when it was too much."""
    budgets: tuple[BudgetUse, ...] = ()
    """How much was used by then of its budgets and of those that it shares with others."""
    backend: str = ""
    """The program that asked its model by itself, where one did."""
    turn: Raw | UnsetType = UNSET
    """What that program told of its turn: its own session, the tools it used, the files it changed."""
    context_tokens: int | None = None
    """How full the context is after the call; None where only a program knows."""
    context_window: int | None = None
    """How many tokens the context may have; None where that is not known."""


class ToolCallBegun(_Event, frozen=True, kw_only=True, tag="tool_call_begun"):
    """A tool is about to run."""

    tool: str
    call: str = ""
    arguments: Raw | UnsetType = UNSET
    is_repeatable: bool = True


class ToolCallEnded(_Event, frozen=True, kw_only=True, tag="tool_call_ended"):
    """A tool gave its result, or failed to."""

    tool: str
    call: str = ""
    message: Raw | UnsetType = UNSET
    error: Error | None = None
    changed: tuple[str, ...] = ()
    """Files of the workspace that the call wrote."""


class StepBegun(_Event, frozen=True, kw_only=True, tag="step_begun"):
    """Some other step is about to be taken."""

    step: str
    is_repeatable: bool = True


class StepEnded(_Event, frozen=True, kw_only=True, tag="step_ended"):
    """Some other step came to an end."""

    step: str
    result: Raw | UnsetType = UNSET
    error: Error | None = None


class StepLost(_Event, frozen=True, kw_only=True, tag="step_lost"):
    """A step that must not be taken twice had begun when its process died: what it did is unknown."""

    step: str


class Noted(_Event, frozen=True, kw_only=True, tag="noted"):
    """The subagent wrote a finding down."""

    content: str


class Retried(_Event, frozen=True, kw_only=True, tag="retried"):
    """A failed attempt is made again."""

    what: str
    attempt: int
    reason: str
    seconds: float = 0.0


class FellBack(_Event, frozen=True, kw_only=True, tag="fell_back"):
    """The next model or backend of the chain was taken."""

    fallback: Fallback
    left: str = ""
    """The backend that failed; none where it was not tried."""
    backend: str = ""
    model: str = ""
    """What was taken instead."""


class FinalTurnBegun(_Event, frozen=True, kw_only=True, tag="final_turn_begun"):
    """A soft limit was reached, and the last turn given."""

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
    """An id or a number was drawn that must be the same whenever it is asked for again."""

    value: str


class Slept(_Event, frozen=True, kw_only=True, tag="slept"):
    """A wait until a moment began."""

    until: float


class Spawned(_Event, frozen=True, kw_only=True, tag="spawned"):
    """A child run was made, in the same transaction as this record."""

    child: str


class Joined(_Event, frozen=True, kw_only=True, tag="joined"):
    """A child's outcome was taken; it stays with the child's own record."""

    child: str
    round: int = 0
    waited: float = 0.0
    """For how many seconds the child waited for a person in this round."""
    waited_until: float = 0.0
    """When it last did."""


class QuestionAsked(_Event, frozen=True, kw_only=True, tag="question_asked"):
    """The run waits for a message."""

    topic: str
    question: str = ""
    until: float | None = None
    """When it counts as refused, in seconds since 1970; None is never."""
    request: ApprovalRequest | None = None
    """What a person must approve, whole, where that is what the run waits for."""
    digest: str = ""
    """The digest of the request, which an answer must name."""


class QuestionAnswered(_Event, frozen=True, kw_only=True, tag="question_answered"):
    """The message came."""

    topic: str
    body: Raw


# --- ends -------------------------------------------------------------------------------------------------------------


class CancelRequested(_Event, frozen=True, kw_only=True, tag="cancel_requested"):
    """Somebody wants it stopped."""

    reason: str = ""


class Returned(_Event, frozen=True, kw_only=True, tag="returned"):
    """It ended; a run has one such record per round."""

    outcome: Outcome


class Delivered(_Event, frozen=True, kw_only=True, tag="delivered"):
    """Its result reached whoever asked."""

    to: str = ""


class Resumed(_Event, frozen=True, kw_only=True, tag="resumed"):
    """It goes on after an end: another round, with its own ending."""

    round: int
    message: Raw | UnsetType = UNSET
    seconds: float | None = None
    deadline: float | None = None
    """When it must be over because its caller must; None where only its own limit counts."""
    request: ApprovalRequest | None = None
    """What a person must approve before it goes on; None when that is settled."""
    approval_timeout_seconds: float | None = None
    """How many seconds they have for it; None is for ever."""
    is_dismissed: bool = False
    """Nobody will answer what it ended with: nothing is done in this round but to end as cancelled."""


class Adopted(_Event, frozen=True, kw_only=True, tag="adopted"):
    """Another process went on with it."""

    owner: str
    previous_owner: str = ""


class Unrecognised(Struct, frozen=True, kw_only=True):
    """A record that a newer version wrote: kept as it is, folded into nothing."""

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


class Moment(NamedTuple):
    """When something happened: for people, and for limits."""

    at: float
    """Seconds since 1970, by the wall clock."""
    clock: float
    """Seconds by the journal's clock, which only time moves: not the wall clock, a suspend or a reboot."""


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """An event in its place: which run, the how-manieth of it, under which key, and when."""

    run: str
    seq: int
    key: str
    at: float
    """Seconds since 1970, by the wall clock."""
    clock: float
    """When it was by the journal's clock, which limits and durations are measured by."""
    event: Event


# --- JSON -------------------------------------------------------------------------------------------------------------


class _Header(Struct, gc=False):
    kind: str
    v: int


def encode(event: Event) -> bytes:
    """The event as JSON: its version, its kind, its fields."""
    return bytes(event.body) if isinstance(event, Unrecognised) else _versioned(json.encode(event))


def written(event: E) -> tuple[E, bytes]:
    """The event as it will be read back, and its JSON. Halves of characters become `?`; what JSON is not is refused."""
    try:
        body = encode(event)
        _header().decode(body)
    except UnicodeEncodeError:
        body = _versioned(json.encode(_whole_text(to_builtins(event, builtin_types=(Raw,)))))
        return cast("E", decode(body)), body
    except (ValueError, RecursionError) as error:
        raise UsageError("event", event.kind, f"it must be JSON that can be read back ({error})") from error
    return event, body


def _versioned(fields: bytes) -> bytes:
    return b'{"v":%d,%b' % (VERSION, fields[1:])


def _whole_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value)
        return {_whole_text(key): _whole_text(item) for key, item in pairs.items()}
    if isinstance(value, list | tuple):
        return [_whole_text(item) for item in cast("list[Any]", value)]
    return value


def decode(body: bytes) -> Event:
    """The event of this JSON. What a newer version wrote is kept unread; anything else wrong is a ValueError."""
    header = _header().decode(body)
    if header.v > VERSION or header.kind not in kinds():
        return Unrecognised(kind=header.kind, version=header.v, body=Raw(body))
    return _decoder().decode(body)


def errors_of(event: Event) -> tuple[Error, ...]:
    """The errors that an event tells of."""
    match event:
        case ModelCallEnded(error=error):
            return () if error is None or error.type == "cancelled" else (error,)
        case ToolCallEnded(error=error) | StepEnded(error=error):
            return () if error is None else (error,)
        case Returned(outcome=outcome) | AdmissionRefused(outcome=outcome):
            return outcome.errors
        case _:
            return ()


@cache
def kinds() -> frozenset[str]:
    """The names of all kinds there are."""
    from typing import get_args

    return frozenset(str(event.__struct_config__.tag) for event in get_args(Known))


@cache
def _decoder() -> json.Decoder[Any]:
    return json.Decoder(Known)


@cache
def _header() -> json.Decoder[_Header]:
    return json.Decoder(_Header)


def prime() -> None:
    """Build what decodes events, for the same reason as `state.prime`."""
    _decoder()
    _header()
