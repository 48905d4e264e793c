"""`deputy exec`: run the delegation requests found in a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deputy.config import load_effective_settings, load_tables
from deputy.core.detect import LIMIT_REQUESTS, FoundRequest, detect
from deputy.core.errors import UsageError
from deputy.core.model_name import ONLY_A_PERSON, is_script
from deputy.core.task import DelegateCall, Task
from deputy.interfaces.cli.commands.delegate import DelegateOptions, run_call
from deputy.interfaces.cli.file_argument import read_text
from deputy.interfaces.cli.runner import NOTHING_FOUND, run_command
from deputy.interfaces.text_lines import one_line

if TYPE_CHECKING:
    import asyncio

EXAMPLES = """\b
Examples:
  deputy exec workflow.md
  deputy exec --yes --parallel review.md
  echo "Please use a subagent to review src/auth.py" | deputy exec -y -

\b
`deputy detect` shows the requests and runs none. A request uses the model
that it names, or that its words suggest. It runs in Deputy's own loop if
there is a key, else in an installed program of the provider, else in
cursor-agent, and last on this session's model, without isolation.

\b
Exit codes:
  0 all completed   1 failed    2 usage          3 no request
  4 some completed, or partial  5 blocked        6 not approved
  130 cancelled"""


@click.command(epilog=EXAMPLES)
@click.argument("file", metavar="FILE|-")
@click.option("--model", metavar="M", help="The session's own model, used when no subagent can run.")
@click.option("--parallel", is_flag=True, help="Run the requests in parallel, not one after another.")
@click.option("--workspace", default=".", type=click.Path(exists=True, file_okay=False), help="The folder they see.")
@click.option("-y", "--yes", is_flag=True, help="Approve everything without asking.")
@click.option("--no-fallback", is_flag=True, help="Never try another model or backend when one fails.")
@click.option("--no-inline", is_flag=True, help="Never fall back to the session's own model.")
@click.option("--events", metavar="FILE|-", help="Write events as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    model: str | None,
    parallel: bool,
    workspace: str,
    yes: bool,
    no_fallback: bool,
    no_inline: bool,
    events: str | None,
    as_json: bool,
) -> None:
    """Run the delegation requests found in a text.

    They run one after another and only read the workspace. Progress goes to
    standard error, the results, in the order of the text, to standard output.
    """
    settings = load_effective_settings(workspace)
    found = detect(read_text(file), load_tables(workspace), limit=LIMIT_REQUESTS + 1)
    requests = found[:LIMIT_REQUESTS]
    if not requests:
        name = "standard input" if file == "-" else one_line(file, 200)
        click.echo(f"deputy: no delegation request in {name}", err=True)
        ctx.exit(NOTHING_FOUND)
    if len(found) > len(requests):
        click.echo(f"deputy: only the first {LIMIT_REQUESTS} requests are run", err=True)
    for request in requests:
        if is_script(request.model or ""):
            raise UsageError("model", request.model, ONLY_A_PERSON)
    how = DelegateOptions(
        model=model,
        workspace=workspace,
        yes=yes,
        events=events,
        settings=settings,
        fallback=False if no_fallback else None,
        inline=False if no_inline else None,
        shows_ways=True,
    )

    async def run(stop: asyncio.Event) -> int:
        tasks = [await _task(number, one, stop) for number, one in enumerate(requests, start=1)]
        call = DelegateCall(
            tasks=tuple(tasks),
            concurrency=settings.concurrency if parallel else 1,
            result_form="json" if as_json else "markdown",
        )
        return await run_call(call, how, stop)

    ctx.exit(run_command(run))


async def _task(number: int, request: FoundRequest, stop: asyncio.Event) -> Task:
    """A request as a task; an unclear request is clarified at the terminal, if there is one."""
    from deputy.interfaces.cli.terminal_prompt import NO_ANSWER, TerminalPrompt, can_ask

    label, prompt = f"request-{number}", request.normalized
    if request.is_unclear and can_ask():
        from deputy.core.detect.normalize import normalize
        from deputy.interfaces.questions import Question

        asked = f"What should be done? The text only says: {one_line(request.prompt, 200)}"
        said = await TerminalPrompt(stop).answer(Question(session_id="", label=label, topic="answer", text=asked))
        if said is False:
            raise UsageError(
                label, request.prompt, "it does not say what to do, and you gave no answer; nothing was run"
            )
        if isinstance(said, str) and said and said != NO_ANSWER:
            prompt = normalize(
                system=request.system, task=said, context=(*request.context, request.prompt), output=request.output
            )
    return Task(label=label, prompt=prompt, model=request.resolved_model, degradation=request.degradation or "")
