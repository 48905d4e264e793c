"""The command line. A command's module is loaded when that command is used, so that `--help` stays instant."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from deputy import __version__
from deputy.core.errors import DeputyError, NotAdmitted, UsageError
from deputy.interfaces.cli.streams import open_streams
from deputy.interfaces.safe_text import print_error, safe_message

if TYPE_CHECKING:
    from collections.abc import Generator

COMMANDS = {
    "delegate": "Hand tasks to subagents, and print their results.",
    "run": "Let a parent agent work, with all tools and subagents.",
    "refine": "Have work made and judged until it is good enough.",
    "watch": "Follow a run that is at work in another terminal.",
    "resume": "Go on with a run that ended, waits or was interrupted.",
    "approve": "Show what a run waits to be approved, and say yes or no.",
    "cancel": "Stop a run and everything below it.",
    "mcp": "Serve Delegate and its siblings to any MCP client.",
    "doctor": "Say what works here, and what to do about the rest.",
    "detect": "Show the requests for delegation that a text holds; nothing is run.",
    "exec": "Carry out the requests for delegation that a text holds.",
    "check-return": "Check what a subagent returned against the return contract.",
    "agents": "List the agent definitions found here, with warnings.",
    "templates": "Show the templates of subtasks, and what a request matches.",
    "ps": "Show the delegations that are running, waiting or interrupted.",
    "show": "Show one delegation: where it stands and how it ended.",
    "transcript": "Show a subagent's conversation.",
    "errors": "Show the errors that delegations met, and have them diagnosed.",
    "prune": "Remove delegations that ended long ago, with their transcripts.",
    "stats": "Show how long delegations take, by command, beside their limits.",
    "export": "Write a run, and the tree below it, into a folder of its own.",
    "pin": "Keep a delegation, and the tree it belongs to, whatever its age.",
    "research": "Find out what a task needs to know.",
    "plan": "Make a plan for a task.",
    "implement": "Carry a task out.",
    "revise": "Bring the plan of a task up to date.",
    "review": "Look critically at what was done for a task.",
    "meta": "Hand a prompt to an agent that returns in the contract's form.",
    "task": "Keep the numbered tasks of this project.",
    "todo": "Show the tasks of this project that are not over.",
    "models": "List providers and models, and say which have a key.",
}
_MODULES = {"exec": "exec_text"}
"""Where a command's module is not called like the command."""

EXIT_CODES = """\b
Exit codes:
  0 completed   1 failed    2 usage      3 nothing found
  4 partial     5 blocked   6 rejected   130 cancelled"""


class _LazyGroup(click.Group):
    """A group that knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = _MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        return import_module(f"deputy.interfaces.cli.commands.{module}").command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _secrets_hidden():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _secrets_hidden():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@contextmanager
def _secrets_hidden() -> Generator[None]:
    """What the parser says of arguments that it refuses, without secrets and escapes among them."""
    try:
        yield
    except click.ClickException as error:
        said = error.format_message()
        shown = safe_message(said)
        if shown == said:
            raise
        if isinstance(error, click.UsageError):
            raise click.UsageError(shown, error.ctx) from None
        raise click.ClickException(shown) from None


@click.group(cls=_LazyGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="deputy")
def deputy() -> None:
    """Hand work from one agent to another, and get it back.

    Every command has --help with examples, and --json for programs.
    """


def main() -> None:
    """Run the command line; what goes wrong on purpose becomes one clear line and an exit code."""
    open_streams()
    try:
        deputy.main(prog_name="deputy")
    except KeyboardInterrupt:
        sys.exit(130)
    except UsageError as error:
        _stop(error, 2)
    except NotAdmitted as error:
        _stop(error, 6)
    except DeputyError as error:
        _stop(error, 1)
    except OSError as error:
        # There is no room for what is printed; what was done is in the journal.
        _stop(DeputyError(f"cannot write the output: {error.strerror or error}; `deputy ps --all` shows the runs"), 1)


def _stop(error: DeputyError, code: int) -> None:
    with suppress(OSError):
        click.echo(f"deputy: {print_error(error)}", err=True)
    _forget_output()
    sys.exit(code)


def _forget_output() -> None:
    """What could not be printed is not tried again at exit, where it would be a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
