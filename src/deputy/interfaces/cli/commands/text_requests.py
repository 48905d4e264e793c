"""`deputy detect` and `deputy exec`: show or run the delegation requests in a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import structs

from deputy.config import load_effective_settings, load_tables
from deputy.core.detect import LIMIT_REQUESTS, FoundRequest, detect, request_json
from deputy.core.request import ALLOWABLE, READ_ONLY_TOOLS
from deputy.interfaces.cli.completers import complete_agent
from deputy.interfaces.cli.console import (
    NOTHING_FOUND,
    SPAWN_OPTIONS,
    Console,
    RunOptions,
    counted,
    read_text,
    show,
    show_json,
    warn,
    with_console,
    with_run_options,
)
from deputy.interfaces.text_lines import one_line, page_width

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection

    from deputy.core.detect.phrase_tables import PhraseTables
    from deputy.core.task import Task

_LABEL = 10
_REASONS = {"explicit": "named in the text", "heuristic": "chosen by words of the task", "default": "the default"}

FILE = click.argument("file", metavar="FILE|-")


def _found(file: str, text: str, verb: str, workspace: str = ".") -> tuple[FoundRequest, ...]:
    """The requests in a text, up to the limit; warn when there are more, or none."""
    found = detect(text, load_tables(workspace), limit=LIMIT_REQUESTS + 1)
    if len(found) > LIMIT_REQUESTS:
        warn(f"only the first {LIMIT_REQUESTS} requests are {verb}")
    if not found:
        warn(f"no delegation request in {'standard input' if file == '-' else one_line(file, 200)}")
    return found[:LIMIT_REQUESTS]


# --- detect -----------------------------------------------------------------------------------------------------------

HELP = f"""Show the delegation requests in a text; run nothing.

FILE is a text file, or - for standard input. Deputy looks for <delegate> blocks, for prose that quotes a
prompt for the Task tool, and for a person's request like "please use a subagent to …". Text that only talks about
delegation is not a request.

\b
Examples:
  deputy detect workflow.md
  echo "Please delegate this to opus: review src/auth.py" | deputy detect -
  deputy detect --json workflow.md      all fields (span: in characters)
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


@click.command("detect", help=HELP)
@FILE
@click.option("--normalized", is_flag=True, help="Print only the prompts, as a subagent gets them.")
@with_console()
def detect_(console: Console, file: str, normalized: bool) -> int:
    """Show the delegation requests in a text."""
    text = read_text(file)
    requests = _found(file, text, "shown")
    if console.as_json:
        show_json({"requests": [request_json(request) for request in requests]})
    elif requests and normalized:
        show("\n\n---\n\n".join(request.normalized for request in requests))
    elif requests:
        show("\n\n".join([f"{counted(len(requests), 'request')} found; none was run", *_described(text, requests)]))
    return 0 if requests else NOTHING_FOUND


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
        ("agent", request.agent),
        ("tools", ", ".join(request.tools or ())),
        ("timeout", None if request.timeout is None else f"{request.timeout:g} s"),
        ("prompt", request.prompt),
        ("system", request.system),
        *(("context" if index == 0 else "", item) for index, item in enumerate(request.context)),
        ("output", request.output),
        ("without", request.degradation),
        *(("warning", warning) for warning in request.warnings),
        ("unclear", "the text does not say what to do, so all of it is the prompt" if request.is_unclear else None),
    ]
    return "\n".join(
        f"   {label:<{_LABEL}}{one_line(value, page_width() - _LABEL - 3)}" for label, value in rows if value
    )


# --- exec -------------------------------------------------------------------------------------------------------------

EXEC_EXAMPLES = """\b
Examples:
  deputy exec workflow.md
  deputy exec --yes --parallel review.md
  deputy exec --allow Edit --budget 0.50 fixes.md
  echo "Please use a subagent to review src/auth.py" | deputy exec -y -

\b
A <delegate> block may have the attributes model, agent, tools (a list) and
timeout (seconds). They never give more than --allow, --tools and reading.

\b
`deputy detect` shows the requests and runs none. A request uses the model
that it names, or that its words suggest. It runs in Deputy's own loop if
there is a key, else in an installed program of the provider, else in
cursor-agent, else with this session's own model (--model).

\b
Exit codes:
  0 all completed   1 failed    2 usage          3 no request
  4 some completed, or partial  5 blocked        6 not approved
  130 cancelled"""


@click.command("exec", epilog=EXEC_EXAMPLES)
@FILE
@click.option("--parallel", is_flag=True, help="Run the requests in parallel, not one after another.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="The agent for requests that name none; `deputy agents` lists them.",
)
@with_run_options(
    *SPAWN_OPTIONS,
    "allow",
    model="The session's own model; it runs what no other model can.",
    budget="The most that all requests may use: dollars, like 0.50, or cost=0.50,tokens=100000,requests=20.",
    timeout="Time limit of each request.",
    tools="Tools of each request, instead of the read-only ones.",
)
@with_console("Print the results as JSON.")
def exec_(console: Console, file: str, parallel: bool, agent: str | None, options: RunOptions) -> int:
    """Run the delegation requests found in a text.

    They run one after another, and only read the workspace unless --allow or
    --tools names tools that write. Progress goes to standard error, the
    results, in the order of the text, to standard output.
    """
    from deputy.core.errors import UsageError
    from deputy.core.fallback import ONLY_A_PERSON, is_script
    from deputy.core.task import DelegateCall
    from deputy.interfaces.cli.commands.delegate import run_call
    from deputy.interfaces.cli.runner import run_command

    workspace = str(options.workspace)
    settings = load_effective_settings(workspace)
    requests = _found(file, read_text(file), "run", workspace)
    if not requests:
        return NOTHING_FOUND
    for request in requests:
        if is_script(request.model or ""):
            raise UsageError("model", request.model, ONLY_A_PERSON)
    tables = load_tables(workspace)

    async def run(stop: asyncio.Event) -> int:
        clear = [await _clarified(number, one, tables, stop) for number, one in enumerate(requests, start=1)]
        call = DelegateCall(
            tasks=tuple(_task(number, one, agent, options.timeout) for number, one in enumerate(clear, start=1)),
            concurrency=settings.concurrency if parallel else 1,
            result_form="json" if console.as_json else "markdown",
        )
        # What a text names is not what the person who runs it grants.
        named = {task.label for task, one in zip(call.tasks, clear, strict=True) if one.agent or one.tools}
        within = READ_ONLY_TOOLS | {*options.allow, *(options.tools or ())}
        return await run_call(
            call,
            options,
            stop,
            shows_routing=True,
            narrow=lambda task: _narrowed(task, within) if task.label in named else task,
        )

    return run_command(run)


async def _clarified(number: int, request: FoundRequest, tables: PhraseTables, stop: asyncio.Event) -> FoundRequest:
    """The request; if it is unclear, with the task that a person at the terminal gives instead."""
    from deputy.interfaces.cli.terminal_prompt import NO_ANSWER, TerminalPrompt, can_ask

    for warning in request.warnings:
        warn(f"warning: request-{number}: {warning}")
    if not request.is_unclear or not can_ask():
        return request
    from deputy.core.approval import Question
    from deputy.core.detect.find_requests import complete
    from deputy.core.detect.found_request import RequestDraft
    from deputy.core.errors import UsageError

    label = f"request-{number}"
    asked = f"What should be done? The text only says: {one_line(request.prompt, 200)}"
    said = await TerminalPrompt(stop).answer(Question(session_id="", label=label, topic="answer", text=asked))
    if said is False:
        raise UsageError(label, request.prompt, "it does not say what to do, and you gave no answer; nothing was run")
    if not isinstance(said, str) or said == NO_ANSWER:
        return request
    draft = RequestDraft(
        pattern=request.pattern,
        span=request.span,
        prompt=said,
        model=request.model,
        system=request.system,
        context=(*request.context, request.prompt),
        output=request.output,
        degradation=request.degradation,
    )
    return complete(draft, tables)


def _task(number: int, request: FoundRequest, agent: str | None, seconds: float | None) -> Task:
    from deputy.core.task import Task

    return Task(
        label=f"request-{number}",
        prompt=request.normalized,
        model=request.resolved_model,
        agent=request.agent or agent,
        tools=request.tools,
        timeout=min((limit for limit in (request.timeout, seconds) if limit is not None), default=None),
        degradation=request.degradation or "",
    )


def _narrowed(task: Task, within: Collection[str]) -> Task:
    """The task with only those of its tools that are granted; warn of the others."""
    others = [name for name in task.tools or () if name not in within]
    if not others:
        return task
    options = " ".join(f"--allow {name}" for name in others if name in ALLOWABLE)
    remedy = f"; {options} allows it" if options else ""
    warn(f"warning: {task.label} may not use {', '.join(others)}, which the text or its agent names{remedy}")
    return structs.replace(task, tools=tuple(name for name in task.tools or () if name in within) or None)


COMMANDS = {"detect": detect_, "exec": exec_}
