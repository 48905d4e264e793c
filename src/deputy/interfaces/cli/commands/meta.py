"""`deputy meta`: a prompt for an agent, under the same contract as the commands of tasks."""

from __future__ import annotations

import click

from deputy.interfaces.cli.task_commands import run_task_commands, task_command_options, wanted_of

EXAMPLES = """\b
Examples:
  deputy meta "Which of the agents here overlap?"
  deputy meta --json --yes "Say what this project is for"

\b
Exit codes are those of the outcome."""


@click.command(epilog=EXAMPLES)
@click.argument("prompt", nargs=-1, metavar="[PROMPT…]")
@task_command_options
@click.pass_context
def command(ctx: click.Context, prompt: tuple[str, ...], **options: object) -> None:
    """Hand a prompt to an agent that returns in the contract's form.

    The words may be none at all: the agent is told so.
    """
    ctx.exit(run_task_commands("meta", [" ".join(prompt)], wanted_of(options)))
