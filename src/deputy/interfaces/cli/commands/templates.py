"""`deputy templates`: list, match and check subtask templates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.commands.agents import home
from deputy.interfaces.cli.output import show, show_json
from deputy.interfaces.text_lines import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.agents.templates.build_template import TemplateProblem
    from deputy.agents.templates.template_files import Templates
    from deputy.core.subtask.template import Template
    from deputy.core.subtask.template_match import TemplateScore

NOTHING_FOUND = 3
SHOWN = 5
_WIDTH = 100

EXAMPLE = """\
To define one, write .deputy/templates/verify.md:

    ---
    type: verification
    description: Check that code does what it claims.
    inputs:
      code: string
    ---
    Read {{code}} and say whether it is right."""

_dir = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    help="Start in DIR instead of the current directory.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("templates", invoke_without_command=True)
@_dir
@_json
@click.pass_context
def command(ctx: click.Context, directory: str, as_json: bool) -> None:
    """List, match and check subtask templates.

    A template is a *.md or *.xml file in .deputy/templates. Deputy looks in DIR and above it up to the root of the
    repository, then in your home directory. Of two templates with one name the nearer one is used.

    \b
    Examples:
      deputy templates
      deputy templates match "check that the parser is right" --type verification
      deputy templates check

    \b
    Exit codes:
      0 found some   1 a template has an error   2 usage   3 found none
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_all, directory=directory, as_json=as_json)


@command.command("list")
@_dir
@_json
def list_all(directory: str, as_json: bool) -> None:
    """List the templates."""
    found = _load(directory)
    if as_json:
        show_json({"templates": [_template_dict(one) for one in found.templates], "problems": _problems(found)})
    else:
        show("\n".join(_listed(found)))
    sys.exit(0 if found.templates else NOTHING_FOUND)


@command.command()
@click.argument("description")
@click.option("--type", "kind", metavar="T", default="atomic", help="The type of the request.")
@click.option("--hint", "hints", metavar="H", multiple=True, help="A template hint; repeat it for more.")
@_dir
@_json
def match(description: str, kind: str, hints: tuple[str, ...], directory: str, as_json: bool) -> None:
    """Show which template a request with this DESCRIPTION matches, with the best scores."""
    from deputy.core.subtask.subtask_request import SubtaskRequest
    from deputy.core.subtask.template_match import THRESHOLD, TemplateIndex

    if not description.strip():
        raise UsageError("DESCRIPTION", description, "describe the request")
    request = SubtaskRequest(type=kind, description=description, template_hints=hints)
    index = TemplateIndex(_load(directory).templates)
    chosen = index.match(request)
    best = index.best(request, SHOWN)
    if as_json:
        name = None if chosen is None else plain(chosen.template.name)
        show_json({"match": name, "threshold": THRESHOLD, "scores": [_score_dict(one) for one in best]})
    else:
        show("\n".join(_scored(chosen, best, THRESHOLD)))
    sys.exit(0 if chosen is not None else NOTHING_FOUND)


@command.command()
@_dir
@_json
def check(directory: str, as_json: bool) -> None:
    """Check the templates; each problem has file, line, rule and remedy."""
    found = _load(directory)
    if as_json:
        show_json({"checked": len(found.templates), "problems": _problems(found)})
    else:
        count = len(found.templates)
        lines = [_finding_line(finding) for finding in found.findings]
        show("\n".join([*lines, f"{count} usable template{'s' * (count != 1)}."]))
    sys.exit(1 if any(finding.is_fatal for finding in found.findings) else 0)


def _load(directory: str) -> Templates:
    from deputy.agents.templates.template_files import load_templates

    try:
        start = Path(directory).resolve(strict=True)
    except OSError as error:
        raise UsageError("--dir", directory, f"cannot look from there: {error.strerror}; give a directory") from error
    return load_templates(start, home())


def _template_dict(template: Template) -> dict[str, Any]:
    return {
        "name": plain(template.name),
        "type": plain(template.type),
        "subtype": plain(template.subtype) or None,
        "description": plain(template.description),
        "inputs": [
            {
                "name": plain(one.name),
                "type": one.type,
                "required": one.is_required,
                "description": plain(one.description),
            }
            for one in template.inputs
        ],
        "context_management": template.context_management,
        "model": template.model and plain(template.model),
        "path": plain(template.path),
    }


def _problems(found: Templates) -> list[dict[str, Any]]:
    return [
        {
            "path": plain(finding.path),
            "line": finding.line,
            "rule": finding.rule,
            "message": plain(finding.message),
            "is_fatal": finding.is_fatal,
        }
        for finding in found.findings
    ]


def _score_dict(score: TemplateScore) -> dict[str, Any]:
    return {
        "name": plain(score.template.name),
        "score": score.total,
        "type": score.type,
        "hints": score.hints,
        "description": score.description,
        "shared_words": score.shared,
    }


def _listed(found: Templates) -> Iterator[str]:
    for template in found.templates:
        inputs = ", ".join(f"{one.name}{'' if one.is_required else '?'}" for one in template.inputs)
        yield f"{template.name} ({template.type}{f': {inputs}' if inputs else ''})"
        yield f"    {one_line(template.description, _WIDTH)}"
    yield from (_finding_line(finding) for finding in found.findings)
    if not found.templates:
        yield f"No templates found. Looked in: {', '.join(found.folders)}"
        yield EXAMPLE


def _finding_line(finding: TemplateProblem) -> str:
    kind = "error" if finding.is_fatal else "warning"
    return f"{finding.path}:{finding.line}: {kind} ({finding.rule}): {finding.message}"


def _scored(chosen: TemplateScore | None, best: Sequence[TemplateScore], threshold: float) -> Iterator[str]:
    yield "No template matches; the default one is used." if chosen is None else f"{chosen.template.name} matches best."
    for one in best:
        words = f", shared words: {', '.join(one.shared)}" if one.shared else ""
        parts = f"type {one.type:.2f}, hints {one.hints:.2f}, description {one.description:.2f}"
        yield f"  {one.total:.3f}  {one.template.name}  ({parts}{words})"
    yield f"  {threshold:.3f}  (the minimum score)"
