"""`deputy ask`: one subagent that only reads; its answer is printed, and `-c` continues its conversation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deputy.core.errors import Unquoted, UsageError
from deputy.core.task import Task, label_of
from deputy.interfaces.cli.completers import complete_agent
from deputy.interfaces.cli.console import (
    Console,
    RunOptions,
    argument_or_stdin,
    note,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.outcome_output import show_outcome
from deputy.interfaces.cli.runner import not_stopped, run_command
from deputy.interfaces.safe_text import safe_message

if TYPE_CHECKING:
    import asyncio

    from deputy.interfaces.cli.live_run import LiveRun

ASK = "ask"
_SEARCHED = 1000

EXAMPLES = """\b
Examples:
  deputy ask "Where are passwords checked?"
  deputy ask -c "And where is that tested?"
  deputy ask --context src/app.py "What does main do?"
  git diff | deputy ask --json

\b
The subagent reads the workspace and the web; it changes nothing, so Deputy
asks for no approval. -c continues the last conversation of this workspace;
`deputy resume ID --answer TEXT` continues any other.

\b
Exit codes:
  0 completed   1 failed    2 usage      4 partial
  5 blocked     6 rejected   130 cancelled"""


@click.command(epilog=EXAMPLES)
@click.argument("words", nargs=-1, metavar="[QUESTION]")
@click.option(
    "-c", "--continue", "is_continued", is_flag=True, help="Continue the last conversation of this workspace."
)
@click.option("--context", multiple=True, metavar="PATH", help="A file to put before the question.")
@click.option(
    "--agent", metavar="NAME", shell_complete=complete_agent, help="The agent that answers; `deputy agents` lists them."
)
@with_run_options(
    *("model", "workspace", "budget", "timeout", "no_fallback", "no_inline", "events", "here", "worker"),
    model="provider:model or an alias; `deputy doctor` shows the default.",
)
@with_console("Print the outcome as JSON.")
def command(
    console: Console,
    words: tuple[str, ...],
    is_continued: bool,
    context: tuple[str, ...],
    agent: str | None,
    options: RunOptions,
) -> int:
    """Ask one subagent a question, and print its answer.

    QUESTION is by default read from standard input.
    """
    if not words and sys.stdin.isatty():
        note("What is the question? Type it, then Ctrl-D.")
    question = argument_or_stdin(" ".join(words) if words else None, "QUESTION")
    if not is_continued:
        if context:
            from deputy.interfaces.cli.commands.delegate import check_context

            check_context(context, str(options.workspace))
        task = Task(label=label_of(safe_message(question)), prompt=question, context=context, agent=agent)
        return run_command(lambda stop: _ask(console, task, options, stop))
    if context or agent is not None or options.timeout is not None:
        name = "--context" if context else "--timeout" if agent is None else "--agent"
        raise UsageError(
            name, Unquoted("with -c"), "the subagent keeps the options of its first question; leave it out"
        )
    run = _last(str(options.workspace))
    return run_command(lambda stop: _go_on(console, run, question, options, stop))


def _last(workspace: str) -> str:
    """The last question that was asked in a workspace."""
    from deputy.interfaces.cli.console import read_journal

    root = str(Path(workspace).absolute())
    with read_journal() as queries:
        states = [] if queries is None else [*queries.live(), *queries.ended(_SEARCHED)]
    asked = [state for state in states if state.command == ASK and state.workspace == root]
    if not asked:
        found = Unquoted(f"no question in {root}")
        raise UsageError("-c", found, 'ask one first: deputy ask "Where are passwords checked?"')
    return max(asked, key=lambda state: state.last_at).run


async def _ask(console: Console, task: Task, options: RunOptions, stop: asyncio.Event) -> int:
    from msgspec import structs

    from deputy.interfaces.cli.live_run import open_live_run

    async with open_live_run(console, options, stop) as live:
        deputy = live.deputy
        [task] = await deputy.resolve_tasks(
            [structs.replace(task, timeout=live.settings.seconds(ASK, options.timeout))]
        )
        model = task.model or await deputy.models.default()
        await deputy.models.ensure_usable(model)
        async with live.view([task.label]):
            session_id = await deputy.submitter.submit_task(task, model, command=ASK)
            live.opened(session_id, command=ASK, model=model)
            await live.wait(session_id, deputy.results(session_id))
        return await _show(live, session_id)


async def _go_on(console: Console, run: str, question: str, options: RunOptions, stop: asyncio.Event) -> int:
    from deputy.interfaces.cli.live_run import open_live_run

    async with open_live_run(console, options, stop) as live:
        state = await live.deputy.state(run)
        async with live.view([state.label]):
            await live.deputy.resume_run(run, question, budget=options.budget, model=options.model)
            live.opened(run, command=ASK)
            await live.wait(run, live.deputy.results(run))
        return await _show(live, run)


async def _show(live: LiveRun, session_id: str) -> int:
    """Print the answer of a question that has ended, and how to continue."""
    if (await live.deputy.state(session_id)).is_live:
        return not_stopped(session_id)
    outcome = await live.deputy.outcome(session_id)
    show_outcome(outcome, as_json=live.console.as_json, lines=live.result_lines)
    await live.deputy.delivered(session_id)
    if outcome.status == "completed" and sys.stderr.isatty() and not live.is_quiet:
        note('To continue: deputy ask -c "…"')
    return live.exit_code([outcome])
