"""`deputy acp`: be an agent in an editor that speaks the Agent Client Protocol."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from deputy.interfaces.cli.completers import complete_agent
from deputy.interfaces.cli.console import (
    LIMIT_OPTIONS,
    Console,
    RunOptions,
    check_model,
    log_observer,
    note,
    show_json,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.runner import run_command
from deputy.interfaces.mcp_clients import own_command
from deputy.interfaces.nesting import refuse_below_run

if TYPE_CHECKING:
    import asyncio

    from deputy.interfaces.acp.acp_session import AcpOptions

EXAMPLES = """\b
Examples:
  deputy acp --json          print the config for an editor, to paste
  deputy acp                 serve one editor, which starts it, over stdio
  deputy acp --model sonnet --budget 0.50
  acpx --agent "deputy acp" exec "Where are passwords checked?"

\b
Zed reads the config from settings.json, JetBrains from ~/.jetbrains/acp.json.
Each chat is one run in the folder that the editor names. The editor asks you
before the agent starts subagents, changes files or runs commands; `deputy
approve ID` in a terminal answers too. --yes approves everything.

\b
A chat whose editor was closed can be opened there again. The same run is in
`deputy ps`, and `deputy resume ID` continues it in a terminal."""


@click.command("acp", epilog=EXAMPLES)
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Use this agent definition; `deputy agents` lists them.",
)
@with_run_options(
    "model",
    *LIMIT_OPTIONS,
    "yes",
    model="provider:model or an alias; `deputy doctor` shows the default.",
    tools="The only tools of the agent; by default all.",
    yes="Approve everything without asking.",
)
@with_console("Print the config for an editor.")
def command(console: Console, agent: str | None, options: RunOptions) -> int:
    """Serve as an agent in Zed, JetBrains and other editors.

    The editor speaks the Agent Client Protocol.
    """
    if options.model is not None:
        check_model(options.model, ".")
    if console.as_json:
        start, *words = own_command("acp", *_arguments(agent, options))
        show_json({"agent_servers": {"Deputy": {"type": "custom", "command": start, "args": words, "env": {}}}})
        return 0
    refuse_below_run("deputy acp")
    if sys.stdin.isatty():
        note("An editor starts this command and talks to it; `deputy acp --help` shows how. Ctrl-C ends it.")
    served = _server_options(agent, options)
    return run_command(lambda stop: _serve(served, stop))


def _arguments(agent: str | None, options: RunOptions) -> list[str]:
    """The options of this call, as words."""
    budget = options.budget
    given = {
        "--agent": agent,
        "--model": options.model,
        "--budget": ",".join(f"{name}={getattr(budget, name)}" for name in budget.capped) if budget else None,
        "--timeout": options.timeout,
        "--tools": None if options.tools is None else ",".join(options.tools),
    }
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    return [*words, *(["--yes"] if options.yes else [])]


def _server_options(agent: str | None, options: RunOptions) -> AcpOptions:
    from deputy.interfaces.acp.acp_session import AcpOptions

    return AcpOptions(
        model=options.model,
        budget=options.budget,
        timeout=options.timeout,
        tools=options.tools,
        agent=agent,
        yes=options.yes,
        observer=log_observer(),
    )


async def _serve(options: AcpOptions, stop: asyncio.Event) -> int:
    from deputy.interfaces.acp.acp_server import serve_stdio

    await serve_stdio(options, stop)
    return 0
