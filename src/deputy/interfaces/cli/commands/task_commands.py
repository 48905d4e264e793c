"""The task commands: `deputy research`, `plan`, `implement`, `revise`, `review` and `meta`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from msgspec import structs

from deputy.interfaces.cli.console import (
    CANCELLED,
    LIMIT_OPTIONS,
    Console,
    RunOptions,
    note,
    warn,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.outcome_output import show_ended
from deputy.interfaces.cli.runner import not_stopped, resumable, run_command, until_done

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from deputy.client import Deputy
    from deputy.core.project_task import ProjectTask
    from deputy.interfaces.cli.live_run import LiveRun
    from deputy.project_tasks.orchestrator import CommandRequest, CommandResult
    from deputy.project_tasks.task_file import TaskFile

TaskSource: TypeAlias = "int | str | ProjectTask"
"""The number of a task, a prompt, or the draft of a new task."""

EXAMPLES = """\b
Examples:
  deputy {name} 12
  deputy {name} 105-107 --yes
  deputy {name} "Cache the index" --language python

\b
A TEXT becomes a new task once you approve it. The tasks of a RANGE run
one after the other.

\b
Exit codes:
  0 completed   1 failed                    2 usage   4 partial
  5 blocked     6 rejected or not approved  130 cancelled"""

REVIEW = "review"
REVIEW_EXAMPLES = """\b
Examples:
  deputy review 12                 the branch of task 12
  deputy review "the login code"   the workspace, without a task
  deputy review                    uncommitted changes, else the last commit

\b
Exit codes:
  0 completed   1 failed                    2 usage   4 partial
  5 blocked     6 rejected or not approved  130 cancelled"""

META_EXAMPLES = """\b
Examples:
  deputy meta "Which of the agents here overlap?"
  deputy meta --json --yes "Say what this project is for"

\b
The exit code is that of the outcome."""


def with_task_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every task command."""
    texts = {
        "model": "provider:model or an alias; overrides the agent's model.",
        "timeout": "Time limit, up to the command's maximum.",
        "tools": "The agent's tools, among those of the command.",
    }
    return with_run_options("model", *LIMIT_OPTIONS, "yes", "events", **texts)(
        with_console("Print the outcome as JSON.")(function)
    )


def _task_command(name: str, text: str) -> click.Command:
    @click.command(name, help=text, epilog=REVIEW_EXAMPLES if name == REVIEW else EXAMPLES.format(name=name))
    @click.argument(
        "work",
        metavar="[NUMBER|RANGE|TEXT]" if name == REVIEW else "NUMBER|RANGE|TEXT",
        required=name != REVIEW,
        default="",
    )
    @click.option("--language", default="", metavar="NAME", help="The programming language; it selects the agent.")
    @with_task_options
    def command(console: Console, work: str, language: str, options: RunOptions) -> int:
        from deputy.project_tasks.task_file import TaskFile

        options = _checked(name, options)
        tasks = TaskFile(Path(str(options.workspace)))
        return _run_all(console, name, _works(tasks, name, work, language), options)

    return command


@click.command(epilog=META_EXAMPLES)
@click.argument("prompt", nargs=-1, metavar="[PROMPT…]")
@with_task_options
def meta(console: Console, prompt: tuple[str, ...], options: RunOptions) -> int:
    """Give a prompt to an agent, and check its return.

    The agent works on PROMPT without a task. Its return is checked against the return contract, like that of a task.
    """
    return run_prompt(console, "meta", " ".join(prompt), options)


def run_prompt(console: Console, name: str, prompt: str, options: RunOptions) -> int:
    """Run a task command without a task; return the exit code."""
    return _run_all(console, name, [prompt], _checked(name, options))


# --- arguments --------------------------------------------------------------------------------------------------------


def _checked(name: str, options: RunOptions) -> RunOptions:
    """The options with the project as workspace, and a time limit that the command allows."""
    from deputy.config import load_effective_settings
    from deputy.project_tasks.task_file import project_root

    project = str(project_root(Path.cwd()))
    load_effective_settings(project).seconds(name, options.timeout)
    return structs.replace(options, workspace=project)


def _works(tasks: TaskFile, name: str, work: str, language: str) -> Sequence[TaskSource]:
    """The task numbers, the text to review, or the draft of a new task whose title is the first line of the text."""
    import time

    from deputy.core.errors import UsageError
    from deputy.core.project_task import MAX_TITLE, read_numbers
    from deputy.core.request import timestamp
    from deputy.interfaces.cli.commands.task import warn_of_secrets

    numbers = read_numbers(work)
    if numbers is not None:
        for number in numbers:
            tasks.find(number)
        return numbers
    first, _, rest = work.strip().partition("\n")
    if name == REVIEW and not first:
        return ("",)
    if not any(letter.isalpha() for letter in first):
        raise UsageError("task", work, "give the number of a task, a range like 105-107, or the text of a new task")
    if name == REVIEW:
        return (work,)
    title, text = (first, rest.strip()) if len(first) <= MAX_TITLE else (f"{first[: MAX_TITLE - 1]}…", work.strip())
    draft = tasks.draft(title, text=text, language=language, at=timestamp(time.time()))
    warn_of_secrets(draft)
    return (draft,)


# --- the run ----------------------------------------------------------------------------------------------------------


def _run_all(console: Console, name: str, works: Sequence[TaskSource], options: RunOptions) -> int:
    """Run a command for each of `works`, one after the other; return the exit code."""

    async def run(stop: asyncio.Event) -> int:
        from deputy.interfaces.cli.live_run import open_live_run

        # The command's approval names what its agent may do; any other call asks.
        async with open_live_run(console, options, stop) as live:
            ended: list[CommandResult] = []
            for work in works:
                one = await _run_one(live, name, work)
                if one is None:
                    _list_not_started(works[len(ended) + 1 :])
                    return CANCELLED
                ended.append(one)
                if stop.is_set():
                    break
            await show_ended(
                ended,
                str(options.workspace),
                as_json=console.as_json,
                lines=live.result_lines,
                is_range=len(works) > 1,
            )
            _list_not_started(works[len(ended) :])
            return live.exit_code([one.outcome for one in ended])

    return run_command(run)


async def _run_one(live: LiveRun, name: str, work: TaskSource) -> CommandResult | None:
    """Run one command to its result; None when it did not stop in time."""
    from deputy.core.progress import Progress
    from deputy.interfaces.cli.commands.delegate import print_refused
    from deputy.project_tasks.orchestrator import orchestrate

    session_id = await live.deputy.new_session_id()
    request = _request(session_id, name, work, live.options)
    number = request.number if request.draft is None else request.draft.number

    def on_added(task: ProjectTask) -> None:
        live.opened(session_id, command=name, task_number=task.number)

    label = name if number is None else f"{name}-{number}"
    async with live.view([label]) as view:
        if request.draft is None:
            live.opened(session_id, command=name, task_number=request.number)
        context = replace(live.deputy.command_context(), on_added=on_added, tracking=resumable)
        ended = await until_done(orchestrate(request, context), live.stop, lambda: _cancel(live.deputy, session_id))
        if ended is not None and ended.refused is None and ended.outcome.status == "rejected":
            # A run that did not begin emits no end.
            reason = ended.outcome.errors[0].type
            view.emit(Progress(event="completed", label=label, index=0, total=1, status="rejected", reason=reason))
    if ended is None:
        not_stopped(session_id)
        return None
    if ended.refused is not None:
        print_refused(ended.refused, live.settings.approval)
    if request.draft is not None and ended.task is not None:
        note(f"Added: {ended.task.number}  {ended.task.title}")
    elif request.draft is not None and ended.outcome.status in ("rejected", "cancelled"):
        warn("not approved, so no task was added")
    return ended


def _request(session_id: str, name: str, work: TaskSource, options: RunOptions) -> CommandRequest:
    from deputy.project_tasks.orchestrator import CommandRequest

    request = CommandRequest(session_id=session_id, command=name, seconds=options.timeout, tools=options.tools)
    match work:
        case int():
            return structs.replace(request, number=work)
        case str():
            return structs.replace(request, prompt=work)
        case _:
            return structs.replace(request, draft=work)


async def _cancel(deputy: Deputy, session_id: str) -> None:
    from deputy.core.errors import UnknownRun

    # Ctrl-C may come before the run exists.
    with suppress(UnknownRun):
        await deputy.cancel(session_id)


def _list_not_started(works: Sequence[TaskSource]) -> None:
    numbers = [str(work) for work in works if isinstance(work, int)]
    if numbers:
        warn(f"not started: task{'s' * (len(numbers) > 1)} {', '.join(numbers)}")


COMMANDS = {
    "research": _task_command("research", "Research what a task needs."),
    "plan": _task_command("plan", "Write a plan for a task."),
    "implement": _task_command("implement", "Implement a task."),
    "revise": _task_command("revise", "Update the plan of a task."),
    "review": _task_command(
        REVIEW,
        "Review the branch of a task, or the latest changes.\n\nA TEXT says what to review instead; it adds no task.",
    ),
    "meta": meta,
}
