"""The tool DelegateResume, with the same limits and approval as a new call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.approval import resume_request
from deputy.core.errors import DeputyError
from deputy.engine.call import RUN
from deputy.engine.refine import REFINE
from deputy.interfaces.mcp import elicitation
from deputy.interfaces.mcp.delegate_tools import ask_client
from deputy.interfaces.mcp.run_tools import RunIdArguments, is_orphaned, read_arguments, status_of

if TYPE_CHECKING:
    from deputy.client import Deputy
    from deputy.core.approval import ApprovalRequest
    from deputy.core.state import State
    from deputy.interfaces.mcp.server_state import ServerState
    from deputy.interfaces.mcp.tool_call import Answer, McpCall

_ALLOWABLE = frozenset({"Edit", "Write", "Run"})


class ResumeArguments(RunIdArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of DelegateResume."""

    answer: str | None = None


async def resume(call: McpCall) -> Answer:
    """Resume a run that ended or was interrupted, without waiting for its end."""
    wanted = read_arguments(call, ResumeArguments)
    run, server_state = wanted.session_id, call.server_state
    if call.params.request_state is not None:
        await elicitation.take_answers(server_state, call.context, run, call.params.input_responses or {})
        return await status_of(server_state, run)
    deputy = await server_state.deputy()
    state = await deputy.state(run)
    is_at_work = state.is_live and not await is_orphaned(server_state, run)
    if is_at_work and state.is_cancelling:
        raise DeputyError("The run is being cancelled. Nothing was done: ask again when it has ended.")
    if await deputy.approvals(run):
        # A caller never approves its own call.
        raise DeputyError(
            f"The run waits for a person's approval: `deputy approve {run}`, or `deputy approve {run} --deny`. "
            f"If its process is gone, run `deputy resume {run}` afterwards."
        )
    if is_at_work and not state.waits:
        if wanted.answer is not None:
            raise DeputyError(
                "The run is running and asks nothing, so the answer was not taken. Nothing was done. "
                "Wait with DelegateResult and resume it then, or answer one of its tasks by the task's session_id."
            )
        return await status_of(server_state, run)
    _check_end(state, wanted.answer)
    await check_allowed(server_state, state)
    is_settled = server_state.options.approval == "granted" or state.is_live
    request = None if is_settled else await _request(deputy, state, wanted)
    approval_timeout_seconds = elicitation.approval_timeout(call)
    await deputy.resume_run(run, wanted.answer, request=request, approval_timeout_seconds=approval_timeout_seconds)
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
        flags = " ".join(f"--allow {name}" for name in beyond if name in _ALLOWABLE)
        allow = f", or start this server with {flags}" if flags and _ALLOWABLE.issuperset(beyond) else ""
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


def _check_end(state: State, answer: str | None) -> None:
    """Refuse to resume a run that has nothing left to do."""
    if state.status == "rejected":
        raise DeputyError("The run was refused and never started. Nothing was done: call Delegate again.")
    if state.status == "completed" and answer is None:
        raise DeputyError("The run is completed. Nothing was done: give the further work in `answer`.")


async def _request(deputy: Deputy, state: State, wanted: ResumeArguments) -> ApprovalRequest:
    tools = await deputy.tools_of(state.run)
    return resume_request(state.label or state.command, wanted.answer, model=state.model, tools=tools)


async def _finished(deputy: Deputy, run: str) -> None:
    """When the run has ended, update the call that it belongs to."""
    await deputy.outcome(run)
    await deputy.finish_call(run)
