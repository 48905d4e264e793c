"""`deputy delegate`: give tasks to subagents, show their progress and print their results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click
from msgspec import structs

from deputy.config import load_effective_settings
from deputy.core.errors import BadFields, Unquoted, UsageError
from deputy.core.fallback import cannot_spawn
from deputy.core.request import READ_ONLY_TOOLS
from deputy.core.task import MAX_CONCURRENCY, MAX_TASKS, CallLimits, DelegateCall, label_of, read_call
from deputy.interfaces.cli.completers import complete_agent
from deputy.interfaces.cli.console import (
    CANCELLED,
    REJECTED,
    SPAWN_OPTIONS,
    Console,
    RunOptions,
    note,
    read_text,
    show_json,
    warn,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.outcome_output import remedy
from deputy.interfaces.cli.runner import not_stopped, run_command
from deputy.interfaces.nesting import is_below_run
from deputy.interfaces.safe_text import safe_message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

    from deputy.client import Deputy
    from deputy.core.approval import ApprovalRequest
    from deputy.core.effective_settings import ApprovalPolicy
    from deputy.core.results import Result
    from deputy.core.task import Task
    from deputy.interfaces.view.event_lines import EventLines

# One word before a single `=`: `x=1` within a prompt is no label.
_LABELLED = re.compile(r"([\w.-]+)=(?!=)(.*)", re.DOTALL)

CALL_HELP = {
    "budget": "The most that all tasks may use: dollars, like 0.50, or cost=0.50,tokens=100000,requests=20.",
    "timeout": "Time limit of each task that has none.",
    "tools": "Tools of each task that names none, instead of the read-only ones.",
}

EXAMPLES = f"""\b
Examples:
  deputy delegate "Where are passwords checked?" "List the slow tests"
  deputy delegate -t "auth=Where are passwords checked?" --context src/app.py
  deputy delegate --tasks tasks.json --model sonnet --return json
  deputy delegate "Review src/api" --yes --events - | jq .event

\b
A tasks file is a list of tasks, or a whole call of the Delegate tool:
  [{{"label": "auth", "prompt": "…", "context": ["src/app.py"]}}]

\b
Without --model Deputy uses DEPUTY_MODEL, else the first provider with a
key, else a model server on this machine; `deputy doctor` says which, and
why. Without any, at a terminal, the offline scout searches the files, and the
tasks end as partial.

\b
Your config limits a call: [limits] tasks (64) and concurrency (8 at once).
A call that a run makes has at most {MAX_TASKS} tasks, {MAX_CONCURRENCY} at once.

\b
Exit codes:
  0 all completed   1 failed         2 usage     4 some completed, or partial
  5 blocked         6 not approved   130 cancelled"""


@click.command(epilog=EXAMPLES)
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option("-t", "--task", "given", multiple=True, metavar="[LABEL=]PROMPT", help="A task with a label of its own.")
@click.option("--tasks", "file", metavar="FILE|-", help="Read tasks from a JSON file.")
@click.option("--context", multiple=True, metavar="PATH", help="A file to put before each prompt given here.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="The agent for the prompts given here; `deputy agents` lists them.",
)
@click.option(
    "--concurrency", type=int, metavar="N", help="How many run at once; by default all that your config allows."
)
@click.option("--wait", is_flag=True, help="Without a terminal, wait for `deputy approve ID`.")
@click.option("--return", "form", type=click.Choice(["markdown", "json"]), help="The form of the result.")
@with_run_options(*SPAWN_OPTIONS, "allow", "web", **CALL_HELP)
@with_console("The same as --return json.")
def command(
    console: Console,
    prompts: tuple[str, ...],
    given: tuple[str, ...],
    file: str | None,
    context: tuple[str, ...],
    agent: str | None,
    concurrency: int | None,
    wait: bool,
    form: str | None,
    options: RunOptions,
) -> int:
    """Give tasks to subagents and print their results.

    Each PROMPT is the task of one subagent; its label is made from the words.
    Subagents work in parallel and only read the workspace, unless --allow,
    --tools or a tasks file names tools that write. Progress goes to standard
    error, the result to standard output.
    """
    check_context(context, str(options.workspace))
    arguments = _arguments(file)
    tasks: Any = arguments.get("tasks", [])
    if isinstance(tasks, list):
        arguments["tasks"] = [*cast("list[Any]", tasks), *_own_tasks(prompts, given, context, agent)]
    if not arguments["tasks"]:
        _no_tasks(file)
    if concurrency is not None:
        arguments["concurrency"] = concurrency
    settings = load_effective_settings(str(options.workspace))
    # A call of an agent has the limits of its Delegate tool, also when it is made by a command.
    limits = None if is_below_run() else CallLimits(settings.tasks, settings.concurrency)
    arguments.setdefault(
        "concurrency", settings.concurrency if limits is not None else min(settings.concurrency, MAX_CONCURRENCY)
    )
    if console.as_json or form is not None:
        arguments["return"] = "json" if console.as_json else form
    call = read_call(arguments, limits)
    if not isinstance(call, DelegateCall):
        raise BadFields([(problem.field, problem.message) for problem in call])
    for index, task in enumerate(call.tasks):
        check_context(task.context, str(options.workspace), field=f"tasks[{index}].context")
    if limits is not None and len(call.tasks) > MAX_TASKS and not console.as_json:
        at_once = min(call.concurrency, len(call.tasks))
        most = f"{limits.tasks} tasks, {limits.concurrency} at once"
        note(f"{len(call.tasks)} tasks, {at_once} at once. Your limits: {most}.")
    return run_command(lambda stop: run_call(call, options, stop, waits=wait))


# --- arguments --------------------------------------------------------------------------------------------------------


def _no_tasks(file: str | None) -> NoReturn:
    if file is None:
        raise UsageError(
            "PROMPT", Unquoted("no task"), 'give at least one: deputy delegate "what to do", or --tasks FILE'
        )
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


def _own_tasks(
    prompts: Sequence[str], given: Sequence[str], context: Sequence[str], agent: str | None
) -> list[dict[str, Any]]:
    """The tasks of the command line; a label that is not given is made from the words of the prompt."""
    labelled = [("", prompt) for prompt in prompts]
    for text in given:
        match = _LABELLED.fullmatch(text)
        labelled.append(("", text) if match is None else (match[1], match[2]))
    taken = {label for label, _ in labelled}
    tasks: list[dict[str, Any]] = []
    for given_label, prompt in labelled:
        label = given_label or label_of(safe_message(prompt), taken)
        taken.add(label)
        tasks.append({"label": label, "prompt": prompt, "context": list(context), "agent": agent})
    return tasks


# --- the run ----------------------------------------------------------------------------------------------------------


async def run_call(
    call: DelegateCall,
    options: RunOptions,
    stop: asyncio.Event,
    *,
    waits: bool = False,
    shows_routing: bool = False,
    narrow: Callable[[Task], Task] = lambda task: task,
) -> int:
    """Check, approve and run a call, and print its results; return the exit code.

    With `waits` and no terminal, approvals wait. `shows_routing` prints backend and model of each task, and lets a task
    without a backend fail alone. `narrow` takes tools from a task once its agent is known.
    """
    from deputy.interfaces.cli.live_run import open_live_run
    from deputy.interfaces.cli.terminal_prompt import can_ask

    async with open_live_run(Console(as_json=call.result_form == "json"), options, stop, waits=waits) as live:
        deputy, lines = live.deputy, live.result_lines
        may_scout = not shows_routing and can_ask()
        tasks = await deputy.resolve_tasks([_limited(task, options) for task in call.tasks], may_scout=may_scout)
        call = structs.replace(call, tasks=tuple(map(narrow, tasks)))
        chosen = await deputy.models.default(call.tasks)
        backends = await _routing(deputy, call) if shows_routing else ""
        if not shows_routing:
            await deputy.models.ensure_usable(*(task.model or chosen for task in call.tasks))
        _warn_of_context(call, str(options.workspace))
        if live.approval == "granted" and backends:
            click.echo(safe_message(backends), err=True)
        if live.approval == "refuse":
            request = await deputy.preview(call.tasks, concurrency=call.concurrency, notes=backends)
            print_refused(request, live.settings.approval)
            if live.is_quiet:
                _show(_refused(call), call, lines)
            return REJECTED
        async with live.view([task.label for task in call.tasks], is_quiet=live.has_events_on_stdout):
            session_id = await deputy.start(
                call.tasks, concurrency=call.concurrency, must_ask=live.approval == "ask", notes=backends
            )
            live.opened(session_id, model=chosen, total=len(call.tasks))
            results = await live.wait(session_id, deputy.results(session_id))
        if results is None:
            return not_stopped(session_id)
        status = (await deputy.state(session_id)).status
        if status != "rejected" or live.is_quiet:
            _show(results, call, lines, session_id)
        await deputy.delivered(session_id)
        outcomes = [result.outcome for result in results]
        if any(outcome.branch for outcome in outcomes):
            for problem in await _fetch_branches(session_id):
                warn(problem)
        is_cancelled = status == "cancelled"
        when = "after all tasks ended" if any(one.session_id for one in outcomes) else "before any task began"
        text = remedy(session_id, outcomes) or (f"{session_id} was cancelled {when}" * is_cancelled)
        if text and lines is None:
            warn(text)
        return CANCELLED if is_cancelled else live.exit_code(outcomes)


def _limited(task: Task, options: RunOptions) -> Task:
    """The task with the tools and the time limit of the options, where it names none itself."""
    tools = options.tools
    if options.allow and (tools is not None or task.agent is None):
        tools = tuple(sorted({*(READ_ONLY_TOOLS if tools is None else tools), *options.allow}))
    return structs.replace(
        task,
        tools=tools if task.tools is None else task.tools,
        timeout=options.timeout if task.timeout is None else task.timeout,
    )


def check_context(paths: Sequence[str], workspace: str, *, field: str = "--context") -> None:
    """Refuse context files that cannot be read, before anything is opened or spent."""
    for path, problem in _unreadable(paths, workspace):
        raise UsageError(field, path, f"{problem} Name a file of the workspace")


def _warn_of_context(call: DelegateCall, workspace: str) -> None:
    """Warn before the approval about context files of a request in a text that cannot be read."""
    for path, problem in _unreadable([path for task in call.tasks for path in task.context], workspace):
        warn(f"warning: the context file {path} is not included: {problem}")


def _unreadable(paths: Sequence[str], workspace: str) -> Iterator[tuple[str, str]]:
    """The files that cannot be read, each with the reason."""
    from deputy.tools.tool_text import ToolError
    from deputy.tools.workspace import Workspace

    place = Workspace(workspace)
    for path in dict.fromkeys(paths):
        try:
            with place.place(path) as found:
                found.expect_file()
        except ToolError as error:
            yield path, str(error)


async def _routing(deputy: Deputy, call: DelegateCall) -> str:
    """Backend, model and maximum cost of each task, one line each, or why no backend can run it.

    Raise CannotSpawn when no model is configured and no backend can run any task.
    """
    from deputy.core.approval import cost_ceiling

    lines: list[str] = []
    named = [(task, task.model or await deputy.models.default()) for task in call.tasks]
    ways = [await deputy.models.backend_for(name) for _, name in named]
    if not any(ways):
        await deputy.models.default()
    for (task, name), way in zip(named, ways, strict=True):
        if way is None:
            lines.append(f"[{task.label}] {cannot_spawn(name, deputy.models.provider_of(name))}")
            continue
        # The approval says once for all tasks why a cost is not bounded.
        cost = cost_ceiling((task,), lambda _, asked=way.model: deputy.models.prices_of(asked)).text.partition(" (")[0]
        instead = "" if way.model == name else f" (instead of {name})"
        lines.append(f"[{task.label}] {way}{instead}, cost: {cost}")
    return "\n".join(lines)


def print_refused(request: ApprovalRequest, policy: ApprovalPolicy) -> None:
    """Print the request that was refused, why, and how to approve it."""
    from deputy.core.approval_text import screen

    why = "your configuration refuses it" if policy == "refuse" else "no terminal to ask at"
    # This text is not approved by a person, so its secrets are redacted like in all other output.
    click.echo(safe_message(screen(request).text), err=True)
    warn(f"not approved: {why}; pass --yes to approve")


async def _fetch_branches(session_id: str) -> list[str]:
    """Fetch the branches of work that workers have stored; returns what could not be fetched."""
    import asyncio

    from deputy.interfaces.cli.console import open_run
    from deputy.interfaces.stored_branches import fetch_branches

    def fetch() -> list[str]:
        with open_run(session_id) as (queries, state):
            return fetch_branches(queries, state)

    return await asyncio.to_thread(fetch)


def _refused(call: DelegateCall) -> list[Result]:
    """A rejected result for each task of a call that was not approved, so that programs find one per task."""
    from deputy.core.errors import Error
    from deputy.core.outcome import Rejected
    from deputy.core.request import Lineage
    from deputy.core.results import Result

    error = Error(
        type="not_approved",
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
