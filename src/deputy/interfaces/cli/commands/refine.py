"""`deputy refine`: a director works and an evaluator judges, until the result is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import (
    LIMIT_OPTIONS,
    Console,
    RunOptions,
    argument_or_stdin,
    show_json,
    warn,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.outcome_output import remedy
from deputy.interfaces.cli.runner import not_stopped, run_command

if TYPE_CHECKING:
    import asyncio

    from deputy.core.refinement import Evaluator
    from deputy.interfaces.call_results import Refined

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
@click.option(SCRIPT, "script", metavar="ARGV…", is_flag=True, help="Evaluate with a program; must come last.")
@with_run_options(
    "model",
    "workspace",
    *LIMIT_OPTIONS,
    "yes",
    "events",
    "here",
    "worker",
    model="The director's model: provider:model or an alias.",
    workspace="The folder that the director works in.",
    tools="The director's tools, instead of the read-only ones.",
)
@with_console("Print every round as JSON.")
def command(console: Console, task: str | None, options: RunOptions, **given: Any) -> int:
    """Repeat work and evaluation until the result is accepted.

    A director agent works on TASK (by default read from standard input); an evaluator agent or program judges the
    result, and its feedback goes back to the director. The loop ends when the result is accepted, after N rounds, or
    when nothing changes any more. The best round is the result.
    """
    text = argument_or_stdin(task, "TASK")
    evaluator = _evaluator(click.get_current_context().meta.get(SCRIPT), given["criteria"], given["evaluator_model"])
    return run_command(lambda stop: _run(console, text, evaluator, options, given, stop))


def _evaluator(script: tuple[str, ...] | None, criteria: str | None, model: str | None) -> Evaluator:
    from deputy.core.refinement import AgentEvaluator, ScriptEvaluator

    if script is None:
        said = AgentEvaluator(model=model)
        return said if criteria is None else AgentEvaluator(criteria=criteria, model=model)
    if criteria is not None or model is not None:
        raise UsageError(SCRIPT, " ".join(script), "give a script, or --criteria and --evaluator-model, not both")
    if not script:
        raise UsageError(SCRIPT, "", "give a program and its arguments after it")
    return ScriptEvaluator(argv=script)


async def _run(
    console: Console,
    task: str,
    evaluator: Evaluator,
    options: RunOptions,
    given: dict[str, Any],
    stop: asyncio.Event,
) -> int:
    from deputy.interfaces.cli.live_run import open_live_run

    async with open_live_run(console, options, stop) as live:
        deputy = live.deputy
        await deputy.models.ensure_usable(await deputy.models.default())
        async with live.view():
            session_id = await deputy.start_refining(
                task, evaluator, rounds=given["rounds"], tools=options.tools, timeout=options.timeout
            )
            refined = await live.wait(session_id, deputy.refined(session_id))
        if refined is None:
            return not_stopped(session_id)
        _show(console, refined)
        await deputy.delivered(session_id)
        return live.exit_code([refined.outcome])


def _show(console: Console, refined: Refined) -> None:
    from deputy.core.refinement import refinement_dict, refinement_markdown
    from deputy.core.serialize import outcome_dict
    from deputy.interfaces.view.renderers import show_markdown

    outcome = refined.outcome
    if console.as_json:
        form = refinement_dict(refined.rounds, refined.ending)
        show_json({**form, "outcome": outcome_dict(outcome)})
        return
    show_markdown(refinement_markdown(refined.rounds, refined.ending))
    if outcome.status != "completed":
        warn(f"{outcome.session_id} {outcome.status}: {outcome.summary}")
    if text := remedy(outcome.session_id, [outcome]):
        warn(text)
