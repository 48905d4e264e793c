"""Runs that outlive a request: their status, their results, and stopping them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_types import InputRequiredResult
from msgspec import UNSET, Struct, ValidationError, convert, field

from deputy.core.errors import DeputyError, UnknownRun
from deputy.interfaces.mcp.call import told_as_json
from deputy.interfaces.mcp.following import followed
from deputy.interfaces.mcp.outputs import RunStatus, SubagentStatus
from deputy.interfaces.mcp.schemas import DEFAULT_WAIT_SECONDS, MOST_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp_types import CallToolResult

    from deputy.interfaces.mcp.call import Answer, Call
    from deputy.interfaces.mcp.hub import Hub
    from deputy.journal.reader import Reader


_Arguments = TypeVar("_Arguments", bound=Struct)


class RunArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which run."""

    session_id: str


class ResultArguments(RunArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which run, how long to wait for it, and in which form."""

    wait: float = DEFAULT_WAIT_SECONDS
    result_form: str = field(default="markdown", name="return")


async def status(call: Call) -> Answer:
    """Say where a run and its subagents stand."""
    return await status_of(call.hub, read_arguments(call, RunArguments).session_id)


async def result(call: Call) -> Answer:
    """Give the results of a run that has ended, or ends in time; else say where it stands."""
    from deputy.interfaces.mcp.approving import take_answers
    from deputy.interfaces.mcp.delegating import answer, results_or_question

    wanted = read_arguments(call, ResultArguments)
    run = wanted.session_id
    if call.params.request_state is not None:
        await take_answers(call.hub, call.context, run, call.params.input_responses or {})
    deputy = await call.hub.deputy()
    is_live = (await deputy.state(run)).is_live
    try:
        async with (
            asyncio.timeout(min(max(wanted.wait, 0.0), MOST_WAIT_SECONDS) if is_live else None),
            followed(call.hub, call.context.session, run, ()) as following,
        ):
            if not await is_left(call.hub, run):
                results = await results_or_question(call, run, following)
                if isinstance(results, InputRequiredResult):
                    return results
                call.hub.answering(call.context.request_id, run)
                return answer(results, wanted.result_form, run)
    except TimeoutError:
        pass
    return await status_of(call.hub, run)


async def cancel(call: Call) -> Answer:
    """Stop a run and everything below it."""
    run = read_arguments(call, RunArguments).session_id
    deputy = await call.hub.deputy()
    await deputy.cancel(run)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await deputy.outcome(run)
    return await status_of(call.hub, run, is_cancelling=True)


def read_arguments(call: Call, kind: type[_Arguments]) -> _Arguments:
    """The arguments of a call as this kind."""
    try:
        return convert(call.arguments, kind)
    except ValidationError as error:
        raise DeputyError(f"{error}. Nothing was done.") from error


# --- what the journal says --------------------------------------------------------------------------------------------


async def status_of(hub: Hub, run: str, *, is_cancelling: bool = False) -> CallToolResult:
    """Where a run and its subagents stand, for models and programs; one that was told to stop may still have to."""
    return told_as_json(await read_journal(hub, lambda reader: _run_status(reader, run, is_cancelling)))


async def is_left(hub: Hub, run: str) -> bool:
    """Whether a run is live and nobody is at work on it."""
    found: RunStatus = await read_journal(hub, lambda reader: _run_status(reader, run))
    return found.status == "interrupted"


async def read_journal(hub: Hub, look: Callable[[Reader], Any]) -> Any:
    """What can be seen in the journal, read off the loop."""
    from deputy.journal.home import home_path

    folder = home_path() if hub.options.home is None else hub.options.home
    return await asyncio.to_thread(_read_journal, folder, look)


def _read_journal(folder: Path, look: Callable[[Reader], Any]) -> Any:
    from deputy.journal.reader import Reader

    reader = Reader.open_any(folder)
    if reader is None:
        raise UnknownRun("")
    with reader:
        return look(reader)


def _run_status(reader: Reader, run: str, is_cancelling: bool = False) -> RunStatus:
    from deputy.journal.registry import entry_form, standings

    state = reader.state(run)
    if state is None:
        raise UnknownRun(run)
    now = reader.now()
    own, *below = (entry_form(one, now) for one in standings(reader, [state, *reader.children(run)]))
    is_stopping = state.is_live and (is_cancelling or state.is_cancelling) and own["status"] != "interrupted"
    standing = "cancelling" if is_stopping else own["status"]
    return RunStatus(
        session_id=run,
        status=standing,
        tasks=tuple(_subagent_status(entry) for entry in below),
        next=_ADVICE.get(standing, "DelegateResult gives the results.").format(run=run),
        question=UNSET if is_stopping else own["question"] or UNSET,
    )


def _subagent_status(entry: dict[str, Any]) -> SubagentStatus:
    return convert({name: value for name, value in entry.items() if value is not None}, SubagentStatus)


_CANCEL_SECONDS = 5.0
"""How long a call waits for the end of what it stops."""
_ADVICE = {
    "cancelling": "It was told to stop, and ends as cancelled: DelegateResult waits for that.",
    "running": "DelegateResult waits for the end; DelegateCancel stops it.",
    "waiting": "A person must answer: `deputy approve {run}`, or `deputy approve {run} --deny`.",
    "interrupted": "Its process is gone. DelegateResume goes on with it; what is finished is not paid for again.",
}
