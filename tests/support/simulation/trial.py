"""Play one scenario: processes die and follow each other on one disk, until all is done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Raw, json, structs
from tests.support.simulation.actors import Ledger, Life, SimFiles, SimModel, SimTools
from tests.support.simulation.invariants import AGAIN_SECONDS, Violation, expect
from tests.support.simulation.scenario import TOKEN_DOLLARS, TOOLS

from deputy.core.approval import Decision
from deputy.core.errors import DeputyError, LeaseHeld, StorageError, StorageFull, UnknownRun, UsageError
from deputy.core.events import APPROVAL, QuestionAsked, RunOpened
from deputy.core.guard import Policy
from deputy.core.limits import NOTHING, exact
from deputy.core.request import Grant, Lineage
from deputy.core.state import ASKED, answer_key
from deputy.engine.call import DELEGATE, RUN, FanOut
from deputy.engine.dispatch import run_workflow
from deputy.engine.ports import Engine
from deputy.engine.services import Services
from deputy.testing.memory_journal import MemoryDisk, MemoryJournal
from deputy.testing.virtual_clock import VirtualWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from tests.support.simulation.scenario import Disturbance, Outage, Scenario

    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.core.state import State
    from deputy.engine.budget import LocalBudgets
    from deputy.engine.ports import Files, FlowTool, RunContext, RunStart, Workflow, World

ROOT = "sess_1_root00"
LIMIT_SECONDS = 300.0
_ANSWER_SECONDS = 0.4
_RESUMABLE = ("partial", "blocked", "cancelled", "failed")


class Player(Engine, Protocol):
    """An engine that also takes over what a dead process left."""

    async def adopt(self) -> Sequence[str]:
        """Resume every orphaned run; returns which."""
        ...

    async def ensure_running(self, run: str) -> bool:
        """Put a run to work that should be and is not; whether that was so."""
        ...


class EngineStage(Protocol):
    """What a simulation is played on: the engine under test and the tools that are part of the flow."""

    def open_engine(
        self,
        journal: MemoryJournal,
        workflow: Workflow,
        world: World,
        *,
        is_over: Callable[[State], None],
        is_suspending: bool = False,
    ) -> AbstractAsyncContextManager[Player]:
        """An engine on this journal; leaving it is an orderly end of its process.

        `is_over` hears of the end of every run; a suspending engine puts aside at once who waits for children.
        """
        ...

    def flow_tools(self, files: Files) -> tuple[FlowTool, ...]:
        """Note, Ask and Delegate."""
        ...


class WatchedServices(Services):
    """A workshop that can be seen to keep its budgets and to be empty in the end."""

    held: tuple[str, ...] = ()
    """Who was over and still held something."""

    @property
    def _local(self) -> LocalBudgets:
        return cast("LocalBudgets", self.budgets)

    def check_ledgers(self) -> None:
        """No purse holds and has spent more than its budget."""
        for run, ledger in self._local.ledgers.items():
            account = ledger.account
            used = account.spent + account.held
            for name in ("tokens", "cost", "requests"):
                cap, amount = getattr(account.budget, name), getattr(used, name)
                expect(cap is None or amount <= cap, f"the purse of {run} has {amount} of {cap} {name}")
                expect(getattr(account.held, name) >= 0, f"the purse of {run} gave back more than it held")

    def drop(self, run: str) -> None:
        """A run is over, and holds nothing any more."""
        ledger = self._local.ledgers.get(run)
        # A caller that is stopped goes before its children have.
        is_last = run != ROOT or len(self._local.ledgers) == 1
        if ledger is not None and is_last and ledger.account.held != NOTHING:
            self.held = (*self.held, run)
        super().drop(run)

    def left_over(self) -> str:
        """What is still counted; empty when nothing runs."""
        local = self._local
        counts = (self._live, self._on_provider, self._in_tree, local.spawned, local.counted, local.ledgers, self.held)
        return " ".join(str(list(each)) for each in counts if each)


class Process:
    """One process's life: a journal on the common disk, an engine, and what it uses."""

    def __init__(self, trial: Trial, number: int) -> None:
        self.life = Life()
        self.crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.commits = 0
        self._flushed = 0
        self._trial = trial
        self._chance = Random(f"{trial.scenario.seed} process {number}")
        self._disturbances = trial.disturbances(number)
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._outages = trial.outages(number)
        self.journal = MemoryJournal(
            trial.disk,
            f"process {number}",
            trial.world.now,
            wall=trial.world.wall,
            latency=self._latency,
            trouble=self._trouble,
        )
        scenario, ledger = trial.scenario, trial.ledger
        files = SimFiles(ledger, self.life)
        self.services = WatchedServices(
            world=trial.world,
            open_model=lambda name: SimModel(name, ledger, self.life),
            open_tools=lambda grant, _: SimTools(grant, ledger, self.life),
            max_cost=lambda _, given, taken: exact((given + taken) * TOKEN_DOLLARS),
            windows={},
            files=files,
            watch=self._watch,
            policy=Policy(max_spawns=scenario.max_spawns),
            approval=scenario.approval,
            can_ask=scenario.can_ask,
            flow_tools=trial.stage.flow_tools(files),
        )
        self.engine: Player | None = None

    async def flow(self, run: RunContext, start: RunStart) -> Outcome:
        """What every run is carried out by."""
        return await run_workflow(run, start, self.services)

    async def work(self) -> None:
        """Live until everything is done, in order, and leave nothing behind."""
        trial = self._trial
        async with trial.stage.open_engine(
            self.journal,
            self.flow,
            trial.world,
            is_over=self.services.finish,
            # Half of the seeds, told by nothing that changes what else a seed means.
            is_suspending=bool(trial.scenario.seed % 2),
        ) as engine:
            self.engine = engine
            answering = trial.tasks.create_task(self._answer(engine))
            self._disturb()
            try:
                await trial.reach_goals(engine)
                self._disturbances.clear()
                for timer in self._timers:
                    timer.cancel()
                while self._tasks:
                    await asyncio.wait(self._tasks)
                    await trial.reach_goals(engine)
            finally:
                answering.cancel()
        await self.journal.close()

    def _watch(self, _: Progress) -> None:
        # What is only replayed may have been resumed since, beyond what its caller had.
        if not self._trial.ledger.is_closed:
            with self._trial.ledger.watching():
                self.services.check_ledgers()

    def _latency(self) -> float:
        self.commits += 1
        self._disturb()
        return self._chance.uniform(0.0, self._trial.scenario.latency_seconds)

    def _trouble(self) -> StorageError | None:
        """Whether this commit fails, and how."""
        self._flushed += 1
        if not any(one.first < self._flushed <= one.first + one.count for one in self._outages):
            return None
        self._trial.ledger.failures += 1
        self._trial.ledger.failed_at = self._trial.world.now()
        return StorageFull("the disk", "no space is left on it, as the seed says")

    def _disturb(self) -> None:
        due = [each for each in self._disturbances if each.commits <= self.commits]
        self._disturbances = [each for each in self._disturbances if each not in due]
        loop = asyncio.get_running_loop()
        self._timers.extend(loop.call_later(each.seconds, self._strike, each) for each in due)

    def _strike(self, disturbance: Disturbance) -> None:
        if self.life.is_dead:
            return
        if disturbance.what == "crash":
            self.life.is_dead = True
            self.journal.crash()
            if not self.crashed.done():
                self.crashed.set_result(None)
            return
        is_root = disturbance.what == "cancel the root"
        run = ROOT if is_root else self._trial.ledger.run_of(f"task-{disturbance.child}")
        if self.engine is not None and run in self._trial.disk.records:
            self._trial.ledger.cancels.append((run, self._trial.world.now()))
            self._start(self._cancel(self.engine, run))

    async def _cancel(self, engine: Player, run: str) -> None:
        state = self._trial.disk.state(run)
        try:
            await engine.cancel(run, "the seed says so")
        except StorageError:
            # The caller got the error, so the run may continue.
            return
        except DeputyError as error:
            raise Violation(f"a cancel failed: {error!r}") from error
        if state is not None and state.is_live:
            self._trial.ledger.stopped.setdefault((run, state.round), self._trial.world.now())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._trial.tasks.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, engine: Player) -> None:
        """Be the person who is asked."""
        while True:
            await asyncio.sleep(_ANSWER_SECONDS)
            for state in await engine.list():
                for key, topic in state.waits.items():
                    chance = Random(f"{self._trial.scenario.seed} {state.label} {key}")
                    choice = "yes" if chance.random() < 0.7 else "no"
                    digest = self._digest(state.run, key)
                    body = Decision(choice=choice, digest=digest) if topic == APPROVAL else "Go ahead."
                    with suppress(UnknownRun, StorageError):
                        await engine.send(state.run, topic, body, key=answer_key(key))

    def _digest(self, run: str, key: str) -> str:
        """The digest of what a run asks under a key."""
        asked = [one.event for one in self._trial.disk.records[run] if one.key == f"{key}{ASKED}"]
        return "".join(event.digest for event in asked if isinstance(event, QuestionAsked))


class Trial:
    """One scenario on one disk."""

    def __init__(self, scenario: Scenario, stage: EngineStage) -> None:
        self.scenario = scenario
        self.stage = stage
        self.disk = MemoryDisk()
        self.world = VirtualWorld(Random(f"{scenario.seed} world"), jump=_jumps(Random(f"{scenario.seed} wall")))
        self.ledger = Ledger(scenario, self.disk, self.world.now)
        self.tasks = asyncio.TaskGroup()
        self.last_start = 0.0
        self.lives = 0
        self._resumes: list[tuple[str, int, str | None]] = []

    def disturbances(self, number: int) -> list[Disturbance]:
        """What goes wrong in one process."""
        lives = self.scenario.disturbances
        return list(lives[number]) if number < len(lives) else []

    async def play(self) -> None:
        """Let process follow process until everything is done."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS), self.tasks:
                while not await self._live():
                    self.lives += 1
        except TimeoutError:
            await _bury()
            raise Violation(f"it never ended: {self._open()}") from None
        except BaseExceptionGroup as raised:
            raise _first(raised) from raised
        finally:
            self.ledger.is_closed = True

    def _open(self) -> list[str]:
        return [f"{state.label} {state.status}" for state in self.disk.states() if state.is_live]

    async def _live(self) -> bool:
        """One process's life; whether it ended in order."""
        process = Process(self, self.lives)
        self.last_start = self.world.now()
        work = self.tasks.create_task(process.work())
        await asyncio.wait({work, process.crashed}, return_when=asyncio.FIRST_COMPLETED)
        if process.life.is_dead:
            self.ledger.forget_what_was_lost()
            await _bury()
            await asyncio.sleep(self.scenario.downtime_seconds)
            return False
        await work
        expect(not (left := asyncio.all_tasks() - {_this_task()}), f"tasks outlive their engine: {left}")
        expect(not (over := process.services.left_over()), f"still counted when nothing runs: {over}")
        return True

    def outages(self, number: int) -> list[Outage]:
        """When the storage of one process fails."""
        return [outage for outage in self.scenario.outages if outage.process == number]

    async def reach_goals(self, engine: Player) -> None:
        """Do all the work; retry after a storage failure."""
        while True:
            try:
                return await self._reach_goals(engine)
            except StorageError:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _reach_goals(self, engine: Player) -> None:
        """Do what was not done before: the work itself, and then some of it again."""
        if ROOT not in self.disk.records:
            await engine.submit(ROOT, self._start())
        await engine.adopt()
        await engine.result(ROOT)
        if not self._resumes:
            self._resumes = self._draw_resumes()
        for run, number, message in self._resumes:
            state = self.disk.state(run)
            if state is not None and state.round < number and not state.is_live:
                # Refused, too, while it is being dismissed because its caller was cancelled.
                with suppress(UsageError, LeaseHeld):
                    await engine.resume(run, message)
            await engine.result(run)
        # Remaining children, resumed in vain or cancelled late, end too.
        for state in await engine.list():
            await engine.result(state.run)

    def _draw_resumes(self) -> list[tuple[str, int, str | None]]:
        chance = Random(f"{self.scenario.seed} resumes")
        ended = [state for state in self.disk.states() if state.status in _RESUMABLE]
        if chance.random() < 0.5:
            able = [state for state in ended if state.run == ROOT]
        else:
            # A run that is resumed alone has its own budget, not the rest of its caller's.
            able = [state for state in ended if state.run != ROOT]
        chosen = chance.sample(able, min(len(able), self.scenario.resumes))
        said = None if chosen and chosen[0].command == DELEGATE else "Go on."
        return [(state.run, state.round + 1, chance.choice((None, said))) for state in chosen]

    def _start(self) -> RunOpened:
        scenario = self.scenario
        now = self.world.now()
        grant = Grant(tools=frozenset({*TOOLS, "Delegate"}), budget=scenario.budget)
        deadline = None if scenario.seconds is None else now + scenario.seconds
        start = RunOpened(
            lineage=Lineage.root(ROOT, deadline=deadline),
            label="root",
            model="sim:root",
            seconds=scenario.seconds,
            command=RUN,
            prompt="work of root",
            grant=grant,
        )
        if scenario.is_parent:
            return start
        call = FanOut(tasks=scenario.tasks, concurrency=scenario.concurrency)
        return structs.replace(start, command=DELEGATE, arguments=Raw(json.encode(call)))


def _jumps(chance: Random) -> Callable[[float], float]:
    """A wall clock that is set an hour forward or back, three times."""
    jumps = [(chance.uniform(0.0, 30.0), chance.choice((-3600.0, 3600.0))) for _ in range(3)]
    return lambda passed: sum(seconds for at, seconds in jumps if passed >= at)


async def _bury() -> None:
    """End the tasks of a dead process; nothing they do any more reaches the disk."""
    for _ in range(1000):
        others = asyncio.all_tasks() - {_this_task()}
        if not others:
            return
        for task in others:
            task.cancel()
        done, _ = await asyncio.wait(others, timeout=0)
        for task in done:
            if not task.cancelled():
                task.exception()
    raise Violation("tasks that cannot be cancelled")


def _first(raised: BaseException) -> BaseException:
    """The first error of a group."""
    while isinstance(raised, BaseExceptionGroup):
        raised = cast("BaseExceptionGroup[BaseException]", raised).exceptions[0]
    return raised


def _this_task() -> asyncio.Task[Any] | None:
    return asyncio.current_task()
