"""Results of calls, read from their records: of the tasks of a fan-out, and of a refinement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, DecodeError, Raw, Struct, json, structs

from deputy.core.contract import check_schema, invalid_return, schema_of
from deputy.core.errors import Error, passed_up, remedy
from deputy.core.events import RunOpened, Spawned
from deputy.core.outcome import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Partial,
    Rejected,
    how_to_resume_call,
    shortened,
)
from deputy.core.refinement import MAX_ROUNDS, AgentEvaluator, Ending, Refinement, Round, best_round
from deputy.core.request import task_hop
from deputy.core.results import Result, outcomes_markdown, results_markdown
from deputy.engine.call import DELEGATE, RUN, FanOut
from deputy.engine.refine import ending_of, rounds_of
from deputy.interfaces.cancel_tree import cancel_remaining
from deputy.interfaces.validation import check_prompt, check_refinement, check_tools
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from deputy.core.events import Record
    from deputy.core.refinement import Evaluator
    from deputy.core.state import State
    from deputy.core.task import Task
    from deputy.wiring import Runtime

_T = TypeVar("_T")


def tasks_of(records: Iterable[Record]) -> tuple[Task, ...]:
    """The tasks of a call; empty when the run is no fan-out call."""
    start = next((record.event for record in records if isinstance(record.event, RunOpened)), None)
    if start is None or start.command != DELEGATE or start.arguments is UNSET:
        return ()
    return json.decode(start.arguments, type=FanOut).tasks


def children_of(records: Iterable[Record]) -> dict[int, str]:
    """The runs that a call has spawned, by the index of the task."""
    spawned = {r.key.rpartition("/")[2]: r.event.child for r in records if isinstance(r.event, Spawned)}
    return {int(key.removeprefix("task.")): child for key, child in spawned.items() if key.startswith("task.")}


def never_started(task: Task, whole: Outcome) -> Cancelled | Rejected:
    """The outcome of a task that never started, and so has no session id."""
    lineage = structs.replace(
        whole.lineage,
        session_id="",
        depth=whole.lineage.depth + 1,
        path=(*whole.lineage.path, task_hop(task.label)),
    )
    if isinstance(whole, Rejected):
        return structs.replace(whole, lineage=lineage)
    return Cancelled(lineage=lineage, summary="It was not started: the whole call ended first.")


def brought_up_to_date(whole: Outcome, results: Sequence[Result]) -> Outcome:
    """The outcome of a call, updated when blocked tasks were cancelled after it ended."""
    outcomes = [result.outcome for result in results]
    if not isinstance(whole, Partial) or not any(isinstance(outcome, Cancelled) for outcome in outcomes):
        return whole
    stopped = Error(
        type="cancelled",
        code="CANCELLED",
        message="Subagents were cancelled.",
        recoverable=True,
        recommendation=how_to_resume_call(whole.session_id),
    )
    own = [error for error in whole.errors if error.session_id is UNSET and error.type != stopped.type]
    errors = (stopped, *own, *(error for one in outcomes for error in passed_up(one.errors, one.session_id)))
    return structs.replace(whole, report=results_markdown(results), errors=errors, next_steps=remedy(errors))


async def results_of(
    of: Runtime, state: State, whole: Outcome, schemas: Sequence[object] = (), *, redact: bool = False
) -> tuple[Result, ...]:
    """The result of each task of an ended call, in their order; of any other run its one result.

    `schemas` are the types that the program gave as schemas of the tasks. `redact` hides secrets.
    """
    records = await of.journal.records(state.run)
    tasks, children = tasks_of(records), children_of(records)
    if not tasks:
        return (Result(label=state.label or state.command or RUN, outcome=whole),)
    if whole.status != "completed":
        # A call that failed may have left tasks running.
        await cancel_remaining(of, state.run)
    ended = await of.journal.outcomes(list(children.values()))

    async def outcome_of(index: int, task: Task) -> Outcome:
        child = children.get(index)
        if child is None:
            return never_started(task, whole)
        return ended.get(child) or await of.engine.result(child)

    outcomes = [await outcome_of(index, task) for index, task in enumerate(tasks)]
    given = schemas or [task.schema for task in tasks]
    valued = [with_value(outcome, schema) for outcome, schema in zip(outcomes, given, strict=True)]
    if redact:
        valued = [redacted_outcome(outcome, schema) for outcome, schema in zip(valued, given, strict=True)]
    return tuple(Result(label=task.label, outcome=outcome) for task, outcome in zip(tasks, valued, strict=True))


def with_value(outcome: Outcome, schema: object) -> Outcome:
    """The outcome with its report as a value of the schema's type; failed if that type refuses the report."""
    if schema is None or not isinstance(outcome, Completed):
        return outcome
    value = json.decode(outcome.report)
    if isinstance(schema, dict | bool):
        return structs.replace(outcome, value=value)
    checked = check_schema(value, schema_of(schema))
    if checked.is_valid:
        return structs.replace(outcome, value=checked.return_)
    # The JSON Schema of a type does not have all of its rules.
    error = invalid_return(checked.problems, f"the task {outcome.lineage.path[-1].name!r}", repairs=0)
    fields: dict[str, Any] = {**structs.asdict(outcome), "summary": shortened(error.message), "errors": (error,)}
    return Failed(**fields)


_NO_VALUE = "`value` is left out: without its secrets, the report does not fit the schema."


def redacted_outcome(outcome: Outcome, schema: object = None) -> Outcome:
    """The outcome without its secrets; the value is made from the redacted report."""
    shown = _redacted(structs.replace(outcome, value=None), Outcome)
    if outcome.value is None or shown.report == outcome.report:
        return structs.replace(shown, value=outcome.value)
    try:
        valued = with_value(shown, schema)
    except DecodeError:
        valued = shown
    return valued if valued.value is not None else structs.replace(shown, warnings=(*shown.warnings, _NO_VALUE))


def _redacted(value: _T, kind: Any) -> _T:
    return json.decode(process_redactor().redact_json(json.encode(value)), type=kind)


# --- refinements ------------------------------------------------------------------------------------------------------


class Refined(Struct, frozen=True, kw_only=True):
    """The result of a refinement: its outcome, whose report is the best round's work, and all rounds."""

    outcome: Outcome
    rounds: tuple[Round, ...]
    ending: Ending

    @property
    def best(self) -> Round | None:
        """The round that is kept."""
        return best_round(self.rounds)

    def _repr_markdown_(self) -> str:
        """The refinement in a notebook."""
        return outcomes_markdown([self.outcome])


def arguments_of(
    task: str,
    evaluator: Evaluator | str,
    *,
    rounds: int,
    tools: Sequence[str] | None,
    known: Collection[str],
    workspace: Path,
) -> Raw:
    """Check the arguments of a refinement; a str as evaluator is the criteria of an agent evaluator."""
    check_prompt(task)
    judge = AgentEvaluator(criteria=evaluator) if isinstance(evaluator, str) else evaluator
    check_refinement(judge, rounds, workspace)
    check_tools(tools or (), known, "tools")
    return Raw(json.encode(Refinement(evaluator=judge, rounds=rounds, tools=None if tools is None else tuple(tools))))


async def refined(of: Runtime, session_id: str, *, redact: bool = False) -> Refined:
    """Wait for the end of a refinement, and return it with all rounds; `redact` hides secrets."""
    outcome = await of.engine.result(session_id)
    records = await of.journal.records(session_id)
    call = next(record.event.arguments for record in records if isinstance(record.event, RunOpened))
    limit = MAX_ROUNDS if call is UNSET else json.decode(call, type=Refinement).rounds
    rounds = tuple(rounds_of(records))
    ending = ending_of(rounds, limit)
    if redact:
        outcome, rounds = redacted_outcome(outcome), _redacted(rounds, tuple[Round, ...])
    return Refined(outcome=outcome, rounds=rounds, ending=ending)
