"""The tools DelegateStatus, DelegateResult and DelegateCancel."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_types import InputRequiredResult
from msgspec import UNSET, Struct, ValidationError, convert, field

from deputy.core.errors import DeputyError, UnknownRun
from deputy.interfaces.mcp.outputs import RunStatusOutput, SubagentStatus
from deputy.interfaces.mcp.progress_notifications import followed
from deputy.interfaces.mcp.tool_call import json_result
from deputy.interfaces.mcp.tool_schemas import DEFAULT_WAIT_SECONDS, MOST_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp_types import CallToolResult

    from deputy.engine.ports.queries import Queries
    from deputy.interfaces.mcp.server_state import ServerState
    from deputy.interfaces.mcp.tool_call import Answer, McpCall


_Arguments = TypeVar("_Arguments", bound=Struct)


class RunIdArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments that name a run."""

    session_id: str


class ResultArguments(RunIdArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of DelegateResult."""

    wait: float = DEFAULT_WAIT_SECONDS
    result_form: str = field(default="markdown", name="return")


async def status(call: McpCall) -> Answer:
    """Return the status of a run and its subagents."""
    return await status_of(call.server_state, read_arguments(call, RunIdArguments).session_id)


async def result(call: McpCall) -> Answer:
    """Return the results of a run that ends in time, else its status."""
    from deputy.interfaces.mcp.delegate_tools import answer, results_or_question
    from deputy.interfaces.mcp.elicitation import take_answers

    wanted = read_arguments(call, ResultArguments)
    run = wanted.session_id
    if call.params.request_state is not None:
        await take_answers(call.server_state, call.context, run, call.params.input_responses or {})
    deputy = await call.server_state.deputy()
    is_live = (await deputy.state(run)).is_live
    try:
        async with (
            asyncio.timeout(min(max(wanted.wait, 0.0), MOST_WAIT_SECONDS) if is_live else None),
            followed(call.server_state, call.context.session, run, ()) as following,
        ):
            if not await is_orphaned(call.server_state, run):
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
    run = read_arguments(call, RunIdArguments).session_id
    deputy = await call.server_state.deputy()
    await deputy.cancel(run)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await deputy.outcome(run)
    return await status_of(call.server_state, run, is_cancelling=True)


def read_arguments(call: McpCall, kind: type[_Arguments]) -> _Arguments:
    """The arguments of a call as a struct."""
    try:
        return convert(call.arguments, kind)
    except ValidationError as error:
        raise DeputyError(f"{error}. Nothing was done.") from error


# --- reading the journal ----------------------------------------------------------------------------------------------


async def status_of(server_state: ServerState, run: str, *, is_cancelling: bool = False) -> CallToolResult:
    """The status of a run and its subagents; `is_cancelling` after a cancel that may not be recorded yet."""
    return json_result(await read_journal(server_state, lambda queries: _run_status(queries, run, is_cancelling)))


async def is_orphaned(server_state: ServerState, run: str) -> bool:
    """Whether a run is live and no process is running it."""
    found: RunStatusOutput = await read_journal(server_state, lambda queries: _run_status(queries, run))
    return found.status == "interrupted"


async def read_journal(server_state: ServerState, read: Callable[[Queries], Any]) -> Any:
    """Read from the journal, off the loop."""
    from deputy.journal.home import home_path

    folder = home_path() if server_state.options.home is None else server_state.options.home
    return await asyncio.to_thread(_read_journal, folder, read)


def _read_journal(folder: Path, read: Callable[[Queries], Any]) -> Any:
    from deputy.stores import open_queries

    queries = open_queries(folder)
    if queries is None:
        raise UnknownRun("")
    with queries:
        return read(queries)


def _run_status(queries: Queries, run: str, is_cancelling: bool = False) -> RunStatusOutput:
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
