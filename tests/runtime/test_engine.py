"""The local engine does what every durable engine must, also when its process is killed."""

import asyncio
import gc
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from deputy.core.errors import (
    MANUAL,
    Error,
    LeaseHeld,
    StorageAway,
    StorageDenied,
    StorageError,
    StorageFull,
    UsageError,
)
from deputy.core.events import CANCEL, Adopted, Noted, Requested, Resumed, Returned, RunOpened
from deputy.core.outcome import Completed, Outcome
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.engine.ports import RunContext
from deputy.journal.process_identity import ProcessIdentity, this_process
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.runtime.engine import LocalEngine
from deputy.testing.memory_journal import MemoryDisk, MemoryJournal
from deputy.testing.runtime_suite import CASES, Host
from deputy.testing.runtime_suite.case_helpers import blocked, completed, requested
from deputy.testing.virtual_clock import VirtualWorld, run_in_virtual_time

if TYPE_CHECKING:
    from deputy.core.state import State
    from deputy.engine.ports import Workflow


class RealWorld:
    def __init__(self, now: Callable[[], float]) -> None:
        self._chance = random.Random(1)
        self.now = now

    def wall(self) -> float:
        return time.time()

    def random_string(self, letters: str, count: int) -> str:
        return "".join(self._chance.choices(letters, k=count))


class LocalHost:
    """Engines one after another on one home; each belongs to a process that others take for dead at once."""

    def __init__(self, home: Path, suspend_seconds: float = 5.0) -> None:
        self._home = home
        self._suspend_seconds = suspend_seconds
        self._journals: dict[int, SqliteJournal] = {}
        self._started = 0

    @asynccontextmanager
    async def start(self, workflow: "Workflow") -> AsyncGenerator[LocalEngine]:
        self._started += 1
        owner: ProcessIdentity = msgspec.structs.replace(this_process(), boot=f"boot{self._started}")
        journal = SqliteJournal(self._home, owner=owner, fsync="off")
        engine = LocalEngine(journal, workflow, RealWorld(journal.clock.now), suspend_seconds=self._suspend_seconds)
        self._journals[id(engine)] = journal
        async with engine:
            yield engine
        await journal.close()

    async def crash(self, engine: LocalEngine) -> None:
        await self._journals[id(engine)].abandon()


@pytest.mark.parametrize("suspend_seconds", [5.0, 0.0], ids=["patient", "suspending"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_conformance(case: Callable[[Host], Awaitable[None]], suspend_seconds: float, tmp_path: Path) -> None:
    asyncio.run(case(LocalHost(tmp_path / "home", suspend_seconds)))


class Unwatched(SqliteJournal):
    """A journal of which an engine never hears that anything has changed, so that it looks after nothing by itself."""

    async def changes(self) -> int:
        return await asyncio.get_running_loop().create_future()


class MemoryHost:
    """The same on a disk in memory, on which a commit takes a while."""

    def __init__(self) -> None:
        self._disk = MemoryDisk()
        self._world = VirtualWorld(random.Random(1))
        self._journals: dict[int, MemoryJournal] = {}

    @asynccontextmanager
    async def start(self, workflow: "Workflow") -> AsyncGenerator[LocalEngine]:
        owner = f"process {len(self._journals)}"
        journal = MemoryJournal(self._disk, owner, self._world.now, latency=lambda: 0.01)
        engine = LocalEngine(journal, workflow, self._world)
        self._journals[id(engine)] = journal
        async with engine:
            yield engine
        await journal.close()

    async def crash(self, engine: LocalEngine) -> None:
        self._journals[id(engine)].crash()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_conformance_in_memory(case: Callable[[Host], Awaitable[None]]) -> None:
    run_in_virtual_time(case(MemoryHost()))


@asynccontextmanager
async def suspending(
    home: Path, make: type[SqliteJournal] = SqliteJournal
) -> AsyncGenerator[tuple[SqliteJournal, LocalEngine]]:
    """An engine that suspends at once a run that waits for a child."""
    async with (
        make(home, fsync="off") as journal,
        LocalEngine(journal, parent_of_one_that_asks, RealWorld(journal.clock.now), suspend_seconds=0.0) as engine,
    ):
        yield journal, engine


async def only(count: int) -> None:
    """Until there are no more tasks than these."""
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > count:  # noqa: ASYNC110  nothing tells when a run has been put aside
            await asyncio.sleep(0)


async def parent_of_one_that_asks(run: RunContext, start: RunOpened | Requested) -> Outcome:
    """Spawns a child and waits for it; the child waits for a message."""
    lineage = run.state.lineage
    assert lineage is not None
    if isinstance(start, Requested):
        answer = await run.recv("ask", "answer", "Which?")
        return Completed(lineage=lineage, summary=msgspec.json.decode(answer))
    request = Request(
        session_id=f"{run.run}_c", target=Hop("task:c", "task"), prompt="p", caller=lineage, caller_grant=Grant()
    )
    child = await run.spawn("call", Requested(request=request))
    return Completed(lineage=lineage, summary=f"the child said {(await run.join('join', child)).summary}")


@pytest.mark.rule("subtask.flow")
def test_a_run_that_only_waits_for_its_child_is_suspended_and_stays_its_process_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with suspending(tmp_path / "home") as (journal, engine):
            idle = len(asyncio.all_tasks())
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await only(idle)
            parent, child = await journal.unfinished()
            # To others the parent is at work, though nothing of it is in memory: only its child may be answered.
            assert (parent.state.status, parent.is_orphaned) == ("requested", False)
            assert (child.state.status, child.is_orphaned) == ("waiting", True)
            with pytest.raises(UsageError, match="only an ended run can be resumed"):
                await engine.resume("sess_1_a")
            assert not (await journal.unfinished())[0].is_orphaned
            await engine.send("sess_1_a_c", "answer", "this")
            assert (await engine.result("sess_1_a")).summary == "the child said this"
            records = await journal.records("sess_1_a")
            assert not [record for record in records if isinstance(record.event, Adopted)]

    asyncio.run(main())


def test_a_suspended_run_is_cancelled_with_its_child(tmp_path: Path) -> None:
    async def main() -> None:
        async with suspending(tmp_path / "home") as (_, engine):
            idle = len(asyncio.all_tasks())
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await only(idle)
            await engine.cancel("sess_1_a", "enough")
            assert (await engine.result("sess_1_a")).status == "cancelled"
            assert (await engine.result("sess_1_a_c")).status == "cancelled"

    asyncio.run(main())


def test_a_suspended_run_goes_on_in_the_next_process(tmp_path: Path) -> None:
    async def main() -> None:
        host = LocalHost(tmp_path / "home", 0.0)
        async with host.start(parent_of_one_that_asks) as engine:
            idle = len(asyncio.all_tasks())
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await only(idle)
            await host.crash(engine)
        async with host.start(parent_of_one_that_asks) as engine:
            await engine.send("sess_1_a_c", "answer", "this")
            assert await engine.ensure_running("sess_1_a")
            assert (await engine.result("sess_1_a")).summary == "the child said this"

    asyncio.run(main())


@pytest.mark.rule("subtask.flow")
def test_a_suspended_run_costs_at_most_two_kilobytes(tmp_path: Path) -> None:
    async def main() -> None:
        async with suspending(tmp_path / "home", Unwatched) as (journal, engine):
            idle = len(asyncio.all_tasks())

            async def suspend(first: int, count: int) -> None:
                for number in range(first, first + count):
                    run = f"sess_1_{number}"
                    await engine.submit(run, RunOpened(lineage=Lineage.root(run)))
                await only(idle)
                # The thread that writes keeps its last work until there is other work.
                await journal.send("sess_1_0", "other", f"{first}", b"1")
                gc.collect()

            # What is only made once is made before it is measured.
            await suspend(0, 20)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            await suspend(20, 200)
            each = (tracemalloc.get_traced_memory()[0] - before) / 200
            tracemalloc.stop()
            assert each <= 2048

    asyncio.run(main())


class LookedAt(SqliteJournal):
    """A journal that is looked at by an engine, as it is from time to time, before the start of a run is reported."""

    look: Callable[[], Awaitable[object]]

    async def begin(self, *args: Any) -> Any:
        return await self._looked_at(super().begin(*args))

    async def spawn(self, *args: Any) -> Any:
        return await self._looked_at(super().spawn(*args))

    async def append(self, lease: Any, key: str, event: Any) -> Any:
        writing = super().append(lease, key, event)
        return await (self._looked_at(writing) if isinstance(event, Resumed) else writing)

    async def _looked_at(self, writing: Awaitable[Any]) -> Any:
        written = await writing
        await self.look()
        return written


@pytest.mark.rule("spawn.once")
def test_a_run_that_is_being_resumed_is_not_resumed_elsewhere(tmp_path: Path) -> None:
    made: list[str] = []

    async def work(args: str) -> Noted:
        made.append(args)
        return Noted(content=args)

    async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
        lineage = run.state.lineage
        assert lineage is not None
        await run.step("work", work, f"{start.label} {run.state.round}")
        if isinstance(start, RunOpened) and not run.state.round:
            request = Request(
                session_id="sess_1_c", target=Hop("task:c", "task"), prompt="p", caller=lineage, caller_grant=Grant()
            )
            await run.join("joined", await run.spawn("call", Requested(request=request, label="child")))
        return Completed(lineage=lineage, summary="done")

    async def main() -> None:
        # Its process gives no sign of life, as after a long stop: all that it has looks as if it were left behind.
        silent = msgspec.structs.replace(this_process(), boot="another")
        async with (
            LookedAt(tmp_path / "home", owner=silent, fsync="off") as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
        ):

            async def look() -> None:
                await engine.expire_others()
                await engine.adopt()

            journal.look = look
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a"), label="parent"))
            await engine.result("sess_1_a")
            await engine.resume("sess_1_a", "again")
            await engine.result("sess_1_a")

    asyncio.run(main())
    assert made == ["parent 0", "child 0", "parent 1"]


@pytest.mark.rule("resume")
def test_a_run_that_is_resumed_twice_goes_on_from_the_first_time(tmp_path: Path) -> None:
    async def main() -> list[str]:
        begun, goes_on, output = asyncio.Event(), asyncio.Event(), []

        async def flow(run: RunContext, start: object) -> Outcome:
            if run.state.round == 1:
                begun.set()
                await goes_on.wait()
            return Completed(lineage=Lineage.root(run.run), summary=f"round {run.state.round}")

        async with (
            SqliteJournal(tmp_path / "home", fsync="off") as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
            asyncio.timeout(30),
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await engine.result("sess_1_a")
            await engine.resume("sess_1_a")
            waiting = asyncio.create_task(engine.result("sess_1_a"))
            await begun.wait()
            for _ in range(2):
                with pytest.raises(LeaseHeld, match="this process is running it"):
                    await engine.resume("sess_1_a")
            goes_on.set()
            output.append((await waiting).summary)
            # It may still be on its way out; a resume then continues it nevertheless.
            await engine.resume("sess_1_a")
            output.append((await engine.result("sess_1_a")).summary)
        return output

    assert asyncio.run(main()) == ["round 1", "round 2"]


@pytest.mark.rule("recover")
@pytest.mark.rule("journal.first")
def test_only_reading_goes_on_before_what_was_done_is_durable() -> None:
    begun: dict[str, float] = {}

    async def do(args: str) -> Noted:
        begun[args] = asyncio.get_running_loop().time()
        return Noted(content=args)

    async def flow(run: RunContext, start: object) -> Outcome:
        await run.step("paid", do, "paid")
        await run.step("read", do, "read", reads=True)
        await run.step("paid again", do, "paid again")
        assert run.state.counts.notes == 2
        return Completed(lineage=Lineage.root(run.run), summary="done")

    async def play() -> None:
        world = VirtualWorld(random.Random(1))
        journal = MemoryJournal(MemoryDisk(), "process", world.now, latency=lambda: 5.0)
        async with LocalEngine(journal, flow, world) as engine:
            await engine.submit("sess_1_aaaaaa", RunOpened(lineage=Lineage.root("sess_1_aaaaaa")))
            await engine.result("sess_1_aaaaaa")

    run_in_virtual_time(play())
    assert begun["read"] == begun["paid"]
    assert begun["paid again"] >= begun["paid"] + 5.0


def test_a_run_whose_process_was_killed_goes_on_in_another(tmp_path: Path) -> None:
    script = Path(__file__).with_name("hosted.py")
    command = [sys.executable, str(script), str(tmp_path / "home")]
    with subprocess.Popen([*command, "hang"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "paid\n"
        assert child.stdout.readline() == "hanging\n"
        child.kill()
    done = subprocess.run([*command, "go"], capture_output=True, text=True, check=True)
    # What was paid is not paid again, and the child that was spawned is the one that is joined.
    assert done.stdout.splitlines() == ["working", "completed: paid once, and the child said done"]


def test_what_has_completed_or_is_gone_since_it_was_blocked_is_not_cancelled(tmp_path: Path) -> None:
    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        if run.state.round:
            return Completed(lineage=start.lineage, summary="answered")
        return blocked(run, "Which?")

    async def main() -> None:
        async with (
            SqliteJournal(tmp_path / "home") as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await engine.result("sess_1_a")
            seen = await engine.get("sess_1_a")
            assert seen is not None
            await engine.resume("sess_1_a", "this")
            await engine.result("sess_1_a")
            await engine._supervisor.stopping.dismiss([seen])
            assert (await engine.result("sess_1_a")).summary == "answered"
            await engine.purge("sess_1_a")
            await engine._supervisor.stopping.dismiss([seen])
            assert await engine.get("sess_1_a") is None

    asyncio.run(main())


def test_a_run_of_another_process_whose_time_is_up_is_reported_with_its_outcome() -> None:
    world, disk, output = VirtualWorld(random.Random(1)), MemoryDisk(), list["State"]()

    async def never(run: RunContext, start: object) -> Outcome:
        raise AssertionError("it must not be resumed")

    async def main() -> None:
        gone = MemoryJournal(disk, "gone", world.now)
        late = msgspec.structs.replace(Lineage.root("sess_1_a"), deadline=world.now() - 1)
        await gone.begin("sess_1_a", RunOpened(lineage=late))
        gone.crash()
        async with LocalEngine(MemoryJournal(disk, "here", world.now), never, world, is_over=output.append) as engine:
            outcome = await engine.result("sess_1_a")
            assert [state.status for state in output] == [outcome.status]

    run_in_virtual_time(main())


@pytest.mark.rule("time.inherit")
def test_a_child_that_is_restarted_leaves_its_caller_time_to_finish() -> None:
    world = VirtualWorld(random.Random(1))

    async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
        if isinstance(start, Requested):
            return completed(run, "done")
        child = await run.spawn("call", requested(run, "sess_1_c", "child"))
        await run.join("join", child)
        await run.sleep("work", 500)
        await run.restart_child("again", child, "better", force=True)
        await run.join("join again", child)
        return completed(run, "both")

    async def main() -> None:
        async with LocalEngine(MemoryJournal(MemoryDisk(), "process", world.now), flow, world) as engine:
            until = world.now() + 1000
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a", deadline=until)))
            assert (await engine.result("sess_1_a")).summary == "both"
            child = await engine.get("sess_1_c")
            assert child is not None
            assert child.lineage is not None
            # A tenth of the 500 s that were left is for the caller.
            assert (child.round, child.lineage.deadline) == (1, until - 50)

    run_in_virtual_time(main())


async def fails_by_a_bug(engine: LocalEngine, goes_on: asyncio.Event) -> None:
    goes_on.set()


async def hears_a_cancel_that_its_child_does_not(engine: LocalEngine, goes_on: asyncio.Event) -> None:
    # As from a process that died before it also wrote to the child.
    await engine.send("sess_1_a", CANCEL, "enough", key=f"{CANCEL}:0")


@pytest.mark.rule("delegate.cancel")
@pytest.mark.parametrize(
    ("happens", "status"), [(fails_by_a_bug, "failed"), (hears_a_cancel_that_its_child_does_not, "cancelled")]
)
def test_no_child_outlives_a_caller_that_was_stopped(
    happens: Callable[[LocalEngine, asyncio.Event], Awaitable[None]], status: str
) -> None:
    world = VirtualWorld(random.Random(1))

    async def main() -> None:
        is_waiting, goes_on = asyncio.Event(), asyncio.Event()

        async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
            if isinstance(start, Requested):
                is_waiting.set()
                await run.sleep("long", 1000)
                return completed(run, "too late")
            await run.spawn("call", requested(run, "sess_1_c", "child"))
            await goes_on.wait()
            raise ZeroDivisionError("a mistake")

        async with LocalEngine(MemoryJournal(MemoryDisk(), "process", world.now), flow, world) as engine:
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await is_waiting.wait()
            await happens(engine, goes_on)
            assert (await engine.result("sess_1_a")).status == status
            # Its caller has ended only after it.
            child = await engine.get("sess_1_c")
            assert child is not None
            assert child.status == "cancelled"

    run_in_virtual_time(main())


def test_the_end_of_a_waiting_run_that_another_process_continued_is_reported() -> None:
    world, disk, output = VirtualWorld(random.Random(1)), MemoryDisk(), list["State"]()

    async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
        lineage = run.state.lineage
        assert lineage is not None
        if isinstance(start, Requested):
            await run.recv("ask", "answer", "Which?")
            return Completed(lineage=lineage, summary="answered")
        child = await run.new_id("child id")
        target = Hop("task:c", "task")
        request = Request(session_id=child, target=target, prompt="p", caller=lineage, caller_grant=Grant())
        await run.spawn("call", Requested(request=request))
        await run.join("joined", child)
        return Completed(lineage=lineage, summary="both")

    async def main() -> None:
        here = MemoryJournal(disk, "here", world.now)
        async with LocalEngine(here, flow, world, is_over=output.append) as engine:
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            # By now parent and child are suspended.
            await asyncio.sleep(60)
            child = next(status.state.run for status in await here.unfinished() if status.state.parent)
            async with LocalEngine(MemoryJournal(disk, "there", world.now), flow, world) as there:
                await there.send(child, "answer", "this")
                assert (await there.result(child)).summary == "answered"
                await there.deliver(child, "a person")
            async with asyncio.timeout(60):
                assert (await engine.result("sess_1_a")).summary == "both"
            assert [state.run for state in output] == [child, "sess_1_a"]

    run_in_virtual_time(main())


def test_a_waiting_run_holds_no_task_and_no_lease(tmp_path: Path) -> None:
    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        await run.recv("ask", "answer", "Which?")
        return Completed(lineage=start.lineage, summary="answered")

    async def main() -> None:
        async with (
            SqliteJournal(tmp_path / "home") as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            before = asyncio.all_tasks()
            async with asyncio.timeout(20):
                while True:
                    (standing,) = await journal.unfinished()
                    if standing.is_orphaned and len(asyncio.all_tasks()) < len(before):
                        break
            await engine.send("sess_1_a", "answer", "this")
            assert (await engine.result("sess_1_a")).summary == "answered"

    asyncio.run(main())


def test_a_run_stops_without_a_word_when_another_process_has_taken_it(tmp_path: Path) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    async def wait(args: str) -> Noted:
        reached.set()
        await gate.wait()
        return Noted(content="too late")

    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        await run.step("work", wait, "", repeatable=False)
        return Completed(lineage=start.lineage, summary="mine")

    async def main() -> None:
        home = tmp_path / "home"
        dead = msgspec.structs.replace(this_process(), boot="another")
        async with (
            SqliteJournal(home, owner=dead) as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            await reached.wait()
            async with SqliteJournal(home) as other:
                lease = await other.acquire("sess_1_a")
                gate.set()
                theirs = Returned(outcome=Completed(lineage=Lineage.root("sess_1_a"), summary="theirs"))
                await other.finish(lease, "returned:0", theirs)
            assert (await engine.result("sess_1_a")).summary == "theirs"
            kinds = [type(record.event).__name__ for record in await journal.records("sess_1_a")]
            assert kinds == ["RunOpened", "StepBegun", "Adopted", "Returned"]

    asyncio.run(main())


class Failing:
    """A journal that, when it is told so, has no space for records."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal
        self.is_full = False

    def __getattr__(self, name: str) -> Any:
        if self.is_full and name in ("append", "finish", "take", "acquire"):
            return self._fail
        return getattr(self._journal, name)

    async def _fail(self, *_: object) -> None:
        raise StorageFull("/full", "no space left")


async def quick(args: str) -> Noted:
    return Noted(content="done")


def test_a_journal_that_cannot_be_written_fails_the_waiting_calls_and_ends_no_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteJournal(tmp_path / "home") as journal:
            failing = Failing(journal)

            async def flow(run: RunContext, start: RunOpened) -> Outcome:
                failing.is_full = True
                async with asyncio.TaskGroup() as group:
                    group.create_task(run.step("work", quick, ""))
                return Completed(lineage=start.lineage, summary="done")

            async with LocalEngine(failing, flow, RealWorld(failing.clock.now)) as engine:
                await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
                with pytest.raises(StorageFull):
                    await engine.result("sess_1_a")
                state = await engine.get("sess_1_a")
                assert state is not None
                assert state.is_live
                failing.is_full = False

    asyncio.run(main())


class Asked(SqliteJournal):
    """A journal that keeps who was asked for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[str] = []

    async def state(self, run: str) -> "State | None":
        self.asked.append(run)
        return await super().state(run)


def test_a_run_that_stopped_by_trouble_and_ended_elsewhere_is_asked_for_once_more(tmp_path: Path) -> None:
    async def main() -> None:
        home = tmp_path / "home"
        dead = msgspec.structs.replace(this_process(), boot="another")
        async with Asked(home, owner=dead, fsync="off") as journal:
            failing = Failing(journal)

            async def flow(run: RunContext, start: RunOpened) -> Outcome:
                failing.is_full = True
                raise StorageFull("/full", "no space left")

            async with LocalEngine(failing, flow, RealWorld(failing.clock.now)) as engine:
                await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
                with pytest.raises(StorageFull):
                    await engine.result("sess_1_a")
                failing.is_full = False
                async with SqliteJournal(home, fsync="off") as other:
                    lease = await other.acquire("sess_1_a")
                    theirs = Returned(outcome=Completed(lineage=Lineage.root("sess_1_a"), summary="theirs"))
                    await other.finish(lease, "returned:0", theirs)
                journal.asked.clear()
                for _ in range(3):
                    assert await engine.adopt() == []
                assert journal.asked == ["sess_1_a"]
                assert not engine._supervisor._tries

    asyncio.run(main())


@pytest.mark.rule("recover")
def test_storage_that_fails_while_all_work_is_left_ends_no_run(tmp_path: Path) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def flow(run: RunContext, start: RunOpened) -> Outcome:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise StorageFull("/full", "no space left")

        async with SqliteJournal(tmp_path / "home", fsync="off") as journal:
            async with LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine:
                await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
                await begun.wait()
            state = await journal.state("sess_1_a")
            assert state is not None
            assert state.is_live

    asyncio.run(main())


@pytest.mark.rule("store.away")
def test_a_run_whose_database_stays_away_is_reported_and_stays_live(tmp_path: Path) -> None:
    tries: list[str] = []

    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        tries.append(run.run)
        raise StorageAway("postgres://db/x", "it was away for 60 s")

    async def main() -> str:
        async with (
            SqliteJournal(tmp_path / "home", fsync="off") as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            with pytest.raises(StorageAway, match="deputy resume"):
                await engine.result("sess_1_a")
            state = await journal.state("sess_1_a")
            assert state is not None
            return state.status

    assert asyncio.run(main()) in ("requested", "running")
    # The journal has waited for a minute; the run is not tried again.
    assert tries == ["sess_1_a"]


@pytest.mark.parametrize(("error", "code"), [(StorageFull, "STORAGE_FULL"), (StorageDenied, "STORAGE_DENIED")])
def test_a_child_whose_files_fail_is_a_failed_one_and_stops_no_sibling(
    tmp_path: Path, error: type[StorageError], code: str
) -> None:
    async def fail(args: str) -> Noted:
        raise error("/scratch", "it cannot be written")

    async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
        lineage = run.state.lineage
        assert lineage is not None
        if isinstance(start, Requested):
            await run.record("note", Noted(content="seen"))
            await run.step("work", fail if start.label == "bad" else quick, "")
            return Completed(lineage=lineage, summary="fine")

        async def one(label: str) -> str:
            request = Request(
                session_id=f"sess_1_{label}",
                target=Hop(label, "task"),
                prompt="p",
                caller=lineage,
                caller_grant=Grant(),
            )
            child = await run.spawn(label, Requested(request=request, label=label))
            outcome = await run.join(f"{label}:joined", child)
            errors.extend(outcome.errors)
            return f"{label} {outcome.status} {outcome.notes}"

        async with asyncio.TaskGroup() as group:
            output = [group.create_task(one(label)) for label in ("good", "bad")]
        return Completed(lineage=lineage, summary="; ".join(task.result() for task in output))

    async def main() -> Outcome:
        async with (
            SqliteJournal(tmp_path / "home") as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            return await engine.result("sess_1_a")

    errors: list[Error] = []
    assert asyncio.run(main()).summary == "good completed (); bad failed ('seen',)"
    remedy = error.remedy if error.retryable else f"{MANUAL}{error.remedy}"
    assert [(one.type, one.code, one.recommendation) for one in errors] == [("storage", code, remedy)]
    assert "/scratch" in errors[0].message


def test_trouble_that_was_for_a_moment_loses_nothing(tmp_path: Path) -> None:
    tried: list[str] = []

    async def work(args: str) -> Noted:
        tried.append(args)
        if len(tried) == 1:
            raise StorageFull("/full", "no space left")
        return Noted(content="done")

    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        await run.step("work", work, "")
        return Completed(lineage=start.lineage, summary="done")

    async def main() -> Outcome:
        async with (
            SqliteJournal(tmp_path / "home") as journal,
            LocalEngine(journal, flow, RealWorld(journal.clock.now)) as engine,
        ):
            await engine.submit("sess_1_a", RunOpened(lineage=Lineage.root("sess_1_a")))
            outcome = await engine.result("sess_1_a")
            assert not engine._supervisor._tries
            return outcome

    assert asyncio.run(main()).status == "completed"
    assert len(tried) == 2


@pytest.mark.rule("registry.monitor")
def test_several_that_look_at_once_adopt_a_run_once(tmp_path: Path) -> None:
    home, made = tmp_path / "home", []

    async def work(args: str) -> Noted:
        made.append(args)
        return Noted(content="done")

    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        await run.step("work", work, run.run)
        return Completed(lineage=start.lineage, summary="done")

    async def main() -> None:
        dead = msgspec.structs.replace(this_process(), boot="another")
        runs = [f"sess_{number}_a" for number in range(10)]
        left = SqliteJournal(home, owner=dead, fsync="off")
        for run in runs:
            await left.begin(run, RunOpened(lineage=Lineage.root(run)))
        await left.abandon()
        await left.close()
        async with (
            SqliteJournal(home, fsync="off") as one,
            SqliteJournal(home, fsync="off") as other,
            LocalEngine(one, flow, RealWorld(one.clock.now)) as first,
            LocalEngine(other, flow, RealWorld(other.clock.now)) as second,
            asyncio.TaskGroup() as group,
        ):
            adopting = [group.create_task(engine.adopt()) for engine in (first, second)]
            assert {(await first.result(run)).summary for run in runs} == {"done"}
            assert sorted([*await adopting[0], *await adopting[1]]) == runs
        assert sorted(made) == runs

    asyncio.run(main())
