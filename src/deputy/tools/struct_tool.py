"""A tool made of an argument type, a Markdown description and a function."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from deputy.core.approval import call_parts
from deputy.engine.ports import Preview, ToolOutput
from deputy.tools.arguments import read_arguments, schema_of
from deputy.tools.tool_error import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from deputy.engine.ports import ToolContext, ToolTraits

_Arguments = TypeVar("_Arguments", bound=Struct)


class StructTool(Generic[_Arguments]):
    """A tool with typed arguments; failures become error outputs."""

    def __init__(
        self,
        name: str,
        arguments: type[_Arguments],
        traits: ToolTraits,
        execute: Callable[[_Arguments, ToolContext], Awaitable[ToolOutput]],
        *,
        description_file: str,
        preview: Callable[[_Arguments], Preview] | None = None,
    ) -> None:
        self.name = name
        self.traits = traits
        self._arguments = arguments
        self._execute = execute
        self._description_file = description_file
        self._preview = preview

    @property
    def description(self) -> str:
        """The text of its Markdown file."""
        return described(self._description_file)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self._arguments)

    async def preview(self, arguments: Mapping[str, Any]) -> Preview:
        """The effect of a call for approval; its arguments when the tool has no preview or the preview fails."""
        plain = Preview(parts=call_parts(self.schema, arguments))
        if self._preview is None:
            return plain
        try:
            return await asyncio.to_thread(self._preview, read_arguments(arguments, self._arguments))
        except (ToolError, OSError):
            return plain

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Execute a call; a failure becomes an error output."""
        try:
            return await self._execute(read_arguments(arguments, self._arguments), context)
        except ToolError as error:
            return ToolOutput(text=str(error), is_error=True)
        except OSError as error:
            return ToolOutput(text=f"{self.name} failed: {error.strerror or error}.", is_error=True)


@cache
def described(file: str) -> str:
    """The text of a Markdown file beside this module."""
    return Path(__file__).with_name(file).read_text("utf-8").strip()
