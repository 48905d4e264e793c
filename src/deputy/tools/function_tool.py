"""A user's typed function as a tool; its signature is the schema of the arguments."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, get_type_hints, overload

from msgspec import Struct, defstruct, json

from deputy.core.errors import UsageError
from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.struct_tool import read_arguments
from deputy.tools.tool_text import ToolError, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.engine.ports import Tool, ToolContext

_P = ParamSpec("_P")
_R = TypeVar("_R")

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class FunctionTool(Generic[_P, _R]):
    """A function that models can call; code can still call it as a function."""

    def __init__(self, function: Callable[_P, _R], name: str, traits: ToolTraits) -> None:
        self.name = name
        self.traits = traits
        self.description = inspect.getdoc(function) or name
        self._function = function
        self._as_tool = cast("Callable[..., Any]", function)
        self._arguments = _arguments_of(function)
        self.schema = _schema_of(self._arguments)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Call the function with a model's arguments; an exception becomes an error output."""
        try:
            wanted = read_arguments(arguments, self._arguments)
            given: Any = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
            value = await self._execute(given)
            text = value if isinstance(value, str) else json.encode(value).decode()
        except ToolError as error:
            return ToolOutput(text=str(error), is_error=True)
        except Exception as error:  # noqa: BLE001  the model reacts to an error of a user's function
            import traceback

            text = f"{self.name} failed: {type(error).__name__}: {error}"[:2000]
            return ToolOutput(text=text, is_error=True, trace="".join(traceback.format_exception(error)))
        return ToolOutput(text=cut(text, context.output_bytes, "ask for less"))

    async def _execute(self, given: Any) -> Any:
        if inspect.iscoroutinefunction(self._as_tool):
            return await self._as_tool(**given)
        # A plain function may block and must not stop the other subagents.
        return await asyncio.to_thread(self._as_tool, **given)


@overload
def tool(function: Callable[_P, _R], /) -> FunctionTool[_P, _R]: ...


@overload
def tool(
    *, name: str | None = None, traits: ToolTraits | None = None
) -> Callable[[Callable[_P, _R]], FunctionTool[_P, _R]]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, traits: ToolTraits | None = None
) -> Any:
    """Make a typed function a tool; models see its name, docstring and signature."""

    def made(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function, name or getattr(function, "__name__", "tool"), traits or ToolTraits())

    return made if function is None else made(function)


def as_tool(given: Tool | Callable[..., Any]) -> Tool:
    """Return a tool unchanged, and make a tool of a plain function."""
    if hasattr(given, "schema") and hasattr(given, "run"):
        return cast("Tool", given)
    return tool(cast("Callable[..., Any]", given))


def _arguments_of(function: Callable[..., Any]) -> type[Struct]:
    name = getattr(function, "__name__", "tool")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError("tool", name, f"its annotations cannot be read: {error}") from error
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _PLAIN or parameter.name not in hints:
            raise UsageError("tool", f"{name}({parameter})", "every argument needs a name and a type; no * and **")
        known = (parameter.name, hints[parameter.name])
        fields.append(known if parameter.default is parameter.empty else (*known, parameter.default))
    try:
        made = defstruct(f"{name}_arguments", fields, kw_only=True, frozen=True, forbid_unknown_fields=True)
        _schema_of(made)
    except (TypeError, ValueError) as error:
        raise UsageError("tool", name, f"its arguments have no JSON Schema: {error}") from error
    return made


def _schema_of(wanted: type[Struct]) -> dict[str, Any]:
    """The JSON Schema of an argument type, without title and description."""
    _, definitions = json.schema_components((wanted,), ref_template="#/$defs/{name}")
    schema: dict[str, Any] = definitions.pop(wanted.__name__)
    kept = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {**kept, "$defs": definitions} if definitions else kept
