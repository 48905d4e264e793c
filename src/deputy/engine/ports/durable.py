"""The durability ports: RunContext, Engine, Journal and World."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, TypeVarTuple, overload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from msgspec import Raw

    from deputy.core.approval import ApprovalRequest, Choice
    from deputy.core.events import (
        Event,
        Known,
        ModelCallBegun,
        QuestionAsked,
        Record,
        Requested,
        ResumeChanges,
        RunOpened,
        StepBegun,
        StepLost,
        ToolCallBegun,
    )
    from deputy.core.outcome import Outcome
    from deputy.core.request import Lineage
    from deputy.core.state import State
    from deputy.engine.recover import RunStatus

    RunStart: TypeAlias = RunOpened | Requested
    Beginning: TypeAlias = ModelCallBegun | ToolCallBegun | StepBegun
    Workflow: TypeAlias = Callable[["RunContext", RunStart], Awaitable[Outcome]]
    E = TypeVar("E", bound=Known)
    T = TypeVar("T")
    Ts = TypeVarTuple("Ts")

# --- durability -------------------------------------------------------------------------------------------------------


class World(Protocol):
    """Clock and randomness, for step bodies and engines; a flow must use its RunContext instead."""

    def now(self) -> float:
        """Seconds by the journal's clock, which ignores changes of the wall clock; limits are measured by it."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 by the wall clock, for display."""
        ...

    def random_string(self, letters: str, count: int) -> str:
        """A random string of `count` of these letters."""
        ...


class ApprovalVerdict(NamedTuple):
    """A person's choice and the request it answers."""

    choice: Choice
    request: ApprovalRequest

    @property
    def is_yes(self) -> bool:
        """Whether the request is approved."""
        return self.choice != "no"


class RunContext(Protocol):
    """The durable operations of one run.

    After a crash or a suspension the flow runs again from its start, and finished operations return their recorded
    results. So the flow must be deterministic: time, ids and randomness come from here, and every operation has a key
    that is unique within the run.
    """

    @property
    def run(self) -> str:
        """The run's id."""
        ...

    @property
    def state(self) -> State:
        """The fold of the run's durable records."""
        ...

    @property
    def lineage(self) -> Lineage:
        """The run's place in its tree."""
        ...

    @property
    def history(self) -> Sequence[Record]:
        """The records of earlier rounds."""
        ...

    @property
    def is_replaying(self) -> bool:
        """Whether recorded model or tool calls are still to be replayed; their progress was shown before."""
        ...

    @property
    def is_suspended(self) -> bool:
        """Whether the flow is being stopped in order to suspend the run."""
        ...

    @overload
    async def step(
        self,
        key: str,
        do: Callable[[*Ts], Awaitable[E]],
        *args: *Ts,
        begun: Beginning | None = None,
        repeatable: Literal[True] = True,
        reads: bool = False,
    ) -> E: ...

    @overload
    async def step(
        self,
        key: str,
        do: Callable[[*Ts], Awaitable[E]],
        *args: *Ts,
        begun: Beginning | None = None,
        repeatable: bool,
        reads: bool = False,
    ) -> E | StepLost:
        """Run `do(*args)` once; its result is an event, durable before the next effect.

        The begin record and all earlier records are durable when `do` is called, unless the step only `reads` local
        data. A step that is not `repeatable` and whose process died returns `StepLost`. A `DeputyError` ends the step
        as `StepFailed`, also on replay.
        """
        ...

    async def value(
        self,
        key: str,
        type: object,
        do: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        step: str = "",
        reads: bool = False,
    ) -> T:
        """Compute a JSON value once in a repeatable step; on replay the recorded value is returned.

        `step` is the stored name of the step, if it is not the key.
        """
        ...

    async def record(self, key: str, event: E) -> E:
        """Record an event that needs no work; durable when a step's result would be."""
        ...

    async def durable(self) -> None:
        """Wait until all earlier records are durable; raises if one cannot be written.

        Required before a result leaves the run by a way that is not a step.
        """
        ...

    async def spawn(self, key: str, requested: Requested) -> str:
        """Create and start a child run exactly once; returns its id."""
        ...

    async def restart_child(self, key: str, child: str, message: str | None = None, *, force: bool = False) -> None:
        """Start another round of an ended child, exactly once; a running child is left alone.

        A completed child is left alone too, unless `force` is set.
        """
        ...

    async def join(self, key: str, child: str) -> Outcome:
        """Wait for a child to end and return its outcome."""
        ...

    async def stop(self, child: str, reason: str) -> None:
        """Cancel a child and its descendants; an ended child is left alone. It must still be joined."""
        ...

    async def descendants(self) -> Sequence[State]:
        """The current states of all descendants: only for sums, because they differ on replay."""
        ...

    async def recv(self, key: str, topic: str, question: str = "") -> Raw:
        """Wait for a message. A run that only waits is suspended until one arrives."""
        ...

    @overload
    async def ask(self, key: str, question: str) -> str | None: ...

    @overload
    async def ask(
        self, key: str, question: ApprovalRequest, *, approval_timeout_seconds: float | None = None
    ) -> ApprovalVerdict:
        """Ask a person; the run is suspended and its time limit paused until the answer.

        A question returns the answer as text, or None if it stays unanswered. An approval returns the verdict on the
        recorded request; after `approval_timeout_seconds` it is no.
        """
        ...

    def recorded_question(self, key: str) -> QuestionAsked | None:
        """The question under this key that this round has already asked; its answer still counts."""
        ...

    def has_record(self, key: str) -> bool:
        """Whether this round has a record of this key that is not yet replayed."""
        ...

    async def sleep(self, key: str, seconds: float) -> None:
        """Wait, counted from the first time this point was reached."""
        ...

    def emit(self, progress: Any) -> None:
        """Show progress to watchers: JSON data, never replayed, dropped under load."""
        ...

    def now(self) -> float:
        """The time of the latest result by the journal's clock: the same on replay."""
        ...

    async def new_id(self, key: str) -> str:
        """A new session id."""
        ...

    async def new_ids(self, key: str, count: int) -> Sequence[str]:
        """New session ids, checked together."""
        ...


class Engine(Protocol):
    """Hosts runs."""

    async def submit(self, run: str, start: RunStart) -> bool:
        """Start a run; False if a run with this id exists already."""
        ...

    async def resume(
        self,
        run: str,
        message: Any = None,
        *,
        seconds: float | None = None,
        request: ApprovalRequest | None = None,
        approval_timeout_seconds: float | None = None,
        changes: ResumeChanges = ...,
    ) -> int:
        """Start another round of an ended run; returns the round's number.

        With a `request` the round waits for a person's approval; without one in time the old outcome stays.
        """
        ...

    async def cancel(self, run: str, reason: str = "") -> None:
        """Cancel a run and its descendants in every process; a blocked run ends as cancelled too."""
        ...

    async def send(self, run: str, topic: str, body: Any, *, key: str = "") -> bool:
        """Send a message to a run; False if another message was sent under this key before."""
        ...

    async def get(self, run: str) -> State | None:
        """The state of a run."""
        ...

    async def list(self) -> Sequence[State]:
        """The runs that have not ended."""
        ...

    async def result(self, run: str) -> Outcome:
        """Wait for a run to end."""
        ...

    async def deliver(self, run: str, to: str) -> None:
        """Record that the result reached the caller; until then it is kept."""
        ...

    def events(self, run: str, *, after: int = 0) -> AsyncIterator[Record]:
        """The records of a run after this sequence number, as they are written, until the run ends."""
        ...

    async def purge(self, run: str) -> None:
        """Delete an ended run and its descendants."""
        ...

    async def serve(self) -> None:
        """Resume orphaned runs and runs that received messages, until cancelled."""
        ...


class Lease(Protocol):
    """The right to write the records of one run."""

    @property
    def run(self) -> str:
        """The run."""
        ...

    @property
    def queue(self) -> str:
        """The queue of the workers that carry it out; empty when the run stays with its process."""
        ...

    @property
    def state(self) -> State:
        """The state after the last durable record."""
        ...


L = TypeVar("L", bound=Lease)


class Writing(NamedTuple):
    """A record that is being written: the event as it will be read back, and its time."""

    event: Event
    clock: float


class Journal(Protocol[L]):
    """The append-only store of records. An awaited append is durable."""

    async def begin(self, run: str, event: RunStart) -> L | None:
        """Create a run with its first record and take its lease; None if the run exists."""
        ...

    async def acquire(self, run: str) -> L:
        """Take the lease of a run that no process holds."""
        ...

    async def release(self, lease: L) -> None:
        """Release a lease."""
        ...

    async def append(self, lease: L, key: str, event: Event) -> Record:
        """Append a record; if the key exists, return the existing record."""
        ...

    def append_soon(self, lease: L, key: str, event: Event) -> Writing:
        """Append a record under a new key without waiting; later records are never durable before it."""
        ...

    def append_begun(self, lease: L, key: str, event: Event) -> None:
        """Like `append_soon`, for begin records whose stored form the caller does not need."""
        ...

    async def wait_durable(self, lease: L) -> None:
        """Wait until all appended records of a run are durable; raises if one cannot be written."""
        ...

    async def spawn(self, lease: L, key: str, child: str, event: Requested) -> L | None:
        """Record a spawn and create the child in one transaction; None if that was done before."""
        ...

    async def finish(self, lease: L, key: str, event: Event) -> Record:
        """Record the end of a run and release its lease in one transaction."""
        ...

    async def expire(self, seen: State) -> bool:
        """End an overdue run with what its records show, in one transaction; whether this call ended it.

        A run that has ended or got a later deadline since it was `seen` is left alone.
        """
        ...

    async def join(self, lease: L, key: str, child: State) -> Record:
        """Record in parent and child that the outcome was taken, in one transaction."""
        ...

    async def receive_message(self, lease: L, key: str, topic: str) -> Record | None:
        """Turn the oldest message of a topic into a record, in one transaction; None if there is none.

        Answers to other questions (`may_answer`) and messages from before the round are skipped.
        """
        ...

    async def send(self, run: str, topic: str, key: str, body: bytes) -> bool:
        """Store a message for a run; False if another message was stored under this key before."""
        ...

    async def deliver(self, run: str, to: str) -> None:
        """Record that the result was delivered."""
        ...

    async def state(self, run: str) -> State | None:
        """The state of a run; None if there is no such run."""
        ...

    async def known(self, runs: Sequence[str]) -> set[str]:
        """The ids among these that exist."""
        ...

    async def unfinished(self, active: Collection[str] = ()) -> Sequence[RunStatus]:
        """The runs that have not ended or were not delivered, and whether they are orphaned.

        Runs among `active` are left out while this process holds their lease.
        """
        ...

    async def due(self, active: Collection[str], parked: Collection[str], now: float) -> Sequence[RunStatus]:
        """The unfinished runs on which a process may have to act now, and the ones among `parked` that have ended.

        A store may leave out runs that wait for a person until later. Runs among `active` are left out as above.
        """
        ...

    async def descendants(self, run: str) -> Sequence[State]:
        """The states of all descendants of a run."""
        ...

    async def records(self, run: str, after: int = 0) -> Sequence[Record]:
        """The records of a run; raises StorageCorrupt if one is damaged."""
        ...

    async def get(self, run: str, key: str) -> Record | None:
        """One record of a run; raises StorageCorrupt if it is damaged."""
        ...

    async def addressed(self) -> Sequence[tuple[str, str]]:
        """The runs and topics that have unread messages."""
        ...

    async def changes(self) -> int:
        """A number that changes when another process writes."""
        ...

    def show_progress(self, run: str, body: bytes) -> None:
        """Show progress to watchers in all processes; not awaited, kept only for a short time."""
        ...

    async def purge(self, run: str) -> None:
        """Delete a run and its descendants."""
        ...
