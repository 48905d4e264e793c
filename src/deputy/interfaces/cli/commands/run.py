"""`deputy run`: run a parent agent with all tools; it asks before it delegates, writes or runs commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from deputy.core.errors import UsageError
from deputy.core.fallback import PROGRAMS_ONLY
from deputy.interfaces.cli.outcome_output import print_warnings, show_outcome
from deputy.interfaces.cli.runner import CANCELLED, exit_code, not_stopped, resumable, run_command, until_done

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
@click.option("--model", metavar="M", help="provider:model or an alias; `deputy doctor` shows the default.")
@click.option("--agent", metavar="NAME", help="Use this agent definition; `deputy agents` lists them.")
@click.option("--workspace", default=".", type=click.Path(exists=True, file_okay=False), help="Where it works.")
@click.option("-y", "--yes", is_flag=True, help="Approve everything without asking.")
@click.option("--no-fallback", is_flag=True, help="Never try another model or backend when one fails.")
@click.option("--no-inline", is_flag=True, help="Never fall back to the session's own model.")
@click.option("--wait", is_flag=True, help="Without a terminal, wait for `deputy approve ID`.")
@click.option("--events", metavar="FILE|-", help="Write events as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    prompt: str | None,
    model: str | None,
    agent: str | None,
    workspace: str,
    yes: bool,
    no_fallback: bool,
    no_inline: bool,
    wait: bool,
    events: str | None,
    as_json: bool,
) -> None:
    """Run an agent with all tools; it can start subagents.

    PROMPT is by default read from standard input.
    """
    text = _prompt(prompt)
    backends = RoutingOptions(fallback=False if no_fallback else None, inline=False if no_inline else None)
    ctx.exit(run_command(lambda stop: _run(text, model, agent, workspace, yes, wait, events, as_json, backends, stop)))


class RoutingOptions(NamedTuple):
    """What subagents may fall back to; None means the configured value."""

    fallback: bool | None
    inline: bool | None


def _prompt(given: str | None) -> str:
    if given is None:
        if sys.stdin.isatty():
            click.echo("What should be done? Type the prompt, then Ctrl-D.", err=True)
        from deputy.interfaces.cli.file_argument import read_text

        given = read_text("-")
    if not given.strip():
        raise UsageError("PROMPT", given, "give the prompt as an argument, or on standard input")
    return given


def _why_no_parent(provider: str) -> str:
    """Why the parent cannot use a model: other programs cannot offer Deputy's own tools."""
    program = PROGRAMS_ONLY.get(provider)
    if program is None:
        return f"no API key for provider {provider}; `deputy doctor` says what to set"
    return f"only {program} can use it, as a subagent; for the parent name a model with a key"


async def _run(
    prompt: str,
    model: str | None,
    agent: str | None,
    workspace: str,
    yes: bool,
    wait: bool,
    events: str | None,
    as_json: bool,
    backends: RoutingOptions,
    stop: asyncio.Event,
) -> int:
    from deputy.client import Deputy
    from deputy.config import load_effective_settings
    from deputy.engine.approvals import is_refused_unasked
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, approval_for, can_ask
    from deputy.interfaces.view.parent_view import ParentView
    from deputy.interfaces.view.renderers import open_view
    from deputy.interfaces.view.subscribers import Subscribers, open_events

    is_quiet = as_json or events == "-"
    settings = load_effective_settings(workspace)
    approval = approval_for(settings.approval, yes=yes)
    is_waiting = wait and approval == "refuse" and settings.approval == "ask"
    async with open_events(events) as lines:
        subscribers = Subscribers(lines)
        terminal = TerminalPrompt(stop)
        async with Deputy(
            model,
            workspace=workspace,
            watch=subscribers.emit,
            approval="ask" if is_waiting else approval,
            answer=terminal.answer if can_ask() else None,
            private=[] if events in (None, "-") else [events],
            rules=settings,
            fallback=backends.fallback,
            inline=backends.inline,
        ) as deputy:
            chosen = (await deputy.default_model()).model
            if (provider := deputy.missing_key(chosen)) is not None:
                raise UsageError("--model", chosen, _why_no_parent(provider))
            async with open_view(is_quiet=is_quiet) as view:
                terminal.view = view
                parent = ParentView(view, is_streaming=sys.stdout.isatty() and not is_quiet, is_quiet=is_quiet)
                subscribers.subscribe(parent)
                session_id = await deputy.start(prompt, agent=agent)
                if lines is not None:
                    lines.write("opened", {"session_id": session_id, "model": chosen})
                if is_waiting:
                    click.echo(f"deputy: to approve its calls: deputy approve {session_id}", err=True)
                with resumable(session_id):
                    outcome = await until_done(deputy.outcome(session_id), stop, lambda: deputy.cancel(session_id))
            parent.finish()
            if outcome is None:
                return not_stopped(session_id)
            is_shown = parent.has_streamed and outcome.status == "completed"
            show_outcome(outcome, as_json=as_json, is_shown=is_shown, lines=lines if events == "-" else None)
            if any(map(is_refused_unasked, outcome.warnings)):
                if is_quiet:
                    print_warnings(outcome)
                click.echo(f"deputy: to allow such calls, {_HOW_TO_ALLOW}", err=True)
            await deputy.delivered(session_id)
            return CANCELLED if stop.is_set() else exit_code([outcome])
