"""The tool calls of one turn: readers together, writers in order, exactly one result for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Raw, Struct, json

from deputy.core.approval import ApprovalRequest, FileDigest, call_digest, call_parts
from deputy.core.conversation import ToolCall, ToolResult
from deputy.core.events import StepLost, ToolCallBegun, ToolCallEnded
from deputy.core.messages import LOST_CALL
from deputy.core.progress import Progress, shown_head
from deputy.core.state import BEGUN
from deputy.core.task import WRITING_TOOLS
from deputy.engine.approvals import ask_person, policy_for, warn_refused
from deputy.engine.history import ASK, NOTE, raw
from deputy.engine.ports import Preview, PreviewedTool, ToolContext, Tools
from deputy.engine.timeouts import timeout
from deputy.engine.untrusted import wrap_untrusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext, Tool, ToolOutput

_MALFORMED = "The arguments are not a JSON object; nothing was run."
_STOPPED = "It was stopped: your time limit is nearly reached."
_MASKED = (
    "The arguments hold `[redacted {name}]`, which stands for the value of a provider key of Deputy's own: "
    "models and tools never get it. Nothing was run. Use the name of the variable instead."
)
_REFUSED = "This call needs approval, and it was not given. Nothing was run."


class ToolCallResult(NamedTuple):
    """What a call came to: what the model is told, and the files it wrote."""

    result: ToolResult
    changed: tuple[str, ...] = ()


class ToolArgs(Struct, frozen=True, kw_only=True, gc=False):
    """What a tool call is made of that is small."""

    tool: str
    call: str


class ToolView(Struct, frozen=True, kw_only=True):
    """What a tool call needs that is only in memory."""

    tools: Tools
    call: ToolCall
    key: str
    seconds: float | None
    base: FileDigest | None
    random_string: Callable[[str, int], str]


async def use_tools(run: RunContext, agent: AgentContext, turn: int, calls: Sequence[ToolCall]) -> list[ToolCallResult]:
    """Carry out the calls of a turn; the results stand in the order of the calls."""
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
    """Under which key a turn's call is kept."""
    return f"tool:{turn}.{index}"


async def _use_tool(run: RunContext, agent: AgentContext, key: str, call: ToolCall) -> ToolCallResult:
    agent.emit(Progress(event="tool_call", label=agent.label, tool=call.name, args=_shown(call, agent)))
    if call.malformed is not None:
        return ToolCallResult(_refusal(call, _MALFORMED))
    flow_tool = agent.flow_tools.get(call.name)
    if flow_tool is None and (masked := _masked_key(agent, call)):
        return _read(await run.record(key, _ended(_refusal(call, _MASKED.format(name=masked)))))
    approved = _UNASKED if flow_tool is not None else await _approved(run, agent, key, call)
    if approved is None:
        return _read(await run.record(key, _ended(_refusal(call, _REFUSED))))
    if flow_tool is not None:
        output = await flow_tool.run(call, key, run, agent)
        # What is part of the flow fails in words of our own: nothing from outside has run.
        result = _refusal(call, output.text) if output.is_error else _result(call, output, agent.random_string)
        return _read(await run.record(key, _ended(result, output.changed)))
    tool = agent.tools.find(call.name)
    ended = await run.step(
        key,
        call_tool,
        ToolArgs(tool=call.name, call=call.id),
        view=ToolView(
            tools=agent.tools,
            call=call,
            key=run.run,
            seconds=agent.seconds_left(run),
            base=approved.base,
            random_string=agent.random_string,
        ),
        begun=ToolCallBegun(tool=call.name, call=call.id, arguments=Raw(json.encode(call.arguments))),
        repeatable=tool is None or tool.traits.repeatable,
        reads=tool is None or (tool.traits.reads_only and tool.traits.repeatable and tool.traits.is_local),
    )
    if isinstance(ended, StepLost):
        return ToolCallResult(_refusal(call, LOST_CALL))
    return _read(ended)


async def call_tool(args: ToolArgs, view: ToolView) -> ToolCallEnded:
    """Run one tool, no longer than there is time."""
    try:
        async with timeout(view.seconds):
            output = await view.tools.run(args.tool, view.call.arguments, ToolContext(call_id=view.key, base=view.base))
    except TimeoutError:
        return _ended(_refusal(view.call, _STOPPED))
    if view.tools.find(args.tool) is None:
        return _ended(_refusal(view.call, output.text))
    return _ended(_result(view.call, output, view.random_string), output.changed)


_UNASKED = Preview(parts=())


async def _approved(run: RunContext, agent: AgentContext, key: str, call: ToolCall) -> Preview | None:
    """What a call was approved for; nothing in particular where nobody is asked, None where it may not be made."""
    tool = agent.tools.find(call.name)
    if tool is None or not tool.traits.needs_approval or call.name in agent.without_asking | agent.always:
        return _UNASKED
    name, begun = f"{key}:approval", f"{key}{BEGUN}"
    match policy_for(run, name, agent.approval, begun=begun, ended=(key,)):
        case "granted":
            return _UNASKED
        case "nobody":
            warn_refused(agent.history, f"{call.name} {_shown(call, agent)}")
            return None
        case "ask":
            verdict = await ask_person(
                run,
                name,
                lambda: _request(agent, tool, call),
                begun=begun,
                tell=agent.emit,
                approval=agent.approval,
            )
    if verdict.choice == "always":
        agent.always.add(call.name)
    base = next(iter(verdict.request.files), None)
    return Preview(parts=(), base=base) if verdict.is_yes else None


async def _request(agent: AgentContext, tool: Tool, call: ToolCall) -> ApprovalRequest:
    """The whole call as a person approves it."""
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
        raise TypeError("a tool call that ended has its result")
    return ToolCallResult(json.decode(ended.message, type=ToolResult), ended.changed)


def _ended(result: ToolResult, changed: tuple[str, ...] = ()) -> ToolCallEnded:
    return ToolCallEnded(tool=result.name, call=result.call_id, message=raw(result), changed=changed)


def _result(call: ToolCall, output: ToolOutput, random_string: Callable[[str, int], str]) -> ToolResult:
    """What a tool said, its errors too: data, whoever wrote it."""
    content = wrap_untrusted(output.text, call.name, random_string)
    return ToolResult(call_id=call.id, name=call.name, content=content, is_error=output.is_error)


def _refusal(call: ToolCall, words: str) -> ToolResult:
    """Why no tool said anything, in words of our own."""
    return ToolResult(call_id=call.id, name=call.name, content=words, is_error=True)


def may_act(agent: AgentContext, call: ToolCall) -> bool:
    """Whether a call can have an effect beyond its result: it changes something, or hands work on."""
    if call.name in agent.flow_tools:
        return call.name not in (NOTE, ASK)
    tool = agent.tools.find(call.name)
    return tool is not None and not tool.traits.reads_only


def _reads_only(agent: AgentContext, call: ToolCall) -> bool:
    tool = agent.flow_tools.get(call.name) or agent.tools.find(call.name)
    return tool is None or tool.traits.reads_only


def _masked_key(agent: AgentContext, call: ToolCall) -> str:
    """The provider key whose mark stands in a call that acts: what it stands for would be lost."""
    return agent.keys.marked(json.encode(call.arguments).decode()) if may_act(agent, call) else ""


def _shown(call: ToolCall, agent: AgentContext, length: int = 120) -> str:
    """The arguments as progress shows them: the first text among them, else all of them, on one line."""
    values = [value for value in call.arguments.values() if isinstance(value, str)]
    text = values[0] if values else json.encode(call.arguments).decode()
    return shown_head(text, length, agent.redactor)
