"""The arguments of the Delegate tool: tasks, concurrency, and the form of the result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field, structs

from deputy.core.fallback import Routing
from deputy.core.field_readers import MOST, FieldProblem, number
from deputy.core.foreign_text import plain
from deputy.core.limits import MAX_COST, MOST_AT_ONCE, MOST_TASKS, Budget
from deputy.core.request import READ_ONLY_TOOLS, GrantRequest
from deputy.core.subtask.context_passing import Briefing
from deputy.core.tool_arguments import read_arguments

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deputy.core.field_readers import Reader
    from deputy.core.request import Grant

DELEGATE = "Delegate"
DELEGATING_TOOLS = frozenset({DELEGATE, "Subtask"})
"""Tools that delegate; an agent has them only if its definition names them."""
RUN_TOOL = "Run"
WRITING_TOOLS = frozenset({"Edit", "Write", RUN_TOOL})
"""Tools that change something: a run with one of them works in its own worktree."""
ALL_TOOLS = READ_ONLY_TOOLS | WRITING_TOOLS | DELEGATING_TOOLS

Isolation: TypeAlias = Literal["worktree", "none"]

MAX_LABEL = 32
LABEL_RULE = f"a string of 1 to {MAX_LABEL} characters on one line, without brackets and invisible characters"
_MADE_LABEL, _LONG_WORD, _LABEL_SOURCE = 24, 4, 1000
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
        named = caller.tools - DELEGATING_TOOLS if self.tools is None else self.tools & caller.tools
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


ResultForm: TypeAlias = Literal["markdown", "json"]
_Text: TypeAlias = Annotated[str, Meta(min_length=1)]


class TaskFields(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a task that models and programs give alike: schemas, readers and checks are derived from them."""

    label: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_LABEL,
            description="A short name.",
        ),
    ]
    prompt: Annotated[str, Meta(min_length=1, description="The whole task.")]
    context: Annotated[
        tuple[_Text, ...],
        Meta(max_length=MAX_CONTEXT, description="Files to put before the prompt."),
    ] = ()
    model: Annotated[str, Meta(min_length=1, description="The model, if not your own.")] | None = None
    agent: Annotated[str, Meta(min_length=1, description="The name of an agent.")] | None = None
    max_output_tokens: Annotated[int, Meta(ge=MIN_OUTPUT_TOKENS, le=MAX_OUTPUT_TOKENS)] = DEFAULT_OUTPUT_TOKENS
    """The most tokens of one answer: 100 to 16384."""
    tools: (
        Annotated[
            tuple[_Text, ...],
            Meta(description="Its tools, from yours; default: those that read."),
        ]
        | None
    ) = None
    timeout: Annotated[float, Meta(gt=0, le=MOST, description="Seconds.")] | None = None
    return_format: Literal["text", "json"] = "text"
    """A free report, or the return contract in JSON."""
    isolation: (
        Annotated[
            Isolation,
            Meta(description="Write in its own git worktree, or in your folder (none)."),
        ]
        | None
    ) = None
    without_asking: Annotated[
        tuple[_Text, ...],
        Meta(description="Tools that need no approval per call."),
    ] = ()


class Task(TaskFields, frozen=True, kw_only=True, gc=False):
    """One piece of work for one subagent."""

    budget: Budget = Budget()
    """The most that it may use."""
    schema: Any = None
    """A JSON Schema; the library also takes a pydantic model, a dataclass or another type that msgspec reads."""
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
    result_form: ResultForm = "markdown"


def read_label(value: object) -> tuple[str | None, str]:
    """The label and "", or None and the rule for labels."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_LABEL:
        return None, LABEL_RULE
    is_plain = plain(value) == value and value.translate(_BRACKETS) == value and not {"\n", "\t"} & set(value)
    return (value, "") if is_plain else (None, LABEL_RULE)


def cleaned_label(name: str) -> str:
    """A label made from another name, such as an agent or a subtask type."""
    return " ".join(plain(name).translate(_BRACKETS).split())


def label_of(prompt: str, taken: Collection[str] = ()) -> str:
    """A label made from the first words of a prompt, unlike those that are taken; short words are left out."""
    words = re.findall(r"\w+", cleaned_label(prompt[:_LABEL_SOURCE]).lower())
    label = ""
    for word in [word for word in words if len(word) >= _LONG_WORD] or words or ["task"]:
        longer = f"{label}-{word}" if label else word[:_MADE_LABEL]
        if len(longer) > _MADE_LABEL:
            break
        label = longer
    return next(name for name in (label, *(f"{label}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)


# --- the arguments of the Delegate tool -------------------------------------------------------------------------------


class BudgetArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps. At a cap the subagent reports."""

    tokens: Annotated[int, Meta(ge=1)] | None = None
    cost: Annotated[float, Meta(gt=0, le=MAX_COST, description="US dollars.")] | None = None
    requests: Annotated[int, Meta(ge=1)] | None = None

    @property
    def caps(self) -> Budget:
        """The caps as a budget."""
        return Budget(**structs.asdict(self))


class TaskArguments(TaskFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task."""

    budget: BudgetArguments = BudgetArguments()
    schema: Annotated[dict[str, Any], Meta(description="A JSON Schema for the report.")] | None = None


class StartArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the DelegateStart tool, which returns no results."""

    tasks: Annotated[tuple[TaskArguments, ...], Meta(min_length=1, max_length=MAX_TASKS)]
    concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] = DEFAULT_CONCURRENCY


class DelegateArguments(StartArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the Delegate tool."""

    result_form: ResultForm = field(default="markdown", name="return")


class OwnCallArguments(DelegateArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The call of a person, which only the user's settings limit."""

    tasks: Annotated[tuple[TaskArguments, ...], Meta(min_length=1, max_length=MOST_TASKS)]
    concurrency: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = DEFAULT_CONCURRENCY


class CallLimits(Struct, frozen=True):
    """How many tasks a person's call may have, and how many of them run at once."""

    tasks: int
    concurrency: int

    def problems(self, call: DelegateArguments) -> list[FieldProblem]:
        """What exceeds the limits, and where to change them."""
        count, at_once = len(call.tasks), call.concurrency
        many = f"has {count}; at most {self.tasks} are allowed: split it, or raise [limits] tasks in your config"
        wide = f"is {at_once}; it must be at most {self.concurrency}, or raise [limits] concurrency in your config"
        found = {"tasks": many if count > self.tasks else "", "concurrency": wide if at_once > self.concurrency else ""}
        return [FieldProblem(name, text) for name, text in found.items() if text]


def read_call(arguments: object, limits: CallLimits | None = None) -> DelegateCall | tuple[FieldProblem, ...]:
    """The call with these arguments, or all their problems; without limits those of the Delegate tool apply."""
    problems: list[FieldProblem] = []
    kind = DelegateArguments if limits is None else OwnCallArguments
    call = read_arguments(kind, arguments, problems, readers=_READERS)
    if call is None:
        return tuple(problems)
    if limits is not None:
        problems += limits.problems(call)
    for index, task in enumerate(call.tasks):
        _check_without_asking(task, f"tasks[{index}]", problems)
    tasks = tuple(map(_task, call.tasks))
    return tuple(problems) or DelegateCall(tasks=tasks, concurrency=call.concurrency, result_form=call.result_form)


def task_problems(task: TaskFields, where: str) -> tuple[FieldProblem, ...]:
    """Every problem of a task that a program made, by the rules of the Delegate tool."""
    problems: list[FieldProblem] = []
    fields = {name: getattr(task, name) for name in TaskFields.__struct_fields__}
    if read_arguments(TaskFields, fields, problems, where, readers=_READERS) is not None:
        _check_without_asking(task, where, problems)
    return tuple(problems)


def _check_without_asking(task: TaskFields, where: str, problems: list[FieldProblem]) -> None:
    if unknown := [name for name in task.without_asking if name not in (task.tools or ())]:
        problems.append(FieldProblem(f"{where}.without_asking", f"has {unknown[0]!r:.80}, which is not in `tools`"))


def _task(given: TaskArguments) -> Task:
    fields = {name: getattr(given, name) for name in TaskFields.__struct_fields__}
    return Task(**fields, budget=given.budget.caps, schema=given.schema)


def _read_cost(value: object) -> tuple[float | None, str]:
    cost, problem = number(MAX_COST, above=0)(value)
    return cost, problem and f"a number of US dollars above 0 and at most {MAX_COST:,} (0.5 is 50 cents)"


_READERS: Mapping[str, Reader] = {"label": read_label, "cost": _read_cost}


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
    base: str = ""
    """The commit at which its worktree begins; empty is that which is checked out."""
    routing: Routing = Routing()
    degradation: str = ""
    subtask: Briefing | None = None
    index: int = 0
    total: int = 1
    must_ask: bool = False
    """Whether a person must approve the run before it does anything."""
    cost: str = ""
    """The cost bound that the approval shows."""


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
