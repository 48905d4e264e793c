"""One call of a tool: what it was asked with, what it answers, and the tools there are to call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from msgspec import to_builtins

from deputy.interfaces.plain import plain, plain_data, visible_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.context import HandlerResult, ServerRequestContext
    from mcp_types import CallToolRequestParams

    from deputy.interfaces.mcp.hub import Hub

    Answer: TypeAlias = HandlerResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call as it came in."""

    hub: Hub
    context: ServerRequestContext[Any, Any]
    params: CallToolRequestParams

    @property
    def arguments(self) -> dict[str, Any]:
        """What the tool is called with."""
        return self.params.arguments or {}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedTool:
    """A tool that clients can call."""

    name: str
    title: str
    description: Callable[[], str]
    schema: dict[str, Any]
    carry_out: Callable[[Call], Awaitable[Answer]]
    output: dict[str, Any] | None = None
    annotations: ToolAnnotations = field(default_factory=ToolAnnotations)


def told(text: str, form: Any = None) -> CallToolResult:
    """An answer: words for a model, which a person may see on a terminal too; the same as data for a program."""
    data = None if form is None else plain_data(to_builtins(form))
    return CallToolResult(content=[TextContent(type="text", text=plain(text))], structured_content=data)


def told_as_json(form: Any) -> CallToolResult:
    """An answer that is data for models too."""
    return told(visible_json(form, indent=2).decode(), form)


def refused(text: str, form: Any = None) -> CallToolResult:
    """An answer that says why nothing was done."""
    return told(text, form).model_copy(update={"is_error": True})
