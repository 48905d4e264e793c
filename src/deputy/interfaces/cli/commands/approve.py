"""`deputy approve ID`: show what a run asks for, and approve or deny exactly that."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import NOTHING_FOUND, Console, run_argument, warn, with_console
from deputy.interfaces.nesting import refuse_below_run
from deputy.interfaces.safe_text import print_error

if TYPE_CHECKING:
    from deputy.core.approval import Choice
    from deputy.engine.ports import Journal
    from deputy.interfaces.questions import PendingApproval

EXAMPLES = """\b
Examples:
  deputy ps                                       lists what waits
  deputy approve sess_1763190000_x7k2ab           shows it and asks
  deputy approve sess_1763190000_x7k2ab --deny
  deputy approve sess_1763190000_x7k2ab --json    shows it as JSON
  deputy approve sess_1763190000_x7k2ab --digest 9f86d081…

\b
An approval is valid only for the call that was shown. --digest names that
call, and is required without a terminal. If the call or its files have
changed, the run asks again with a new digest. The first answer counts.
A command that a run has started cannot approve.

\b
Exit codes:
  0 answered, or shown   2 no digest and no terminal
  3 no such run, the run does not wait for this, or another answer came first"""

_MAX_WAIT_SECONDS = 2.0
_LOOK_SECONDS = 0.05


@click.command(epilog=EXAMPLES)
@run_argument()
@click.option("--digest", default="", metavar="SHA256", help="Approve the call with this digest (64 hex digits).")
@click.option("--key", default="", metavar="KEY", help="The question to answer, when the run has several.")
@click.option("--deny", is_flag=True, help="Deny it; needs no digest.")
@click.option("--always", is_flag=True, help="Also approve every later call of this tool in this run.")
@click.option("--details", is_flag=True, help="Show long texts in full.")
@with_console("Print the request, or the answer, as JSON.")
def command(console: Console, run: str, digest: str, key: str, deny: bool, always: bool, details: bool) -> int:
    """Approve or deny what a run asks for."""
    refuse_below_run("deputy approve")
    choice: Choice = "no" if deny else "always" if always else "yes"
    return asyncio.run(_approve(console, run, key, choice, digest.lower(), details))


async def _approve(console: Console, run: str, key: str, choice: Choice, digest: str, details: bool) -> int:
    from deputy.interfaces.questions import find_pending
    from deputy.journal.home import home_path, make_home
    from deputy.stores import open_journal

    async with open_journal(make_home(home_path())) as journal:
        asking = await find_pending(journal, run, key)
        if asking is None:
            what = f"has no open question {key!r}" if key else "does not wait for approval"
            return console.not_found(f"{run} {what}; `deputy ps` lists the runs that wait")
        if digest or choice == "no":
            return await _answer(console, journal, asking, choice, digest, details)
        answered = await _ask(console, asking, details)
        if answered is None:
            return 0 if console.as_json or details else 2
        return await _answer(console, journal, asking, *answered, details)


async def _ask(console: Console, asking: PendingApproval, details: bool) -> tuple[Choice, str] | None:
    """Ask at the terminal for the choice and its digest; None when the request is only shown."""
    from deputy.core.approval import Decision, Question
    from deputy.core.events import APPROVAL
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, can_ask

    if console.as_json:
        _show_json(_form(asking))
        return None
    if not can_ask() or asking.request is None:
        _show(asking, whole=details)
        if not details:
            approve = f"deputy approve {asking.run} --digest {asking.digest}"
            click.echo(f"deputy: not approved: no terminal to ask at. To approve it: {approve}", err=True)
        return None
    question = Question(
        session_id=asking.run, label="", topic=APPROVAL, text="", request=asking.request, digest=asking.digest
    )
    answer = await TerminalPrompt(asyncio.Event(), shows_all=details).answer(question)
    return (answer.choice, answer.digest) if isinstance(answer, Decision) else ("no", "")


async def _answer(
    console: Console, journal: Journal[Any], asking: PendingApproval, choice: Choice, digest: str, details: bool
) -> int:
    from msgspec import json

    from deputy.core.events import APPROVAL
    from deputy.interfaces.questions import answer_to

    now = time.time()
    try:
        answer = answer_to(asking, choice, digest=digest, now=now)
    except UsageError as error:
        _show(asking, whole=details)
        click.echo(f"deputy: not approved: {print_error(error)}", err=True)
        return NOTHING_FOUND
    if choice != "no" and asking.is_late(now):
        warn(f"too late: the time to approve {asking.run} is over. Start the work again")
    # Only sent: the process that owns the run continues it, not this one.
    is_first = await journal.send(answer.run, APPROVAL, answer.key, json.encode(answer.decision))
    is_taken = await _is_delivered(journal, asking)
    if console.as_json:
        _show_json({**_form(asking), "choice": answer.decision.choice, "counts": is_first, "taken": is_taken})
    elif is_first:
        click.echo(f"{'Denied' if answer.decision.choice == 'no' else 'Approved'}: {asking.question}")
    if not is_first:
        warn(f"not counted: another answer to {asking.run} came first")
    if not is_taken:
        warn(f"no process works on this run; continue it with `deputy resume {asking.run}`")
    return 0 if is_first else NOTHING_FOUND


def _show(asking: PendingApproval, *, whole: bool) -> None:
    from deputy.core.approval_text import screen
    from deputy.interfaces.text_lines import terminal_width

    if asking.request is not None:
        click.echo(screen(asking.request, width=terminal_width(), whole=whole).text)


def _show_json(form: dict[str, Any]) -> None:
    """Print the request exactly: what a person approves is never redacted."""
    from deputy.core.visible_text import visible_json

    click.echo(visible_json(form, indent=2))


def _form(asking: PendingApproval) -> dict[str, Any]:
    return {
        "session_id": asking.run,
        "key": asking.key,
        "digest": asking.digest,
        "question": asking.question,
        "request": asking.request,
        "until": asking.until,
    }


async def _is_delivered(journal: Journal[Any], asking: PendingApproval) -> bool:
    """Whether the process of the run takes the answer within a short time."""
    try:
        async with asyncio.timeout(_MAX_WAIT_SECONDS):
            while True:
                state = await journal.state(asking.run)
                if state is None or asking.key not in state.waits:
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        return False
