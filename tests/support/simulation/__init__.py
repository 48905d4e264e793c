"""Simulate the whole engine under random faults: a seed decides everything, and a failure replays exactly."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from msgspec import structs
from tests.support.simulation.invariants import (
    BEGINNINGS,
    Violation,
    check_budgets,
    check_root,
    check_run,
    check_stops,
    check_tree,
    check_usage,
    expect,
    is_storage_trouble,
    outcome_facts,
)
from tests.support.simulation.scenario import Scenario, draw_scenario
from tests.support.simulation.trial import ROOT, EngineStage, Process, Trial

from deputy.core.events import AdmissionRefused, CancelRequested, Resumed, Returned
from deputy.core.outcome import Cancelled, Rejected
from deputy.engine.partial_result import STOPPED_LATE
from deputy.testing.virtual_clock import VirtualWorld, run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.events import Record
    from deputy.core.outcome import Outcome

__all__ = ["EngineStage", "Scenario", "Violation", "draw_scenario", "play", "simulate"]


def simulate(seed: int, stage: EngineStage) -> None:
    """Play the scenario of a seed and check the invariants; a Violation names seed and scenario."""
    play(draw_scenario(seed), stage)


def play(scenario: Scenario, stage: EngineStage) -> None:
    """Play a scenario and check the invariants."""
    try:
        trial = Trial(scenario, stage)
        run_in_virtual_time(_play(trial))
        if scenario.is_calm:
            _compare_with_solo(trial)
    except Violation as violation:
        raise Violation(f"{violation}\n  seed {scenario.seed}: {scenario}") from violation


async def _play(trial: Trial) -> None:
    await trial.play()
    _check(trial)
    await _check_replays(trial)


def _check(trial: Trial) -> None:
    disk, scenario = trial.disk, trial.scenario
    # Runs cannot end while there is no process or no working storage.
    able_since = max(trial.last_start, trial.ledger.failed_at)
    check_tree(disk, trial.ledger, trial.lives)
    for state in disk.states():
        check_run(disk.records[state.run], state, able_since)
        check_usage(disk, state)
    check_stops(disk, trial.ledger, able_since)
    check_budgets(disk, ROOT)
    if not scenario.is_parent:
        check_root(disk, ROOT, [task.label for task in scenario.tasks])


# --- replay equals live -----------------------------------------------------------------------------------------------


async def _check_replays(trial: Trial) -> None:
    """Every flow, run again over its own records, does nothing and comes to the same outcome."""
    for run, records in trial.disk.records.items():
        whole = _up_to_the_end(records)
        outcome = _last_outcome(records)
        # Nothing of a refusal is on record, a cancel that came too late would come in time, and time does not run out.
        is_its_own = not isinstance(outcome, Cancelled | Rejected) and not outcome.summary.startswith(STOPPED_LATE)
        is_its_own = is_its_own and not is_storage_trouble(outcome)
        if is_its_own and not _was_told_to_stop(whole):
            again = await _replayed(trial, run, whole)
            # What those below used is summed where it ends, and they may have been resumed since.
            again = structs.replace(again, usage=outcome.usage)
            expect(again == outcome, f"{run} replayed is {again}\n  and was {outcome}")


async def _replayed(trial: Trial, run: str, records: Sequence[Record]) -> Outcome:
    other = Trial(structs.replace(trial.scenario, disturbances=(), outages=()), trial.stage)
    # What is replayed has the time that it had: it is not late because it is looked at later.
    began = next(record.clock for record in reversed(records) if isinstance(record.event, BEGINNINGS))
    other.world = VirtualWorld(Random(trial.scenario.seed), stands_at=began)
    other.ledger.is_closed = True
    other.disk.records.update({name: list(kept) for name, kept in trial.disk.records.items()})
    other.disk.records[run] = list(records)
    process = Process(other, 0)
    async with other.stage.open_engine(
        process.journal, process.flow, other.world, is_over=process.services.finish
    ) as engine:
        await engine.ensure_running(run)
        return await engine.result(run)


def _was_told_to_stop(records: Sequence[Record]) -> bool:
    rounds = [index for index, record in enumerate(records) if isinstance(record.event, Resumed)]
    last = records[rounds[-1] if rounds else 0 :]
    return any(
        isinstance(record.event, CancelRequested) or (isinstance(record.event, Resumed) and record.event.is_dismissed)
        for record in last
    )


def _up_to_the_end(records: Sequence[Record]) -> Sequence[Record]:
    ends = [index for index, record in enumerate(records) if isinstance(record.event, Returned | AdmissionRefused)]
    return records[: ends[-1]]


def _last_outcome(records: Sequence[Record]) -> Outcome:
    return [one.event.outcome for one in records if isinstance(one.event, Returned | AdmissionRefused)][-1]


# --- siblings are independent -----------------------------------------------------------------------------------------


def _compare_with_solo(trial: Trial) -> None:
    """A task comes to the same alone as among its siblings; one with a time limit may not, for want of time."""
    for task in trial.scenario.tasks:
        if len(trial.scenario.tasks) == 1 or task.timeout is not None or trial.scenario.seconds is not None:
            continue
        alone = Trial(structs.replace(trial.scenario, tasks=(task,), resumes=0), trial.stage)
        run_in_virtual_time(alone.play())
        ours, theirs = (_first_told(each, task.label) for each in (trial, alone))
        expect(ours == theirs, f"{task.label} among others: {ours}\n  and alone: {theirs}")


def _first_told(trial: Trial, label: str) -> tuple[object, ...]:
    records = trial.disk.records[trial.ledger.run_of(label)]
    return outcome_facts(
        next(one.event.outcome for one in records if isinstance(one.event, Returned | AdmissionRefused))
    )
