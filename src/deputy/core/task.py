"""The arguments of the Delegate tool: tasks, concurrency, and the form of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct, structs

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
from deputy.core.foreign_text import plain
from deputy.core.limits import NANOS_PER_DOLLAR, Budget
from deputy.core.request import READ_ONLY_TOOLS, GrantRequest
from deputy.core.subtask.context_passing import Briefing

if TYPE_CHECKING:
    from deputy.core.field_readers import Reader
    from deputy.core.request import Grant

DELEGATE = "Delegate"
HANDING_ON = frozenset({DELEGATE, "Subtask"})
"""Tools that delegate; an agent has them only if its definition names them."""
RUN_TOOL = "Run"
WRITING_TOOLS = frozenset({"Edit", "Write", RUN_TOOL})
"""Tools that change something: a run with one of them works in its own worktree."""
ALL_TOOLS = READ_ONLY_TOOLS | WRITING_TOOLS | HANDING_ON

Isolation: TypeAlias = Literal["worktree", "none"]

MAX_LABEL = 32
LABEL_RULE = f"a string of 1 to {MAX_LABEL} characters on one line, without brackets and invisible characters"
_BRACKETS = {ord(letter): "(" if letter in "[［" else ")" for letter in "[]［］"}
MAX_TASKS = 8
MAX_CONCURRENCY = 4
DEFAULT_CONCURRENCY = 2
MAX_CONTEXT = 10
MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS, DEFAULT_OUTPUT_TOKENS = 100, 16384, 4096


class Role(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent definition at the time of the delegation."""

    name: str
    prompt: str = ""
    tools: frozenset[str] | None = None
    """By their names here; None means the caller's tools without those that delegate."""
    withheld: frozenset[str] = frozenset()
    model: str | None = None
    is_recursive: bool = False
    max_turns: int | None = None
    seconds: float | None = None
    isolation: Isolation | None = None
    warnings: tuple[str, ...] = ()

    def granted(self, caller: Grant) -> frozenset[str]:
        """The tools that it gets from this caller."""
        named = caller.tools - HANDING_ON if self.tools is None else self.tools & caller.tools
        return named - self.withheld

    def narrowed(self, reason: str) -> Role:
        """The agent without the permissions that an untrusted definition must not have, and a warning."""
        tools = READ_ONLY_TOOLS if self.tools is None else self.tools & READ_ONLY_TOOLS
        is_less = self.tools is None or tools != self.tools or self.is_recursive or self.isolation == "none"
        return structs.replace(
            self,
            tools=tools,
            is_recursive=False,
            isolation=None,
            warnings=(*self.warnings, reason) if is_less else self.warnings,
        )


class NoRole(Struct, frozen=True, kw_only=True):
    """Why an agent cannot be used, and which names are valid."""

    reason: str


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

    @property
    def wanted(self) -> GrantRequest:
        """The requested grant, for the guard."""
        return GrantRequest(tools=None if self.tools is None else frozenset(self.tools), budget=self.budget)


class DelegateCall(Struct, frozen=True, kw_only=True):
    """A validated call of the Delegate tool."""

    tasks: tuple[Task, ...]
    concurrency: int = DEFAULT_CONCURRENCY
    result_form: Literal["markdown", "json"] = "markdown"


# --- a call of the Delegate tool --------------------------------------------------------------------------------------


class _Field(NamedTuple):
    """A field: how it is read, the schema that models see, and its default."""

    read: Reader
    schema: dict[str, Any]
    default: Any = None


def _string(description: str) -> _Field:
    return _Field(text(), {"type": "string", "minLength": 1, "description": description})


def _strings(description: str, default: Any = None, **schema: Any) -> _Field:
    items = {"type": "array", "items": {"type": "string"}, **schema, "description": description}
    return _Field(texts(schema.get("maxItems")), items, default)


def _choice(*words: str, **schema: Any) -> _Field:
    return _Field(one_of(*words), {"type": "string", "enum": [*words], **schema}, schema.get("default"))


def _number(least: int, most: int, default: int) -> _Field:
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return _Field(whole(least, most), schema, default)


def read_label(value: object) -> tuple[str | None, str]:
    """The label and "", or None and the rule for labels."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_LABEL:
        return None, LABEL_RULE
    is_plain = plain(value) == value and value.translate(_BRACKETS) == value and not {"\n", "\t"} & set(value)
    return (value, "") if is_plain else (None, LABEL_RULE)


def cleaned_label(name: str) -> str:
    """A label made from another name, such as an agent or a subtask type."""
    return " ".join(plain(name).translate(_BRACKETS).split())


_LABEL_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_LABEL,
    "description": "Name of the subagent in progress and results: one line without brackets.",
}
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
_FIELDS: dict[str, _Field] = {
    "label": _Field(read_label, _LABEL_SCHEMA),
    "prompt": _string("The whole task; the subagent sees nothing else."),
    "context": _strings("Files whose content is inserted before the prompt.", (), maxItems=MAX_CONTEXT),
    "model": _string("The model, if not your own."),
    "agent": _string("An agent definition to use."),
    "max_output_tokens": _number(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS, DEFAULT_OUTPUT_TOKENS),
    "tools": _strings("Tools instead of the read-only ones; only tools that you have."),
    "budget": _Field(json_object(), _BUDGET_SCHEMA),
    "timeout": _Field(positive, {"type": "number", "exclusiveMinimum": 0, "maximum": MOST, "description": "Seconds."}),
    "return_format": _choice("text", "json", default="text"),
    "schema": _Field(
        json_object("a JSON Schema object"),
        {"type": "object", "description": "A JSON Schema that the report must follow."},
    ),
    "isolation": _choice(
        "worktree", "none", description="A subagent that writes works in its own git worktree; none: in yours."
    ),
    "without_asking": _strings("Those of `tools` that need no approval for each call.", ()),
}
_REQUIRED = ("label", "prompt")
_CONCURRENCY = _number(1, MAX_CONCURRENCY, DEFAULT_CONCURRENCY)
_RESULT_FORM = _choice("markdown", "json", default="markdown")

DELEGATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tasks": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_TASKS,
            "items": {
                "type": "object",
                "properties": {name: field.schema for name, field in _FIELDS.items()},
                "required": list(_REQUIRED),
                "additionalProperties": False,
            },
        },
        "concurrency": _CONCURRENCY.schema,
        "return": _RESULT_FORM.schema,
    },
    "required": ["tasks"],
    "additionalProperties": False,
}


def read_call(arguments: object) -> DelegateCall | tuple[FieldProblem, ...]:
    """The call with these arguments, or all their problems."""
    problems: list[FieldProblem] = []
    fields = read_object("arguments", arguments, {"tasks", "concurrency", "return"}, problems)
    items = cast("list[Any] | None", fields.get("tasks"))
    tasks: list[Task | None] = []
    if not isinstance(items, list):
        right = f"a list of 1 to {MAX_TASKS} tasks"
        problems.append(FieldProblem("tasks", wrong_value(items, right, missing="tasks" not in fields)))
    elif not 1 <= len(items) <= MAX_TASKS:
        problems.append(FieldProblem("tasks", f"has {len(items)} tasks; 1 to {MAX_TASKS} are allowed"))
    else:
        tasks = [read_task(item, f"tasks[{index}]", problems) for index, item in enumerate(items)]
    concurrency = read_field(fields, "concurrency", "", _CONCURRENCY.read, DEFAULT_CONCURRENCY, problems)
    form = read_field(fields, "return", "", _RESULT_FORM.read, "markdown", problems)
    if problems:
        return tuple(problems)
    return DelegateCall(tasks=tuple(filter(None, tasks)), concurrency=concurrency, result_form=form)


_TASK_FIELDS = frozenset(Task.__struct_fields__) - {"role"}


def read_task(value: object, where: str, problems: list[FieldProblem]) -> Task | None:
    """One task, or None and its problems in the list."""
    before = len(problems)
    fields = read_object(where, value, _TASK_FIELDS, problems)
    if not isinstance(value, dict):
        return None
    at = f"{where}."
    values: dict[str, Any] = {}
    for name, field in _FIELDS.items():
        if name in _REQUIRED:
            values[name] = read_required(fields, name, at, field.read, problems)
        elif name == "budget":
            values[name] = _budget(fields.get(name), f"{where}.{name}", problems)
        else:
            values[name] = read_field(fields, name, at, field.read, field.default, problems)
    if unknown := [name for name in values["without_asking"] if name not in (values["tools"] or ())]:
        problems.append(FieldProblem(f"{at}without_asking", f"has {unknown[0]!r:.80}, which is not in `tools`"))
    return None if len(problems) > before else Task(**values)


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


# --- options and roles ------------------------------------------------------------------------------------------------


class TaskOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task is executed and returned, beside the grant."""

    context: tuple[str, ...] = ()
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS
    role: Role | None = None
    return_format: Literal["text", "json"] = "text"
    schema: dict[str, Any] | None = None
    isolation: Isolation | None = None
    without_asking: tuple[str, ...] = ()
    context_digests: dict[str, str] = {}
    root: str = ""
    """The directory of its caller, if that is not the workspace."""
    kind: str = ""
    """The command, if a completed one must have artifacts."""
    folder: str = ""
    routing: Routing = Routing()
    degradation: str = ""
    subtask: Briefing | None = None
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


def as_parent(role: Role, all_tools: Grant) -> Grant:
    """The grant of this agent as the parent agent; without named tools it has all of them."""
    tools = all_tools.tools if role.tools is None else role.tools & all_tools.tools
    budget = all_tools.budget.narrowed(Budget(requests=role.max_turns))
    return structs.replace(all_tools, tools=tools - role.withheld, budget=budget)


def in_role(task: Task, role: Role, caller: Grant) -> Task:
    """The task with this agent's role; the task's own fields win over the definition."""
    budget = task.budget.narrowed(Budget(requests=role.max_turns))
    return structs.replace(
        task,
        role=role,
        tools=tuple(sorted(role.granted(caller))) if task.tools is None else task.tools,
        model=task.model or role.model,
        timeout=role.seconds if task.timeout is None else task.timeout,
        isolation=task.isolation or role.isolation,
        # The guard would refuse a cap above the caller's own.
        budget=budget.narrowed(Budget(requests=caller.budget.requests)) if role.max_turns is not None else budget,
    )
