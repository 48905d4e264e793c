"""The invariants of every simulated delegation."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import takewhile
from operator import add
from typing import TYPE_CHECKING

from msgspec import UNSET

from deputy.core.conversation import AssistantMessage, ToolMessage, UserMessage
from deputy.core.events import (
    AdmissionRefused,
    Admitted,
    CancelRequested,
    Joined,
    ModelCallBegun,
    ModelCallEnded,
    Noted,
    Requested,
    Resumed,
    Returned,
    RunOpened,
    Spawned,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.outcome import NO_USAGE, Cancelled
from deputy.core.state import replay
from deputy.engine.budget import amount
from deputy.engine.history import remembered
from deputy.engine.partial_result import STOPPED_LATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.support.simulation.actors import Ledger

    from deputy.core.conversation import Message
    from deputy.core.events import Event, Record
    from deputy.core.limits import Budget
    from deputy.core.outcome import Outcome, Usage
    from deputy.core.state import State
    from deputy.testing.memory_journal import MemoryDisk

GRACE_SECONDS = 2.0
CANCEL_SECONDS = 1.0
"""What a whole tree may take to stop, with the slowest disk there is here."""
AGAIN_SECONDS = 0.5
"""When it is tried again after storage failed."""


BEGINNINGS = RunOpened | Requested | Resumed


class Violation(AssertionError):
    """Something that must hold does not."""


def expect(holds: bool, what: str) -> None:
    """See that something holds."""
    if not holds:
        raise Violation(what)


def is_well_formed(messages: Sequence[Message], whose: str) -> None:
    """Each call has exactly one result, in order, in the message after it; no result is without its call."""
    calls: list[str] = []
    for message in messages:
        match message:
            case ToolMessage(results=results):
                expect([one.call_id for one in results] == calls and bool(calls), f"{whose}: results without calls")
                calls = []
            case UserMessage():
                expect(not calls, f"{whose}: something was said before {calls} had results")
            case AssistantMessage():
                expect(not calls, f"{whose}: the model spoke before {calls} had results")
                calls = [call.id for call in message.calls]
    expect(not calls, f"{whose}: {calls} have no results")


# --- after all is over ------------------------------------------------------------------------------------------------


def check_run(records: Sequence[Record], state: State, able_since: float) -> None:
    """What must hold of one run by itself."""
    who = f"{state.label or state.run}"
    expect(not state.is_live, f"{who} never ended: it is {state.status}")
    expect(state.oddities == 0, f"{who} has a record out of place: {state.oddity}")
    expect(replay(list(records)) == state, f"{who}: replayed is not live")
    endings = [one.event.outcome for one in records if isinstance(one.event, Returned | AdmissionRefused)]
    expect(len(endings) == state.round + 1, f"{who} has {len(endings)} endings in {state.round + 1} rounds")
    noted = tuple(one.event.content for one in records if isinstance(one.event, Noted))
    expect(endings[-1].notes == noted, f"{who} tells {endings[-1].notes} and noted {noted}")
    expect(all(_is_ours(outcome) for outcome in endings), f"{who} ended by a mistake: {endings[-1].errors}")
    last = [one.event for one in records if isinstance(one.event, ModelCallEnded)][-1:]
    is_cut = any(event.stop == "length" for event in last)
    expect(not (is_cut and state.status == "completed"), f"{who} is completed with an answer that was cut")
    _check_deadline(records, state, able_since)
    _check_cancel(records, who)
    _check_prefixes(records, who)


def check_usage(disk: MemoryDisk, state: State) -> None:
    """An outcome tells all that was used by then, by the run and by everybody below it."""
    ending = [one for one in disk.records[state.run] if isinstance(one.event, Returned | AdmissionRefused)][-1]
    below = {state.run}
    for other in disk.states():
        below |= {other.run} if other.parent in below else set()
    before = disk.log[: disk.log.index(ending)]
    spent = used(one for one in before if one.run in below)
    text = ending.event.outcome.usage if isinstance(ending.event, Returned | AdmissionRefused) else NO_USAGE
    expect(text == spent, f"{state.label} tells {text} and {spent} was used")


def used(records: Iterable[Record]) -> Usage:
    """The sum of all model calls."""
    return reduce(add, (one.event.usage for one in records if isinstance(one.event, ModelCallEnded)), NO_USAGE)


def is_storage_trouble(outcome: Outcome) -> bool:
    """Whether a run ended because its storage failed: what it tells is what it knew, written or not."""
    return any(error.type == "storage" for error in outcome.errors)


def _is_ours(outcome: Outcome) -> bool:
    return all(error.code != "INTERNAL_ERROR" for error in outcome.errors)


def _check_deadline(records: Sequence[Record], state: State, able_since: float) -> None:
    deadline = None if state.lineage is None else state.lineage.deadline
    if deadline is None or state.ended_clock is None or state.status == "rejected":
        return
    # A process that is dead ends nothing; the next one has a moment after it begins.
    late = state.ended_clock - max(deadline, able_since)
    expect(late <= GRACE_SECONDS, f"{state.label} ended {late:.2f} s past its deadline")


def _check_cancel(records: Sequence[Record], who: str) -> None:
    is_told = False
    for record in records:
        match record.event:
            case ModelCallBegun() | ToolCallBegun() | Spawned():
                expect(not is_told, f"{who}: {record.key} after cancel")
            case Resumed():
                is_told = False
            case CancelRequested():
                is_told = True
            case _:
                pass


def _check_prefixes(records: Sequence[Record], who: str) -> None:
    """Whenever the process might have died: the transcript is whole, and a call has at most one result."""
    for count in range(len(records) + 1):
        is_well_formed(remembered("", records[:count]).conversation.messages, f"{who} after {count} records")
    results = Counter(one.event.call for one in records if isinstance(one.event, ToolCallEnded))
    expect(max(results.values(), default=0) <= 1, f"{who} has two results for one call")


def check_tree(disk: MemoryDisk, ledger: Ledger, crashes: int) -> None:
    """What must hold of runs together, and of the world outside."""
    if ledger.broken:
        raise ledger.broken[0]
    mistakes = [error.message for error in disk.errors.values() if error.code == "INTERNAL_ERROR"]
    expect(not mistakes, f"a mistake was logged: {mistakes}")
    born = {state.run: state for state in disk.states()}
    spawned = [one.event.child for _, one in _all(disk) if isinstance(one.event, Spawned)]
    expect(len(spawned) == len(set(spawned)), "a child was spawned twice")
    expect(set(spawned) == {run for run, state in born.items() if state.parent}, "a child has no spawn of its own")
    asked = Counter((one.event.parent, one.event.call) for _, one in _all(disk) if isinstance(one.event, Requested))
    expect(max(asked.values(), default=0) <= 1, f"one call spawned twice: {asked.most_common(1)}")
    for run, record in _all(disk):
        if isinstance(record.event, Joined):
            child = disk.records[record.event.child]
            ending = next(one for one in child if one.key == f"returned:{record.event.round}")
            expect(ending.clock <= record.clock, f"{run} joined {record.event.child} before it ended")
    most = 1 + crashes + ledger.scenario.resumes + ledger.failures
    expect(max(ledger.asked.values(), default=0) <= most, f"a call was made more often than {most} times")
    twice = [serial for serial, count in ledger.effects.items() if count > 1]
    expect(not twice, f"these had their effect twice: {twice}")
    for state in born.values():
        _check_was_counted(disk, state, ledger)
        if state.status == "cancelled":
            _check_was_told(disk, state, ledger.cancels)


def _check_was_counted(disk: MemoryDisk, state: State, ledger: Ledger) -> None:
    """What models said they used is what is on record, call by call."""
    ended = [one.event.usage for one in disk.records[state.run] if isinstance(one.event, ModelCallEnded)]
    for number, usage in enumerate(ended):
        said = ledger.told.get((state.label, number), NO_USAGE)
        # Usage that could not be written is lost.
        is_lost = bool(ledger.failures) and usage == NO_USAGE
        expect(usage == said or is_lost, f"call {number} of {state.label} used {said}, and {usage} is on record")


def check_stops(disk: MemoryDisk, ledger: Ledger, able_since: float) -> None:
    """Who is told to stop does, soon."""
    for (run, number), stopped_at in ledger.stopped.items():
        end = next((one.clock for one in disk.records[run] if one.key == f"returned:{number}"), None)
        able_at = stopped_at if stopped_at >= able_since else able_since + AGAIN_SECONDS
        late = -1.0 if end is None else end - able_at
        expect(late <= CANCEL_SECONDS, f"{run} took {late:.2f} s to stop")


def _check_was_told(disk: MemoryDisk, state: State, cancels: Sequence[tuple[str, float]]) -> None:
    """A cancelled run was told to stop in this round, itself or through a run above it."""
    began = next(one.clock for one in reversed(disk.records[state.run]) if _begins_work(one.event))
    above, lineage = state.parent, {state.run}
    while above:
        lineage.add(above)
        parent = disk.state(above)
        above = None if parent is None else parent.parent
    is_told = any(run in lineage and (at >= began or run != state.run) for run, at in cancels)
    expect(is_told, f"{state.label} is cancelled in round {state.round}, without a request")


def _begins_work(event: Event) -> bool:
    """Whether a round begins in which something is done: one that only ends a question is asked for before it."""
    is_dismissed = isinstance(event, Resumed) and event.is_dismissed
    return isinstance(event, BEGINNINGS) and not is_dismissed


def check_root(disk: MemoryDisk, root: str, labels: Sequence[str]) -> None:
    """What must hold of a call of many tasks: every result, in the order of the tasks, and the sum of their use."""
    ending = next(one.event.outcome for one in disk.records[root] if isinstance(one.event, Returned))
    children = [state for state in disk.states() if state.parent == root]
    if isinstance(ending, Cancelled) or ending.summary.startswith(STOPPED_LATE):
        return
    text = [line[5 : line.index("]")] for line in ending.report.splitlines() if line.startswith("### [")]
    expect(text == list(labels), f"results stand in the order {text}")
    expect(len(children) == len(labels), f"{len(children)} children for {len(labels)} tasks")
    joins = [one.event for one in _first_round(disk.records[root]) if isinstance(one.event, Joined)]
    rounds = {join.child: join.round for join in joins}
    sections = ending.report.split("### [")[1:]
    for section, label in zip(sections, labels, strict=True):
        child = next(state for state in children if state.label == label)
        ends = [
            one.event.outcome for one in disk.records[child.run] if isinstance(one.event, Returned | AdmissionRefused)
        ]
        expect(ends[rounds[child.run]].report.strip() in section, f"the section of {label} has another's report")


def _first_round(records: Sequence[Record]) -> Iterator[Record]:
    return takewhile(lambda record: not isinstance(record.event, Resumed), records)


def check_budgets(disk: MemoryDisk, root: str) -> None:
    """What was really used stays within the budget of each task and of the tree, crashes or not."""
    for run, records in disk.records.items():
        grants = [one.event.grant for one in records if isinstance(one.event, Admitted | RunOpened)]
        expect(not grants or _is_within(used(records), grants[0].budget), f"{run} used more than its budget")
    tree = next(one.event.grant.budget for one in disk.records[root] if isinstance(one.event, RunOpened))
    spent = used(one for records in disk.records.values() for one in _first_round(records))
    expect(_is_within(spent, tree), f"the tree used {spent} of {tree}")
    firsts = (one for records in disk.records.values() for one in _first_round(records))
    admitted = sum(isinstance(one.event, Admitted) for one in firsts)
    expect(tree.spawns is None or admitted <= tree.spawns, f"{admitted} were spawned of {tree.spawns}")


def _is_within(usage: Usage, budget: Budget) -> bool:
    spent = amount(usage)
    pairs = ((budget.tokens, spent.tokens), (budget.cost, spent.cost), (budget.requests, spent.requests))
    return all(cap is None or (used is not None and used <= cap) for cap, used in pairs)


def outcome_facts(outcome: Outcome) -> tuple[object, ...]:
    """What an outcome says that does not depend on when and where it was reached."""
    kinds = tuple(error.code if error.code is not UNSET else error.type for error in outcome.errors)
    return outcome.status, outcome.report.replace(outcome.session_id, "ID"), outcome.notes, outcome.usage, kinds


def _all(disk: MemoryDisk) -> Iterator[tuple[str, Record]]:
    return ((run, record) for run, records in disk.records.items() for record in records)
