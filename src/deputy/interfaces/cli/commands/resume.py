"""`deputy resume ID`: continue a run that ended, waits for an answer, or whose process died."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UnknownRun, UsageError
from deputy.core.events import APPROVAL
from deputy.engine.call import DELEGATE
from deputy.interfaces.cli.outcome_output import show_outcome
from deputy.interfaces.cli.parent_process import refuse_below_a_run
from deputy.interfaces.cli.runner import (
    CANCELLED,
    NOTHING_FOUND,
    REJECTED,
    exit_code,
    not_stopped,
    resumable,
    run_command,
    until_done,
)
from deputy.interfaces.safe_text import print_error
from deputy.interfaces.text_lines import plain

if TYPE_CHECKING:
    from deputy.client import Deputy
    from deputy.core.errors import Error
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt
    from deputy.interfaces.resume_policy import Answer
    from deputy.project_tasks.orchestrator import CommandResult

ORDERS = frozenset({"research", "plan", "implement", "revise", "review", "meta", "errors"})
"""The task commands, whose outcome also updates a project task."""

EXAMPLES = """\b
Examples:
  deputy resume sess_1763190000_x7k2ab
  deputy resume sess_1763190000_x7k2ab --answer "Use the second one."

\b
Finished model calls are not made again. A call of several tasks continues
with those that did not complete. At a terminal, open questions are asked.

\b
The exit code is that of the outcome; 3 when there is no such run."""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="ID")
@click.option("--answer", metavar="TEXT", help="The answer to its question, or a further message.")
@click.option(
    "--workspace", type=click.Path(exists=True, file_okay=False), help="Another folder than the run's original one."
)
@click.option("-y", "--yes", is_flag=True, help="Approve everything without asking.")
@click.option("--events", metavar="FILE|-", help="Write events as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    run: str,
    answer: str | None,
    workspace: str | None,
    yes: bool,
    events: str | None,
    as_json: bool,
) -> None:
    """Continue a run, or answer its question.

    The run may have ended, wait for an answer, or have lost its process.
    """
    root = _root(run)
    place = _workspace(root, workspace)
    if yes or answer is not None:
        refuse_below_a_run("resume --yes" if yes else "resume --answer")
    ctx.exit(run_command(lambda stop: _resume(run, answer, place, yes, events, as_json, stop)))


async def _resume(
    run: str,
    answer: str | None,
    workspace: str,
    yes: bool,
    events: str | None,
    as_json: bool,
    stop: asyncio.Event,
) -> int:
    from deputy.client import Deputy
    from deputy.config import load_effective_settings
    from deputy.interfaces.cli.command_output import show_ended
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, approval_for, can_ask
    from deputy.interfaces.view.parent_view import ParentView
    from deputy.interfaces.view.renderers import open_view
    from deputy.interfaces.view.subscribers import Subscribers, open_events

    is_quiet = as_json or events == "-"
    settings = load_effective_settings(workspace)
    async with open_events(events) as lines:
        subscribers = Subscribers(lines)
        terminal = TerminalPrompt(stop)
        async with Deputy(
            workspace=workspace,
            watch=subscribers.emit,
            approval=approval_for(settings.approval, yes=yes),
            answer=terminal.answer if can_ask() else None,
            private=[] if events in (None, "-") else [events],
            rules=settings,
        ) as deputy:
            try:
                state = await deputy.state(run)
            except UnknownRun as error:
                click.echo(f"deputy: {print_error(error)}", err=True)
                return NOTHING_FOUND
            answers = await _answer(deputy, state, answer, terminal if can_ask() else None, yes=yes)
            if stop.is_set():
                return CANCELLED
            async with open_view(await _labels(deputy, state), is_quiet=is_quiet) as view:
                terminal.view = view
                parent = ParentView(view, is_streaming=sys.stdout.isatty() and not is_quiet, is_quiet=is_quiet)
                subscribers.subscribe(parent)
                with resumable(run):
                    # A run that was approved above continues at once, and may have ended by now.
                    if answers is not None or not state.is_live or (await deputy.state(run)).is_live:
                        await deputy.resume_run(run, answers)
                    results = await until_done(deputy.results(run), stop, lambda: deputy.cancel(run))
            parent.finish()
            if results is None:
                return not_stopped(run)
            outcome = await deputy.outcome(run)
            shown_on = lines if events == "-" else None
            refusal = await asyncio.to_thread(_refusal, run) if _is_order(state) else None
            if _is_order(state):
                ended = await _ended(deputy, state, outcome)
                if refusal is not None and not is_quiet:
                    _print_refusal(refusal, outcome)
                    return REJECTED
                show_ended([ended], as_json=as_json, lines=shown_on)
            else:
                show_outcome(
                    outcome,
                    as_json=as_json,
                    is_shown=parent.has_streamed and outcome.status == "completed",
                    # The live view has no line for a parent.
                    with_usage=_is_parent(state),
                    results=results if state.command == DELEGATE else (),
                    lines=shown_on,
                )
                await deputy.delivered(run)
                await deputy.finish_call(run)
            if refusal is not None:
                return REJECTED
            return CANCELLED if stop.is_set() else exit_code([result.outcome for result in results])


def _refusal(run: str) -> Error | None:
    """Why a task command did not continue: its task could not be claimed."""
    from deputy.core.resume_rounds import why_not_claimed
    from deputy.journal.home import home_path
    from deputy.journal.sqlite.reader import JournalReader
    from deputy.journal.sqlite.rows import DamagedRecord

    reader = JournalReader.open(home_path())
    if reader is None:
        return None
    with reader:
        state = reader.state(run)
        records = (record for record in reader.records(run) if not isinstance(record, DamagedRecord))
        return None if state is None else why_not_claimed(records, state.round)


def _print_refusal(refusal: Error, outcome: Outcome) -> None:
    """Print why the run did not continue, and that its outcome is unchanged."""
    click.echo(plain(f"deputy: not resumed: {refusal.message} {refusal.recommendation}".rstrip()), err=True)
    click.echo(f"{outcome.session_id} is still {outcome.status}.", err=True)


def _is_order(state: State) -> bool:
    """Whether the run is a task command itself, not a subagent of one."""
    return state.parent is None and state.command in ORDERS


async def _ended(deputy: Deputy, state: State, outcome: Outcome) -> CommandResult:
    """Update the task of a command, and mark its result as delivered."""
    from deputy.project_tasks.orchestrator import CommandRequest, clean_up

    order = CommandRequest(session_id=state.run, command=state.command, number=state.task_number)
    return await clean_up(order, outcome, deputy.command_context())


async def _labels(deputy: Deputy, state: State) -> tuple[str, ...]:
    """The labels for the live view: the remaining tasks of a call, or the one subagent."""
    if state.command == DELEGATE:
        return await deputy.unfinished(state.run)
    return () if _is_parent(state) else (state.label,)


def _is_parent(state: State) -> bool:
    return state.command != DELEGATE and (state.lineage is None or state.lineage.is_top)


async def _answer(
    deputy: Deputy, state: State, given: str | None, terminal: TerminalPrompt | None, *, yes: bool
) -> Answer:
    """The answers to the run's questions: from --answer, else asked at the terminal one by one."""
    if state.status == "rejected":
        raise UsageError("ID", state.run, "this run was rejected and never started; start the work again")
    if state.status == "completed" and given is None:
        raise UsageError("ID", state.run, "this run is completed; to continue it, pass a message with --answer")
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


def _root(run: str) -> State | None:
    """The state of the run's root; None when the run is not known."""
    from deputy.journal.home import home_path
    from deputy.journal.sqlite.reader import JournalReader

    reader = JournalReader.open(home_path())
    if reader is None:
        return None
    with reader:
        state = reader.state(run)
        return None if state is None or state.lineage is None else reader.state(state.lineage.root_id)


def _workspace(root: State | None, given: str | None) -> str:
    """The workspace of the run: --workspace, else the original one, else the current directory."""
    recorded = "" if root is None or given is not None else root.workspace
    if recorded and not Path(recorded).is_dir():
        raise UsageError("--workspace", recorded, "the run's folder does not exist any more; name another")
    return str(Path(given or recorded or ".").absolute())
