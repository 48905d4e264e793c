"""The whole engine under random faults: every seed is a delegation to which everything may happen."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET, Raw, structs
from tests.simulation.stage import LocalStage
from tests.support.simulation import Violation, draw_scenario, simulate

from deputy.core.errors import StorageError
from deputy.core.events import ModelCallEnded, ToolCallEnded
from deputy.core.outcome import NO_USAGE, Outcome
from deputy.core.redaction import Redactor
from deputy.runtime.engine import LocalEngine
from deputy.testing.memory_journal import MemoryJournal, MemoryLease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.events import Record
    from deputy.engine.ports import RunContext, RunStart, Workflow, World

SEEDS = 100
GROUPS = 4
BROKEN_SEEDS = 200
"""Among so many, each broken engine is found."""


@pytest.mark.rule("outcome.total")
@pytest.mark.rule("delegate.order")
@pytest.mark.rule("delegate.cancel")
@pytest.mark.rule("spawn.once")
@pytest.mark.rule("recover")
@pytest.mark.rule("budget")
@pytest.mark.rule("redact.where")
@pytest.mark.parametrize("group", range(GROUPS))
def test_everything_holds_whatever_happens(group: int):
    for seed in range(group, SEEDS, GROUPS):
        simulate(seed, LocalStage())


@pytest.mark.parametrize("seed", [54, 93, 203, 3432, 9133, 53525, 54271, 410122, 706164])
def test_work_goes_on_when_storage_that_failed_for_long_works_again(seed: int):
    # A parent put aside for a child in trouble, or that cannot be taken up; a run that is neither taken up nor let go;
    # one that is hardly begun; children that are at work while their parent is not, whose budget they would overspend;
    # a parent put aside before it has brought all its children back; children that could not write that they stop.
    assert draw_scenario(seed).outages
    simulate(seed, LocalStage())


def test_a_caller_that_is_cancelled_cancels_all_pending_questions():
    simulate(718134, LocalStage())


@pytest.mark.rule("time.partial")
def test_a_deadline_that_passed_without_a_process_ends_the_work_at_once():
    # A parent with 7.5 s whose process is gone for 7.6 s, in the middle of a tool that hangs.
    simulate(115761, LocalStage())


@pytest.mark.rule("time.partial")
def test_a_round_that_begins_when_its_time_is_up_only_ends():
    # A child that its caller sets to work again with less time left than the caller keeps for itself.
    simulate(204767, LocalStage())


@pytest.mark.rule("delegate.cancel")
def test_a_cancel_that_came_too_late_stops_no_round_that_is_being_begun():
    simulate(204983, LocalStage())


@pytest.mark.rule("outcome.total")
def test_a_run_that_is_ended_while_it_is_resumed_is_left_as_it_is():
    # A run whose time is up is ended by one who looks, while another, who found it live, has its lease to cancel it.
    simulate(201981, LocalStage())


# --- that broken engines are found ------------------------------------------------------------------------------------


class DeafEngine(LocalEngine):
    """Does not hear that it should stop."""

    async def cancel(self, run: str, reason: str = "") -> None:
        pass


class CarelessEngine(LocalEngine):
    """Does not go on with what a dead process left."""

    async def adopt(self) -> list[str]:
        return []


class LyingEngine(LocalEngine):
    """Tells less than was used."""

    def __init__(self, journal: MemoryJournal, workflow: "Workflow", world: "World", **more: Any) -> None:
        async def less(run: "RunContext", start: "RunStart") -> Outcome:
            return structs.replace(await workflow(run, start), usage=NO_USAGE)

        super().__init__(journal, less, world, **more)


class HastyEngine(LocalEngine):
    """Does not wait until it is written that something is about to happen which must not happen twice."""

    def __init__(self, journal: MemoryJournal, workflow: "Workflow", world: "World", **more: Any) -> None:
        super().__init__(_Hasty(journal), workflow, world, **more)


class _Hasty:
    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def wait_durable(self, lease: MemoryLease) -> None:
        """At once."""


class ForgetfulEngine(LocalEngine):
    """Does not mind that a record could not be written, and goes on behind it."""

    def __init__(self, journal: MemoryJournal, workflow: "Workflow", world: "World", **more: Any) -> None:
        super().__init__(_Forgetful(journal), workflow, world, **more)


class _Forgetful(_Hasty):
    async def wait_durable(self, lease: MemoryLease) -> None:
        with suppress(StorageError):
            await self._journal.wait_durable(lease)
        lease.trouble = None


@pytest.mark.parametrize("engine", [DeafEngine, CarelessEngine, LyingEngine, HastyEngine, ForgetfulEngine])
def test_a_broken_engine_is_found(engine: type[LocalEngine]):
    assert first_violation(engine)


class HidesResults(LocalEngine):
    """Redacts the results of tools in what it replays."""

    def __init__(self, journal: MemoryJournal, workflow: "Workflow", world: "World", **more: Any) -> None:
        super().__init__(_Hiding(journal, ToolCallEnded), workflow, world, **more)


class HidesArguments(LocalEngine):
    """Redacts what models said in what it replays."""

    def __init__(self, journal: MemoryJournal, workflow: "Workflow", world: "World", **more: Any) -> None:
        super().__init__(_Hiding(journal, ModelCallEnded), workflow, world, **more)


class _Hiding(_Hasty):
    def __init__(self, journal: MemoryJournal, kind: type[ToolCallEnded | ModelCallEnded]) -> None:
        super().__init__(journal)
        self._kind = kind

    async def wait_durable(self, lease: MemoryLease) -> None:
        await self._journal.wait_durable(lease)

    async def records(self, run: str, after: int = 0) -> "Sequence[Record]":
        return [self._hidden(record) for record in await self._journal.records(run, after)]

    def _hidden(self, record: "Record") -> "Record":
        event = record.event
        if not isinstance(event, self._kind) or event.message is UNSET:
            return record
        clean = Raw(Redactor().redact_json(bytes(event.message)))
        return structs.replace(record, event=structs.replace(event, message=clean))


@pytest.mark.rule("redact.where")
@pytest.mark.parametrize(
    ("engine", "violation"), [(HidesResults, "and its model got"), (HidesArguments, "which no model gave")]
)
def test_an_engine_that_changes_a_call_or_its_result_is_found(engine: type[LocalEngine], violation: str):
    assert violation in first_violation(engine)


def test_a_seed_replays_exactly():
    found = first_violation(DeafEngine)
    assert found == first_violation(DeafEngine)
    assert "seed" in found


def first_violation(engine: type[LocalEngine]) -> str:
    for seed in range(BROKEN_SEEDS):
        try:
            simulate(seed, LocalStage(engine))
        except Violation as violation:
            return str(violation)
    return ""
