"""`deputy run`: run a parent agent with all tools; it asks before it delegates, writes or runs commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UsageError
from deputy.core.fallback import PROGRAMS_ONLY
from deputy.interfaces.cli.completers import complete_agent
from deputy.interfaces.cli.console import (
    SPAWN_OPTIONS,
    Console,
    RunOptions,
    argument_or_stdin,
    note,
    warn,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.outcome_output import print_warnings, show_outcome
from deputy.interfaces.cli.runner import not_stopped, run_command

if TYPE_CHECKING:
    import asyncio

EXAMPLES = """\b
Examples:
  deputy run "Why does the login test fail?"
  deputy run --yes "Fix the typos in README.md"
  git diff | deputy run --json

\b
The agent asks before it starts subagents, changes files or runs commands.
Without a terminal such calls are refused, unless --yes is given. With
--wait they wait for `deputy approve ID` from another terminal.

\b
Exit codes:
  0 completed   1 failed   2 usage   4 partial   5 blocked   130 cancelled"""

_HOW_TO_ALLOW = 'pass --yes, or --wait and use `deputy approve ID`, or set [approval] policy = "allow" in your config'


@click.command(epilog=EXAMPLES)
@click.argument("prompt", required=False)
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Use this agent definition; `deputy agents` lists them.",
)
@click.option("--wait", is_flag=True, help="Without a terminal, wait for `deputy approve ID`.")
@with_run_options(
    *SPAWN_OPTIONS,
    "web",
    model="provider:model or an alias; `deputy doctor` shows the default.",
    workspace="The folder that the agent works in.",
    tools="The only tools of the agent; by default all.",
)
@with_console("Print the outcome as JSON.")
def command(console: Console, prompt: str | None, agent: str | None, wait: bool, options: RunOptions) -> int:
    """Run an agent with all tools; it can start subagents.

    PROMPT is by default read from standard input.
    """
    if prompt is None and sys.stdin.isatty():
        note("What should be done? Type the prompt, then Ctrl-D.")
    text = argument_or_stdin(prompt, "PROMPT")
    return run_command(lambda stop: _run(console, text, agent, wait, options, stop))


def _why_no_parent(provider: str) -> str:
    """Why the parent cannot use a model: other programs cannot offer Deputy's own tools."""
    program = PROGRAMS_ONLY.get(provider)
    if program is None:
        return f"no API key for provider {provider}; `deputy doctor` says what to set"
    return f"only {program} can use it, as a subagent; for the parent name a model with a key"


async def _run(
    console: Console, prompt: str, agent: str | None, wait: bool, options: RunOptions, stop: asyncio.Event
) -> int:
    from deputy.engine.approvals import is_refused_unasked
    from deputy.interfaces.cli.live_run import open_live_run
    from deputy.interfaces.cli.terminal_prompt import can_ask

    async with open_live_run(console, options, stop, waits=wait) as live:
        deputy = live.deputy
        chosen = await deputy.models.default()
        if (provider := deputy.models.missing_key(chosen)) is not None:
            raise UsageError("--model", chosen, _why_no_parent(provider))
        async with live.parent_view() as parent:
            session_id = await deputy.start(prompt, agent=agent, tools=options.tools, timeout=options.timeout)
            live.opened(session_id, model=chosen)
            if live.approval == "ask" and not can_ask():
                warn(f"to approve its calls: deputy approve {session_id}")
            outcome = await live.wait(session_id, deputy.outcome(session_id))
        if outcome is None:
            return not_stopped(session_id)
        is_shown = parent.has_streamed and outcome.status == "completed"
        show_outcome(outcome, as_json=console.as_json, is_shown=is_shown, lines=live.result_lines)
        if any(map(is_refused_unasked, outcome.warnings)):
            if live.is_quiet:
                print_warnings(outcome)
            warn(f"to allow such calls, {_HOW_TO_ALLOW}")
        await deputy.delivered(session_id)
        return live.exit_code([outcome])
