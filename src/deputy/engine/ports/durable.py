"""What hosts runs and what a run is carried out through: the one seam for durability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from msgspec import Raw

    from deputy.core.approval import ApprovalRequest
    from deputy.core.errors import Error
    from deputy.core.events import (
        Event,
        Known,
        ModelCallBegun,
        QuestionAsked,
        Record,
        Requested,
        RunOpened,
        StepBegun,
        StepLost,
        ToolCallBegun,
    )
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.recover import RunStatus

    RunStart: TypeAlias = RunOpened | Requested
    Beginning: TypeAlias = ModelCallBegun | ToolCallBegun | StepBegun
    Workflow: TypeAlias = Callable[["RunContext", RunStart], Awaitable[Outcome]]
    A = TypeVar("A")
    V = TypeVar("V")
    E = TypeVar("E", bound=Known)

# --- durability -------------------------------------------------------------------------------------------------------


class World(Protocol):
    """Clock and chance, which belong to step bodies and to engines, never to the flow of a delegation."""

    def now(self) -> float:
        """Seconds by the journal's clock, which limits are measured by: the wall clock does not move it."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 by the wall clock, for people."""
        ...

    def random_string(self, letters: str, count: int) -> str:
        """So many letters, drawn at random."""
        ...


class RunContext(Protocol):
    """What one run is carried out through.

    The flow is run again from the start after a crash or a wait; what it did before comes back from here without being
    done again. So it must do the same given the same results: clock, ids and chance come from here too, and every
    operation has a key that is its own within the run.
    """

    @property
    def run(self) -> str:
        """The run's id."""
        ...

    @property
    def state(self) -> State:
        """Where the run stands, with all that is durable."""
        ...

    @property
    def history(self) -> Sequence[Record]:
        """What earlier rounds of the run recorded: a resumed run goes on from there."""
        ...

    @property
    def is_replaying(self) -> bool:
        """Whether model and tool calls still lie ahead that were made before: watchers were told of those."""
        ...

    @property
    def is_suspended(self) -> bool:
        """Whether its flow is stopped only to be taken up again when what it waits for has come."""
        ...

    async def step(
        self,
        key: str,
        do: Callable[[A, V], Awaitable[E]],
        args: A,
        *,
        view: V,
        begun: Beginning | None = None,
        repeatable: bool = True,
        reads: bool = False,
    ) -> E | StepLost:
        """Do something once: its result is an event, durable before anything else is done but to read.

        `args` are small JSON data, `view` is what is only in memory. Before `do` is called, that it begins is durable,
        with all that was done before. Only a step that `reads`, on this machine and at no cost, waits for neither. A
        step that must not be repeated, and was under way when its process died, comes back as `StepLost`. A body that
        raises an error of ours ends the step as `StepFailed`, now and whenever the run is replayed.
        """
        ...

    async def record(self, key: str, event: E) -> E:
        """Write down what needs no doing; durable when a step's result would be."""
        ...

    async def durable(self) -> None:
        """Wait until all that was done before is durable; an error when some of it never will be.

        Whoever passes something on that is not a step of its own, as a result to the world outside, waits for this.
        """
        ...

    async def spawn(self, key: str, requested: Requested) -> str:
        """Make a child run, exactly once, and start it; gives its id."""
        ...

    async def restart_child(self, key: str, child: str, message: str | None = None, *, force: bool = False) -> None:
        """Set a child that has ended to work again, exactly once; one that is at work is left so.

        So is one that completed, unless it is to work `anew`.
        """
        ...

    async def join(self, key: str, child: str) -> Outcome:
        """Wait for a child's end and take its outcome."""
        ...

    async def stop(self, child: str, reason: str) -> None:
        """Stop a child and all runs below it; one that has ended is left so. It is joined all the same."""
        ...

    async def descendants(self) -> Sequence[State]:
        """All runs below this one as they stand now: for sums, never to decide by, as it differs when replayed."""
        ...

    async def recv(
        self,
        key: str,
        topic: str,
        question: str = "",
        *,
        approval_timeout_seconds: float | None = None,
        request: ApprovalRequest | None = None,
    ) -> Raw:
        """Wait for a message. A run that only waits for messages is put aside: it costs nothing until one comes.

        After so many seconds of `patience` the message is a no, whoever looks then. An approval records its `request`.
        """
        ...

    def recorded_question(self, key: str) -> QuestionAsked | None:
        """The question of a `recv` that this round has put before: then its answer counts, whoever goes on."""
        ...

    def has_record(self, key: str) -> bool:
        """Whether this round has a record under this key that is still ahead: what led there was decided then."""
        ...

    async def sleep(self, key: str, seconds: float) -> None:
        """Wait, counted from the first time this was reached."""
        ...

    def emit(self, progress: Any) -> None:
        """Show progress to whoever watches: JSON data, never replayed, never waited for, forgotten when too much."""
        ...

    def now(self) -> float:
        """The time of the latest result, in seconds since 1970: the same when replayed."""
        ...

    async def new_id(self, key: str) -> str:
        """A session id that nobody has."""
        ...

    async def new_ids(self, key: str, count: int) -> Sequence[str]:
        """So many of them, looked up together."""
        ...


class Engine(Protocol):
    """What hosts runs and outlives each of them."""

    async def submit(self, run: str, start: RunStart) -> bool:
        """Start a run; False when there is one of this id already, which is then left as it is."""
        ...

    async def resume(
        self,
        run: str,
        message: Any = None,
        *,
        seconds: float | None = None,
        request: ApprovalRequest | None = None,
        approval_timeout_seconds: float | None = None,
    ) -> int:
        """Start another round of a run that has ended; gives the round's number.

        With a request it begins once a person has approved it, in time, and else leaves the run as it was.
        """
        ...

    async def cancel(self, run: str, reason: str = "") -> None:
        """Stop a run and all runs below it, whoever is at work on them; one that is blocked ends as cancelled too."""
        ...

    async def send(self, run: str, topic: str, body: Any, *, key: str = "") -> bool:
        """Send a run a message, once per key; False when another one was sent under that key before."""
        ...

    async def get(self, run: str) -> State | None:
        """Where a run stands."""
        ...

    async def list(self) -> Sequence[State]:
        """The runs that have not ended."""
        ...

    async def result(self, run: str) -> Outcome:
        """Wait for a run's end."""
        ...

    async def deliver(self, run: str, to: str) -> None:
        """Say that a result has reached whoever asked; until then it is kept."""
        ...

    def events(self, run: str, *, after: int = 0) -> AsyncIterator[Record]:
        """The records of a run after the how-manieth, and those to come, until it ends."""
        ...

    async def purge(self, run: str) -> None:
        """Forget a run that has ended, and all runs below it."""
        ...

    async def serve(self) -> None:
        """Carry out what is left behind or waits for somebody, until cancelled."""
        ...


class Lease(Protocol):
    """The right to write the records of one run."""

    @property
    def run(self) -> str:
        """The run."""
        ...

    @property
    def state(self) -> State:
        """Where its records leave it, as of the last one that is durable."""
        ...


L = TypeVar("L", bound=Lease)


class Writing(NamedTuple):
    """A record on its way to the disk: the event as it will be read back, and when it happened."""

    event: Event
    clock: float


class Journal(Protocol[L]):
    """Records that are never lost and never changed. What is awaited here is durable."""

    async def begin(self, run: str, event: RunStart) -> L | None:
        """Make a run with its first record and take its lease; None when there is such a run already."""
        ...

    async def acquire(self, run: str) -> L:
        """Take the lease of a run that nobody is at work on."""
        ...

    async def release(self, lease: L) -> None:
        """Give a lease up."""
        ...

    async def append(self, lease: L, key: str, event: Event) -> Record:
        """Add a record; when the run has one under this key already, that one stands and is returned."""
        ...

    def append_soon(self, lease: L, key: str, event: Event) -> Writing:
        """Add a record under a new key without waiting; what is appended later is never durable before it."""
        ...

    def append_begun(self, lease: L, key: str, event: Event) -> None:
        """The same for a record that nothing follows from here, so that nobody minds how it will be read back."""
        ...

    async def wait_durable(self, lease: L) -> None:
        """Until all that was appended to a run is durable; an error when some of it never will be."""
        ...

    async def spawn(self, lease: L, key: str, child: str, event: Requested) -> L | None:
        """Record that a child is spawned and make it, in one; None when that was done before."""
        ...

    async def finish(self, lease: L, key: str, event: Event) -> Record:
        """Record how a run ended, and give its lease up, in one."""
        ...

    async def expire(self, seen: State) -> bool:
        """End a run whose time is up with what its records show, whoever has its lease, in one; whether this did.

        Nothing is done when it has ended since it was seen, or has been given more time.
        """
        ...

    async def join(self, lease: L, key: str, child: State) -> Record:
        """Record that a child's outcome is taken, here and with the child, in one."""
        ...

    async def receive_message(self, lease: L, key: str, topic: str) -> Record | None:
        """Turn the oldest message of a topic into a record, in one; None when there is none.

        An answer to another question is none (`may_answer`), nor is what was sent before the round began.
        """
        ...

    async def send(self, run: str, topic: str, key: str, body: bytes) -> bool:
        """Leave a message for a run, once per key; False when another one was left under that key before."""
        ...

    async def deliver(self, run: str, to: str) -> None:
        """Record that a result was handed over."""
        ...

    async def state(self, run: str) -> State | None:
        """Where a run stands."""
        ...

    async def known(self, runs: Sequence[str]) -> set[str]:
        """Which of these are runs."""
        ...

    async def unfinished(self) -> Sequence[RunStatus]:
        """The runs that have not ended or were not delivered, and whether somebody is at work on them."""
        ...

    async def descendants(self, run: str) -> Sequence[State]:
        """All runs below a run."""
        ...

    async def records(self, run: str, after: int = 0) -> Sequence[Record]:
        """The records of a run; a damaged one is a StorageCorrupt."""
        ...

    async def get(self, run: str, key: str) -> Record | None:
        """One record of a run; a damaged one is a StorageCorrupt."""
        ...

    async def addressed(self) -> Sequence[tuple[str, str]]:
        """The runs and topics of messages that nobody has taken yet."""
        ...

    async def changes(self) -> int:
        """A number that differs after any other process has written."""
        ...

    def show_progress(self, run: str, body: bytes) -> None:
        """Show progress to watchers, of other processes too; not waited for, not kept for long."""
        ...

    async def log(self, run: str, error: Error, trace: str = "") -> None:
        """Put an error into the log that no record tells of."""
        ...

    async def purge(self, run: str) -> None:
        """Remove a run and all runs below it."""
        ...
