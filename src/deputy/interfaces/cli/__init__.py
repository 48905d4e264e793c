"""The command line. A command's module is imported when that command is used, so that `--help` stays fast."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from deputy import __version__
from deputy.interfaces.cli.streams import open_streams
from deputy.interfaces.safe_text import print_error, safe_message

if TYPE_CHECKING:
    from collections.abc import Generator

    from click.shell_completion import CompletionItem

    from deputy.core.errors import DeputyError

SECTIONS = {
    "Delegate": {
        "ask": "Ask one subagent a question, and print its answer.",
        "delegate": "Give tasks to subagents and print their results.",
        "run": "Run an agent with all tools; it can start subagents.",
        "refine": "Repeat work and evaluation until the result is accepted.",
        "exec": "Run the delegation requests found in a text.",
        "mcp": "Serve Delegate to MCP clients.",
        "acp": "Serve as an agent in Zed, JetBrains and other editors.",
    },
    "Follow and control runs": {
        "ps": "List runs that are active, waiting or interrupted.",
        "watch": "Follow a run of another terminal.",
        "web": "See, answer and stop runs in the browser.",
        "show": "Show a run: what was asked, how it ended, what it used.",
        "transcript": "Show the conversation of a subagent.",
        "approve": "Approve or deny what a run asks for.",
        "resume": "Continue a run, or answer its question.",
        "cancel": "Stop a run and everything below it.",
    },
    "Stored runs": {
        "errors": "List errors of runs, or have one diagnosed.",
        "stats": "Show time, tokens and cost of runs, and time limits.",
        "report": "Write a run and its tree as one HTML page.",
        "export": "Write a run and its tree to a folder.",
        "pin": "Protect a run and its tree from pruning.",
        "prune": "Remove old runs with their transcripts and worktrees.",
        "store": "Prepare or check a Postgres store, shared by machines.",
        "worker": "Carry out runs that other machines place in the store.",
        "workers": "List the workers of the store.",
    },
    "Project tasks": {
        "task": "Add, list and change the numbered tasks of a project.",
        "todo": "List the open tasks.",
        "research": "Research what a task needs.",
        "plan": "Write a plan for a task.",
        "implement": "Implement a task.",
        "revise": "Update the plan of a task.",
        "review": "Review the branch of a task, or the latest changes.",
        "merge": "Merge the branch of a task.",
        "meta": "Give a prompt to an agent, and check its return.",
    },
    "Setup and checks": {
        "init": "Look for models, test one, and write your config.",
        "connect": "Add Deputy's tools to Claude Code, Codex, opencode or Gemini.",
        "doctor": "Check the setup, and say how to fix problems.",
        "models": "Ask providers for their models.",
        "agents": "List agent definitions, with warnings.",
        "templates": "List, match and check subtask templates.",
        "detect": "Show the delegation requests in a text; run nothing.",
        "check-return": "Check a subagent's return against the contract.",
        "config": "Show the settings in force, or edit your own.",
        "completion": "Print the completion script of a shell.",
        "help": "Show the help of Deputy or of one command.",
        "version": "Show the version.",
    },
}
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}
_MODULES = {
    "text_requests": ("detect", "exec"),
    "stored_runs": ("show", "transcript", "export", "pin", "prune"),
    "task_commands": ("research", "plan", "implement", "revise", "review", "meta"),
    "task": ("task", "todo"),
    "web_page": ("web",),
    "about": ("help", "version"),
    "config_command": ("config",),
}
"""The modules with several commands; any other module is named after its command."""

COMPLETE_VARIABLE = "_DEPUTY_COMPLETE"
"""Set by the completion script of a shell."""

LOG_LEVELS = ("debug", "info", "warning", "error")

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
        found = next((module for module, names in _MODULES.items() if cmd_name in names), None)
        module = import_module(f"deputy.interfaces.cli.commands.{found or cmd_name.replace('-', '_')}")
        return module.command if found is None else module.COMMANDS[cmd_name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name[:40], COMMANDS, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {name!r}.{meant}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _secrets_hidden():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _secrets_hidden():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@contextmanager
def _secrets_hidden() -> Generator[None]:
    """Redact secrets and terminal escapes in click's own error messages, which quote arguments; with --json as JSON."""
    try:
        yield
    except click.ClickException as error:
        said = error.format_message()
        shown = safe_message(said)
        if _wants_json():
            _show_json_error("usage", shown, error.exit_code)
        if shown == said:
            raise
        if isinstance(error, click.UsageError):
            raise click.UsageError(shown, error.ctx) from None
        raise click.ClickException(shown) from None


@click.group(cls=_LazyGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="deputy")
@click.option("-v", "--verbose", count=True, help="Log runs and steps; -vv logs more.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    envvar="DEPUTY_LOG",
    show_envvar=True,
    help="Log from this level on.",
)
@click.pass_context
def deputy(context: click.Context, verbose: int, log_level: str | None) -> None:
    """Delegate work to subagents, and get checked results back.

    A subagent is an agent with its own conversation, tools and limits: it
    works on one task and returns a report. Every run is recorded in a journal.
    You can follow, answer, cancel or resume it from any terminal, also after a
    crash. Deputy asks before a run starts subagents, writes files or runs
    commands; --yes approves all of it.

    \b
    First steps:
      deputy init                   find a model, test it, and write your config
      deputy ask "Where are passwords checked?"
      deputy delegate "Review src/api" "List the slow tests"
      deputy run "Why does the login test fail?"
      deputy ps                     then: show ID, watch ID, resume ID

    Each command has --help with examples, and --json for programs.
    """
    if verbose or log_level is not None:
        from deputy.interfaces.cli.log_output import open_log

        # The more detailed of the two counts.
        wanted = (LOG_LEVELS[max(0, 2 - verbose)] if verbose else "error", log_level or "error")
        context.obj = context.with_resource(open_log(min(wanted, key=LOG_LEVELS.index)))


def main() -> None:
    """Run the command line; an expected error becomes one line and an exit code."""
    open_streams()
    if COMPLETE_VARIABLE in os.environ:
        from deputy.interfaces.cli.commands.completion import register

        register()
    try:
        deputy.main(prog_name="deputy", complete_var=COMPLETE_VARIABLE)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        expected = _expected(error)
        if expected is None:
            raise
        _stop(*expected)


def _expected(error: Exception) -> tuple[DeputyError, int] | None:
    """An expected error and its exit code; None for a bug."""
    # Imported here: help needs none of them.
    from deputy.core.errors import DeputyError, NotAdmitted, UsageError

    match error:
        case UsageError():
            return error, 2
        case NotAdmitted():
            return error, 6
        case DeputyError():
            return error, 1
        case OSError():
            # For example a full disk behind `>`. The journal has the result.
            why = f"cannot write the output: {error.strerror or error}; `deputy ps --all` shows the runs"
            return DeputyError(why), 1
        case _:
            return None


def _stop(error: DeputyError, code: int) -> None:
    message = print_error(error)
    with suppress(OSError):
        if _wants_json():
            _show_json_error(_KINDS.get(code, "error"), message, code)
        _warn(message)
    _forget_output()
    sys.exit(code)


def _warn(message: str) -> None:
    from deputy.interfaces.cli.console import warn

    warn(message)


_KINDS = {2: "usage", 6: "not_admitted"}
"""The type of an error in JSON, by its exit code."""


def _wants_json() -> bool:
    """Whether the arguments have --json; they may be wrong, so that no command has read them."""
    given = sys.argv[1:]
    return "--json" in given[: given.index("--") if "--" in given else None]


def _show_json_error(kind: str, message: str, code: int) -> None:
    from deputy.interfaces.cli.console import error_dict, show_json

    show_json(error_dict(kind, message, code))


def _forget_output() -> None:
    """Discard output that cannot be written: Python would flush it again at exit, with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
