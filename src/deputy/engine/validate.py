"""Whether what came back is what was asked for: read, checked, weighed, and sent back with its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct, json, structs

from deputy.core import contract
from deputy.core.contract import Return
from deputy.core.contract.evidence import RULE as EVIDENCE
from deputy.core.conversation import OutputSchema
from deputy.core.errors import Error
from deputy.core.events import Repaired, StepEnded, StepLost, Validated
from deputy.engine.loop import Report, append_user_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.core.contract import FileFact, Schema
    from deputy.core.task import TaskOptions
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import Folder, RunContext


class ValidReturn(Struct, frozen=True, kw_only=True):
    """A report that is what was asked for: plain text, a return, or a value of the caller's own schema."""

    report: Report
    returned: Return | None = None
    value: Any = None
    liberties: tuple[str, ...] = ()
    """What was read as something else than it says."""


class InvalidReturn(Struct, frozen=True, kw_only=True):
    """A report that still breaks the contract after it was sent back."""

    report: Report
    error: Error


class EvidenceArgs(Struct, frozen=True, kw_only=True):
    """The files to look at."""

    paths: tuple[str, ...]


def instruction(run: RunContext, options: TaskOptions) -> str:
    """What a target is told about the form of its return; nothing for plain text."""
    schema = _schema(options)
    if schema is None and options.return_format == "text":
        return ""
    return contract.ask(_expected(run), schema)


def output_schema(options: TaskOptions) -> OutputSchema | None:
    """What the provider is asked to hold the report to, where it can; whether it did is checked all the same."""
    if options.schema is not None:
        # Providers enforce objects only.
        is_object = options.schema.get("type") == "object"
        return OutputSchema(name="report", schema=options.schema) if is_object else None
    return OutputSchema(name="return", schema=contract.return_schema()) if options.return_format == "json" else None


async def accept(
    run: RunContext,
    history: History,
    agent: AgentContext,
    options: TaskOptions,
    report: Report,
    *,
    answer: Callable[[AgentContext], Awaitable[Report]],
    is_lenient: bool = False,
) -> ValidReturn | InvalidReturn:
    """Take the report if it holds to the contract; else send it back with every problem, a bounded number of times.

    `answer` gives the next report; what real programs write is read leniently, and every liberty is told.
    """
    schema = _schema(options)
    if schema is None and options.return_format == "text":
        return ValidReturn(report=report)
    repairs = contract.repairs_allowed(agent.repairs)
    for attempt in range(repairs + 1):
        if report.kind != "answered":
            return ValidReturn(report=report)
        # By its turn, since another way may be gone after a repair that came to nothing.
        turn = history.turn
        accepted, problems = await _checked(run, agent, options, schema, report, turn, is_lenient=is_lenient)
        messages = tuple(problem.message for problem in problems)
        await run.record(f"validated:{turn}", Validated(problems=messages))
        if accepted is not None:
            return accepted
        if attempt == repairs:
            return InvalidReturn(report=report, error=contract.invalid_return(problems, repairs=repairs))
        await run.record(f"repaired:{turn}", Repaired(attempt=attempt + 1, problems=messages))
        await append_user_message(
            run, history, f"repair:{turn}", contract.repair_message(problems, _expected(run), schema)
        )
        report = await answer(_for_repair(agent, problems))
    raise AssertionError("the last attempt returns")


async def _checked(
    run: RunContext,
    agent: AgentContext,
    options: TaskOptions,
    schema: Schema | None,
    report: Report,
    turn: int,
    *,
    is_lenient: bool,
) -> tuple[ValidReturn | None, Sequence[contract.ContractProblem]]:
    if schema is not None:
        parsed = contract.read(report.text, schema=schema)
        if not parsed.is_valid:
            return None, parsed.problems
        # The caller gets the value alone, whatever the model wrote around it.
        bare = structs.replace(report, text=json.encode(parsed.return_).decode())
        return ValidReturn(report=bare, value=parsed.return_), ()
    checked = contract.read(report.text, _expected(run, agent.folder.root), "lenient" if is_lenient else "strict")
    if checked.return_ is None:
        return None, checked.problems
    paths = tuple(artifact.path for artifact in checked.return_.artifacts)
    facts = await collect_evidence(run, f"evidence:{turn}", paths, agent.folder)
    # Every round counts: what an earlier one wrote is evidence in a later one.
    since = run.state.requested_at
    problems = contract.weigh_evidence(checked.return_, facts, kind=options.kind or None, started_at=since)
    return (
        (None, problems)
        if problems
        else (
            ValidReturn(report=report, returned=checked.return_, liberties=checked.liberties),
            (),
        )
    )


async def collect_evidence(run: RunContext, key: str, paths: tuple[str, ...], folder: Folder) -> Sequence[FileFact]:
    """What is on disk where these files are said to be."""
    if not paths:
        return ()
    ended = await run.step(key, _read_evidence, EvidenceArgs(paths=paths), view=folder)
    if isinstance(ended, StepLost) or ended.result is UNSET:
        raise TypeError("looking may be repeated, is never lost and has a result")
    return json.decode(ended.result, type=list[contract.FileFact])


async def _read_evidence(args: EvidenceArgs, folder: Folder) -> StepEnded:
    return StepEnded(step="evidence", result=Raw(json.encode(await folder.facts(args.paths))))


def _for_repair(agent: AgentContext, problems: Sequence[contract.ContractProblem]) -> AgentContext:
    """The desk at which a report is put right: where only its form is wrong, the form comes before the tools."""
    output = agent.settings.output
    if output is None or any(problem.rule == EVIDENCE for problem in problems):
        return agent
    strict = structs.replace(output, outranks_tools=True)
    return structs.replace(agent, settings=structs.replace(agent.settings, output=strict))


def _expected(run: RunContext, workspace: str | None = None) -> contract.ExpectedReturn:
    lineage = run.state.lineage
    if lineage is None:
        return contract.ExpectedReturn(session_id=run.run, workspace=workspace)
    return contract.ExpectedReturn(session_id=run.run, depth=lineage.depth, path=lineage.names, workspace=workspace)


def _schema(options: TaskOptions) -> Schema | None:
    return None if options.schema is None else contract.schema_of(options.schema)
