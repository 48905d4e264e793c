"""What one run is carried out through, on a journal: what was done before comes back, what was not is done once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import json, structs

from deputy.core.errors import DeputyError, Error, LeaseLost, StepFailed, StorageError, UsageError
from deputy.core.events import (
    FellBack,
    Joined,
    ModelCallEnded,
    QuestionAnswered,
    QuestionAsked,
    Slept,
    Spawned,
    StepBegun,
    StepEnded,
    StepLost,
    ToolCallEnded,
    ValueDrawn,
)
from deputy.core.state import ASKED, BEGUN, prefix
from deputy.engine.partial_result import PartialResult
from deputy.engine.ports import L
from deputy.engine.step_cancelled import StepCancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from msgspec import Raw

    from deputy.core.approval import ApprovalRequest
    from deputy.core.events import Event, Known, Record, Requested
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Beginning, Journal
    from deputy.runtime.active_run import CompletedRun
    from deputy.runtime.supervisor import RunSupervisor

    A = TypeVar("A")
    V = TypeVar("V")
    E = TypeVar("E", bound=Known)


_TOLD = ModelCallEnded | ToolCallEnded | QuestionAnswered | FellBack


class DurableRunContext(Generic[L]):
    """One run at work in this process."""

    def __init__(self, supervisor: RunSupervisor[L], journal: Journal[L], lease: L, history: Sequence[Record]) -> None:
        self._supervisor = supervisor
        self._journal = journal
        self._lease = lease
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
        self._ahead = {name for name, record in self._done.items() if isinstance(record.event, _TOLD)}
        self._written = self._durable_writes = 0
        """How many results were written, and how many of them are known to be durable."""
        self.is_stopped = False
        """Whether the run is to end here and now."""
        self.is_leaving = False
        """Whether this process has no more time for the run."""
        self.busy = 0
        self.is_suspended = False
        """Whether its flow is stopped only to be taken up again."""
        self.waiting: list[asyncio.Future[None]] = []
        self.joining: list[str] = []
        """The children whose end is waited for."""

    @property
    def state(self) -> State:
        """Where the run stands, with all that is durable."""
        return self._lease.state

    @property
    def is_replaying(self) -> bool:
        """Whether model and tool calls still lie ahead that were made before."""
        return bool(self._ahead)

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
        """Do something once: its result is an event, durable before anything else is done but to read."""
        name = self._claim(key)
        if (record := self._done.pop(name, None)) is not None:
            return self._result(key, self._take_record(record).event)
        beginning = begun or StepBegun(step=key)
        if beginning.is_repeatable is not repeatable:
            beginning = structs.replace(beginning, is_repeatable=repeatable)
        with self._at_work():
            if not repeatable and f"{name}{BEGUN}" in self._done:
                lost = StepLost(step=key)
                return cast("StepLost", self._take_record(await self._journal.append(self._lease, name, lost)).event)
            self._journal.append_begun(self._lease, f"{name}{BEGUN}", beginning)
            if not (reads and repeatable):
                # What costs or changes something is known to have begun, and by what it was asked for.
                self._written += 1
                await self.durable()
            try:
                event: Known = await do(args, view)
            except (StorageError, LeaseLost):
                raise
            except StepCancelled as stopped:
                # A run that only leaves this process, and not the world, makes the call again.
                if self.is_stopped:
                    self.partial.see(stopped.event)
                    self._journal.append_soon(self._lease, name, stopped.event)
                raise asyncio.CancelledError from stopped
            except DeputyError as error:
                event = StepEnded(step=key, error=_as_value(error))
            return self._result(key, self._write_soon(name, event))

    async def record(self, key: str, event: E) -> E:
        """Write down what needs no doing; durable when a step's result would be."""
        name = self._claim(key)
        record = self._done.pop(name, None)
        return cast("E", self._write_soon(name, event) if record is None else self._take_record(record).event)

    async def spawn(self, key: str, requested: Requested) -> str:
        """Make a child run, exactly once, and start it; gives its id."""
        name = self._claim(key)
        if (record := self._done.pop(name, None)) is not None:
            child = cast("Spawned", self._take_record(record).event).child
            # Put aside meanwhile, it would wait for a child that nobody has brought back.
            with self._at_work():
                await self._supervisor.ensure_running(child)
            return child
        with self._at_work():
            child = requested.request.session_id
            requested = structs.replace(requested, parent=self.run, call=requested.call or key)
            with self._supervisor.starting(child):
                lease = await self._journal.spawn(self._lease, name, child, requested)
                if lease is None:
                    raise UsageError("session_id", child, "a run of this id exists already; draw another")
                self._supervisor.start(lease, requested)
        return child

    async def restart_child(self, key: str, child: str, message: str | None = None, *, force: bool = False) -> None:
        """Set a child that has ended to work again, exactly once."""
        name = self._claim(key)
        record = self._done.pop(name, None)
        with self._at_work():
            if record is None:
                # Which round it is to reach is written first: a crash in between must not give it another one.
                drawn = ValueDrawn(value=str(await self._supervisor.rounds.next(child, force=force)))
                record = await self._journal.append(self._lease, name, drawn)
            number = int(cast("ValueDrawn", self._take_record(record).event).value)
            lineage = self.state.lineage
            await self._supervisor.rounds.reach(
                child, number, message, within=None if lineage is None else lineage.deadline
            )

    async def join(self, key: str, child: str) -> Outcome:
        """Wait for a child's end and take its outcome."""
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
        """Stop a child and all runs below it; asked again, it is asked once."""
        with self._at_work():
            await self._supervisor.stopping.stop_tree(child, reason)

    async def descendants(self) -> Sequence[State]:
        """All runs below this one as they stand now."""
        return await self._journal.descendants(self.run)

    async def recv(
        self,
        key: str,
        topic: str,
        question: str = "",
        *,
        approval_timeout_seconds: float | None = None,
        request: ApprovalRequest | None = None,
    ) -> Raw:
        """Wait for a message; a run that only waits is put aside until one comes."""
        name = self._claim(key)
        record = self._done.pop(name, None)
        while record is None:
            with self._at_work():
                record = await self._journal.receive_message(self._lease, name, topic)
                if record is None:
                    until = (
                        None
                        if approval_timeout_seconds is None
                        else self._supervisor.world.now() + approval_timeout_seconds
                    )
                    digest = "" if request is None else request.digest
                    asked = QuestionAsked(topic=topic, question=question, until=until, request=request, digest=digest)
                    await self._journal.append(self._lease, f"{name}{ASKED}", asked)
                    # It may have come in between, when nobody knew that it was waited for.
                    record = await self._journal.receive_message(self._lease, name, topic)
            if record is None:
                await self._message()
        return cast("QuestionAnswered", self._take_record(record).event).body

    def recorded_question(self, key: str) -> QuestionAsked | None:
        """The question of a `recv` that this round has put before."""
        record = self._done.get(f"{self._prefix}{key}{ASKED}")
        return None if record is None else cast("QuestionAsked", record.event)

    def has_record(self, key: str) -> bool:
        """Whether this round has a record under this key that is still ahead."""
        return f"{self._prefix}{key}" in self._done

    async def sleep(self, key: str, seconds: float) -> None:
        """Wait, counted from the first time this was reached."""
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
        """Show progress to whoever watches."""
        self._journal.show_progress(self.run, json.encode(progress))

    def now(self) -> float:
        """The time of the latest result."""
        return self._now

    async def new_id(self, key: str) -> str:
        """A session id that nobody has."""
        return (await self.new_ids(key, 1))[0]

    async def new_ids(self, key: str, count: int) -> Sequence[str]:
        """So many of them, looked up together."""
        name = self._claim(key)
        if (record := self._done.pop(name, None)) is not None:
            return cast("ValueDrawn", self._take_record(record).event).value.split()
        with self._at_work():
            drawn = await self._supervisor.new_ids(count)
            self._write_soon(name, ValueDrawn(value=" ".join(drawn)))
            return drawn

    # --- how ----------------------------------------------------------------------------------------------------------

    def _claim(self, key: str) -> str:
        """The key within the run; each is used once, or two operations would take each other's result."""
        if self.is_stopped or self.is_leaving:
            # A tool may have swallowed the cancel; nothing begins after it all the same.
            raise asyncio.CancelledError
        if not key or key != key.strip() or not key.isprintable() or len(key) > 200:
            raise UsageError("key", key, "a key is 1 to 200 printable characters without spaces around them")
        if key in self._used:
            raise UsageError("key", key, "this run has used the key already; every operation needs its own")
        self._used.add(key)
        name = f"{self._prefix}{key}"
        self._ahead.discard(name)
        return name

    async def durable(self) -> None:
        """Until all that was done before is durable; an error when some of it never will be."""
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
        """One thing less is done for this run; one that only waits now may be put aside."""
        self.busy -= 1
        if not self.busy and (self.waiting or self.joining):
            self._supervisor.suspend_soon(self.run)

    async def _end_of(self, child: str) -> CompletedRun:
        """The end of a child; a run that waits for nothing else may be put aside meanwhile."""
        # Looked at before anything else, so that a run which is taken up for it gets to see it.
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
        """Until something has come for this run."""
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(come)
        self._supervisor.suspend_soon(self.run)
        try:
            await come
        finally:
            self.waiting.remove(come)

    def notice(self) -> None:
        """Something has come."""
        for come in self.waiting:
            if not come.done():
                come.set_result(None)


class _BusyMark:
    """While something is done for a run. Every step is, so that it is no generator."""

    __slots__ = ("_context",)

    def __init__(self, context: DurableRunContext[Any]) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._context.busy += 1

    def __exit__(self, *_: object) -> None:
        self._context.finish_operation()


def _as_value(error: DeputyError) -> Error:
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
