"""Tools made of an argument type and a Markdown description; arguments are parsed strictly."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct, structs

from deputy.core.approval import call_parts
from deputy.core.request import READ_ONLY_TOOLS
from deputy.core.tool_arguments import arguments_schema, short_schema
from deputy.engine.ports import Preview, ToolOutput, ToolTraits
from deputy.tools.tool_text import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from deputy.core.approval import Risk
    from deputy.core.conversation import ToolCall
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext, ToolContext

_MOST_PROBLEMS = 50
_MOST_NAMED = 5
_WHOLE = re.compile(r"-?[0-9]{1,9}")


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the argument types of tools."""


_Arguments = TypeVar("_Arguments", bound=Struct)


class StructTool(Generic[_Arguments]):
    """A tool with typed arguments; failures become error outputs."""

    def __init__(
        self,
        name: str,
        arguments: type[_Arguments],
        traits: ToolTraits,
        execute: Callable[[_Arguments, ToolContext], Awaitable[ToolOutput]],
        preview: Callable[[_Arguments], Preview] | None = None,
        more: str = "",
        check: Callable[[_Arguments], None] | None = None,
    ) -> None:
        self.name = name
        self._more = more
        """What its description adds to the Markdown file."""
        self.traits = traits
        self._arguments = arguments
        self._execute = execute
        self._preview = preview
        self._check = check
        """Raises a ToolError for arguments that cannot be used, without a look at files."""

    @property
    def description(self) -> str:
        """The text of its Markdown file, and what is added to it."""
        return described(self.name) + self._more

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self._arguments)

    def refusal(self, arguments: Mapping[str, Any]) -> str:
        """Why a call with these arguments can never run; empty if it can."""
        try:
            self._read(arguments)
        except ToolError as error:
            return str(error)
        return ""

    def _read(self, arguments: Mapping[str, Any]) -> _Arguments:
        wanted = read_arguments(arguments, self._arguments)
        if self._check is not None:
            self._check(wanted)
        return wanted

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
        note = ""
        try:
            if self.traits.reads_only:
                arguments, note = tolerated(arguments, self._arguments)
            output = await self._execute(self._read(arguments), context)
        except ToolError as error:
            output = _failed(str(error), error.data)
        except OSError as error:
            output = _failed(f"{self.name} failed: {error.strerror or error}.")
        return structs.replace(output, text=f"{output.text}\n{note}") if note else output


def _failed(text: str, data: str = "") -> ToolOutput:
    return ToolOutput(text=text, is_error=True, is_our_own=True, data=data)


class StructFlowTool(ABC, Generic[_Arguments]):
    """A flow tool with an argument type; its description is the Markdown file of its name."""

    name: str
    arguments: type[_Arguments]

    @property
    def description(self) -> str:
        """The text of its Markdown file."""
        return described(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self.arguments)

    async def run(self, call: ToolCall, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Execute the call; bad arguments become an error output."""
        try:
            wanted = read_arguments(call.arguments, self.arguments)
        except ToolError as error:
            return ToolOutput(text=str(error), is_error=True)
        return await self.execute(wanted, key, run, agent)

    @abstractmethod
    async def execute(self, wanted: _Arguments, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Execute a call with valid arguments."""


@cache
def described(tool: str) -> str:
    """The description of a tool: WebFetch has `web_fetch.md`."""
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in tool)
    return Path(__file__).with_name(f"{name[1:]}.md").read_text("utf-8").strip()


def traits_of(tool: str, risk: Risk, seconds: float, *, is_local: bool = False) -> ToolTraits:
    """The traits of a tool: one of `READ_ONLY_TOOLS` can be repeated and needs no approval."""
    reads = tool in READ_ONLY_TOOLS
    return ToolTraits(
        reads_only=reads,
        repeatable=reads,
        is_local=is_local,
        needs_approval=not reads,
        risk=risk,
        limit_seconds=seconds,
    )


def tolerated(given: Mapping[str, Any], wanted: type[Struct]) -> tuple[dict[str, Any], str]:
    """Arguments of a reading tool with harmless mistakes corrected, and a note about unknown fields.

    A number is brought into its bounds, and a number or a truth written as text is read; an absent value may be null
    or empty; an unknown field is ignored.
    """
    fields, schema = _fields(wanted), arguments_schema(wanted)["properties"]
    unknown = [name for name in given if name not in fields]
    kept = {
        name: _in_bounds(value, schema[name])
        for name, value in given.items()
        if name in fields and not (value in (None, "") and name not in _required(wanted))
    }
    ignored = ", ".join(f"{name!r:.40}" for name in unknown[:_MOST_NAMED])
    return kept, f"[{ignored}: unknown, ignored; the fields are {', '.join(fields)}]" if unknown else ""


@cache
def _required(wanted: type[Struct]) -> frozenset[str]:
    return frozenset(name for name, field in _fields(wanted).items() if field.required)


def _in_bounds(value: Any, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if isinstance(value, str) and kind in ("integer", "boolean"):
        plain = value.strip().lower()
        value = {"true": True, "false": False}.get(plain, int(plain) if _WHOLE.fullmatch(plain) else value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if kind == "integer" and type(value) is int:
        return min(max(value, schema.get("minimum", value)), schema.get("maximum", value))
    return value


def read_arguments(given: Mapping[str, Any], wanted: type[_Arguments]) -> _Arguments:
    """Convert the arguments; the error names every field that is unknown, missing or wrong."""
    try:
        arguments = msgspec.convert(dict(given), wanted)
        _expect_text(given.values())
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        problems = "\n".join(f"- {problem}" for problem in islice(_problems(given, wanted), _MOST_PROBLEMS))
        raise ToolError(f"Bad arguments; nothing was done.\n{problems}") from error
    return arguments


@cache
def schema_of(wanted: type[Struct]) -> dict[str, Any]:
    """The JSON Schema of an argument type, as models get it."""
    return short_schema(arguments_schema(wanted))


def _problems(given: Mapping[str, Any], wanted: type[Struct]) -> Iterator[str]:
    fields = _fields(wanted)
    for name in given:
        if name not in fields:
            yield f"{name!r:.80}: unknown; the fields are {', '.join(fields)}"
    for name, field in fields.items():
        if name in given:
            problem = _problem(given[name], field.type)
            if problem:
                yield f"{name}: {problem}"
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            yield f"{name}: missing"


@cache
def _fields(wanted: type[Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(wanted)}


def _problem(value: Any, wanted: Any) -> str | None:
    try:
        msgspec.convert(value, wanted)
        _expect_text([value])
    except msgspec.ValidationError as error:
        return str(error)
    except UnicodeEncodeError:
        return "contains a lone surrogate, which is not valid text"
    return None


def _expect_text(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, str):
            value.encode()
