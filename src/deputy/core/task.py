"""The arguments of the Delegate tool: tasks, concurrency, and the form of the result."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

from deputy.core.fallback import Routing
from deputy.core.field_readers import (
    MOST,
    FieldProblem,
    json_object,
    one_of,
    positive,
    read_field,
    read_object,
    read_required,
    text,
    texts,
    whole,
    wrong_value,
)
from deputy.core.label import MAX_LABEL, read_label
from deputy.core.limits import NANOS_PER_DOLLAR, Budget
from deputy.core.request import GrantRequest
from deputy.core.role import Isolation, Role
from deputy.core.subtask.context_passing import Briefing

MAX_TASKS = 8
MAX_CONCURRENCY = 4
DEFAULT_CONCURRENCY = 2
MAX_CONTEXT = 10
MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS, DEFAULT_OUTPUT_TOKENS = 100, 16384, 4096


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
    """A JSON Schema; the library also accepts a pydantic model."""
    isolation: Isolation | None = None
    """Where a writing task works: in its own git worktree, unless this is `none`."""
    without_asking: tuple[str, ...] = ()
    """Tools whose calls need no further approval once this task is approved."""
    role: Role | None = None
    """The resolved agent definition; never set by the caller."""
    degradation: str = ""
    """Degradation instructions; never set by a model."""

    @property
    def wanted(self) -> GrantRequest:
        """The requested grant, for the guard."""
        return GrantRequest(tools=None if self.tools is None else frozenset(self.tools), budget=self.budget)


class DelegateCall(Struct, frozen=True, kw_only=True):
    """A validated call of the Delegate tool."""

    tasks: tuple[Task, ...]
    concurrency: int = DEFAULT_CONCURRENCY
    result_form: Literal["markdown", "json"] = "markdown"


# --- the schema that models are shown ---------------------------------------------------------------------------------

_BUDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Caps for this subagent; at a cap it reports its results so far. Cost is in dollars.",
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
                        "description": "Name of the subagent in progress and results: one line without brackets.",
                    },
                    "prompt": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The whole task; the subagent sees nothing else.",
                    },
                    "context": {
                        "type": "array",
                        "items": {"type": "string"},
                        "maxItems": MAX_CONTEXT,
                        "description": "Files whose content is inserted before the prompt.",
                    },
                    "model": {"type": "string", "minLength": 1, "description": "The model, if not your own."},
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
                        "description": "Tools instead of the read-only ones; only tools that you have.",
                    },
                    "budget": _BUDGET_SCHEMA,
                    "timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST, "description": "Seconds."},
                    "return_format": {"type": "string", "enum": ["text", "json"], "default": "text"},
                    "schema": {"type": "object", "description": "A JSON Schema that the report must follow."},
                    "isolation": {
                        "type": "string",
                        "enum": ["worktree", "none"],
                        "description": "A subagent that writes works in its own git worktree; none: in yours.",
                    },
                    "without_asking": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Those of `tools` that need no approval for each call.",
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
    """The call with these arguments, or all their problems."""
    problems: list[FieldProblem] = []
    fields = read_object("arguments", arguments, {"tasks", "concurrency", "return"}, problems)
    items = fields.get("tasks")
    tasks: list[Task | None] = []
    if not isinstance(items, list):
        problems.append(
            FieldProblem(
                "tasks", wrong_value(items, f"a list of 1 to {MAX_TASKS} tasks", missing="tasks" not in fields)
            )
        )
    elif not 1 <= len(cast("list[Any]", items)) <= MAX_TASKS:
        problems.append(
            FieldProblem("tasks", f"has {len(cast('list[Any]', items))} tasks; 1 to {MAX_TASKS} are allowed")
        )
    else:
        tasks = [read_task(item, f"tasks[{index}]", problems) for index, item in enumerate(cast("list[Any]", items))]
    concurrency = read_field(fields, "concurrency", "", whole(1, MAX_CONCURRENCY), DEFAULT_CONCURRENCY, problems)
    form = read_field(fields, "return", "", one_of("markdown", "json"), "markdown", problems)
    if problems:
        return tuple(problems)
    return DelegateCall(
        tasks=tuple(task for task in tasks if task is not None), concurrency=concurrency, result_form=form
    )


_TASK_FIELDS = frozenset(Task.__struct_fields__) - {"role"}


def read_task(value: object, where: str, problems: list[FieldProblem]) -> Task | None:
    """One task, or None and its problems in the list."""
    before = len(problems)
    fields = read_object(where, value, _TASK_FIELDS, problems)
    if not isinstance(value, dict):
        return None
    at = f"{where}."
    label = read_required(fields, "label", at, read_label, problems)
    prompt = read_required(fields, "prompt", at, text(), problems)
    context = read_field(fields, "context", at, texts(MAX_CONTEXT), (), problems)
    model = read_field(fields, "model", at, text(), None, problems)
    agent = read_field(fields, "agent", at, text(), None, problems)
    tokens = whole(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)
    max_output_tokens = read_field(fields, "max_output_tokens", at, tokens, DEFAULT_OUTPUT_TOKENS, problems)
    tools = read_field(fields, "tools", at, texts(), None, problems)
    timeout = read_field(fields, "timeout", at, positive, None, problems)
    return_format = read_field(fields, "return_format", at, one_of("text", "json"), "text", problems)
    schema = read_field(fields, "schema", at, _schema, None, problems)
    isolation = read_field(fields, "isolation", at, one_of("worktree", "none"), None, problems)
    without_asking = read_field(fields, "without_asking", at, texts(), (), problems)
    if unknown := [name for name in without_asking if name not in (tools or ())]:
        problems.append(FieldProblem(f"{at}without_asking", f"has {unknown[0]!r:.80}, which is not in `tools`"))
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
        without_asking=without_asking,
    )


def _budget(value: object, where: str, problems: list[FieldProblem]) -> Budget:
    if value is None:
        return Budget()
    fields = read_object(where, value, {"tokens", "cost", "requests"}, problems)
    cost = read_field(fields, "cost", f"{where}.", positive, None, problems)
    return Budget(
        tokens=read_field(fields, "tokens", f"{where}.", whole(1), None, problems),
        cost=None if cost is None else round(cost * NANOS_PER_DOLLAR),
        requests=read_field(fields, "requests", f"{where}.", whole(1), None, problems),
    )


_schema = json_object("a JSON Schema object")


class TaskOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task is executed and returned, beside the grant."""

    context: tuple[str, ...] = ()
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS
    role: Role | None = None
    """The agent definition, if it has one."""
    return_format: Literal["text", "json"] = "text"
    schema: dict[str, Any] | None = None
    isolation: Isolation | None = None
    without_asking: tuple[str, ...] = ()
    """Tools that a person approved for all calls."""
    context_digests: dict[str, str] = {}
    """The SHA-256 digests of the approved context files, by path."""
    root: str = ""
    """The directory of its caller, if that is not the workspace."""
    kind: str = ""
    """The command, if a completed one must have artifacts."""
    folder: str = ""
    """Its artifacts folder in the workspace, if it has one."""
    routing: Routing = Routing()
    degradation: str = ""
    """Instructions before the task if it is done inline."""
    subtask: Briefing | None = None
    """The briefing, if it is a subtask."""
    index: int = 0
    total: int = 1


def options_of(task: Task, index: int, total: int, root: str = "", routing: Routing | None = None) -> TaskOptions:
    """The options of a Delegate task."""
    return TaskOptions(
        context=task.context,
        max_output_tokens=task.max_output_tokens,
        role=task.role,
        return_format=task.return_format,
        schema=task.schema,
        isolation=task.isolation,
        without_asking=task.without_asking,
        root=root,
        routing=routing or Routing(),
        degradation=task.degradation,
        index=index,
        total=total,
    )
