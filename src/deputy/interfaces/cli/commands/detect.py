"""`deputy detect`: show the delegation requests in a text, and run none of them."""

from __future__ import annotations

import sys

import click

from deputy.config import load_tables
from deputy.core.detect import LIMIT_REQUESTS, FoundRequest, detect, request_json
from deputy.interfaces.cli.file_argument import read_text
from deputy.interfaces.cli.output import show, show_json
from deputy.interfaces.text_lines import one_line

WIDTH = 80
_LABEL = 10
_REASONS = {"explicit": "named in the text", "heuristic": "chosen by words of the task", "default": "the default"}

HELP = f"""Show the delegation requests in a text; run nothing.

FILE is a text file, or - for standard input. Deputy looks for <delegate> blocks; without any, for prose that quotes a
prompt for the Task tool; without that, for a person's request like "please use a subagent to …". Text that only talks
about delegation is not a request.

\b
Examples:
  deputy detect workflow.md
  echo "Please delegate this to opus: review src/auth.py" | deputy detect -
  deputy detect --json workflow.md      all fields; span counts characters
  deputy detect --normalized prompt.md  the prompts as a subagent gets them

\b
Add model aliases, routing words and phrases in deputy.toml, or in your own
~/.config/deputy/config.toml:
  [models.aliases]
  cheap = "haiku-4.5"
  [[models.routes]]
  words = ["benchmark", "profile"]
  model = "gpt-5.2"

Exit code 3 means that the text has no request. At most {LIMIT_REQUESTS} requests are shown.
"""


@click.command(help=HELP)
@click.argument("file", metavar="FILE|-")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--normalized", is_flag=True, help="Print only the prompts, as a subagent gets them.")
def command(file: str, as_json: bool, normalized: bool) -> None:
    """Show the delegation requests in a text."""
    text = read_text(file)
    found = detect(text, load_tables(), limit=LIMIT_REQUESTS + 1)
    requests = found[:LIMIT_REQUESTS]
    if as_json:
        show_json({"requests": [request_json(request) for request in requests]})
    elif requests and normalized:
        show("\n\n---\n\n".join(request.normalized for request in requests))
    elif requests:
        show("\n\n".join([_count(requests), *_described(text, requests)]))
    if len(found) > len(requests):
        click.echo(f"deputy: only the first {LIMIT_REQUESTS} requests are shown", err=True)
    if not requests:
        name = "standard input" if file == "-" else one_line(file, 200)
        click.echo(f"deputy: no delegation request in {name}", err=True)
        sys.exit(3)


def _count(requests: tuple[FoundRequest, ...]) -> str:
    return f"{len(requests)} request{'s' if len(requests) > 1 else ''} found; none was run"


def _described(text: str, requests: tuple[FoundRequest, ...]) -> list[str]:
    described: list[str] = []
    line = at = 0
    for number, request in enumerate(requests, 1):
        line, at = line + text.count("\n", at, request.span[0]), request.span[0]
        last = line + text.count("\n", *request.span)
        place = f"line {line + 1}" if last == line else f"lines {line + 1}-{last + 1}"
        described.append(f"{number}. {request.pattern}, {place}\n{_details(request)}")
    return described


def _details(request: FoundRequest) -> str:
    reason = _REASONS[request.model_source]
    alias = f"{request.model} → " if request.model not in (None, request.resolved_model) else ""
    rows = [
        ("model", f"{alias}{request.resolved_model} ({reason})"),
        ("prompt", request.prompt),
        ("system", request.system),
        *(("context" if index == 0 else "", item) for index, item in enumerate(request.context)),
        ("output", request.output),
        ("without", request.degradation),
        ("unclear", "the text does not say what to do, so all of it is the prompt" if request.is_unclear else None),
    ]
    return "\n".join(f"   {label:<{_LABEL}}{one_line(value, WIDTH - _LABEL - 3)}" for label, value in rows if value)
