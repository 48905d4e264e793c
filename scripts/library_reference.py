"""Write docs/library-reference.md: the public names of the library, from their signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args, get_origin

import deputy
from deputy.core.outcome import Ending
from deputy.options import DeputyOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

PAGE = Path(__file__).resolve().parents[1] / "docs" / "library-reference.md"
HEAD = """\
# Reference of the library

`make reference` writes this page from the docstrings of the public names. [library.md](library.md) explains how to use
them.
"""
GROUPS = {
    "Calls": ["Deputy", "delegate", "run_sync"],
    "Tasks, tools and limits": ["Task", "Budget", "Policy", "tool", "ToolTraits"],
    "Outcomes": ["Outcome", "Completed", "Partial", "Failed", "Blocked", "Cancelled", "Rejected", "Outcomes", "Result"],
    "Parts of outcomes": ["Usage", "Error", "Artifact"],
    "Refinement": ["Refined", "AgentEvaluator", "ScriptEvaluator"],
    "Questions and approval": ["Question", "ApprovalRequest", "Decision"],
    "Progress": ["Progress"],
    "Your own agents": ["BackendRequest", "TokenUsage", "ToolUse"],
    "Observers and logs": [
        "Observer",
        "ObservedRun",
        "ObservedStep",
        "RunEnd",
        "StepEnd",
        "LoggingObserver",
        "OpenTelemetryObserver",
    ],
    "Exceptions": [
        "DeputyError",
        "UsageError",
        "CannotSpawn",
        "UnknownRun",
        "LeaseHeld",
        "NotAdmitted",
        "StorageError",
    ],
}
METHODS = {
    "Deputy": """
        delegate run refine start start_refining outcome results refined events resume resume_run cancel
        wait_until_finished state is_running questions asking approvals approve
    """,
    "Observer": """
        run_started run_ended step_started step_ended retried fell_back approval_asked approval_answered
    """,
}
"""The methods that programs call; what Deputy's own commands need beside them is left out."""
HIDDEN = {"Task.role", "Task.degradation", "Task.wanted", "Budget.capped"}
_LONGEST_LINE = 100


class Field(NamedTuple):
    """A field of a class: its name, type and default as written, and its docstring."""

    name: str
    kind: str
    default: str
    text: str


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts += [f"## {title}\n", *("\n".join(_entry(name)) for name in names)]
    return "\n".join(parts)


def _entry(name: str) -> Iterator[str]:
    found = getattr(deputy, name)
    yield f"### {name}\n"
    if name == "Outcome":
        yield "How a delegation ended: one of the six kinds below. All of them have these fields:\n"
        yield from _members(Ending)
    elif inspect.isclass(found):
        yield f"{inspect.getdoc(found)}\n"
        if found is deputy.Deputy:
            yield from _table([*_fields(DeputyOptions)], "option")
        yield from _members(found)
    else:
        yield from _function(_definition(found), vars(sys.modules[found.__module__]))


def _members(found: type) -> Iterator[str]:
    """The fields, properties and methods; those that all outcomes have are listed once."""
    classes = [one for one in found.__mro__[::-1] if one.__module__.startswith("deputy.")]
    classes = [one for one in classes if found is Ending or not issubclass(Ending, one)]
    yield from _table([field for one in classes for field in _fields(one)], "field")
    properties = [field for one in classes for field in _properties(one)]
    yield from _table(list({field.name: field for field in properties}.values()), "property")
    methods = {one.name: one for one in _functions(found)}
    for name in METHODS.get(found.__name__, "").split():
        yield from _function(methods[name], vars(sys.modules[found.__module__]))


def _table(fields: list[Field], title: str) -> Iterator[str]:
    if not fields:
        return
    has_default = any(field.default for field in fields)
    head = (title, "type", *(["default"] if has_default else []), "meaning")
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
    for field in fields:
        default = [f"`{field.default}`" if field.default else ""] if has_default else []
        cells = (f"`{field.name}`", f"`{field.kind}`", *default, " ".join(field.text.split()))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _function(function: Any, names: dict[str, Any]) -> Iterator[str]:
    start = "await " if isinstance(function, ast.AsyncFunctionDef) else ""
    parameters, returns = [*_parameters(function.args, names)], _written(function.returns, names)
    line = f"{start}{function.name}({', '.join(parameters)}) -> {returns}"
    if len(line) > _LONGEST_LINE:
        line = f"{start}{function.name}(\n    " + ",\n    ".join(parameters) + f",\n) -> {returns}"
    yield f"```python\n{line}\n```\n\n{ast.get_docstring(function)}\n"


def _parameters(given: ast.arguments, names: dict[str, Any]) -> Iterator[str]:
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + given.defaults
    for number, (one, default) in enumerate(zip(plain, defaults, strict=True)):
        if one.arg not in ("self", "cls"):
            yield _parameter(one, default, names)
        if number + 1 == len(given.posonlyargs):
            yield "/"
    if given.vararg is not None:
        yield f"*{_parameter(given.vararg, None, names)}"
    elif given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(one, default, names)
    if given.kwarg is not None:
        yield f"**{_parameter(given.kwarg, None, names)}"


def _parameter(one: ast.arg, default: ast.expr | None, names: dict[str, Any]) -> str:
    return f"{one.arg}: {_written(one.annotation, names)}" + (f" = {_default(default, names)}" if default else "")


# --- source -----------------------------------------------------------------------------------------------------------


@cache
def _module(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text("utf-8"))


def _definition(found: Any) -> Any:
    body = _module(inspect.getsourcefile(found) or "").body
    # The last one: those before it are overloads.
    return [one for one in body if getattr(one, "name", "") == found.__name__][-1]


def _functions(found: type) -> list[Function]:
    return [one for one in _definition(found).body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def _properties(found: type) -> Iterator[Field]:
    names = vars(sys.modules[found.__module__])
    for one in _functions(found):
        is_property = any(isinstance(mark, ast.Name) and mark.id == "property" for mark in one.decorator_list)
        if is_property and not one.name.startswith("_") and f"{found.__name__}.{one.name}" not in HIDDEN:
            yield Field(one.name, _written(one.returns, names), "", ast.get_docstring(one) or "")


def _fields(found: type) -> Iterator[Field]:
    body, names = _definition(found).body, vars(sys.modules[found.__module__])
    for one, after in zip(body, [*body[1:], None], strict=True):
        match one:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                if name.startswith("_") or f"{found.__name__}.{name}" in HIDDEN:
                    continue
            case _:
                continue
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                pass
            case _:
                text = _described(annotation)
        yield Field(name, _written(annotation, names), _default(value, names), text)


def _described(annotation: ast.expr) -> str:
    """The description in the `Meta` of an annotation."""
    for one in ast.walk(annotation):
        if isinstance(one, ast.keyword) and one.arg == "description" and isinstance(one.value, ast.Constant):
            return str(one.value.value)
    return ""


def _default(value: ast.expr | None, names: dict[str, Any]) -> str:
    match value:
        case None:
            return ""
        case ast.Call(func=ast.Name(id="field"), keywords=keywords):
            return next((_default(one.value, names) for one in keywords if one.arg == "default"), "")
        case ast.Name(id=name) if isinstance(names.get(name), int | float | str):
            return repr(names[name])
        case _:
            return ast.unparse(value)


def _written(node: ast.expr | None, names: dict[str, Any]) -> str:
    """A type as it is written, with `Annotated` and names of literals resolved."""
    tree = ast.parse("None" if node is None else ast.unparse(node), mode="eval")
    return ast.unparse(_Resolved(names).visit(tree))


class _Resolved(ast.NodeTransformer):
    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self._names.get(node.id)
        if get_origin(found) is Literal:
            return ast.parse(f"Literal[{', '.join(map(repr, get_args(found)))}]", mode="eval").body
        # An alias such as `Annotated[str, Meta(…)]`.
        return ast.Name(found.__origin__.__name__) if hasattr(found, "__metadata__") else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if is_annotated and isinstance(node.slice, ast.Tuple) else node


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
