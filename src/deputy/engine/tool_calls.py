"""The tool calls of one turn: readers concurrently, writers in order, one result per call."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Raw, json, structs

from deputy.core.approval import ApprovalRequest, call_digest, call_parts
from deputy.core.conversation import ToolResult
from deputy.core.errors import new_error
from deputy.core.events import TRACE_LENGTH, StepLost, ToolCallBegun, ToolCallEnded
from deputy.core.messages import LOST_CALL
from deputy.core.outcome import shortened
from deputy.core.progress import ARGUMENTS_LENGTH, Progress, shown_arguments, shown_head
from deputy.core.state import BEGUN
from deputy.core.task import WRITING_TOOLS
from deputy.engine.approvals import ask_person, policy_for, warn_not_granted, warn_refused
from deputy.engine.compact_profile import output_bytes, with_defaults
from deputy.engine.history import ASK, NOTE, raw
from deputy.engine.ports import Preview, PreviewedTool, ToolContext
from deputy.engine.untrusted import unwrap_untrusted, wrap_untrusted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deputy.core.conversation import ToolCall
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext, Tool, ToolOutput

_MALFORMED = "The arguments are not a JSON object; nothing was run. Send one JSON object."
_STOPPED = "The call was stopped because your time limit is nearly reached."
_MASKED = (
    "The arguments contain `[redacted {name}]`, the placeholder of one of Deputy's own provider keys: "
    "models and tools never get its value. Nothing was run. Use the name of the variable instead."
)
_REFUSED = "This call needs approval, which was not given. Nothing was run. Continue without it, and say so."


class ToolCallResult(NamedTuple):
    """The result of a tool call for the model, and the files it changed."""

    result: ToolResult
    changed: tuple[str, ...] = ()
    reason: str = ""
    """Why it failed, for views, where the text of the result begins with something else."""


async def use_tools(run: RunContext, agent: AgentContext, turn: int, calls: Sequence[ToolCall]) -> list[ToolCallResult]:
    """Run the calls of a turn; results are in the order of the calls."""
    results: list[ToolCallResult] = []
    numbered = [(tool_key(turn, index), call) for index, call in enumerate(calls)]
    for reads, group in groupby(numbered, key=lambda pair: _reads_only(agent, pair[1])):
        together = list(group)
        if reads and len(together) > 1:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(_use_tool(run, agent, key, call)) for key, call in together]
            results.extend(task.result() for task in running)
        else:
            results.extend([await _use_tool(run, agent, key, call) for key, call in together])
    return results


def tool_key(turn: int, index: int) -> str:
    """The key of a tool call."""
    return f"tool:{turn}.{index}"


async def _use_tool(run: RunContext, agent: AgentContext, key: str, call: ToolCall) -> ToolCallResult:
    shown = Progress(event="tool_call", label=agent.label, tool=call.name, args=_shown(call, agent))
    problem = _problem(agent, call)
    approved = None if problem else await _approved(run, agent, key, call)
    # A call that a person approves is shown when it runs, and the question before.
    agent.emit(shown)
    if call.malformed is not None:
        used = ToolCallResult(_refusal(call, problem))
    elif approved is None:
        used = _read(await run.record(key, _ended(_refusal(call, problem or _REFUSED))))
    else:
        used = await _used(run, agent, key, call, approved)
    if used.result.is_error:
        reason = used.reason or unwrap_untrusted(used.result.content)
        reason = shown_head(reason, ARGUMENTS_LENGTH, agent.redactor)
        agent.emit(structs.replace(shown, event="tool_error", reason=reason))
    return used


def _problem(agent: AgentContext, call: ToolCall) -> str:
    """Why a call can never run; a person is not asked about it."""
    if call.malformed is not None:
        return _MALFORMED
    if call.name in agent.flow_tools:
        return ""
    if masked := _masked_key(agent, call):
        return _MASKED.format(name=masked)
    tool = agent.tools.find(call.name)
    if tool is None or not tool.traits.needs_approval or not isinstance(tool, PreviewedTool):
        return ""
    return tool.refusal(with_defaults(call) if agent.is_compact else call.arguments)


async def _used(run: RunContext, agent: AgentContext, key: str, call: ToolCall, approved: Preview) -> ToolCallResult:
    flow_tool = agent.flow_tools.get(call.name)
    if flow_tool is not None:
        output = await flow_tool.run(call, key, run, agent)
        # Errors of flow tools are our own text, not untrusted data.
        result = _refusal(call, output.text) if output.is_error else _result(call, output, agent.random_string)
        return _read(await run.record(key, _ended(result, output.changed)))._replace(reason=output.reason)
    tool = agent.tools.find(call.name)
    if tool is None and call.name in WRITING_TOOLS:
        warn_not_granted(agent.history, call.name, is_command=bool(run.state.command))
    context = ToolContext(call_id=run.run, base=approved.base, held=agent.held)
    if agent.is_compact:
        context = structs.replace(context, output_bytes=output_bytes(agent.window))
    ended = await run.step(
        key,
        call_tool,
        agent,
        call,
        context,
        agent.seconds_left(run),
        begun=ToolCallBegun(tool=call.name, call=call.id, arguments=Raw(json.encode(call.arguments))),
        repeatable=tool is None or tool.traits.repeatable,
        reads=tool is None or (tool.traits.reads_only and tool.traits.repeatable and tool.traits.is_local),
    )
    if isinstance(ended, StepLost):
        return ToolCallResult(_refusal(call, LOST_CALL))
    return _read(ended)


async def call_tool(agent: AgentContext, call: ToolCall, context: ToolContext, seconds: float | None) -> ToolCallEnded:
    """Run one tool within the time left."""
    try:
        async with agent.timer.timeout(seconds):
            arguments = with_defaults(call) if agent.is_compact else call.arguments
            output = await agent.tools.run(call.name, arguments, context)
    except TimeoutError:
        return _ended(_refusal(call, _STOPPED))
    if agent.tools.find(call.name) is None:
        return _ended(_refusal(call, output.text))
    ended = _ended(_result(call, output, agent.random_string), output.changed)
    if not output.trace:
        return ended
    error = new_error("TOOL_FAILED", shortened(output.text))
    return structs.replace(ended, error=error, trace=output.trace[-TRACE_LENGTH:])


_UNASKED = Preview(parts=())


async def _approved(run: RunContext, agent: AgentContext, key: str, call: ToolCall) -> Preview | None:
    """The approved preview of a call, empty if no approval is needed; None if the call is refused."""
    tool = None if call.name in agent.flow_tools else agent.tools.find(call.name)
    if tool is None or not tool.traits.needs_approval or call.name in agent.without_asking:
        return _UNASKED
    name, begun = f"{key}:approval", f"{key}{BEGUN}"
    if call.name in agent.always and run.recorded_question(name) is None:
        return _UNASKED
    is_answered = run.has_record(name)
    match policy_for(run, name, agent.approval, begun=begun, ended=(key,)):
        case "granted":
            return _UNASKED
        case "refuse":
            warn_refused(agent.history, f"{call.name} {_shown(call, agent)}")
            return None
        case "ask":
            verdict = await ask_person(
                run,
                name,
                lambda: _request(agent, tool, call),
                begun=begun,
                emit=agent.emit,
                approval=agent.approval,
                folder=agent.folder,
            )
    # A recorded "always" of another process no longer counts: a resumed run asks again.
    if verdict.choice == "always" and not is_answered:
        agent.always.add(call.name)
    base = next(iter(verdict.request.files), None)
    return Preview(parts=(), base=base) if verdict.is_yes else None


async def _request(agent: AgentContext, tool: Tool, call: ToolCall) -> ApprovalRequest:
    if isinstance(tool, PreviewedTool):
        preview = await tool.preview(call.arguments)
    else:
        preview = Preview(parts=call_parts(tool.schema, call.arguments))
    in_place = call.name in WRITING_TOOLS and not agent.root
    return ApprovalRequest(
        tool=call.name,
        title=f"Use {call.name}",
        parts=preview.parts,
        risk="high" if in_place else tool.traits.risk,
        call=call_digest(call.arguments),
        files=() if preview.base is None else (preview.base,),
        can_always=True,
    )


def _read(ended: ToolCallEnded) -> ToolCallResult:
    if ended.message is UNSET:
        raise TypeError("a finished tool call has a result")
    return ToolCallResult(json.decode(ended.message, type=ToolResult), ended.changed)


def _ended(result: ToolResult, changed: tuple[str, ...] = ()) -> ToolCallEnded:
    return ToolCallEnded(tool=result.name, call=result.call_id, message=raw(result), changed=changed)


def _result(call: ToolCall, output: ToolOutput, random_string: Callable[[str, int], str]) -> ToolResult:
    """The output of a tool, as untrusted data except for our own words."""
    words, data = (output.text, output.data) if output.is_our_own else ("", output.text)
    fenced = wrap_untrusted(data, call.name, random_string) if data or not words else ""
    content = "\n".join(filter(None, (words, fenced)))
    return ToolResult(call_id=call.id, name=call.name, content=content, is_error=output.is_error)


def _refusal(call: ToolCall, words: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=words, is_error=True)


def may_act(agent: AgentContext, call: ToolCall) -> bool:
    """Whether a call can have side effects: it writes, or delegates."""
    if call.name in agent.flow_tools:
        return call.name not in (NOTE, ASK)
    tool = agent.tools.find(call.name)
    return tool is not None and not tool.traits.reads_only


def _reads_only(agent: AgentContext, call: ToolCall) -> bool:
    tool = agent.flow_tools.get(call.name) or agent.tools.find(call.name)
    return tool is None or tool.traits.reads_only


def _masked_key(agent: AgentContext, call: ToolCall) -> str:
    """The provider key whose placeholder is in a call with side effects: acting on it would lose the value."""
    return agent.keys.marked(json.encode(call.arguments).decode()) if may_act(agent, call) else ""


def _shown(call: ToolCall, agent: AgentContext) -> str:
    if call.malformed is not None:
        return shown_head(call.malformed, ARGUMENTS_LENGTH, agent.redactor)
    return shown_arguments(call.arguments, agent.redactor)
