"""`deputy resume ID`: go on with a run that ended, waits for an answer, or lost its process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UnknownRun, UsageError
from deputy.interfaces.cli.ending import show_outcome
from deputy.interfaces.cli.session import CANCELLED, NOTHING_FOUND, carry_out, exit_code, not_stopped, until_done

if TYPE_CHECKING:
    import asyncio

    from deputy.core.state import State
    from deputy.interfaces.cli.asking import Person
    from deputy.interfaces.library import Deputy

EXAMPLES = """\b
Examples:
  deputy resume sess_1763190000_x7k2ab
  deputy resume sess_1763190000_x7k2ab --answer "Use the second one."

\b
Finished model calls are not paid for again. A call of several tasks goes
on with those that did not complete.

\b
Exit codes are those of the outcome; 3 when there is no such run."""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="ID")
@click.option("--answer", metavar="TEXT", help="The answer to its question, or a further message.")
@click.option("--workspace", default=".", type=click.Path(exists=True, file_okay=False), help="Where it works.")
@click.option("-y", "--yes", is_flag=True, help="Approve everything it asks for.")
@click.option("--events", metavar="FILE|-", help="Write what happens as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.pass_context
def command(
    ctx: click.Context, run: str, answer: str | None, workspace: str, yes: bool, events: str | None, as_json: bool
) -> None:
    """Go on with a run that ended, waits or was interrupted."""
    ctx.exit(carry_out(lambda stop: _resume(run, answer, workspace, yes, events, as_json, stop)))


async def _resume(
    run: str,
    answer: str | None,
    workspace: str,
    yes: bool,
    events: str | None,
    as_json: bool,
    stop: asyncio.Event,
) -> int:
    from deputy.interfaces.cli.asking import Person, can_ask
    from deputy.interfaces.library import Deputy
    from deputy.interfaces.view.audience import Audience, open_events
    from deputy.interfaces.view.painters import open_view
    from deputy.interfaces.view.parent import ParentView

    is_quiet = as_json or events == "-"
    async with open_events(events) as lines:
        audience = Audience(lines)
        async with open_view(is_quiet=is_quiet) as view:
            parent = ParentView(view, is_streaming=sys.stdout.isatty() and not is_quiet, is_quiet=is_quiet)
            audience.join(parent)
            person = Person(view, stop)
            asks = can_ask() and not yes
            async with Deputy(
                workspace=workspace,
                watch=audience.tell,
                approval="granted" if yes else "refuse",
                answer=person.answer if asks else None,
            ) as deputy:
                try:
                    answer = await _answer(deputy, run, answer, person if asks else None)
                    await deputy.go_on(run, answer)
                except UnknownRun as error:
                    click.echo(f"deputy: {error}", err=True)
                    return NOTHING_FOUND
                outcome = await until_done(deputy.outcome(run), stop, lambda: deputy.cancel(run))
                if outcome is not None:
                    await deputy.delivered(run)
        parent.finish()
        if outcome is None:
            return not_stopped(run)
        if events != "-":
            show_outcome(outcome, as_json=as_json, is_told=parent.has_streamed and outcome.status == "completed")
        return CANCELLED if stop.is_set() else exit_code([outcome])


async def _answer(deputy: Deputy, run: str, given: str | None, person: Person | None) -> str | None:
    """The answer to what the run asks, from the command line or from the person."""
    from deputy.interfaces.answering import Question

    state = await deputy.state(run)
    if state.status == "completed" and given is None:
        raise UsageError("ID", run, "it is completed; give --answer to say what more you want")
    if given is not None or not _asks(state) or await deputy.is_answered(run):
        return given
    if person is None:
        question = state.question or "it asks something; see `deputy show`"
        raise UsageError("ID", run, f"it waits for an answer: give --answer TEXT ({question[:200]})")
    topic = next(iter(state.waits.values()), "answer")
    asked = Question(session_id=run, label=state.label or "run", topic=topic, text=state.question)
    said = await person.answer(asked)
    return said if isinstance(said, str) else ("yes" if said else "no")


def _asks(state: State) -> bool:
    return state.status in ("blocked", "waiting")
