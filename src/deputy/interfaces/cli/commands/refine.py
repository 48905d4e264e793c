"""`deputy refine`: a director works and an evaluator judges, until the result is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import UsageError
from deputy.core.fallback import cannot_spawn
from deputy.interfaces.cli.outcome_output import remedy
from deputy.interfaces.cli.output import show_json
from deputy.interfaces.cli.runner import CANCELLED, exit_code, not_stopped, resumable, run_command, until_done
from deputy.interfaces.text_lines import plain

if TYPE_CHECKING:
    import asyncio

    from deputy.core.refinement import Evaluator
    from deputy.interfaces.refinement_call import Refined

SCRIPT = "--evaluator-script"

EXAMPLES = """\b
Examples:
  deputy refine "Write a haiku about tides" \\
    --criteria "Three lines of 5, 7 and 5 syllables"
  deputy refine "List ten primes as JSON" --evaluator-script python3 check.py
  deputy refine --yes --tools Read,Edit,Run "Make the tests pass" \\
    --evaluator-script make test

\b
Everything after --evaluator-script is the program and its arguments. It gets
the work on standard input and has 300 seconds. Exit code 0 accepts the work;
it may also print {"success": false, "feedback": "…", "score": 0.5}.

\b
Exit codes:
  0 accepted   1 failed   2 usage   4 not accepted   5 blocked   130 cancelled"""


class _WithScript(click.Command):
    """A command whose last option takes all remaining arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if SCRIPT in args:
            at = args.index(SCRIPT)
            ctx.meta[SCRIPT] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=_WithScript, epilog=EXAMPLES, options_metavar="[OPTIONS]")
@click.argument("task", required=False)
@click.option("--criteria", metavar="TEXT", help="The criteria of an evaluator agent.")
@click.option("--evaluator-model", metavar="M", help="The evaluator's model; by default the director's.")
@click.option("--rounds", metavar="N", type=int, default=5, show_default=True, help="The maximum number of rounds.")
@click.option("--tools", metavar="A,B", help="The director's tools; by default the read-only ones.")
@click.option("--model", metavar="M", help="The director's model: provider:model or an alias.")
@click.option("--tokens", metavar="N", type=int, help="The maximum number of tokens, of all rounds together.")
@click.option("--cost", metavar="DOLLARS", type=float, help="The maximum cost.")
@click.option("--workspace", default=".", type=click.Path(exists=True, file_okay=False), help="Where it works.")
@click.option("-y", "--yes", is_flag=True, help="Approve everything without asking.")
@click.option("--events", metavar="FILE|-", help="Write events as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print every round as JSON.")
@click.option(SCRIPT, "script", metavar="ARGV…", is_flag=True, help="Evaluate with a program: its arguments follow.")
@click.pass_context
def command(ctx: click.Context, task: str | None, **options: Any) -> None:
    """Repeat work and evaluation until the result is accepted.

    A director agent works on TASK (by default read from standard input); an evaluator agent or program judges the
    result, and its feedback goes back to the director. The loop ends when the result is accepted, after N rounds, or
    when nothing changes any more. The best round is the result.
    """
    text = _task(task)
    evaluator = _evaluator(ctx.meta.get(SCRIPT), options["criteria"], options["evaluator_model"])
    ctx.exit(run_command(lambda stop: _run(text, evaluator, options, stop)))


def _task(given: str | None) -> str:
    if given is None:
        from deputy.interfaces.cli.file_argument import read_text

        given = read_text("-")
    if not given.strip():
        raise UsageError("TASK", given, "give the task as an argument, or on standard input")
    return given


def _evaluator(script: tuple[str, ...] | None, criteria: str | None, model: str | None) -> Evaluator:
    from deputy.core.refinement import AgentEvaluator, ScriptEvaluator

    if script is None:
        said = AgentEvaluator(model=model)
        return said if criteria is None else AgentEvaluator(criteria=criteria, model=model)
    if criteria is not None or model is not None:
        raise UsageError(SCRIPT, " ".join(script), "give either a script or --criteria and --evaluator-model")
    if not script:
        raise UsageError(SCRIPT, "", "give a program and its arguments after it")
    return ScriptEvaluator(argv=script)


async def _run(task: str, evaluator: Evaluator, options: dict[str, Any], stop: asyncio.Event) -> int:
    from deputy.client import Deputy
    from deputy.config import load_effective_settings
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, approval_for, can_ask
    from deputy.interfaces.view.renderers import open_view
    from deputy.interfaces.view.subscribers import Subscribers, open_events

    events, tools = options["events"], options["tools"]
    settings = load_effective_settings(options["workspace"])
    async with open_events(events) as lines:
        subscribers = Subscribers(lines)
        terminal = TerminalPrompt(stop)
        async with Deputy(
            options["model"],
            workspace=options["workspace"],
            watch=subscribers.emit,
            approval=approval_for(settings.approval, yes=options["yes"]),
            answer=terminal.answer if can_ask() else None,
            budget=_budget(options["tokens"], options["cost"]),
            private=[] if events in (None, "-") else [events],
            rules=settings,
        ) as deputy:
            chosen = (await deputy.default_model()).model
            if (provider := await deputy.missing_backend(chosen)) is not None:
                raise UsageError(
                    "--model", chosen, f"{cannot_spawn(chosen, provider)}; `deputy doctor` says what to set"
                )
            async with open_view(is_quiet=options["as_json"] or events == "-") as view:
                terminal.view = view
                subscribers.subscribe(view)
                session_id = await deputy.start_refining(
                    task,
                    evaluator,
                    rounds=options["rounds"],
                    tools=None if tools is None else [name.strip() for name in tools.split(",") if name.strip()],
                )
                with resumable(session_id):
                    refined = await until_done(deputy.refined(session_id), stop, lambda: deputy.cancel(session_id))
            if refined is None:
                return not_stopped(session_id)
            _show(refined, as_json=options["as_json"])
            await deputy.delivered(session_id)
            return CANCELLED if stop.is_set() else exit_code([refined.outcome])


def _budget(tokens: int | None, cost: float | None) -> Any:
    from deputy.core.limits import NANOS_PER_DOLLAR, Budget

    for name, cap in (("--tokens", tokens), ("--cost", cost)):
        if cap is not None and not cap > 0:
            raise UsageError(name, cap, "give a number above 0")
    return Budget(tokens=tokens, cost=None if cost is None else round(cost * NANOS_PER_DOLLAR))


def _show(refined: Refined, *, as_json: bool) -> None:
    from deputy.core.refinement import refinement_dict, refinement_markdown
    from deputy.core.serialize import outcome_dict
    from deputy.interfaces.view.renderers import show_markdown

    if as_json:
        form = refinement_dict(refined.rounds, refined.ending)
        show_json({**form, "outcome": outcome_dict(refined.outcome)})
        return
    show_markdown(refinement_markdown(refined.rounds, refined.ending))
    outcome = refined.outcome
    if outcome.status != "completed":
        click.echo(plain(f"deputy: {outcome.session_id} {outcome.status}: {outcome.summary}"), err=True)
    if text := remedy(outcome.session_id, [outcome]):
        click.echo(f"deputy: {text}", err=True)
