"""DelegateResume: going on with a run, held to what the server allows and to the same approval as a new call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.approval import resume_request
from deputy.core.errors import DeputyError
from deputy.engine.refine import REFINE
from deputy.engine.root import RUN
from deputy.interfaces.mcp import approving
from deputy.interfaces.mcp.delegating import ask_client
from deputy.interfaces.mcp.runs import RunArguments, is_left, read_arguments, status_of

if TYPE_CHECKING:
    from deputy.core.approval import ApprovalRequest
    from deputy.core.state import State
    from deputy.interfaces.library import Deputy
    from deputy.interfaces.mcp.call import Answer, Call
    from deputy.interfaces.mcp.hub import Hub

_ALLOWABLE = frozenset({"Edit", "Write", "Run"})


class ResumeArguments(RunArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which run, and what to tell it."""

    answer: str | None = None


async def resume(call: Call) -> Answer:
    """Go on with a run that ended or was interrupted, without waiting for its end."""
    wanted = read_arguments(call, ResumeArguments)
    run, hub = wanted.session_id, call.hub
    if call.params.request_state is not None:
        await approving.take_answers(hub, call.context, run, call.params.input_responses or {})
        return await status_of(hub, run)
    deputy = await hub.deputy()
    state = await deputy.state(run)
    is_at_work = state.is_live and not await is_left(hub, run)
    if is_at_work and state.is_cancelling:
        raise DeputyError("It is being cancelled: ask again when it has ended. Nothing was done.")
    if await deputy.approvals(run):
        # A caller never approves its own call.
        raise DeputyError(
            f"It waits for a person's approval: `deputy approve {run}`, or `deputy approve {run} --deny`. "
            f"Where its process is gone, `deputy resume {run}` goes on then."
        )
    if is_at_work and not state.waits:
        if wanted.answer is not None:
            raise DeputyError(
                "It is running and asks nothing, so the answer was not taken. Nothing was done. "
                "DelegateResult waits for its end; say it then, or to a task of it that asks, by its own session_id."
            )
        return await status_of(hub, run)
    _check_end(state, wanted.answer)
    await check_allowed(hub, state)
    is_settled = hub.options.approval == "granted" or state.is_live
    request = None if is_settled else await _request(deputy, state, wanted)
    patience = approving.patience(call)
    await deputy.go_on(run, wanted.answer, request=request, patience=patience)
    hub.later(_settled(deputy, run))
    asked = None
    if request is not None:
        hub.questions.open(run, approving.client_of(call.context), patience)
        hub.later(approving.give_up(hub, run, patience))
        asked = await ask_client(call, run)
    return asked or await status_of(hub, run)


async def check_allowed(hub: Hub, state: State) -> None:
    """Refuse to go on with a run that has more than this server allows, or that nobody has approved as a whole."""
    if hub.options.approval == "refuse":
        raise DeputyError(
            "Going on needs approval, and this server refuses it. Nothing was done. "
            f"A person can go on with it in a terminal: `deputy resume {state.run}`."
        )
    deputy = await hub.deputy()
    beyond = await deputy.not_allowed(await deputy.tools_of(state.run))
    if beyond:
        flags = " ".join(f"--allow {name}" for name in beyond if name in _ALLOWABLE)
        allow = f", or start this server with {flags}" if flags and _ALLOWABLE.issuperset(beyond) else ""
        raise DeputyError(
            f"This run may use {', '.join(beyond)}, which this server does not allow. Nothing was done. "
            f"A person can go on with it in a terminal: `deputy resume {state.run}`{allow}."
        )
    root = state if state.lineage is None else await deputy.state(state.lineage.root_id)
    # Whoever started these was to be asked before each thing they do, and cannot be asked from here.
    if state.is_live and root.command in (RUN, REFINE) and hub.options.approval != "granted":
        raise DeputyError(
            "This run was interrupted, and a person approves what it does step by step. Nothing was done. "
            f"Go on with it in a terminal: `deputy resume {state.run}`, or start this server with --yes."
        )


def _check_end(state: State, answer: str | None) -> None:
    """Refuse to go on with what has nothing left to do."""
    if state.status == "rejected":
        raise DeputyError("It was refused and never ran: ask for the work anew. Nothing was done.")
    if state.status == "completed" and answer is None:
        raise DeputyError("It is completed: say in `answer` what more is wanted. Nothing was done.")


async def _request(deputy: Deputy, state: State, wanted: ResumeArguments) -> ApprovalRequest:
    tools = await deputy.tools_of(state.run)
    return resume_request(state.label or state.command, wanted.answer, model=state.model, tools=tools)


async def _settled(deputy: Deputy, run: str) -> None:
    """Once it has ended, bring up to date whatever it belongs to."""
    await deputy.outcome(run)
    await deputy.settle(run)
