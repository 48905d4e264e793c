"""Calls and subtask requests that a model wrote as text: made tool calls where that is safe, else sent back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, json, structs, to_builtins

from deputy.core.contract import check_schema, schema_of
from deputy.core.conversation import AssistantMessage, Text, Thinking, ToolCall
from deputy.core.errors import Error, UsageError, new_error
from deputy.core.outcome import shortened
from deputy.core.request import READ_ONLY_TOOLS
from deputy.core.subtask.subtask_result import MalformedRequest, SubtasksRequested, invalid_request, read_report
from deputy.core.task import DELEGATING_TOOLS, WRITING_TOOLS
from deputy.core.text_calls import CHARACTERS_MAX, PROSE_MAX, TextCall, TextCalls, read_calls, without_thinking
from deputy.engine.history import ASK, NOTE, SUBTASK
from deputy.engine.prompts import prompt

if TYPE_CHECKING:
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import FlowTool, Tool

_KNOWN = READ_ONLY_TOOLS | WRITING_TOOLS | DELEGATING_TOOLS | {NOTE, ASK}


class SentBack(Struct, frozen=True, kw_only=True):
    """The answer to a message that is no report, and the error if the next message is none either."""

    text: str
    error: Error
    must_answer: bool = False
    """Whether the next turn may not call tools either."""


def salvage(message: AssistantMessage, agent: AgentContext, call_id: str) -> AssistantMessage:
    """The message with the call or the subtask request that it consists of as a tool call, if that may be executed."""
    if message.calls:
        return message
    text = without_thinking(message.text)
    # A small model may explain its call at length.
    found = _read(text, agent, CHARACTERS_MAX if _takes_first(agent) else PROSE_MAX)
    call = None if found is None else _judged(found, agent)
    said = ""
    if agent.subtasks is not None and isinstance(asked := read_report(text), SubtasksRequested):
        said = asked.content
        call = TextCall(name=SUBTASK, arguments=to_builtins(structs.replace(asked.continuation, warnings=())))
    if not isinstance(call, TextCall):
        return message
    parts = (
        *(part for part in message.parts if isinstance(part, Thinking)),
        *((Text(text=said),) if said else ()),
        ToolCall(id=call_id, name=call.name, arguments=call.arguments),
    )
    return structs.replace(message, parts=parts)


def sent_back(text: str, agent: AgentContext, *, could_call: bool) -> SentBack | None:
    """Why this text of our own loop is no report; None if it is one.

    In a turn that could not call tools, a call with other text beside it is quoted.
    """
    found = _read(text, agent)
    if found is None or not (could_call or found.is_alone):
        return continuation_sent_back(text, can_request=agent.subtasks is not None)
    if could_call:
        reason = _judged(found, agent)
        if isinstance(reason, TextCall):
            # Only a message that was cut and continued gets here.
            reason = "It was sent in pieces."
        words = prompt("text_call").format(reason=reason, how=_how_to_call(found, agent))
    else:
        reason, words = "Its turn could not call tools.", answer_now(agent)
    return SentBack(
        text=words,
        error=new_error(
            "TOOL_CALL_AS_TEXT",
            f"{agent.model.name} wrote a tool call as text, also after the reason was sent back. {reason}",
        ),
        must_answer=not could_call,
    )


def answer_now(agent: AgentContext) -> str:
    """The request to a small model to answer in a turn that cannot call tools."""
    return prompt("compact_answer").format(task=shortened(agent.task))


def _how_to_call(found: TextCalls, agent: AgentContext) -> str:
    form = _form(found, agent)
    return prompt("call_as_json").format(form=form) if form else prompt("no_reading_tool")


def look_first(agent: AgentContext) -> str:
    """The request to look at the workspace before answering; a small model may write its call as text."""
    form = _form(TextCalls(calls=(), is_alone=True), agent)
    return prompt("compact_look").format(form=form) if agent.is_compact and form else prompt("look_first")


def continuation_sent_back(text: str, *, can_request: bool) -> SentBack | None:
    """Why the subtask request in a text cannot be executed; None for a report."""
    match read_report(text, is_alone=not can_request):
        case MalformedRequest(problems=problems) if can_request:
            listed = " ".join(f"{problem.field} {problem.message}." for problem in problems)
            words, message = _json(invalid_request(problems)), f"The task made an invalid subtask request: {listed}"
        case SubtasksRequested() | MalformedRequest() if not can_request:
            words, message = prompt("no_subtasks"), "The task requested subtasks, but it was not granted Subtask."
        case _:
            return None
    return SentBack(text=words, error=new_error("INVALID_REQUEST", message))


def _read(text: str, agent: AgentContext, prose_max: int = PROSE_MAX) -> TextCalls | None:
    output = agent.settings.output
    # With a schema of the caller, JSON is the answer, whatever its fields are.
    is_own = output is not None and output.name == "report"
    return read_calls(text, () if is_own else _KNOWN | set(agent.held), prose_max)


def _takes_first(agent: AgentContext) -> bool:
    """Whether the first call is executed: where it must look, a small model explains it and invents its result."""
    return agent.is_compact and agent.must_look


def _judged(found: TextCalls, agent: AgentContext) -> TextCall | str:
    """The call that may be executed, or why none may."""
    call = next(iter(found.calls), None)
    if call is None:
        return "It cannot be read."
    takes_first = _takes_first(agent)
    if len(found.calls) > 1 and not takes_first:
        return f"It has {len(found.calls)} calls; only one can be read from text."
    tool = _tool(call.name, agent)
    if tool is None:
        return f"There is no tool {call.name!r:.80} here. The tools are: {', '.join(agent.held) or 'none'}."
    if not (found.is_alone or takes_first):
        return "There is other text beside it."
    if not tool.traits.reads_only:
        return f"{tool.name} does more than read, so it is never run from text."
    if call.is_untyped:
        call = structs.replace(call, arguments=_typed(call.arguments, tool.schema))
    try:
        problems = check_schema(call.arguments, schema_of(tool.schema)).problems
    except UsageError:
        return f"The arguments of {tool.name} cannot be checked."
    listed = "; ".join(problem.message for problem in problems)
    return f"Its arguments are not valid: {listed:.500}." if problems else call


def _tool(name: str, agent: AgentContext) -> Tool | FlowTool | None:
    return agent.flow_tools.get(name) or agent.tools.find(name)


def _typed(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Values that were written as plain text, in the types of the schema."""
    fields = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))

    def typed(name: str, value: str) -> Any:
        if fields.get(name, {}).get("type") == "string":
            return value
        try:
            return json.decode(value.strip().encode())
        except (ValueError, RecursionError):
            return value

    return {name: typed(name, value) for name, value in arguments.items()}


def _form(found: TextCalls, agent: AgentContext) -> str:
    """How to write a call: the arguments of the tool that was meant, by name, because a model copies an example."""
    offered = [tool for name in agent.held if (tool := _tool(name, agent)) is not None and tool.traits.reads_only]
    meant = [tool for call in found.calls for tool in offered if tool.name.lower() == call.name.lower()]
    tool = next(iter([*meant, *offered]), None)
    if tool is None:
        return ""
    spec = next(spec for spec in agent.toolset().items if spec.name == tool.name)
    required = spec.parameters.get("required", ())
    names = (name if name in required else f"{name} (optional)" for name in spec.parameters.get("properties", {}))
    return f"The arguments of {tool.name} are: {', '.join(names)}."


def _json(value: Any) -> str:
    return json.encode(value).decode()
