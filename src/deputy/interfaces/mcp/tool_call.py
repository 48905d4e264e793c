"""A tool call of a client, its result, and the tools that clients can call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from msgspec import json, to_builtins

from deputy.interfaces.text_lines import outgoing_json, plain, plain_data

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.context import HandlerResult, ServerRequestContext
    from mcp_types import CallToolRequestParams

    from deputy.interfaces.mcp.server_state import ServerState

    Answer: TypeAlias = HandlerResult


@dataclass(frozen=True, kw_only=True, slots=True)
class McpCall:
    """A tool call of a client."""

    server_state: ServerState
    context: ServerRequestContext[Any, Any]
    params: CallToolRequestParams

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call."""
        return self.params.arguments or {}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedTool:
    """A tool that clients can call."""

    name: str
    title: str
    description: Callable[[], str]
    schema: dict[str, Any]
    execute: Callable[[McpCall], Awaitable[Answer]]
    output: dict[str, Any] | None = None
    annotations: ToolAnnotations = field(default_factory=ToolAnnotations)


def tool_result(text: str, form: Any = None) -> CallToolResult:
    """A result: text for a model, safe to print, and optionally structured data."""
    return _answer(plain(text), None if form is None else outgoing_json(plain_data(to_builtins(form))))


def json_result(form: Any, *, indent: int = 2) -> CallToolResult:
    """A result whose text is the JSON of its data."""
    data = outgoing_json(plain_data(to_builtins(form)), indent=indent)
    return _answer(data.decode(), data)


def _answer(text: str, data: bytes | None) -> CallToolResult:
    form = None if data is None else json.decode(data)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=form)


def refused(text: str, form: Any = None) -> CallToolResult:
    """A result that says why the call was refused."""
    return as_error(tool_result(text, form))


def as_error(answer: CallToolResult) -> CallToolResult:
    """The same result, marked as an error."""
    return answer.model_copy(update={"is_error": True})
