"""`deputy resume ID`: continue a run that ended, waits for an answer, or whose process died."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from deputy.core.errors import UsageError
from deputy.core.events import APPROVAL
from deputy.core.progress import Progress
from deputy.engine.call import DELEGATE
from deputy.interfaces.cli.console import (
    CANCELLED,
    REJECTED,
    Console,
    RunOptions,
    argument_or_stdin,
    note,
    run_argument,
    warn,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.outcome_output import show_ended, show_outcome
from deputy.interfaces.cli.runner import not_stopped, resumable, run_command
from deputy.interfaces.nesting import refuse_below_run

if TYPE_CHECKING:
    import asyncio

    from deputy.client import Deputy
    from deputy.core.errors import Error
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt
    from deputy.interfaces.resume_policy import Answer
    from deputy.project_tasks.orchestrator import CommandResult

TASK_COMMANDS = frozenset({"research", "plan", "implement", "revise", "review", "meta", "errors"})

EXAMPLES = """\b
Examples:
  deputy resume sess_1763190000_x7k2ab
  deputy resume sess_1763190000_x7k2ab --answer "Use the second one."
  deputy resume sess_1763190000_x7k2ab --budget tokens=200000
  deputy resume sess_1763190000_x7k2ab --model sonnet

\b
Finished model calls are not made again. A call of several tasks continues
with those that did not complete. At a terminal, open questions are asked.
A run whose context was full begins a new conversation with its task, its
notes and its report. --budget counts what the run has used before.

\b
The exit code is that of the outcome; 3 when there is no such run."""


@click.command(epilog=EXAMPLES)
@run_argument()
@click.option("--answer", metavar="TEXT|-", help="The answer to its question, or a further message; -: from stdin.")
@click.option("--wait", is_flag=True, help="Without a terminal, wait for `deputy approve ID`.")
@click.option(
    "--workspace", type=click.Path(exists=True, file_okay=False), help="Continue in this folder, not in the run's own."
)
@with_run_options("model", "budget", "yes", "events", model="Another model, if the run's own cannot be used.")
@with_console("Print the outcome as JSON.")
def command(
    console: Console, run: str, answer: str | None, wait: bool, workspace: str | None, options: RunOptions
) -> int:
    """Continue a run, or answer its question.

    The run may have ended, wait for an answer, or have lost its process.
    """
    options = structs.replace(options, workspace=_workspace(run, workspace))
    if options.yes or answer is not None:
        refuse_below_run("deputy resume --yes" if options.yes else "deputy resume --answer")
    text = argument_or_stdin(None, "ANSWER") if answer == "-" else answer
    return run_command(lambda stop: _resume(console, run, text, options, stop, waits=wait))


async def _resume(
    console: Console, run: str, answer: str | None, options: RunOptions, stop: asyncio.Event, *, waits: bool
) -> int:
    from deputy.interfaces.cli.live_run import open_live_run
    from deputy.interfaces.cli.terminal_prompt import can_ask

    async with open_live_run(console, options, stop, waits=waits) as live:
        deputy = live.deputy
        state = await deputy.state(run)
        answers = await _answer(deputy, state, answer, live.terminal if can_ask() else None, yes=options.yes)
        if stop.is_set():
            return CANCELLED
        tasks = await _tasks(deputy, state)
        async with live.parent_view([label for label, _ in tasks]) as parent:
            for label, one in tasks if state.is_live else ():
                if one is not None and not one.is_live:
                    # It ended before its call was interrupted, and is not resumed with it.
                    parent.emit(_ending(label, one))
            with resumable(run):
                # A run that was approved above continues at once, and may have ended by now.
                if answers is not None or not state.is_live or (await deputy.state(run)).is_live:
                    await deputy.resume_run(run, answers, budget=options.budget, model=options.model)
            results = await live.wait(run, deputy.results(run))
        if results is None:
            return not_stopped(run)
        outcome = await deputy.outcome(run)
        refusal = None
        if _is_task_command(state):
            refusal = await deputy.why_not_claimed(run)
            ended = await _ended(deputy, state, outcome)
            if refusal is not None and not live.is_quiet:
                _print_refusal(refusal, outcome)
                return REJECTED
            await show_ended([ended], state.workspace, as_json=console.as_json, lines=live.result_lines)
        else:
            show_outcome(
                outcome,
                as_json=console.as_json,
                is_shown=parent.has_streamed and outcome.status == "completed",
                # The live view has no line for a parent.
                with_usage=_is_parent(state),
                results=results if state.command == DELEGATE else (),
                lines=live.result_lines,
            )
            await deputy.delivered(run)
            await deputy.finish_call(run)
        return REJECTED if refusal is not None else live.exit_code([result.outcome for result in results])


def _print_refusal(refusal: Error, outcome: Outcome) -> None:
    """Print why the run did not continue, and that its outcome is unchanged."""
    warn(f"not resumed: {refusal.message} {refusal.recommendation}".rstrip())
    note(f"{outcome.session_id} is still {outcome.status}.")


def _is_task_command(state: State) -> bool:
    """Whether the run is a task command itself, not a subagent of one."""
    return state.parent is None and state.command in TASK_COMMANDS


async def _ended(deputy: Deputy, state: State, outcome: Outcome) -> CommandResult:
    """Update the task of a command, and mark its result as delivered."""
    from deputy.project_tasks.orchestrator import CommandRequest, clean_up

    request = CommandRequest(session_id=state.run, command=state.command, number=state.task_number)
    return await clean_up(request, outcome, deputy.command_context())


async def _tasks(deputy: Deputy, state: State) -> tuple[tuple[str, State | None], ...]:
    """The labels for the live view, and their states: the remaining tasks of a call, or the one subagent."""
    if state.command == DELEGATE:
        return await deputy.unfinished(state.run)
    return () if _is_parent(state) else ((state.label, state),)


def _ending(label: str, state: State) -> Progress:
    used = state.usage
    return Progress(
        event="completed",
        label=label,
        session_id=state.run,
        status=state.status,
        reason=state.reason or None,
        model=state.model or None,
        input=used.input,
        output=used.output,
        cost=used.cost,
        estimated=used.estimated,
        seconds=state.seconds_worked(0.0),
    )


def _is_parent(state: State) -> bool:
    return state.command != DELEGATE and (state.lineage is None or state.lineage.is_top)


async def _answer(
    deputy: Deputy, state: State, given: str | None, terminal: TerminalPrompt | None, *, yes: bool
) -> Answer:
    """The answers to the run's questions: from --answer, else asked at the terminal one by one."""
    from deputy.interfaces.resume_policy import check_ended

    check_ended(state, given)
    if yes and given is None and state.is_live:
        await deputy.ensure_not_running(state.run)
        for question in await deputy.questions(state.run):
            if question.topic == APPROVAL:
                await deputy.approve(question.session_id, digest=question.digest)
        return None
    # A live run asks again by itself when it is resumed.
    if given is not None or terminal is None or state.is_live:
        return given
    answers: dict[str, str] = {}
    for question in await deputy.questions(state.run):
        said = await terminal.answer(question)
        if isinstance(said, str):
            answers[question.session_id] = said
    return answers or None


def _workspace(run: str, given: str | None) -> str:
    """The workspace of the run: --workspace, else the original one, else the current directory."""
    recorded = given or _recorded_workspace(run)
    if recorded and not Path(recorded).is_dir():
        raise UsageError("--workspace", recorded, "the run's folder does not exist any more; name another")
    return str(Path(recorded or ".").absolute())


def _recorded_workspace(run: str) -> str:
    from deputy.interfaces.cli.console import read_journal

    with read_journal() as queries:
        state = None if queries is None else queries.state(run)
        root = (
            None if queries is None or state is None or state.lineage is None else queries.state(state.lineage.root_id)
        )
        return "" if root is None else root.workspace
