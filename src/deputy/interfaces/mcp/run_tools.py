"""The tools DelegateStatus, DelegateResult, DelegateCancel and DelegateResume."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp_types import InputRequiredResult
from msgspec import UNSET, convert

from deputy.core.approval import resume_request
from deputy.core.errors import DeputyError, UnknownRun, UsageError
from deputy.core.fallback import ONLY_A_PERSON, is_script
from deputy.core.request import ALLOWABLE
from deputy.engine.call import RUN
from deputy.engine.refine import REFINE
from deputy.interfaces.mcp import elicitation
from deputy.interfaces.mcp.server_state import followed
from deputy.interfaces.mcp.tool_shapes import (
    ResultArguments,
    ResumeArguments,
    RunArguments,
    RunStatusOutput,
    SubagentStatus,
)
from deputy.interfaces.mcp.tools import json_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp_types import CallToolResult

    from deputy.client import Deputy
    from deputy.core.approval import ApprovalRequest
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries
    from deputy.interfaces.mcp.server_state import ServerState
    from deputy.interfaces.mcp.tools import Answer, McpCall


async def status(call: McpCall) -> Answer:
    """Return the status of a run and its subagents."""
    return await status_of(call.server_state, call.read(RunArguments).session_id)


async def result(call: McpCall) -> Answer:
    """Return the results of a run that ends in time, else its status."""
    from deputy.interfaces.mcp.delegate_tools import answer, results_or_question

    wanted = call.read(ResultArguments)
    run = wanted.session_id
    if call.params.request_state is not None:
        await elicitation.take_answers(call.server_state, call.context, run, call.params.input_responses or {})
    deputy = await call.server_state.deputy()
    state = await deputy.state(run)
    try:
        async with (
            asyncio.timeout(wanted.wait if state.is_live else None),
            followed(call.server_state, call.context.session, run, ()) as following,
        ):
            if not await is_interrupted(deputy, state):
                results = await results_or_question(call, run, following)
                if isinstance(results, InputRequiredResult):
                    return results
                call.server_state.answering(call.context.request_id, run)
                return answer(results, wanted.result_form, run)
    except TimeoutError:
        pass
    return await status_of(call.server_state, run)


async def cancel(call: McpCall) -> Answer:
    """Cancel a run and everything below it."""
    run = call.read(RunArguments).session_id
    deputy = await call.server_state.deputy()
    await deputy.cancel(run)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await deputy.outcome(run)
    return await status_of(call.server_state, run, is_cancelling=True)


async def resume(call: McpCall) -> Answer:
    """Resume a run that ended or was interrupted, without waiting for its end."""
    from deputy.interfaces.mcp.delegate_tools import ask_client

    wanted = call.read(ResumeArguments)
    if is_script(wanted.model or ""):
        raise UsageError("model", wanted.model, ONLY_A_PERSON)
    run, server_state = wanted.session_id, call.server_state
    if call.params.request_state is not None:
        await elicitation.take_answers(server_state, call.context, run, call.params.input_responses or {})
        return await status_of(server_state, run)
    deputy = await server_state.deputy()
    state = await deputy.state(run)
    if wanted.answer is None and not state.waits and not state.is_cancelling and await deputy.is_running(run):
        return await status_of(server_state, run)
    await check_allowed(server_state, state)
    # A live run was approved when it started.
    is_approved = server_state.options.approval == "granted" or state.is_live
    request = None if is_approved else await _request(deputy, state, wanted)
    approval_timeout_seconds = elicitation.approval_timeout(call)
    await deputy.resume_run(
        run,
        wanted.answer,
        budget=wanted.budget.caps,
        model=wanted.model,
        request=request,
        approval_timeout_seconds=approval_timeout_seconds,
    )
    server_state.later(_finished(deputy, run))
    asked = None
    if request is not None:
        server_state.questions.open(run, elicitation.client_of(call.context), approval_timeout_seconds)
        server_state.later(elicitation.withdraw_question(server_state, run, approval_timeout_seconds))
        asked = await ask_client(call, run)
    return asked or await status_of(server_state, run)


async def check_allowed(server_state: ServerState, state: State) -> None:
    """Refuse to resume a run with tools that this server does not allow, or whose steps a person must approve."""
    if server_state.options.approval == "refuse":
        raise DeputyError(
            "Resuming needs approval, which this server refuses. Nothing was done. "
            f"A person can resume it in a terminal: `deputy resume {state.run}`."
        )
    deputy = await server_state.deputy()
    beyond = await deputy.not_allowed(await deputy.tools_of(state.run))
    if beyond:
        flags = " ".join(f"--allow {name}" for name in beyond if name in ALLOWABLE)
        allow = f", or start this server with {flags}" if flags and set(ALLOWABLE).issuperset(beyond) else ""
        raise DeputyError(
            f"This run may use {', '.join(beyond)}, which this server does not allow. Nothing was done. "
            f"A person can resume it in a terminal: `deputy resume {state.run}`{allow}."
        )
    root = state if state.lineage is None else await deputy.state(state.lineage.root_id)
    # A person approves each step of these runs at a terminal, which this server does not have.
    if state.is_live and root.command in (RUN, REFINE) and server_state.options.approval != "granted":
        raise DeputyError(
            "This run was interrupted, and a person approves what it does step by step. Nothing was done. "
            f"Resume it in a terminal: `deputy resume {state.run}`, or start this server with --yes."
        )


async def _request(deputy: Deputy, state: State, wanted: ResumeArguments) -> ApprovalRequest:
    tools = await deputy.tools_of(state.run)
    model, budget = wanted.model or state.model, wanted.budget.caps
    return resume_request(state.label or state.command, wanted.answer, model=model, budget=budget, tools=tools)


async def _finished(deputy: Deputy, run: str) -> None:
    """When the run has ended, update the call that it belongs to."""
    await deputy.outcome(run)
    await deputy.finish_call(run)


# --- reading the journal ----------------------------------------------------------------------------------------------


async def status_of(server_state: ServerState, run: str, *, is_cancelling: bool = False) -> CallToolResult:
    """The status of a run and its subagents; `is_cancelling` after a cancel that may not be recorded yet."""
    return json_result(
        await read_journal(
            server_state, run, lambda queries: _run_status(queries, run, _page(server_state, run), is_cancelling)
        )
    )


def _page(server_state: ServerState, run: str) -> str:
    """The address of a run on the page that is served now; empty if there is none."""
    from deputy.interfaces.web.page_address import served_address

    url = served_address(_home(server_state))
    return f"{url}/run/{run}" if url else ""


def _home(server_state: ServerState) -> Path:
    from deputy.journal.home import home_path

    return home_path() if server_state.options.home is None else server_state.options.home


async def is_interrupted(deputy: Deputy, state: State) -> bool:
    """Whether a run is live, does not wait for a person, and no process is running it."""
    return state.is_live and not state.waits and not await deputy.is_running(state.run)


async def read_journal(server_state: ServerState, run: str, read: Callable[[Queries], Any]) -> Any:
    """Read about a run from the journal, off the loop."""
    return await asyncio.to_thread(_read_journal, _home(server_state), run, read)


def _read_journal(folder: Path, run: str, read: Callable[[Queries], Any]) -> Any:
    from deputy.stores import open_queries

    queries = open_queries(folder)
    if queries is None:
        raise UnknownRun(run)
    with queries:
        return read(queries)


def _run_status(queries: Queries, run: str, page: str, is_cancelling: bool = False) -> RunStatusOutput:
    from deputy.journal.registry import entry_dict, statuses

    state = queries.state(run)
    if state is None:
        raise UnknownRun(run)
    now = queries.now()
    own, *below = (entry_dict(one, now) for one in statuses(queries, [state, *queries.children(run)]))
    is_stopping = state.is_live and (is_cancelling or state.is_cancelling) and own["status"] != "interrupted"
    status = "cancelling" if is_stopping else own["status"]
    return RunStatusOutput(
        session_id=run,
        status=status,
        tasks=tuple(_subagent_status(entry) for entry in below),
        next=_REMEDY.get(status, "DelegateResult returns the results.").format(run=run),
        question=UNSET if is_stopping else own["question"] or UNSET,
        page=(state.is_live and page) or UNSET,
    )


def _subagent_status(entry: dict[str, Any]) -> SubagentStatus:
    return convert({name: value for name, value in entry.items() if value is not None}, SubagentStatus)


_CANCEL_SECONDS = 5.0
"""How long DelegateCancel waits for the end."""
_REMEDY = {
    "cancelling": "The run is being cancelled; DelegateResult waits for its end.",
    "running": "DelegateResult waits for the end; DelegateCancel cancels the run.",
    "waiting": "A person must answer: `deputy approve {run}`, or `deputy approve {run} --deny`.",
    "interrupted": "The process of the run is gone. DelegateResume resumes it; finished steps are not paid for again.",
}
