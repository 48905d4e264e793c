"""`deputy meta`: run a prompt under the same contract as the task commands."""

from __future__ import annotations

import click

from deputy.interfaces.cli.task_commands import run_task_commands, task_command_options, wanted_of

EXAMPLES = """\b
Examples:
  deputy meta "Which of the agents here overlap?"
  deputy meta --json --yes "Say what this project is for"

\b
The exit code is that of the outcome."""


@click.command(epilog=EXAMPLES)
@click.argument("prompt", nargs=-1, metavar="[PROMPT…]")
@task_command_options
@click.pass_context
def command(ctx: click.Context, prompt: tuple[str, ...], **options: object) -> None:
    """Run a prompt under the same contract as a task.

    An agent works on PROMPT, and its return is checked against the return contract.
    """
    ctx.exit(run_task_commands("meta", [" ".join(prompt)], wanted_of(options)))
