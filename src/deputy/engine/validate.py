"""Check a return against the contract, collect evidence, and ask for repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json, structs

from deputy.core import contract
from deputy.core.contract.evidence import RULE as EVIDENCE
from deputy.core.conversation import OutputSchema
from deputy.core.events import Repaired, Validated
from deputy.core.fallback import INLINE, NATIVE
from deputy.engine.loop import append_user_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.contract import FileFact, Schema
    from deputy.core.task import TaskOptions
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.loop import Report
    from deputy.engine.ports import Folder, RunContext


def instruction(run: RunContext, options: TaskOptions, backend: str) -> str:
    """The contract instruction for the prompt; empty for plain text. Only programs are asked for metadata."""
    schema = _schema(options)
    if schema is None and options.return_format == "text":
        return ""
    return contract.ask(_expected(run), schema, with_metadata=backend not in (NATIVE, INLINE))


def output_schema(options: TaskOptions) -> OutputSchema | None:
    """The output schema for the provider; the report is checked regardless."""
    if options.schema is not None:
        # Providers enforce objects only.
        is_object = options.schema.get("type") == "object"
        return OutputSchema(name="report", schema=options.schema) if is_object else None
    return OutputSchema(name="return", schema=contract.return_schema()) if options.return_format == "json" else None


async def check_report(
    run: RunContext,
    history: History,
    agent: AgentContext,
    options: TaskOptions,
    report: Report,
    sent: list[tuple[str, ...]],
    *,
    is_program: bool,
) -> Report | AgentContext:
    """Check a report against the contract; with repairs left it is sent back, and the agent that repairs it returned.

    `sent` has the problems of each repair so far. Returns of programs are read leniently, with a warning per deviation.
    """
    schema = _schema(options)
    if (schema is None and options.return_format == "text") or report.kind != "answered":
        return report
    # The key has the turn, because another candidate may follow a failed repair.
    turn, repairs = history.turn, contract.repairs_allowed(agent.repairs)
    checked, problems = await _checked(run, agent, options, schema, report, turn, is_lenient=is_program)
    messages = tuple(problem.message for problem in problems)
    await run.record(f"validated:{turn}", Validated(problems=messages))
    if checked is not None:
        return checked
    if not contract.may_repair(messages, sent, repairs):
        error = contract.invalid_return(problems, _agent(run), repairs=len(sent))
        return structs.replace(report, kind="invalid", error=error)
    sent.append(messages)
    await run.record(f"repaired:{turn}", Repaired(attempt=len(sent), problems=messages))
    message = contract.repair_message(problems, _expected(run), schema, with_metadata=is_program)
    await append_user_message(run, history, f"repair:{turn}", message)
    return _for_repair(agent, problems)


async def _checked(
    run: RunContext,
    agent: AgentContext,
    options: TaskOptions,
    schema: Schema | None,
    report: Report,
    turn: int,
    *,
    is_lenient: bool,
) -> tuple[Report | None, Sequence[contract.ContractProblem]]:
    if schema is not None:
        parsed = contract.read(report.text, schema=schema)
        if not parsed.is_valid:
            return None, parsed.problems
        # The caller gets only the value, without the text around it.
        return structs.replace(report, text=json.encode(parsed.return_).decode()), ()
    checked = contract.read(report.text, _expected(run, agent.folder.root), "lenient" if is_lenient else "strict")
    if checked.return_ is None:
        return None, checked.problems
    paths = tuple(artifact.path for artifact in checked.return_.artifacts)
    facts = await collect_evidence(run, f"evidence:{turn}", paths, agent.folder)
    # Files written in earlier rounds count as evidence too.
    since = run.state.requested_at
    problems = contract.weigh_evidence(checked.return_, facts, kind=options.kind or None, started_at=since)
    if problems:
        return None, problems
    return structs.replace(report, returned=checked.return_, corrections=checked.corrections), ()


async def collect_evidence(run: RunContext, key: str, paths: tuple[str, ...], folder: Folder) -> Sequence[FileFact]:
    """The state of these files on disk."""
    return await run.value(key, list[contract.FileFact], folder.facts, paths, step="evidence") if paths else ()


def _for_repair(agent: AgentContext, problems: Sequence[contract.ContractProblem]) -> AgentContext:
    """The agent for a repair: if only the form is wrong, the output schema outranks the tools."""
    output = agent.settings.output
    if output is None or any(problem.rule == EVIDENCE for problem in problems):
        return agent
    strict = structs.replace(output, outranks_tools=True)
    return structs.replace(agent, settings=structs.replace(agent.settings, output=strict))


def _expected(run: RunContext, workspace: str | None = None) -> contract.ExpectedReturn:
    lineage = run.lineage
    return contract.ExpectedReturn(
        session_id=run.run, depth=lineage.depth, path=lineage.names, workspace=workspace, fills_metadata=True
    )


def _agent(run: RunContext) -> str:
    """The agent that made the return, as an error names it."""
    target = run.lineage.path[-1]
    return f"the agent {target.name!r}" if target.role == "agent" else f"the task {run.state.label!r}"


def _schema(options: TaskOptions) -> Schema | None:
    return None if options.schema is None else contract.schema_of(options.schema)
