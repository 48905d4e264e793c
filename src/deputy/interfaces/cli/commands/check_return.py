"""`deputy check-return`: check a subagent's return against the return contract."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from deputy.core.contract import CheckedReturn, ExpectedReturn, Mode, Return, Schema, read, schema_of, weigh_evidence
from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import Console, counted, read_text, with_console
from deputy.interfaces.text_lines import page_width, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.core.contract import FileFact

EXAMPLES = """\b
Examples:
  deputy check-return answer.txt
  deputy check-return answer.txt --session sess_1735460684_a1b2c3 --json
  claude -p "…" | deputy check-return - --lenient
  deputy check-return answer.txt --workspace . --kind research
  deputy check-return answer.txt --schema findings.schema.json

\b
Exit codes:
  0 valid   1 invalid   2 usage"""


@click.command("check-return", epilog=EXAMPLES)
@click.argument("file", metavar="FILE|-")
@click.option("--session", metavar="ID", help="The expected session id; without it any id is valid.")
@click.option("--agent", metavar="TYPE", help="The expected agent type.")
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="The expected depth, if the return has one.")
@click.option("--path", metavar="A,B,C", help="The expected delegation path, if the return has one.")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="The folder of the artifacts: they must exist and not be empty. Without it only their paths are checked.",
)
@click.option("--since", metavar="TIME", help="With --workspace: artifacts must be newer (ISO time or seconds).")
@click.option("--kind", metavar="KIND", help="The command; after research, plan or implement, artifacts are needed.")
@click.option("--lenient", is_flag=True, help="Accept common deviations, and list each correction.")
@click.option("--schema", metavar="FILE", help="A JSON Schema to check instead of the usual form.")
@with_console("Print JSON: valid, problems, warnings, corrections, return.")
def command(
    console: Console,
    file: str,
    session: str | None,
    agent: str | None,
    depth: int | None,
    path: str | None,
    workspace: str | None,
    since: str | None,
    kind: str | None,
    lenient: bool,
    schema: str | None,
) -> int:
    """Check a subagent's return against the contract.

    FILE is the last message of the subagent: a JSON object, alone, in a code
    fence or within prose. All problems are listed, each with its rule.
    """
    if since is not None and workspace is None:
        raise UsageError("--since", since, "also give --workspace, the folder of the artifacts")
    if schema is not None:
        _refuse_with_schema(click.get_current_context().params)
    mode: Mode = "lenient" if lenient else "strict"
    started_at = _seconds(since) if since is not None else None
    own = _read_schema(schema) if schema is not None else None
    expected = ExpectedReturn(
        session_id=session,
        agent_type=agent,
        depth=depth,
        path=_names(path) if path is not None else (),
        workspace=os.path.realpath(workspace or "."),
    )
    text = read_text(file)
    checked = read(text, expected, mode, schema=own)
    is_nearly_valid = not checked.is_valid and own is None and read(text, expected, "lenient").is_valid
    hint = ["\nWith --lenient it is valid."] if is_nearly_valid else []
    if isinstance(return_ := checked.return_, Return):
        facts = _file_facts(return_, workspace) if workspace is not None else None
        if problems := weigh_evidence(return_, facts, kind=kind, started_at=started_at):
            checked = structs.replace(checked, problems=problems, return_=None)
    console.show(_form(checked), [*_lines(checked), *hint])
    return 0 if checked.is_valid else 1


def _form(checked: CheckedReturn[Any]) -> dict[str, Any]:
    return {
        "valid": checked.is_valid,
        "problems": [{"rule": problem.rule, "message": problem.message} for problem in checked.problems],
        "warnings": checked.warnings,
        "corrections": checked.corrections,
        "return": checked.return_,
    }


def _lines(checked: CheckedReturn[Any]) -> Iterator[str]:
    if checked.is_valid:
        yield from _valid_lines(checked.return_)
    else:
        yield f"invalid: {counted(len(checked.problems), 'problem')}"
        for problem in checked.problems:
            yield ""
            yield _wrapped(f"{problem.message}  [{problem.rule}]", "  ")
            if problem.remedy:
                yield _wrapped(problem.remedy, "    ")
    for title, items in (("warning", checked.warnings), ("correction", checked.corrections)):
        if items:
            yield f"\n{counted(len(items), title)}:"
            yield from (_wrapped(item, "  ") for item in items)


def _valid_lines(return_: Any) -> Iterator[str]:
    if not isinstance(return_, Return):
        yield "valid: it matches the schema"
        return
    yield f"valid: {return_.status}, {counted(len(return_.artifacts), 'artifact')}"
    yield _wrapped(return_.summary, "  ")
    yield from (_wrapped(f"- {artifact.path} ({artifact.type})", "  ") for artifact in return_.artifacts)


def _wrapped(text: str, indent: str) -> str:
    # Redacted before a line break can come between a name and its secret.
    return click.wrap_text(plain(text), width=page_width(), initial_indent=indent, subsequent_indent=indent)


def _names(path: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in path.split(","))
    if not all(names):
        raise UsageError("--path", path, "give names separated by commas, from the top down to the agent")
    return names


def _seconds(since: str) -> float:
    from datetime import datetime

    try:
        return float(since) if since.replace(".", "", 1).isdecimal() else datetime.fromisoformat(since).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError("--since", since, "give a time such as 2026-01-31T09:30:00, or seconds since 1970") from error


def _read_schema(path: str) -> Schema:
    from msgspec import DecodeError, json

    try:
        source = json.decode(read_text(path))
    except UsageError as error:
        raise UsageError("--schema", error.found, error.expected) from error
    except (DecodeError, RecursionError) as error:
        raise UsageError("--schema", path, f"it is not JSON: {error}") from error
    try:
        return schema_of(source)
    except UsageError as error:
        raise UsageError(f"--schema {path}: {error.field}", error.found, error.expected) from error


def _refuse_with_schema(given: dict[str, Any]) -> None:
    for name in ("session", "agent", "depth", "path", "workspace", "kind"):
        if given[name] is not None:
            raise UsageError(f"--{name}", given[name], "leave it out: a schema of your own does not have this field")


def _file_facts(return_: Return, workspace: str) -> list[FileFact]:
    from deputy.tools.workspace_folder import WorkspaceFolder

    folder = WorkspaceFolder(workspace)
    return [folder.fact(artifact.path) for artifact in return_.artifacts]
