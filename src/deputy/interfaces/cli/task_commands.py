"""The task commands (research, plan, implement, …): shared options, approval and output."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from msgspec import Struct, convert, structs

from deputy.core.approval import Decision
from deputy.interfaces.cli.runner import CANCELLED, exit_code, not_stopped, resumable, run_command, until_done
from deputy.interfaces.text_lines import plain

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from deputy.client import Deputy
    from deputy.core.effective_settings import EffectiveSettings
    from deputy.core.project_task import ProjectTask
    from deputy.core.task import Task
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt
    from deputy.interfaces.view.event_lines import EventLines
    from deputy.interfaces.view.subscribers import Subscribers
    from deputy.project_tasks.orchestrator import CommandContext, CommandRequest, CommandResult
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

_OPTIONS = (
    click.option("--model", metavar="M", help="provider:model or an alias; overrides the agent's model."),
    click.option("--timeout", type=float, metavar="SECONDS", help="Time limit, up to the command's maximum."),
    click.option("-y", "--yes", is_flag=True, help="Approve everything without asking."),
    click.option("--events", metavar="FILE|-", help="Write events as JSON lines."),
    click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON."),
)


class TaskCommandOptions(Struct, frozen=True, kw_only=True):
    """The options of every task command."""

    model: str | None = None
    timeout: float | None = None
    yes: bool = False
    events: str | None = None
    as_json: bool = False


def task_command_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wanted_of(options: Mapping[str, object]) -> TaskCommandOptions:
    """The shared options as a struct."""
    return convert(options, TaskCommandOptions)


def task_command(name: str, text: str) -> click.Command:
    """Make the click command of one task command."""

    @click.command(name, help=text, epilog=EXAMPLES.format(name=name))
    @click.argument("work", metavar="NUMBER|RANGE|TEXT")
    @click.option("--language", default="", metavar="NAME", help="The language of a new task; it selects the agent.")
    @task_command_options
    @click.pass_context
    def command(ctx: click.Context, work: str, language: str, **options: object) -> None:
        from deputy.project_tasks.task_file import TaskFile

        wanted = wanted_of(options)
        project = _project()
        _check_time(name, wanted, project)
        ctx.exit(run_task_commands(name, _works(TaskFile(project), work, language), wanted))

    return command


def run_task_commands(name: str, works: Sequence[TaskSource], wanted: TaskCommandOptions) -> int:
    """Run a command for each of `works`, one after the other; return the exit code."""
    project = _project()
    _check_time(name, wanted, project)
    return run_command(lambda stop: _execute(name, works, wanted, project, stop))


# --- arguments --------------------------------------------------------------------------------------------------------


def _project() -> Path:
    from deputy.project_tasks.task_file import project_root

    return project_root(Path.cwd())


def _check_time(name: str, wanted: TaskCommandOptions, project: Path) -> None:
    from deputy.config import load_effective_settings
    from deputy.core.errors import UsageError

    if wanted.timeout is not None and not wanted.timeout > 0:
        raise UsageError("--timeout", wanted.timeout, "give a number of seconds above 0")
    load_effective_settings(str(project)).seconds(name, wanted.timeout)


def _works(tasks: TaskFile, work: str, language: str) -> tuple[TaskSource, ...]:
    """The task numbers, or the draft of a new task whose title is the first line of the text."""
    import time

    from deputy.core.errors import UsageError
    from deputy.core.project_task import MAX_TITLE, read_numbers
    from deputy.core.request import timestamp

    numbers = read_numbers(work)
    if numbers is not None:
        for number in numbers:
            tasks.find(number)
        return numbers
    first, _, rest = work.strip().partition("\n")
    if not any(letter.isalpha() for letter in first):
        raise UsageError("task", work, "give the number of a task, a range like 105-107, or the text of a new task")
    title, text = (first, rest.strip()) if len(first) <= MAX_TITLE else (f"{first[: MAX_TITLE - 1]}…", work.strip())
    return (tasks.draft(title, text=text, language=language, at=timestamp(time.time())),)


# --- the run ----------------------------------------------------------------------------------------------------------


async def _execute(
    name: str, works: Sequence[TaskSource], wanted: TaskCommandOptions, project: Path, stop: asyncio.Event
) -> int:
    from deputy.client import Deputy
    from deputy.config import load_effective_settings
    from deputy.interfaces.cli.command_output import show_ended
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, approval_for, can_ask
    from deputy.interfaces.view.subscribers import Subscribers, open_events

    settings = load_effective_settings(str(project))
    async with open_events(wanted.events) as lines:
        subscribers, terminal = Subscribers(lines), TerminalPrompt(stop)
        async with Deputy(
            wanted.model,
            workspace=project,
            watch=subscribers.emit,
            # The command's approval names what its agent may do; any other call asks.
            approval=approval_for(settings.approval, yes=wanted.yes),
            answer=terminal.answer if can_ask() else None,
            private=[] if wanted.events in (None, "-") else [wanted.events],
            rules=settings,
        ) as deputy:
            context = deputy.command_context(approve=_approver(deputy, terminal, settings, yes=wanted.yes))
            ended: list[CommandResult] = []
            for work in works:
                one = await _one(deputy, context, name, work, wanted, (subscribers, terminal, lines), stop)
                if one is None:
                    _list_not_started(works[len(ended) + 1 :])
                    return CANCELLED
                ended.append(one)
                if stop.is_set():
                    break
            shown_on = lines if wanted.events == "-" else None
            show_ended(ended, as_json=wanted.as_json, lines=shown_on, is_range=len(works) > 1)
            _list_not_started(works[len(ended) :])
            return CANCELLED if stop.is_set() else exit_code([one.outcome for one in ended])


async def _one(
    deputy: Deputy,
    context: CommandContext,
    name: str,
    work: TaskSource,
    wanted: TaskCommandOptions,
    watching: tuple[Subscribers, TerminalPrompt, EventLines | None],
    stop: asyncio.Event,
) -> CommandResult | None:
    """Run one command to its result; None when it did not stop in time."""
    from deputy.interfaces.view.renderers import open_view
    from deputy.project_tasks.orchestrator import orchestrate

    subscribers, terminal, lines = watching
    session_id = await deputy.new_session_id()
    order = _order(session_id, name, work, wanted)
    number = order.number if order.draft is None else order.draft.number
    label = name if number is None else f"{name}-{number}"
    async with open_view([label], is_quiet=wanted.as_json or wanted.events == "-") as view:
        subscribers.subscribe(view)
        terminal.view = view

        def tell_opened(number: int | None) -> None:
            if lines is not None:
                lines.write("opened", {"session_id": session_id, "command": name, "task_number": number})

        def on_added(task: ProjectTask) -> None:
            view.pause(on_added)
            click.echo(f"Added: {task.number}  {plain(task.title)}", err=True)
            view.unpause(on_added)
            tell_opened(task.number)

        if order.draft is None:
            tell_opened(order.number)
        context = replace(context, on_added=on_added, tracking=resumable)
        try:
            ended = await until_done(orchestrate(order, context), stop, lambda: _cancel(deputy, session_id))
        finally:
            subscribers.unsubscribe(view)
    if ended is None:
        not_stopped(session_id)
    elif order.draft is not None and ended.task is None and ended.outcome.status == "rejected":
        click.echo("deputy: not approved, so no task was added", err=True)
    return ended


def _order(session_id: str, name: str, work: TaskSource, wanted: TaskCommandOptions) -> CommandRequest:
    from deputy.project_tasks.orchestrator import CommandRequest

    order = CommandRequest(session_id=session_id, command=name, seconds=wanted.timeout)
    match work:
        case int():
            return structs.replace(order, number=work)
        case str():
            return structs.replace(order, prompt=work)
        case _:
            return structs.replace(order, draft=work)


async def _cancel(deputy: Deputy, session_id: str) -> None:
    from deputy.core.errors import UnknownRun

    # Ctrl-C may come before the run exists.
    with suppress(UnknownRun):
        await deputy.cancel(session_id)


def _approver(
    deputy: Deputy, terminal: TerminalPrompt, settings: EffectiveSettings, *, yes: bool
) -> Callable[[Task, str], Any]:
    async def approve(task: Task, model: str) -> bool:
        from deputy.core.events import APPROVAL
        from deputy.interfaces.cli.commands.delegate import tell_refused
        from deputy.interfaces.cli.terminal_prompt import approval_for
        from deputy.interfaces.questions import Question

        policy = approval_for(settings.approval, yes=yes)
        if policy == "granted":
            return True
        request = structs.replace(await deputy.preview((task,), concurrency=1), key="command", label=task.label)
        if policy == "refuse":
            tell_refused(request, settings.approval)
            return False
        question = Question(
            session_id="", label=task.label, topic=APPROVAL, text="", request=request, digest=request.digest
        )
        answer = await terminal.answer(question)
        return isinstance(answer, Decision) and answer.choice == "yes" and answer.digest == request.digest

    return approve


def _list_not_started(works: Sequence[TaskSource]) -> None:
    numbers = [str(work) for work in works if isinstance(work, int)]
    if numbers:
        click.echo(f"deputy: not started: task{'s' * (len(numbers) > 1)} {', '.join(numbers)}", err=True)
