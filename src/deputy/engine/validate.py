"""Whether what came back is what was asked for: read, checked, weighed, and sent back with its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct, json, structs

from deputy.core import contract
from deputy.core.contract import Return
from deputy.core.errors import Error
from deputy.core.events import Lost, Repaired, StepEnded, Validated
from deputy.engine.loop import Report, converse, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.contract import FileFact, Schema
    from deputy.core.task import Terms
    from deputy.engine.desk import Desk
    from deputy.engine.ports import Files, RunContext
    from deputy.engine.talk import Talk


class Accepted(Struct, frozen=True, kw_only=True):
    """A report that is what was asked for: plain text, a return, or a value of the caller's own schema."""

    report: Report
    returned: Return | None = None
    value: Any = None


class NotAccepted(Struct, frozen=True, kw_only=True):
    """A report that still breaks the contract after it was sent back."""

    report: Report
    error: Error


class LookArgs(Struct, frozen=True, kw_only=True):
    """The files to look at."""

    paths: tuple[str, ...]


def instruction(run: RunContext, terms: Terms) -> str:
    """What a target is told about the form of its return; nothing for plain text."""
    schema = _schema(terms)
    if schema is None and terms.return_format == "text":
        return ""
    return contract.ask(_expected(run), schema)


async def accept(
    run: RunContext, talk: Talk, desk: Desk, terms: Terms, report: Report, files: Files
) -> Accepted | NotAccepted:
    """Take the report if it holds to the contract; else send it back with every problem, a bounded number of times."""
    schema = _schema(terms)
    if schema is None and terms.return_format == "text":
        return Accepted(report=report)
    repairs = contract.repairs_allowed(desk.repairs)
    for attempt in range(repairs + 1):
        if report.kind != "answered":
            return Accepted(report=report)
        accepted, problems = await _checked(run, terms, schema, report, files, attempt)
        messages = tuple(problem.message for problem in problems)
        await run.record(f"validated:{attempt}", Validated(problems=messages))
        if accepted is not None:
            return accepted
        if attempt == repairs:
            return NotAccepted(report=report, error=contract.invalid_return(problems, repairs=repairs))
        await run.record(f"repaired:{attempt}", Repaired(attempt=attempt + 1, problems=messages))
        await say(run, talk, f"repair:{attempt}", contract.repair_message(problems, _expected(run), schema))
        report = await converse(run, talk, desk)
    raise AssertionError("the last attempt returns")


async def _checked(
    run: RunContext, terms: Terms, schema: Schema | None, report: Report, files: Files, attempt: int
) -> tuple[Accepted | None, Sequence[contract.Problem]]:
    if schema is not None:
        parsed = contract.read(report.text, schema=schema)
        if not parsed.is_valid:
            return None, parsed.problems
        # The caller gets the value alone, whatever the model wrote around it.
        bare = structs.replace(report, text=json.encode(parsed.return_).decode())
        return Accepted(report=bare, value=parsed.return_), ()
    checked = contract.read(report.text, _expected(run))
    if checked.return_ is None:
        return None, checked.problems
    paths = tuple(artifact.path for artifact in checked.return_.artifacts)
    facts = await look(run, f"evidence:{attempt}", paths, files)
    # Every round counts: what an earlier one wrote is evidence in a later one.
    since = run.state.requested_at
    problems = contract.weigh_evidence(checked.return_, facts, kind=terms.kind or None, started_at=since)
    return (None, problems) if problems else (Accepted(report=report, returned=checked.return_), ())


async def look(run: RunContext, key: str, paths: tuple[str, ...], files: Files) -> Sequence[FileFact]:
    """What is on disk where these files are said to be."""
    if not paths:
        return ()
    ended = await run.step(key, _look, LookArgs(paths=paths), view=files)
    if isinstance(ended, Lost) or ended.result is UNSET:
        raise TypeError("looking may be repeated, is never lost and has a result")
    return json.decode(ended.result, type=list[contract.FileFact])


async def _look(args: LookArgs, files: Files) -> StepEnded:
    return StepEnded(step="look", result=Raw(json.encode(await files.facts(args.paths))))


def _expected(run: RunContext) -> contract.Expected:
    lineage = run.state.lineage
    if lineage is None:
        return contract.Expected(session_id=run.run)
    return contract.Expected(session_id=run.run, depth=lineage.depth, path=lineage.names)


def _schema(terms: Terms) -> Schema | None:
    return None if terms.schema is None else contract.schema_of(terms.schema)
