"""`deputy templates`: list, match and check subtask templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.commands.agents import home, start_folder, with_dir
from deputy.interfaces.cli.console import NOTHING_FOUND, Console, counted, fitted, with_console
from deputy.interfaces.text_lines import one_line, page_width, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.agents.templates.build_template import TemplateProblem
    from deputy.agents.templates.template_files import Templates
    from deputy.core.subtask.template import Template
    from deputy.core.subtask.template_match import TemplateScore

SHOWN = 5

EXAMPLE = """\
To define one, write .deputy/templates/verify.md:

    ---
    type: verification
    description: Check that code does what it claims.
    inputs:
      code: string
    ---
    Read {{code}} and say whether it is right."""


@click.group("templates", invoke_without_command=True)
@with_dir
@with_console()
def command(console: Console, directory: str) -> int:
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
    return 0 if click.get_current_context().invoked_subcommand else _list(console, directory)


@command.command("list")
@with_dir
@with_console()
def list_all(console: Console, directory: str) -> int:
    """List the templates."""
    return _list(console, directory)


def _list(console: Console, directory: str) -> int:
    found = _load(directory)
    form = {"templates": [_template_dict(one) for one in found.templates], "problems": _problems(found)}
    console.show(form, _listed(found))
    return 0 if found.templates else NOTHING_FOUND


@command.command()
@click.argument("description")
@click.option("--type", "kind", metavar="T", default="atomic", help="The type of the request.")
@click.option("--hint", "hints", metavar="H", multiple=True, help="A template hint; repeat it for more.")
@with_dir
@with_console()
def match(console: Console, description: str, kind: str, hints: tuple[str, ...], directory: str) -> int:
    """Show which template a request matches, and why.

    DESCRIPTION is the description of the request. The best scores are listed.
    """
    from deputy.core.subtask.subtask_request import SubtaskRequest
    from deputy.core.subtask.template_match import THRESHOLD, TemplateIndex

    if not description.strip():
        raise UsageError("DESCRIPTION", description, "say in words what the request is for")
    request = SubtaskRequest(type=kind, description=description, template_hints=hints)
    index = TemplateIndex(_load(directory).templates)
    chosen = index.match(request)
    best = index.best(request, SHOWN)
    name = None if chosen is None else plain(chosen.template.name)
    form = {"match": name, "threshold": THRESHOLD, "scores": [_score_dict(one) for one in best]}
    console.show(form, _scored(chosen, best, THRESHOLD))
    return 0 if chosen is not None else NOTHING_FOUND


@command.command()
@with_dir
@with_console()
def check(console: Console, directory: str) -> int:
    """Check the templates; each problem has file, line, rule and remedy."""
    found = _load(directory)
    count = len(found.templates)
    lines = [*map(_finding_line, found.findings), f"{counted(count, 'usable template')}."]
    console.show({"checked": count, "problems": _problems(found)}, lines)
    return 1 if any(finding.is_fatal for finding in found.findings) else 0


def _load(directory: str) -> Templates:
    from deputy.agents.templates.template_files import load_templates

    return load_templates(start_folder(directory), home())


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
        yield f"    {one_line(template.description, page_width() - 4)}"
    yield from (_finding_line(finding) for finding in found.findings)
    if not found.templates:
        yield fitted(f"No templates found. Looked in: {', '.join(found.folders)}")
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
