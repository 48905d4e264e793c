"""What the Delegate tool is called with: tasks, how many at once, and the form of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from deputy.core.limits import NANOS_PER_DOLLAR, Budget
from deputy.core.request import Wanted
from deputy.core.role import Isolation, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Reader = Callable[[object], tuple[Any, str]]
    """Reads a value: what it stands for and "", or None and what would be right."""

MAX_TASKS = 8
MAX_CONCURRENCY = 4
DEFAULT_CONCURRENCY = 2
MAX_LABEL = 32
MAX_CONTEXT = 10
MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS, DEFAULT_OUTPUT_TOKENS = 100, 16384, 4096
MOST = 100_000_000
"""The most seconds or dollars that anybody can mean."""


class Task(Struct, frozen=True, kw_only=True, gc=False):
    """One piece of work for one subagent."""

    label: str
    prompt: str
    context: tuple[str, ...] = ()
    model: str | None = None
    agent: str | None = None
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS
    tools: tuple[str, ...] | None = None
    budget: Budget = Budget()
    timeout: float | None = None
    return_format: Literal["text", "json"] = "text"
    schema: Any = None
    """A JSON Schema; a program may give a pydantic model instead."""
    isolation: Isolation | None = None
    """Where it works when it may change something: in a git worktree of its own, unless this says `none`."""
    role: Role | None = None
    """The agent's definition, once it was found; never said by whoever hands the task over."""

    @property
    def wanted(self) -> Wanted:
        """What it asks for, as the guard reads it."""
        return Wanted(tools=None if self.tools is None else frozenset(self.tools), budget=self.budget)


class DelegateCall(Struct, frozen=True, kw_only=True):
    """A whole call of the Delegate tool, every field checked."""

    tasks: tuple[Task, ...]
    concurrency: int = DEFAULT_CONCURRENCY
    result_form: Literal["markdown", "json"] = "markdown"


class FieldProblem(Struct, frozen=True):
    """A field that is not as it must be, and how it must be."""

    field: str
    message: str


# --- the schema that models are shown ---------------------------------------------------------------------------------

_BUDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Caps for this subagent; at a cap it hands in what it has. Cost is in dollars.",
    "properties": {
        "tokens": {"type": "integer", "minimum": 1},
        "cost": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST},
        "requests": {"type": "integer", "minimum": 1},
    },
    "additionalProperties": False,
}

DELEGATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tasks": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_TASKS,
            "items": {
                "type": "object",
                "properties": {
                    "label": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": MAX_LABEL,
                        "description": "Names the subagent in progress and results.",
                    },
                    "prompt": {"type": "string", "minLength": 1, "description": "All that the subagent is told."},
                    "context": {
                        "type": "array",
                        "items": {"type": "string"},
                        "maxItems": MAX_CONTEXT,
                        "description": "Files whose content is put before the prompt.",
                    },
                    "model": {"type": "string", "minLength": 1, "description": "Another model than your own."},
                    "agent": {"type": "string", "minLength": 1, "description": "An agent definition to use."},
                    "max_output_tokens": {
                        "type": "integer",
                        "minimum": MIN_OUTPUT_TOKENS,
                        "maximum": MAX_OUTPUT_TOKENS,
                        "default": DEFAULT_OUTPUT_TOKENS,
                    },
                    "tools": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Fewer or other tools than the read-only ones; never more than you have.",
                    },
                    "budget": _BUDGET_SCHEMA,
                    "timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST, "description": "Seconds."},
                    "return_format": {"type": "string", "enum": ["text", "json"], "default": "text"},
                    "schema": {"type": "object", "description": "A JSON Schema that the report must follow."},
                    "isolation": {
                        "type": "string",
                        "enum": ["worktree", "none"],
                        "description": "Who may change files works in a git worktree of its own; none: in yours.",
                    },
                },
                "required": ["label", "prompt"],
                "additionalProperties": False,
            },
        },
        "concurrency": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_CONCURRENCY,
            "default": DEFAULT_CONCURRENCY,
        },
        "return": {"type": "string", "enum": ["markdown", "json"], "default": "markdown"},
    },
    "required": ["tasks"],
    "additionalProperties": False,
}

# --- reading a call ---------------------------------------------------------------------------------------------------


def read_call(arguments: object) -> DelegateCall | tuple[FieldProblem, ...]:
    """The call that these arguments make, or every problem they have, each with the field's name."""
    problems: list[FieldProblem] = []
    fields = _object("arguments", arguments, {"tasks", "concurrency", "return"}, problems)
    items = fields.get("tasks")
    tasks: list[Task | None] = []
    if not isinstance(items, list):
        problems.append(
            FieldProblem("tasks", _told(items, f"a list of 1 to {MAX_TASKS} tasks", missing="tasks" not in fields))
        )
    elif not 1 <= len(cast("list[Any]", items)) <= MAX_TASKS:
        problems.append(
            FieldProblem("tasks", f"has {len(cast('list[Any]', items))} tasks; 1 to {MAX_TASKS} are allowed")
        )
    else:
        tasks = [read_task(item, f"tasks[{index}]", problems) for index, item in enumerate(cast("list[Any]", items))]
    concurrency = _field(fields, "concurrency", "", _whole(1, MAX_CONCURRENCY), DEFAULT_CONCURRENCY, problems)
    form = _field(fields, "return", "", _one_of("markdown", "json"), "markdown", problems)
    if problems:
        return tuple(problems)
    return DelegateCall(
        tasks=tuple(task for task in tasks if task is not None), concurrency=concurrency, result_form=form
    )


_TASK_FIELDS = frozenset(Task.__struct_fields__) - {"role"}


def read_task(value: object, where: str, problems: list[FieldProblem]) -> Task | None:
    """One task, or None with its problems added to the list."""
    before = len(problems)
    fields = _object(where, value, _TASK_FIELDS, problems)
    if not isinstance(value, dict):
        return None
    at = f"{where}."
    label = _required(fields, "label", at, _text(MAX_LABEL), problems)
    prompt = _required(fields, "prompt", at, _text(None), problems)
    context = _field(fields, "context", at, _texts(MAX_CONTEXT), (), problems)
    model = _field(fields, "model", at, _text(None), None, problems)
    agent = _field(fields, "agent", at, _text(None), None, problems)
    tokens = _whole(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)
    max_output_tokens = _field(fields, "max_output_tokens", at, tokens, DEFAULT_OUTPUT_TOKENS, problems)
    tools = _field(fields, "tools", at, _texts(None), None, problems)
    timeout = _field(fields, "timeout", at, _positive, None, problems)
    return_format = _field(fields, "return_format", at, _one_of("text", "json"), "text", problems)
    schema = _field(fields, "schema", at, _json_object, None, problems)
    isolation = _field(fields, "isolation", at, _one_of("worktree", "none"), None, problems)
    budget = _budget(fields.get("budget"), f"{where}.budget", problems)
    if len(problems) > before:
        return None
    return Task(
        label=label,
        prompt=prompt,
        context=context,
        model=model,
        agent=agent,
        max_output_tokens=max_output_tokens,
        tools=tools,
        budget=budget,
        timeout=timeout,
        return_format=return_format,
        schema=schema,
        isolation=isolation,
    )


def _budget(value: object, where: str, problems: list[FieldProblem]) -> Budget:
    if value is None:
        return Budget()
    fields = _object(where, value, {"tokens", "cost", "requests"}, problems)
    cost = _field(fields, "cost", f"{where}.", _positive, None, problems)
    return Budget(
        tokens=_field(fields, "tokens", f"{where}.", _whole(1, None), None, problems),
        cost=None if cost is None else round(cost * NANOS_PER_DOLLAR),
        requests=_field(fields, "requests", f"{where}.", _whole(1, None), None, problems),
    )


def _object(where: str, value: object, known: Iterable[str], problems: list[FieldProblem]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        problems.append(FieldProblem(where, _told(value, "an object")))
        return {}
    fields = cast("dict[str, Any]", value)
    allowed = sorted(known)
    for name in fields:
        if name not in allowed:
            field = name if where == "arguments" else f"{where}.{name}"
            problems.append(FieldProblem(field[:80], f"is not a field; there are {', '.join(allowed)}"))
    return fields


def _field(
    fields: Mapping[str, Any],
    name: str,
    at: str,
    read: Reader,
    default: Any,
    problems: list[FieldProblem],
) -> Any:
    if name not in fields or (fields[name] is None and default is None):
        return default
    value, right = read(fields[name])
    if right:
        problems.append(FieldProblem(f"{at}{name}", _told(fields[name], right)))
        return default
    return value


def _required(
    fields: Mapping[str, Any],
    name: str,
    at: str,
    read: Reader,
    problems: list[FieldProblem],
) -> Any:
    if name not in fields:
        problems.append(FieldProblem(f"{at}{name}", _told(None, read(None)[1], missing=True)))
        return ""
    return _field(fields, name, at, read, "", problems)


def _told(value: object, right: str, *, missing: bool = False) -> str:
    if missing:
        return f"is missing; it must be {right}"
    shown = repr(value[:60] if isinstance(value, str) else value)
    return f"is {shown if len(shown) <= 80 else shown[:79] + '…'}; it must be {right}"


def _text(longest: int | None) -> Reader:
    right = "a text that is not blank" if longest is None else f"a text of 1 to {longest} characters"

    def read(value: object) -> tuple[Any, str]:
        if not isinstance(value, str) or not value.strip() or (longest is not None and len(value) > longest):
            return None, right
        return value, ""

    return read


def _texts(most: int | None) -> Reader:
    right = "a list of texts" if most is None else f"a list of at most {most} texts"

    def read(value: object) -> tuple[Any, str]:
        if not isinstance(value, list):
            return None, right
        items = cast("list[Any]", value)
        if (most is not None and len(items) > most) or not all(isinstance(item, str) and item for item in items):
            return None, right
        return tuple(items), ""

    return read


def _whole(least: int, most: int | None) -> Reader:
    right = f"a whole number from {least} to {most}" if most is not None else f"a whole number of at least {least}"

    def read(value: object) -> tuple[Any, str]:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            return None, right
        return value, ""

    return read


def _positive(value: object) -> tuple[Any, str]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
        return None, f"a number above 0 and at most {MOST:,}"
    return float(value), ""


def _one_of(*words: str) -> Reader:
    return lambda value: (value, "") if value in words else (None, f"one of {', '.join(words)}")


def _json_object(value: object) -> tuple[Any, str]:
    return (cast("Any", value), "") if isinstance(value, dict) else (None, "a JSON Schema object")


class Terms(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a delegated task is to be done and returned, beside what the guard decides on."""

    context: tuple[str, ...] = ()
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS
    role: Role | None = None
    """The definition of the agent that does it, where it is one."""
    return_format: Literal["text", "json"] = "text"
    schema: dict[str, Any] | None = None
    isolation: Isolation | None = None
    root: str = ""
    """The directory that its caller works in, where that is not the workspace."""
    kind: str = ""
    """The command it serves, when a completed one must show artifacts."""
    folder: str = ""
    """The folder of the workspace that its work belongs in, where there is one."""
    index: int = 0
    total: int = 1


def terms_of(task: Task, index: int, total: int, root: str = "") -> Terms:
    """The terms that a task of the Delegate tool sets."""
    return Terms(
        context=task.context,
        max_output_tokens=task.max_output_tokens,
        role=task.role,
        return_format=task.return_format,
        schema=task.schema,
        isolation=task.isolation,
        root=root,
        index=index,
        total=total,
    )
