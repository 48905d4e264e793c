"""`deputy approve ID`: see what a run waits to be approved, and say yes or no to exactly that."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from deputy.core.errors import UnknownRun, UsageError
from deputy.interfaces.cli.parent_process import refuse_below_a_run
from deputy.interfaces.cli.runner import NOTHING_FOUND
from deputy.interfaces.safe_text import print_error

if TYPE_CHECKING:
    from deputy.core.approval import Choice
    from deputy.interfaces.pending_approvals import PendingApproval
    from deputy.journal.sqlite.sqlite_journal import SqliteJournal

EXAMPLES = """\b
Examples:
  deputy ps                                        # what waits, and for what
  deputy approve sess_1763190000_x7k2ab            # shows it, and asks
  deputy approve sess_1763190000_x7k2ab --deny
  deputy approve sess_1763190000_x7k2ab --json     # shows it to a program
  deputy approve sess_1763190000_x7k2ab --digest 9f86d081…

\b
An answer counts for exactly what was shown: --digest names it, and is
needed where there is no terminal. A call that changed since, or whose
file changed, is asked again under another digest. The first answer
counts. Commands that a run has started cannot approve anything.

\b
Exit codes:
  0 it is answered, or shown   2 no digest was given
  3 there is no such run, it does not wait for this, or another answer
  came first"""

_PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 0.05


class Wanted(NamedTuple):
    """What the command line says."""

    run: str
    key: str
    digest: str
    deny: bool
    always: bool
    details: bool
    as_json: bool

    @property
    def choice(self) -> Choice:
        """What is answered where nobody is asked."""
        return "no" if self.deny else "always" if self.always else "yes"


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="ID")
@click.option("--digest", default="", metavar="SHA256", help="What you approve, as it was shown; all 64 digits.")
@click.option("--key", default="", metavar="KEY", help="Which question, where a run waits for several.")
@click.option("--deny", is_flag=True, help="Say no: nothing is started.")
@click.option("--always", is_flag=True, help="Approve every later call of this tool in this run, too.")
@click.option("--details", is_flag=True, help="Show all of it, however long.")
@click.option("--json", "as_json", is_flag=True, help="Show what is asked, or what was answered, as JSON.")
@click.pass_context
def command(
    ctx: click.Context, run: str, digest: str, key: str, deny: bool, always: bool, details: bool, as_json: bool
) -> None:
    """Show what a run waits to be approved, and say yes or no."""
    refuse_below_a_run("approve")
    ctx.exit(asyncio.run(_approve(Wanted(run, key, digest.lower(), deny, always, details, as_json))))


async def _approve(wanted: Wanted) -> int:
    from deputy.interfaces.pending_approvals import find_pending
    from deputy.journal.home import home_path, make_home
    from deputy.journal.sqlite.sqlite_journal import SqliteJournal

    async with SqliteJournal(make_home(home_path())) as journal:
        try:
            asking = await find_pending(journal, wanted.run, wanted.key)
        except UnknownRun as error:
            click.echo(f"deputy: {print_error(error)}", err=True)
            return NOTHING_FOUND
        if asking is None:
            what = f"under the key {wanted.key!r}" if wanted.key else "for approval"
            click.echo(f"deputy: {wanted.run} does not wait {what}; `deputy ps` shows what does", err=True)
            return NOTHING_FOUND
        choice, digest = await _choose(wanted, asking)
        if choice is None:
            return 0 if wanted.as_json or wanted.details else 2
        return await _answer(journal, wanted, asking, choice, digest)


async def _choose(wanted: Wanted, asking: PendingApproval) -> tuple[Choice | None, str]:
    """What is answered, and to which digest; None where it is only shown."""
    from deputy.core.approval import Decision
    from deputy.core.events import APPROVAL
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, can_ask
    from deputy.interfaces.questions import Question

    if wanted.digest or wanted.deny:
        return wanted.choice, wanted.digest
    if wanted.as_json:
        _show_json(_form(asking))
        return None, ""
    if not can_ask() or asking.request is None:
        _show(asking, whole=wanted.details)
        if not wanted.details:
            way = f"deputy approve {asking.run} --digest {asking.digest}"
            click.echo(f"deputy: not approved: name what you approve: {way}", err=True)
        return None, ""
    question = Question(
        session_id=asking.run, label="", topic=APPROVAL, text="", request=asking.request, digest=asking.digest
    )
    answer = await TerminalPrompt(asyncio.Event(), shows_all=wanted.details).answer(question)
    return (answer.choice, answer.digest) if isinstance(answer, Decision) else ("no", "")


async def _answer(journal: SqliteJournal, wanted: Wanted, asking: PendingApproval, choice: Choice, digest: str) -> int:
    from msgspec import json

    from deputy.core.events import APPROVAL
    from deputy.interfaces.pending_approvals import answer_to

    now = time.time()
    try:
        answer = answer_to(asking, choice, digest=digest, now=now)
    except UsageError as error:
        _show(asking, whole=wanted.details)
        click.echo(f"deputy: not approved: {print_error(error)}", err=True)
        return NOTHING_FOUND
    if choice != "no" and asking.is_late(now):
        click.echo(f"deputy: nobody approved {asking.run} in time: it is refused. Ask for the work anew", err=True)
    # Only sent: whoever is at work on the run goes on with it, and not this process.
    is_first = await journal.send(answer.run, APPROVAL, answer.key, json.encode(answer.decision))
    is_taken = await _is_delivered(journal, asking)
    approved = answer.decision.choice != "no"
    if wanted.as_json:
        _show_json({**_form(asking), "choice": answer.decision.choice, "counts": is_first, "taken": is_taken})
    elif is_first:
        click.echo(f"{'Approved' if approved else 'Denied'}: {asking.question}")
    if not is_first:
        click.echo(f"deputy: another answer to {asking.run} came first, and counts", err=True)
    if not is_taken:
        click.echo(f"deputy: nobody is at work on it now; go on with `deputy resume {asking.run}`", err=True)
    return 0 if is_first else NOTHING_FOUND


def _show(asking: PendingApproval, *, whole: bool) -> None:
    from deputy.core.approval_text import screen
    from deputy.interfaces.text_lines import terminal_width

    if asking.request is not None:
        click.echo(screen(asking.request, width=terminal_width(), whole=whole).text)


def _show_json(form: dict[str, Any]) -> None:
    """Print what is asked, exactly: what a person approves is never redacted."""
    from deputy.core.detect.visible import visible_json

    click.echo(visible_json(form, indent=2))


def _form(asking: PendingApproval) -> dict[str, Any]:
    """What is asked, for programs."""
    return {
        "session_id": asking.run,
        "key": asking.key,
        "digest": asking.digest,
        "question": asking.question,
        "request": asking.request,
        "until": asking.until,
    }


async def _is_delivered(journal: SqliteJournal, asking: PendingApproval) -> bool:
    """Whether somebody goes on with the run, for as long as that usually takes."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                state = await journal.state(asking.run)
                if state is None or asking.key not in state.waits:
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        return False
