"""DurableRunContext: run operations over a journal; recorded results are replayed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, cast

from msgspec import Raw, json, structs

from deputy.core.approval import ApprovalRequest, read_decision
from deputy.core.approval_text import headline
from deputy.core.errors import DeputyError, Error, LeaseLost, StepFailed, StorageError, UsageError
from deputy.core.events import (
    ANSWER,
    APPROVAL,
    NO_CHANGES,
    FellBack,
    Joined,
    ModelCallEnded,
    QuestionAnswered,
    QuestionAsked,
    Resumed,
    Slept,
    Spawned,
    StepBegun,
    StepEnded,
    StepLost,
    ToolCallEnded,
    ValueDrawn,
)
from deputy.core.messages import is_unanswered
from deputy.core.state import ASKED, BEGUN, prefix
from deputy.engine.partial_result import PartialResult
from deputy.engine.ports.durable import ApprovalVerdict, L
from deputy.engine.timeouts import StepCancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.core.events import Event, Known, Record, Requested
    from deputy.core.outcome import Outcome
    from deputy.core.request import Lineage
    from deputy.core.state import State
    from deputy.engine.ports import Beginning, Journal
    from deputy.runtime.active_run import CompletedRun
    from deputy.runtime.supervisor import RunSupervisor

    E = TypeVar("E", bound=Known)
    T = TypeVar("T")
    Ts = TypeVarTuple("Ts")


_SHOWN = ModelCallEnded | ToolCallEnded | QuestionAnswered | FellBack


class DurableRunContext(Generic[L]):
    """The RunContext of one active run."""

    def __init__(self, supervisor: RunSupervisor[L], journal: Journal[L], lease: L, history: Sequence[Record]) -> None:
        self._supervisor = supervisor
        self._journal = journal
        self._lease = lease
        self._observation = supervisor.observation
        self.run = lease.run
        """The run's id."""
        own = self._prefix = prefix(lease.state.round)
        self.history = [record for record in history if not record.key.startswith(own)]
        self._done = {record.key: record for record in history if record.key.startswith(own)}
        self.partial = PartialResult()
        for record in history:
            self.partial.see(record.event)
        self._now = lease.state.asked_clock
        self._used: set[str] = set()
        self._ahead = {name for name, record in self._done.items() if isinstance(record.event, _SHOWN)}
        self._written = self._durable_writes = 0
        """How many results were written, and how many are durable."""
        self.is_stopped = False
        """Whether the run must end now."""
        self.is_leaving = False
        """Whether this process is closing."""
        self.is_draining = False
        """Whether no further step may begin, because another worker will continue the run."""
        self.busy = 0
        self.is_suspended = False
        """Whether the flow is being stopped to suspend the run."""
        self.waiting: list[asyncio.Future[None]] = []
        self.joining: list[str] = []
        """The children that are being joined."""

    @property
    def state(self) -> State:
        """The fold of the durable records."""
        return self._lease.state

    @property
    def lineage(self) -> Lineage:
        """The run's place in its tree."""
        lineage = self._lease.state.lineage
        if lineage is None:
            raise TypeError(f"run {self.run} has no start event")
        return lineage

    @property
    def is_replaying(self) -> bool:
        """Whether recorded model or tool calls are still to be replayed."""
        return bool(self._ahead)

    async def step(
        self,
        key: str,
        do: Callable[..., Awaitable[Any]],
        *args: Any,
        begun: Beginning | None = None,
        repeatable: bool = True,
        reads: bool = False,
    ) -> Any:
        """Run `do(*args)` once; its result is an event, durable before the next effect."""
        name = self._claim(key)
        if (record := self._done.pop(name, None)) is not None:
            return self._result(key, self._take_record(record).event)
        if self.is_draining:
            # The steps under way end first; then the run is handed over.
            await asyncio.get_running_loop().create_future()
        beginning = begun or StepBegun(step=key)
        if beginning.is_repeatable is not repeatable:
            beginning = structs.replace(beginning, is_repeatable=repeatable)
        with self._at_work():
            if not repeatable and f"{name}{BEGUN}" in self._done:
                lost = StepLost(step=key)
                return cast("StepLost", self._take_record(await self._journal.append(self._lease, name, lost)).event)
            self._supervisor.repeated += f"{name}{BEGUN}" in self._done
            self._journal.append_begun(self._lease, f"{name}{BEGUN}", beginning)
            if not (reads and repeatable):
                # Before an effect, its begin record and all earlier records must be durable.
                self._written += 1
                await self.durable()
            try:
                event: Known = await (
                    do(*args)
                    if self._observation is None
                    else self._observation.step(self.run, name, beginning, do, args)
                )
            except (StorageError, LeaseLost):
                raise
            except StepCancelled as stopped:
                # A run that only leaves this process repeats the call elsewhere.
                if self.is_stopped:
                    self.partial.see(stopped.event)
                    self._journal.append_soon(self._lease, name, stopped.event)
                raise asyncio.CancelledError from stopped
            except DeputyError as error:
                event = StepEnded(step=key, error=as_value(error))
            return self._result(key, self._write_soon(name, event))

    async def value(
        self,
        key: str,
        type: object,
        do: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        step: str = "",
        reads: bool = False,
    ) -> T:
        """Compute a JSON value once in a repeatable step; on replay the recorded value is returned."""

        async def compute() -> StepEnded:
            return StepEnded(step=step or key, result=Raw(json.encode(await do(*args))))

        # Decoded from the event, so that the first execution sees the redacted value that a replay sees.
        ended = await self.step(key, compute, reads=reads)
        return json.decode(cast("Raw", ended.result), type=cast("type[T]", type))

    async def record(self, key: str, event: E) -> E:
        """Record an event that needs no work."""
        name = self._claim(key)
        record = self._done.pop(name, None)
        return cast("E", self._write_soon(name, event) if record is None else self._take_record(record).event)

    async def spawn(self, key: str, requested: Requested) -> str:
        """Create and start a child run exactly once; returns its id."""
        name = self._claim(key)
        if (record := self._done.pop(name, None)) is not None:
            child = cast("Spawned", self._take_record(record).event).child
            # If suspended meanwhile, it would wait for a child that no process runs.
            with self._at_work():
                await self._supervisor.ensure_running(child)
            return child
        with self._at_work():
            child = requested.request.session_id
            requested = structs.replace(requested, parent=self.run, call=requested.call or key)
            with self._supervisor.starting(child):
                lease = await self._journal.spawn(self._lease, name, child, requested)
                if lease is None:
                    raise UsageError("session_id", child, "a run with this id exists already; use another id")
                self._supervisor.starts.start_child(lease, requested)
        return child

    async def restart_child(self, key: str, child: str, message: str | None = None, *, force: bool = False) -> None:
        """Start another round of an ended child, exactly once."""
        name = self._claim(key)
        record = self._done.pop(name, None)
        with self._at_work():
            if record is None:
                # Record the target round first: a crash in between must not start yet another one.
                drawn = ValueDrawn(value=str(await self._supervisor.rounds.next(child, force=force)))
                record = await self._journal.append(self._lease, name, drawn)
            number = int(cast("ValueDrawn", self._take_record(record).event).value)
            changes = next(
                (one.event.changes for one in reversed(self.history) if isinstance(one.event, Resumed)), NO_CHANGES
            )
            await self._supervisor.rounds.reach(child, number, message, within=self.lineage.deadline, changes=changes)

    async def join(self, key: str, child: str) -> Outcome:
        """Wait for a child to end and return its outcome."""
        name = self._claim(key)
        if (record := self._done.pop(name, None)) is None:
            ended = await self._end_of(child)
            with self._at_work():
                record = await self._journal.join(self._lease, name, ended.state)
            if cast("Joined", self._take_record(record).event).round == ended.state.round:
                return ended.outcome
        with self._at_work():
            joined = cast("Joined", self._take_record(record).event)
            return await self._supervisor.endings.outcome(child, joined.round)

    async def stop(self, child: str, reason: str) -> None:
        """Cancel a child and its descendants."""
        with self._at_work():
            await self._supervisor.stopping.stop_tree(child, reason)

    async def descendants(self) -> Sequence[State]:
        """The current states of all descendants."""
        return await self._journal.descendants(self.run)

    async def recv(self, key: str, topic: str, question: str = "") -> Raw:
        """Wait for a message; a run that only waits is suspended."""
        return await self._receive(key, QuestionAsked(topic=topic, question=question))

    async def ask(
        self, key: str, question: str | ApprovalRequest, *, approval_timeout_seconds: float | None = None
    ) -> Any:
        """Ask a person a question, or for an approval."""
        if isinstance(question, str):
            body = await self._receive(key, QuestionAsked(topic=ANSWER, question=question))
            answer = None if is_unanswered(body) else json.decode(body)
            return answer if answer is None or isinstance(answer, str) else json.encode(answer).decode()
        asked, is_answered = self.recorded_question(key), self.has_record(key)
        if asked is None or asked.request is None:
            now, wait = self._supervisor.world.now(), approval_timeout_seconds
            asked = QuestionAsked(
                topic=APPROVAL,
                question=headline(question),
                until=None if wait is None else now + wait,
                request=question,
                digest=question.digest,
            )
            if self._observation is not None and not is_answered:
                self._observation.approval_asked(self.run, asked.question)
        choice = read_decision(await self._receive(key, asked), asked.digest)
        if self._observation is not None and not is_answered:
            self._observation.approval_answered(self.run, asked.question, choice)
        return ApprovalVerdict(choice, asked.request or question)

    async def _receive(self, key: str, asked: QuestionAsked) -> Raw:
        name, topic = self._claim(key), asked.topic
        record = self._done.pop(name, None)
        while record is None:
            with self._at_work():
                record = await self._journal.receive_message(self._lease, name, topic)
                if record is None:
                    await self._journal.append(self._lease, f"{name}{ASKED}", asked)
                    # The message may have arrived before the question was recorded.
                    record = await self._journal.receive_message(self._lease, name, topic)
            if record is None:
                await self._message()
        return cast("QuestionAnswered", self._take_record(record).event).body

    def recorded_question(self, key: str) -> QuestionAsked | None:
        """The recorded question of a `recv` in this round."""
        record = self._done.get(f"{self._prefix}{key}{ASKED}")
        return None if record is None else cast("QuestionAsked", record.event)

    def has_record(self, key: str) -> bool:
        """Whether this round has a record of this key that is not yet replayed."""
        return f"{self._prefix}{key}" in self._done

    async def sleep(self, key: str, seconds: float) -> None:
        """Wait, counted from the first time this point was reached."""
        name = self._claim(key)
        record = self._done.pop(name, None)
        with self._at_work():
            if record is None:
                slept = Slept(until=self._supervisor.world.now() + seconds)
                record = await self._journal.append(self._lease, name, slept)
            until = cast("Slept", record.event).until
            await asyncio.sleep(max(0.0, until - self._supervisor.world.now()))
        self._now = max(self._now, until)

    def emit(self, progress: Any) -> None:
        """Show progress to watchers."""
        if self._observation is not None:
            self._observation.progress(self.run, progress)
        self._journal.show_progress(self.run, json.encode(progress))

    def now(self) -> float:
        """The time of the latest result."""
        return self._now

    async def new_id(self, key: str) -> str:
        """A new session id."""
        return (await self.new_ids(key, 1))[0]

    async def new_ids(self, key: str, count: int) -> Sequence[str]:
        """New session ids, checked together."""
        name = self._claim(key)
        if (record := self._done.pop(name, None)) is not None:
            return cast("ValueDrawn", self._take_record(record).event).value.split()
        with self._at_work():
            drawn = await self._supervisor.new_ids(count)
            self._write_soon(name, ValueDrawn(value=" ".join(drawn)))
            return drawn

    # --- replay and durability ----------------------------------------------------------------------------------------

    def _claim(self, key: str) -> str:
        """The full key; each key may be used once, or two operations would share a result."""
        if self.is_stopped or self.is_leaving:
            # A tool may have swallowed the cancellation; still nothing new begins.
            raise asyncio.CancelledError
        if not key or key != key.strip() or not key.isprintable() or len(key) > 200:
            raise UsageError("key", key, "a key has 1 to 200 printable characters without spaces around them")
        if key in self._used:
            raise UsageError("key", key, "this run has used the key already; every operation needs its own")
        self._used.add(key)
        name = f"{self._prefix}{key}"
        self._ahead.discard(name)
        return name

    async def durable(self) -> None:
        """Wait until all earlier records are durable; raises if one cannot be written."""
        written = self._written
        if self._durable_writes < written:
            await self._journal.wait_durable(self._lease)
            self._durable_writes = max(self._durable_writes, written)

    def _write_soon(self, name: str, event: Event) -> Event:
        writing = self._journal.append_soon(self._lease, name, event)
        self._written += 1
        self.partial.see(writing.event)
        self._now = max(self._now, writing.clock)
        return writing.event

    def _take_record(self, record: Record) -> Record:
        self._now = max(self._now, record.clock)
        return record

    def _result(self, key: str, event: Event) -> Any:
        if isinstance(event, StepEnded) and event.error is not None:
            raise StepFailed(key, event.error)
        return event

    def _at_work(self) -> _BusyMark:
        return _BusyMark(self)

    def finish_operation(self) -> None:
        """An operation ended; a run that only waits now may be suspended."""
        self.busy -= 1
        if self.busy:
            return
        if self.is_draining:
            # Not from within the run's own task: a task that cancels itself is cancelled at its next wait.
            asyncio.get_running_loop().call_soon(self._supervisor.hand_over, self.run)
        elif self.waiting or self.joining:
            self._supervisor.suspend_soon(self.run)

    async def _end_of(self, child: str) -> CompletedRun:
        """Wait for a child to end; the run may be suspended meanwhile."""
        # Check first, so that a run resumed for this end sees it.
        with self._at_work():
            ended = await self._supervisor.endings.ended_by_now(child)
        if ended is not None:
            return ended
        self.joining.append(child)
        self._supervisor.suspend_soon(self.run)
        try:
            return await self._supervisor.endings.ended(child)
        finally:
            self.joining.remove(child)

    async def _message(self) -> None:
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(come)
        self._supervisor.suspend_soon(self.run)
        try:
            await come
        finally:
            self.waiting.remove(come)

    def notice(self) -> None:
        """A message has arrived."""
        for come in self.waiting:
            if not come.done():
                come.set_result(None)


class _BusyMark:
    """Marks a run as busy. A class, because a generator costs more on every step."""

    __slots__ = ("_context",)

    def __init__(self, context: DurableRunContext[Any]) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._context.busy += 1

    def __exit__(self, *_: object) -> None:
        self._context.finish_operation()


def as_value(error: DeputyError) -> Error:
    """An exception as the error of its step."""
    value: Error | None = getattr(error, "error", None)
    as_value: Callable[[], Error] | None = getattr(error, "as_value", None)
    if as_value is not None:
        return as_value()
    if value is not None:
        return value
    return Error(
        type="execution",
        message=str(error),
        recoverable=bool(getattr(error, "retryable", False)),
        recommendation="Read the message; try again if it says so.",
    )
