"""`deputy delegate`: give tasks to subagents, show their progress and print their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click
from msgspec import structs

from deputy.config import load_effective_settings
from deputy.core.errors import BadFields, Unquoted, UsageError
from deputy.core.fallback import cannot_spawn
from deputy.core.task import MAX_CONCURRENCY, DelegateCall, read_call
from deputy.interfaces.cli.file_argument import read_text
from deputy.interfaces.cli.outcome_output import remedy
from deputy.interfaces.cli.output import show_json
from deputy.interfaces.cli.runner import CANCELLED, REJECTED, exit_code, not_stopped, resumable, run_command, until_done
from deputy.interfaces.safe_text import safe_message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from deputy.client import Deputy
    from deputy.core.approval import ApprovalRequest
    from deputy.core.effective_settings import ApprovalPolicy, EffectiveSettings
    from deputy.core.results import Result
    from deputy.interfaces.view.event_lines import EventLines

EXAMPLES = f"""\b
Examples:
  deputy delegate -t "auth=Where are passwords checked?"
  deputy delegate -t "a=…" -t "b=…" --context src/app.py --yes
  deputy delegate --tasks tasks.json --model sonnet --return json
  deputy delegate -t "x=…" --yes --events - | jq .event

\b
A tasks file is a list of tasks, or a whole call of the Delegate tool:
  [{{"label": "auth", "prompt": "…", "context": ["src/app.py"]}}]

\b
Without --model Deputy uses DEPUTY_MODEL, else the first provider with a
key, else a model server on this machine, else offline:scout. `deputy
doctor` says which, and why. At most {MAX_CONCURRENCY} subagents run at once.

\b
Exit codes:
  0 all completed   1 failed         2 usage     4 some completed, or partial
  5 blocked         6 not approved   130 cancelled"""


@click.command(epilog=EXAMPLES)
@click.option("-t", "--task", "given", multiple=True, metavar="LABEL=PROMPT", help="A task; repeat it for more.")
@click.option("--tasks", "file", metavar="FILE|-", help="Read tasks from a JSON file.")
@click.option("--context", multiple=True, metavar="PATH", help="A file to put before the prompt of each -t task.")
@click.option("--agent", metavar="NAME", help="The agent for the -t tasks; `deputy agents` lists them.")
@click.option("--model", metavar="M", help="provider:model or an alias; a task's own model wins.")
@click.option("--concurrency", type=int, metavar="N", help="How many run at once (1 to 4).")
@click.option("--workspace", default=".", type=click.Path(exists=True, file_okay=False), help="The folder they see.")
@click.option("-y", "--yes", is_flag=True, help="Approve everything without asking.")
@click.option("--no-fallback", is_flag=True, help="Never try another model or backend when one fails.")
@click.option("--no-inline", is_flag=True, help="Never fall back to the session's own model.")
@click.option("--events", metavar="FILE|-", help="Write events as JSON lines.")
@click.option("--return", "form", type=click.Choice(["markdown", "json"]), help="The form of the result.")
@click.option("--json", "as_json", is_flag=True, help="The same as --return json.")
@click.pass_context
def command(
    ctx: click.Context,
    given: tuple[str, ...],
    file: str | None,
    context: tuple[str, ...],
    agent: str | None,
    model: str | None,
    concurrency: int | None,
    workspace: str,
    yes: bool,
    no_fallback: bool,
    no_inline: bool,
    events: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Give tasks to subagents and print their results.

    Subagents work in parallel and only read the workspace, unless a task in a
    tasks file names tools that write. Progress goes to standard error, the
    result to standard output.
    """
    settings = load_effective_settings(workspace)
    own = [_task(text, context, agent) for text in given]
    call = _call(own, file, concurrency, "json" if as_json else form, settings)
    how = DelegateOptions(
        model=model,
        workspace=workspace,
        yes=yes,
        events=events,
        settings=settings,
        fallback=False if no_fallback else None,
        inline=False if no_inline else None,
    )
    ctx.exit(run_command(lambda stop: run_call(call, how, stop)))


# --- arguments --------------------------------------------------------------------------------------------------------


def _call(
    own: Sequence[dict[str, Any]],
    file: str | None,
    concurrency: int | None,
    form: str | None,
    settings: EffectiveSettings,
) -> DelegateCall:
    """The call of the command line, checked like the call of a model."""
    arguments = _arguments(file)
    tasks: Any = arguments.get("tasks", [])
    if isinstance(tasks, list):
        arguments["tasks"] = [*cast("list[Any]", tasks), *own]
    if not arguments["tasks"]:
        _no_tasks(file)
    if concurrency is not None:
        arguments["concurrency"] = concurrency
    arguments.setdefault("concurrency", settings.concurrency)
    if form is not None:
        arguments["return"] = form
    call = read_call(arguments)
    if isinstance(call, DelegateCall):
        return call
    raise BadFields([(problem.field, problem.message) for problem in call])


def _no_tasks(file: str | None) -> NoReturn:
    if file is None:
        raise UsageError("-t", Unquoted("no task"), 'give at least one: -t "label=what to do", or --tasks FILE')
    raise UsageError("--tasks", file, 'the file has no task; write at least one: [{"label": "…", "prompt": "…"}]')


def _arguments(file: str | None) -> dict[str, Any]:
    if file is None:
        return {"tasks": []}
    from msgspec import DecodeError, json

    try:
        value: Any = json.decode(read_text(file, field="--tasks"))
    except (DecodeError, RecursionError) as error:
        raise UsageError("--tasks", file, f"it is not JSON: {error}") from error
    if isinstance(value, list):
        return {"tasks": value}
    if not isinstance(value, dict):
        raise UsageError("--tasks", file, 'it must be a list of tasks, or an object with "tasks"')
    return cast("dict[str, Any]", value)


def _task(text: str, context: Sequence[str], agent: str | None) -> dict[str, Any]:
    label, equals, prompt = text.partition("=")
    if not equals:
        raise UsageError("-t", text, 'write LABEL=PROMPT, like -t "auth=Where are passwords checked?"')
    return {"label": label.strip(), "prompt": prompt, "context": list(context), "agent": agent}


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class DelegateOptions:
    """Options of a call that are not part of its tasks."""

    model: str | None
    workspace: str
    yes: bool
    events: str | None
    settings: EffectiveSettings
    fallback: bool | None = None
    inline: bool | None = None
    shows_ways: bool = False
    """Show backend and model of each task; a task without a backend fails alone instead of refusing the call."""


async def run_call(call: DelegateCall, how: DelegateOptions, stop: asyncio.Event) -> int:
    """Check, approve and run a call, and print its results; return the exit code."""
    from deputy.client import Deputy
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, approval_for, can_ask
    from deputy.interfaces.view.renderers import open_view
    from deputy.interfaces.view.subscribers import Subscribers, open_events

    events, settings = how.events, how.settings
    approval = approval_for(settings.approval, yes=how.yes)
    async with open_events(events) as lines:
        subscribers = Subscribers(lines)
        terminal = TerminalPrompt(stop)
        last = lines if events == "-" else None
        async with Deputy(
            how.model,
            workspace=how.workspace,
            fallback=how.fallback,
            inline=how.inline,
            watch=subscribers.emit,
            # The call's approval names what its subagents may do; any other call of theirs asks.
            approval=approval,
            answer=terminal.answer if can_ask() else None,
            private=[] if events in (None, "-") else [events],
            rules=settings,
        ) as deputy:
            chosen = (await deputy.default_model()).model
            call = structs.replace(call, tasks=await deputy.resolve_tasks(call.tasks))
            backends = await _routing(deputy, call, chosen) if how.shows_ways else ""
            if not how.shows_ways:
                await _check_keys(deputy, call, chosen)
            _warn_of_context(call, how.workspace)
            if approval == "granted" and backends:
                click.echo(safe_message(backends), err=True)
            if approval == "refuse":
                tell_refused(
                    await deputy.preview(call.tasks, concurrency=call.concurrency, notes=backends), settings.approval
                )
                if last is not None or call.result_form == "json":
                    _show(_refused(call), call, last)
                return REJECTED
            async with open_view([task.label for task in call.tasks], is_quiet=events == "-") as view:
                subscribers.subscribe(view)
                terminal.view = view
                session_id = await deputy.start(
                    call.tasks, concurrency=call.concurrency, must_ask=approval == "ask", notes=backends
                )
                if lines is not None:
                    lines.write("opened", {"session_id": session_id, "model": chosen, "total": len(call.tasks)})
                with resumable(session_id):
                    results = await until_done(deputy.results(session_id), stop, lambda: deputy.cancel(session_id))
            if results is None:
                return not_stopped(session_id)
            status = (await deputy.state(session_id)).status
            if status != "rejected" or last is not None or call.result_form == "json":
                _show(results, call, last, session_id)
            await deputy.delivered(session_id)
            outcomes = [result.outcome for result in results]
            is_cancelled = status == "cancelled"
            text = remedy(session_id, outcomes) or (f"{session_id} was cancelled after all tasks ended" * is_cancelled)
            if text and last is None:
                click.echo(f"deputy: {text}", err=True)
            return CANCELLED if is_cancelled or stop.is_set() else exit_code(outcomes)


def _warn_of_context(call: DelegateCall, workspace: str) -> None:
    """Warn before the approval about context files that cannot be read."""
    from deputy.tools.tool_text import ToolError
    from deputy.tools.workspace import Workspace

    place = Workspace(workspace)
    for path in dict.fromkeys(path for task in call.tasks for path in task.context):
        try:
            with place.place(path) as found:
                found.expect_file()
        except ToolError as error:
            text = safe_message(f"--context {path}: not included: {error}")
            click.echo(f"deputy: warning: {text}", err=True)


async def _routing(deputy: Deputy, call: DelegateCall, model: str) -> str:
    """Backend, model and maximum cost of each task, one line each, or why no backend can run it."""
    from deputy.core.approval import cost_ceiling

    lines: list[str] = []
    for task in call.tasks:
        name = task.model or model
        way = await deputy.backend_for(name)
        if way is None:
            text = cannot_spawn(name, deputy.provider_of(name))
            lines.append(f"[{task.label}] {text}")
            continue
        # The approval says once for all tasks why a cost is not bounded.
        cost = cost_ceiling((task,), lambda _, asked=way.model: deputy.prices_of(asked)).text.partition(" (")[0]
        instead = "" if way.model == name else f" (instead of {name})"
        lines.append(f"[{task.label}] {way}{instead}, cost: {cost}")
    return "\n".join(lines)


async def _check_keys(deputy: Deputy, call: DelegateCall, model: str) -> None:
    for name in dict.fromkeys(task.model or model for task in call.tasks):
        if (provider := await deputy.missing_backend(name)) is not None:
            text = cannot_spawn(name, provider)
            raise UsageError("--model", name, f"{text}; `deputy doctor` says what to set")


def tell_refused(request: ApprovalRequest, policy: ApprovalPolicy) -> None:
    """Print the request that was refused, why, and how to approve it."""
    from deputy.core.approval_text import screen

    why = "your configuration refuses it" if policy == "refuse" else "no terminal to ask at"
    # This text is not approved by a person, so its secrets are redacted like in all other output.
    click.echo(f"{safe_message(screen(request).text)}\ndeputy: not approved: {why}; pass --yes to approve", err=True)


def _refused(call: DelegateCall) -> list[Result]:
    """A rejected result for each task of a call that was not approved, so that programs find one per task."""
    from deputy.core.errors import Error
    from deputy.core.outcome import Rejected
    from deputy.core.request import Lineage
    from deputy.core.results import Result

    error = Error(
        type="validation",
        code="NOT_APPROVED",
        message="The call was not approved.",
        recoverable=True,
        recommendation="Approve it at a terminal, or pass --yes.",
    )
    refusal = Rejected(lineage=Lineage.root(""), summary="Not started: the call was not approved.", errors=(error,))
    return [Result(label=task.label, outcome=refusal) for task in call.tasks]


def _show(results: Sequence[Result], call: DelegateCall, lines: EventLines | None, session_id: str = "") -> None:
    from deputy.core.results import results_dict, results_markdown
    from deputy.interfaces.view.renderers import show_markdown

    # The call's own id, which resumes all of it; a call that was not approved has none.
    form = {**results_dict(results), "session_id": session_id or None}
    if lines is not None:
        lines.write("result", form)
    elif call.result_form == "json":
        show_json(form)
    else:
        show_markdown(results_markdown(results))
