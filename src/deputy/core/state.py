"""The state of a run: a fold over its records, the same live and on replay."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, json, structs

from deputy.core import events
from deputy.core.approval import read_decision
from deputy.core.errors import Error
from deputy.core.fallback import NATIVE
from deputy.core.outcome import NO_USAGE, Outcome, Usage
from deputy.core.request import Lineage

if TYPE_CHECKING:
    from collections.abc import Iterable

Status: TypeAlias = Literal[
    "unborn", "requested", "running", "waiting", "completed", "partial", "failed", "blocked", "cancelled", "rejected"
]
LIVE: frozenset[Status] = frozenset({"requested", "running", "waiting"})


class Counts(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Counts of events."""

    turns: int = 0
    tool_calls: int = 0
    notes: int = 0
    retries: int = 0
    fallbacks: int = 0
    native_failures: int = 0
    repairs: int = 0
    children: int = 0
    lost: int = 0
    timeouts: int = 0
    """The rounds that ended at a time limit."""


class StepInProgress(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A step that has not ended."""

    name: str
    is_repeatable: bool = True


class State(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The state of a run after its records. Its size does not grow with the conversation."""

    run: str = ""
    seq: int = 0
    status: Status = "unborn"
    round: int = 0
    label: str = ""
    command: str = ""
    agent: str = ""
    task_number: int | None = None
    parent: str | None = None
    workspace: str = ""
    lineage: Lineage | None = None
    model: str = ""
    backend: str = ""
    scratchpad: str = ""
    seconds: float | None = None
    requested_at: float = 0.0
    """All `…_at` fields: seconds since 1970 by the wall clock, for display."""
    started_at: float | None = None
    first_started_at: float | None = None
    resumed_at: float | None = None
    ended_at: float | None = None
    last_at: float = 0.0
    asked_clock: float = 0.0
    """When this round was requested. All `…_clock` fields: seconds by the journal's clock, for limits."""
    started_clock: float | None = None
    ended_clock: float | None = None
    last_clock: float = 0.0
    unattended: float = 0.0
    """The seconds of this round in which no process worked on it: from the last record of a dead one to the next."""
    worked_before: float = 0.0
    """The seconds of its earlier rounds."""
    usage: Usage = NO_USAGE
    context_tokens: int | None = None
    context_window: int | None = None
    counts: Counts = Counts()
    under_way: dict[str, StepInProgress] = {}
    waits: dict[str, str] = {}
    waiting_since: float = 0.0
    waited: float = 0.0
    """The seconds that it or a joined child waited for a person in this round."""
    waited_until: float = 0.0
    question: str = ""
    answer_by: float | None = None
    """When its question counts as refused; None means never."""
    is_cancelling: bool = False
    is_delivered: bool = False
    reason: str = ""
    oddities: int = 0
    """The number of skipped records that did not fit the state."""
    oddity: str = ""

    @property
    def began_at(self) -> float:
        """When its first round started, or was requested."""
        began = self.started_at if self.first_started_at is None else self.first_started_at
        return self.requested_at if began is None else began

    @property
    def began_clock(self) -> float:
        """When this round started, or was requested, by the journal's clock."""
        return self.asked_clock if self.started_clock is None else self.started_clock

    def seconds_worked(self, now: float) -> float:
        """The seconds of all its rounds, of a live one until now."""
        return round(self.worked_before + self.round_seconds(now), 3)

    def round_seconds(self, now: float) -> float:
        """The seconds of this round, of a live one until now."""
        until = now if self.ended_clock is None else self.ended_clock
        return max(0.0, until - self.began_clock - self.unattended)

    @property
    def is_live(self) -> bool:
        """Whether it was requested and has not ended."""
        return self.status in LIVE

    @property
    def is_settled(self) -> bool:
        """Whether it ended and its result was delivered."""
        return self.is_delivered and not self.is_live


def apply(state: State, record: events.Record) -> State:
    """The state after one more record; a record that does not fit is skipped and counted, never an exception."""
    if record.seq <= state.seq:
        return state
    fields = _change(state, record)
    if fields is None:
        return structs.replace(
            state,
            run=state.run or record.run,
            seq=record.seq,
            oddities=state.oddities + 1,
            oddity=f"{record.key}: {type(record.event).__name__} in a run that is {state.status}",
        )
    last_at, last_clock = max(state.last_at, record.at), max(state.last_clock, record.clock)
    return structs.replace(state, seq=record.seq, last_at=last_at, last_clock=last_clock, **fields)


def replay(records: Iterable[events.Record], state: State | None = None) -> State:
    """The state after these records."""
    state = State() if state is None else state
    for record in records:
        state = apply(state, record)
    return state


def encode_state(state: State) -> bytes:
    """The state as JSON, for the journal's index of runs."""
    return json.encode(state)


def decode_state(body: bytes) -> State:
    """The state of this JSON."""
    return _decoder().decode(body)


@cache
def _decoder() -> json.Decoder[State]:
    return json.Decoder(State)


def prime() -> None:
    """Build the decoder: two threads that build it at once can crash the interpreter."""
    _decoder()


def _change(state: State, record: events.Record) -> dict[str, Any] | None:
    """The fields that a record changes, or None if it does not fit."""
    match record.event:
        case events.Unrecognised():
            return None
        case events.RunOpened() | events.Requested() as event:
            return _started(event, record) if state.status == "unborn" else None
        case events.Delivered() | events.Resumed() | events.Adopted() as event:
            return None if state.status == "unborn" else _after_the_end(state, event, record)
        case event:
            return _at_work(state, event, record) if state.is_live else None


def _started(event: events.RunOpened | events.Requested, record: events.Record) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "run": record.run,
        "status": "requested",
        "label": event.label,
        "command": event.command,
        "model": event.model,
        "requested_at": record.at,
        "asked_clock": record.clock,
    }
    if isinstance(event, events.RunOpened):
        return {
            **fields,
            "lineage": structs.replace(event.lineage, drift=_drift(record)),
            "seconds": event.seconds,
            "agent": event.lineage.path[-1].name,
            "workspace": event.workspace,
        }
    request = event.request
    lineage = request.caller.child(
        request.session_id,
        request.target,
        signature="",
        now=record.clock,
        seconds=request.seconds,
        subtask_limit=request.subtask_limit,
    )
    task = request.task_context
    number = UNSET if task is None else task.task_number
    return {
        **fields,
        "parent": event.parent,
        "workspace": event.workspace,
        "agent": request.target.name,
        "seconds": request.seconds,
        # The lineage that it will have once admitted.
        "lineage": structs.replace(lineage, signatures=request.caller.signatures, drift=_drift(record)),
        "task_number": None if number is UNSET else number,
    }


def _drift(record: events.Record) -> float:
    return float(round(record.at - record.clock))


_COUNTED: dict[type[Struct], str] = {
    events.ModelCallEnded: "turns",
    events.ToolCallEnded: "tool_calls",
    events.StepLost: "lost",
    events.Noted: "notes",
    events.Retried: "retries",
    events.FellBack: "fallbacks",
    events.Repaired: "repairs",
    events.Spawned: "children",
}


def _at_work(state: State, event: events.Event, record: events.Record) -> dict[str, Any]:
    match event:
        case (
            events.ModelCallBegun(model=name, is_repeatable=is_repeatable)
            | events.ToolCallBegun(tool=name, is_repeatable=is_repeatable)
            | events.StepBegun(step=name, is_repeatable=is_repeatable)
        ):
            key = record.key.removesuffix(BEGUN)
            step = StepInProgress(name=name, is_repeatable=is_repeatable)
            return {"under_way": {**state.under_way, key: step}}
        case events.ModelCallEnded():
            fields = _stepped(state, event, record.key)
            return {
                **fields,
                "usage": state.usage + event.usage,
                "context_tokens": event.context_tokens or state.context_tokens,
                "context_window": event.context_window or state.context_window,
                "model": event.model or state.model,
            }
        case events.ToolCallEnded():
            return _stepped(state, event, record.key)
        case events.Admitted():
            return {"lineage": structs.replace(event.lineage, drift=_drift(record))}
        case events.Started():
            return {
                "status": state.status if state.waits else "running",
                "started_at": record.at if state.started_at is None else state.started_at,
                "started_clock": record.clock if state.started_clock is None else state.started_clock,
                "unattended": 0.0 if state.started_clock is None else state.unattended,
                "first_started_at": record.at if state.first_started_at is None else state.first_started_at,
                "backend": event.backend,
                "model": event.model or state.model,
                "scratchpad": event.scratchpad or state.scratchpad,
            }
        case events.FellBack(left=left) if left == NATIVE:
            fields = _stepped(state, event, record.key)
            counts: Counts = fields["counts"]
            return {**fields, "counts": structs.replace(counts, native_failures=counts.native_failures + 1)}
        case events.Joined():
            return {**_stepped(state, event, record.key), **_waited_below(state, event)}
        case events.QuestionAsked():
            return {
                "status": "waiting",
                "waits": {**state.waits, record.key.removesuffix(ASKED): event.topic},
                "waiting_since": state.waiting_since if state.waits else record.clock,
                "question": event.question or state.question,
                "answer_by": event.until,
            }
        case events.QuestionAnswered():
            return _answered(state, record)
        case events.CancelRequested():
            return {"is_cancelling": True}
        case events.Returned() | events.AdmissionRefused():
            return _ended(state, event.outcome, record)
        case _:
            return _stepped(state, event, record.key)


BEGUN = ".begun"
ASKED = ".asked"


_ANSWER_TO = "answer:"


def answer_key(key: str) -> str:
    """The key of an answer to a question; the first answer counts."""
    return f"{_ANSWER_TO}{key}"


def may_answer(sent: str, key: str) -> bool:
    """Whether a wait may take a message: an answer belongs to one question."""
    return not sent.startswith(_ANSWER_TO) or sent == answer_key(key)


def is_awaited(sent: str, state: State) -> bool:
    """Whether a wait of the run may take the message with this key."""
    return any(may_answer(sent, key) for key in state.waits)


def _stepped(state: State, event: events.Event, key: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    counter = _COUNTED.get(type(event))
    if counter is not None:
        fields["counts"] = structs.replace(state.counts, **{counter: getattr(state.counts, counter) + 1})
    if key in state.under_way:
        fields["under_way"] = {name: what for name, what in state.under_way.items() if name != key}
    return fields


def _answered(state: State, record: events.Record) -> dict[str, Any]:
    if record.key not in state.waits:
        return {}
    waits = {key: topic for key, topic in state.waits.items() if key != record.key}
    if waits:
        return {"waits": waits}
    # A wait for a person extends the deadline; overlapping waits extend it once.
    waited = max(0.0, record.clock - state.waiting_since)
    lineage = state.lineage
    return {
        "waits": waits,
        "answer_by": None,
        "status": "running" if state.started_at is not None else "requested",
        "question": "",
        "lineage": None if lineage is None else lineage.paused(waited),
        "waited": state.waited + waited,
        "waited_until": max(state.waited_until, record.clock),
    }


def _waited_below(state: State, joined: events.Joined) -> dict[str, Any]:
    """A child's wait for a person extends the deadline too; overlapping waits extend it once."""
    waited = min(joined.waited, max(0.0, joined.waited_until - state.waited_until))
    if waited <= 0:
        return {}
    return {
        "lineage": None if state.lineage is None else state.lineage.paused(waited),
        "waited": state.waited + waited,
        "waited_until": joined.waited_until,
    }


def _ended(state: State, outcome: Outcome, record: events.Record) -> dict[str, Any]:
    first = outcome.errors[0] if outcome.errors else None
    is_late = first is not None and first.type == "timeout"
    return {
        "status": outcome.status,
        "counts": structs.replace(state.counts, timeouts=state.counts.timeouts + is_late),
        "ended_at": record.at,
        "ended_clock": record.clock,
        "reason": "" if first is None else first.type,
        "under_way": {},
        "waits": {},
        "answer_by": None,
        "question": getattr(outcome, "question", ""),
        "is_cancelling": False,
        "is_delivered": False,
    }


_AfterEnd: TypeAlias = events.Delivered | events.Resumed | events.Adopted


def _after_the_end(state: State, event: _AfterEnd, record: events.Record) -> dict[str, Any] | None:
    match event:
        case events.Delivered():
            return None if state.is_live else {"is_delivered": True}
        case events.Adopted():
            gap = max(0.0, record.clock - state.last_clock)
            return {"unattended": state.unattended + gap} if state.is_live else None
        case events.Resumed():
            if state.is_live or event.round != state.round + 1:
                return None
            lineage = state.lineage
            if lineage is not None:
                own = None if event.seconds is None else record.clock + event.seconds
                ends = [end for end in (own, event.deadline) if end is not None]
                lineage = structs.replace(lineage, deadline=min(ends, default=None), drift=_drift(record))
            return {
                "status": "requested",
                "round": event.round,
                "asked_clock": record.clock,
                "unattended": 0.0,
                "worked_before": state.seconds_worked(record.clock),
                "ended_at": None,
                "ended_clock": None,
                "started_at": None,
                "started_clock": None,
                # A round that only ends the run does not count as resumed.
                "resumed_at": state.resumed_at if event.is_dismissed else record.at,
                "seconds": event.seconds,
                "lineage": lineage,
                "waited": 0.0,
                "question": "",
                "reason": "",
                "is_cancelling": event.is_dismissed,
                "is_delivered": False,
            }


# --- resume rounds ----------------------------------------------------------------------------------------------------

RESUME_APPROVAL = "resume:approval"
CLAIM = "claim"
"""The key under which a round claims its project task."""


def prefix(number: int) -> str:
    """The key prefix of a round; the first round has none."""
    return f"round:{number}/" if number else ""


def why_not_claimed(records: Iterable[events.Record], number: int) -> Error | None:
    """Why a round could not claim its project task; None if it could, or has none."""
    key = f"{prefix(number)}{CLAIM}"
    for record in records:
        if record.key == key and isinstance(record.event, events.StepEnded) and record.event.result is not UNSET:
            return json.decode(record.event.result, type=Error | None)
    return None


def not_begun(records: Iterable[events.Record]) -> frozenset[int]:
    """The rounds without an approval, and those that could not claim their project task."""
    kept_out: set[int] = set()
    number = 0
    approval = claim = digest = ""
    for record in records:
        match record.event:
            case events.Resumed(round=number, request=request):
                approval, claim = f"{prefix(number)}{RESUME_APPROVAL}", f"{prefix(number)}{CLAIM}"
                if request is not None:
                    kept_out.add(number)
            case events.QuestionAsked(digest=asked) if number and record.key.startswith(approval):
                digest = asked
            case events.QuestionAnswered(body=body) if number and record.key == approval:
                if read_decision(body, digest) != "no":
                    kept_out.discard(number)
            case events.StepEnded(result=result) if number and record.key == claim:
                if result is UNSET or json.decode(result) is not None:
                    kept_out.add(number)
            case _:
                continue
    return frozenset(kept_out)
