"""Approval requests: the whole call, its caller, risk, cost and digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import MsgspecError, Raw, Struct, json, to_builtins

from deputy.core.limits import Budget, dollars_text, exact, priced
from deputy.core.request import ALWAYS_GRANTED, READ_ONLY_TOOLS, Grant
from deputy.core.task import DELEGATING_TOOLS, RUN_TOOL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deputy.core.task import Task

Risk: TypeAlias = Literal["low", "medium", "high"]
Choice: TypeAlias = Literal["yes", "no", "always"]


class ApprovalPart(Struct, frozen=True, kw_only=True):
    """One field of a call, as text."""

    name: str
    text: str


class FileDigest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file at the time of an approval request; no digest means that the file did not exist."""

    path: str
    sha256: str = ""
    bytes: int = 0
    problem: str = ""
    identity: str = ""
    """Of a folder: its device and number."""


class ApprovalRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person approves. A decision names the key and the digest, and is valid for nothing else."""

    tool: str
    title: str
    parts: tuple[ApprovalPart, ...]
    """Every field of the call, in the order of the tool's schema."""
    risk: Risk
    call: str = ""
    """The SHA-256 digest of the arguments as canonical JSON."""
    files: tuple[FileDigest, ...] = ()
    """The files that the call reads or changes, at the time of the request."""
    cost: str = ""
    key: str = ""
    """The key of the run's record that holds the question."""
    session_id: str = ""
    path: tuple[str, ...] = ()
    label: str = ""
    folder: str = ""
    """The working directory of the call."""
    folder_id: str = ""
    """The identity of that directory: another one in its place makes another request."""
    can_always: bool = False
    """Whether a person may approve every later call of this tool in this run."""

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each file, by its path."""
        return {file.path: file.sha256 for file in self.files}

    @property
    def digest(self) -> str:
        """The SHA-256 digest of this request as canonical JSON."""
        return _sha256(json.encode(self, order="sorted"))


class Decision(Struct, frozen=True, kw_only=True):
    """A person's answer to an approval request: the choice, and the digest of the request."""

    choice: Choice
    digest: str


class Question(Struct, frozen=True, kw_only=True):
    """A question of a run: an approval (`approval`), or a question in words (`answer`)."""

    session_id: str
    label: str
    topic: str
    text: str
    """The question in words; for an approval its full text, with invisible characters shown."""
    request: ApprovalRequest | None = None
    """The request of an approval."""
    digest: str = ""
    """The digest of the request, which the answer must name."""


Answerer: TypeAlias = Callable[[Question], Awaitable[bool | str | Decision]]
"""Answers questions: a prompt at a terminal, or a program's own rules.

To an approval it returns True, False or a `Decision` with the request's digest; to a question in words the answer, or
False for no answer.
"""


def read_decision(body: Raw | bytes, digest: str) -> Choice:
    """The choice for the request with this digest; everything but a valid yes to exactly this request is a no."""
    try:
        decision = json.decode(body, type=Decision)
    except MsgspecError:
        return "no"
    return decision.choice if decision.digest == digest else "no"


def call_parts(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[ApprovalPart, ...]:
    """Every argument of a call: those of the schema in its order, then the others."""
    known = [name for name in schema.get("properties", {}) if name in arguments]
    others = [name for name in arguments if name not in known]
    names = {**{name: name for name in known}, **{name: f"{whole_text(name)} (not in the schema)" for name in others}}
    return tuple(ApprovalPart(name=shown, text=value_text(arguments[name])) for name, shown in names.items())


def value_text(value: Any) -> str:
    """An argument as text: a string unchanged, other values as JSON."""
    from json import dumps

    text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
    return whole_text(text)


def whole_text(text: str) -> str:
    """The text with lone surrogates escaped, so that it can be encoded."""
    return text.encode(errors="backslashreplace").decode()


def call_digest(arguments: Any) -> str:
    """The SHA-256 digest of arguments as canonical JSON."""
    from json import dumps

    return _sha256(dumps(arguments, sort_keys=True, separators=(",", ":")).encode())


def tools_risk(tools: Collection[str] | None) -> Risk:
    """The risk of starting a subagent with these tools: high if one of them can change something."""
    changing = set(tools or ()) - READ_ONLY_TOOLS - ALWAYS_GRANTED - DELEGATING_TOOLS
    return "high" if changing else "medium"


# --- the approval of subagents ----------------------------------------------------------------------------------------


def spawn_request(
    tasks: Sequence[Task],
    *,
    tool: str,
    model: str,
    cost: str,
    concurrency: int,
    files: Sequence[FileDigest] = (),
    more: Sequence[ApprovalPart] = (),
    grant: Grant | None = None,
) -> ApprovalRequest:
    """The approval request for a call: every prompt and every permission of its tasks, within the caller's grant."""
    fields = [_task_fields(task, model, files, grant or Grant()) for task in tasks]
    parts: list[ApprovalPart] = []
    common: dict[str, str] = {}
    if len(tasks) > 1:
        shared = [name for name in fields[0] if name not in ("label", "prompt") and fields[0][name]]
        common = {name: fields[0][name] for name in shared if len({each[name] for each in fields}) == 1}
        parts.append(ApprovalPart(name="tasks", text=whole_text(", ".join(task.label for task in tasks))))
        parts += [ApprovalPart(name=f"all tasks {name}", text=whole_text(text)) for name, text in common.items()]
    for number, each in enumerate(fields, 1):
        own = ((name, text) for name, text in each.items() if text and name not in common)
        parts += [ApprovalPart(name=f"task {number} {name}", text=whole_text(text)) for name, text in own]
    if len(tasks) > 1:
        parts.append(ApprovalPart(name="at once", text=f"{min(concurrency, len(tasks))} of {len(tasks)}"))
    parts += more
    risks = [tools_risk(task.tools) for task in tasks]
    return ApprovalRequest(
        tool=tool,
        title=f"Start {len(tasks)} subagent{'s' * (len(tasks) != 1)}",
        parts=tuple(parts),
        risk="high" if "high" in risks else "medium",
        call=call_digest([to_builtins(task, order="sorted") for task in tasks]),
        files=tuple(files),
        cost=cost,
    )


def backend_parts(backends: str) -> tuple[ApprovalPart, ...]:
    """The backends of a call, as the last part of its request."""
    return (ApprovalPart(name="backends", text=whole_text(backends)),) if backends else ()


def resume_request(
    label: str, message: str | None, *, model: str, budget: Budget, tools: Collection[str]
) -> ApprovalRequest:
    """The approval request for resuming a finished run."""
    said = "(none: the run continues where it stopped)" if message is None else whole_text(message)
    caps = ", ".join(priced(name, getattr(budget, name)) for name in budget.capped)
    parts = (
        ApprovalPart(name="run", text=whole_text(label)),
        ApprovalPart(name="message", text=said),
        ApprovalPart(name="model", text=whole_text(model)),
        *((ApprovalPart(name="budget", text=caps),) if caps else ()),
        ApprovalPart(name="tools", text=", ".join(map(whole_text, sorted(tools))) or "none"),
    )
    risk = tools_risk(tools)
    call = call_digest([label, message, model, caps, sorted(tools)])
    return ApprovalRequest(tool="resume", title="Resume a finished run", parts=parts, risk=risk, call=call)


def _task_fields(task: Task, model: str, files: Sequence[FileDigest], grant: Grant) -> dict[str, str]:
    """What is shown of a task; empty fields are not."""
    return {
        "label": task.label,
        "prompt": task.prompt,
        "context": _context_text(task, files),
        "model": task.model or model,
        "agent": _agent_text(task),
        "tools": ", ".join(task.tools) if task.tools is not None else "read-only",
        "without asking": _without_asking_text(task),
        "works": _place_text(task, grant),
        "limits": _limits_text(task),
        "returns": "" if task.return_format == "text" else task.return_format,
        "schema": "" if task.schema is None else value_text(task.schema),
        "if no subagent is available": task.degradation,
    }


def _agent_text(task: Task) -> str:
    """The agent with the digest of its definition, which the digest of the call covers too."""
    if task.role is None:
        return task.agent or ""
    definition = json.encode(task.role, order="sorted")
    return f"{task.agent or task.role.name} (definition: SHA-256 {_sha256(definition)})"


def _context_text(task: Task, files: Sequence[FileDigest]) -> str:
    known = {file.path: file for file in files}
    return "\n".join(file_text(known.get(path, FileDigest(path=path))) for path in task.context)


def file_text(file: FileDigest) -> str:
    """A context file with its size and digest, on one line: a name cannot pass for a second file."""
    name = file.path.replace("\n", "⏎")
    if file.problem or not file.sha256:
        return f"{name}: not included: {file.problem or 'the file cannot be read'}"
    return f"{name} ({file.bytes:,} bytes, SHA-256 {file.sha256})"


_IN_WORDS = {
    "Run": "may run commands without asking",
    "Write": "may write files without asking",
    "Edit": "may edit files without asking",
}


def _without_asking_text(task: Task) -> str:
    return ", ".join(_IN_WORDS.get(name, f"may use {name} without asking") for name in task.without_asking)


def _place_text(task: Task, grant: Grant) -> str:
    """Where the task works, and what it can change there."""
    if tools_risk(task.tools) != "high":
        return ""
    place = "in place" if task.isolation == "none" else "in a git worktree of its own"
    # A command that is run is not bound to the writable folders.
    if grant.writable is not None and RUN_TOOL not in (task.tools or ()):
        return f"{place}: writes only in {', '.join(grant.writable)}" if grant.writable else f"{place}: writes no file"
    if task.isolation == "none":
        return f"{place}: changes your files"
    return f"{place}; documents in {grant.work_folder}" if grant.work_folder else place


def _limits_text(task: Task) -> str:
    budget = task.budget
    limits = [
        "no time limit" if task.timeout is None else f"at most {task.timeout:g} s",
        f"{task.max_output_tokens:,} tokens of output",
        *([f"{budget.tokens:,} tokens"] if budget.tokens is not None else []),
        *([f"{budget.requests:,} requests"] if budget.requests is not None else []),
        *([f"at most {dollars_text(budget.cost)}"] if budget.cost is not None else []),
    ]
    return ", ".join(limits)


# --- what it can cost -------------------------------------------------------------------------------------------------


class PriceBounds(Struct, frozen=True):
    """A model's known prices: the maximum cost of input and output tokens, and the context window."""

    ceiling: Callable[[int, int], float | None]
    window: int | None = None

    @property
    def are_known(self) -> bool:
        """Whether a cost cap can be enforced: the cost of a call is reserved before the call."""
        return self.ceiling(1, 1) is not None


class Ceiling(Struct, frozen=True, kw_only=True):
    """The maximum cost of a call: the sum of the bounded costs, and the number of unbounded ones."""

    dollars: float = 0.0
    unbounded: int = 0
    """The number of subagents without a bound on their cost."""
    unpriced: int = 0

    @property
    def text(self) -> str:
        """The maximum for people; an unknown cost is never shown as free."""
        bounded = f"at most {dollars_text(_rounded_up(self.dollars))}" if self.dollars else "free"
        if not self.unbounded:
            return bounded
        reason = "no price for the model" if self.unpriced else "set a budget to limit it"
        if not self.dollars:
            return f"unknown ({reason})" if self.unpriced else f"unlimited ({reason})"
        return f"{bounded} for some, no limit for {self.unbounded} ({reason})"


def cost_ceiling(tasks: Sequence[Task], prices_of: Callable[[Task], PriceBounds], left: float | None = None) -> Ceiling:
    """The maximum cost of all tasks; `left` is the rest of the caller's budget, if it has one."""
    dollars, unbounded, unpriced = 0.0, 0, 0
    for task in tasks:
        prices = prices_of(task)
        most = most_cost(task, prices)
        dollars = exact(dollars + (most or 0))
        unbounded += most is None
        unpriced += most is None and not prices.are_known
    if left is not None and (unbounded or dollars > left):
        return Ceiling(dollars=max(0.0, left))
    return Ceiling(dollars=dollars, unbounded=unbounded, unpriced=unpriced)


def _rounded_up(dollars: float) -> float:
    """A bound to the places that are shown, never below itself."""
    places = 2 if dollars >= 0.01 else 4
    return ceil(exact(dollars * 10**places)) / 10**places


def cost_not_bounded(model: str) -> str:
    """The problem and remedy for a cost cap on a model without a price."""
    return (
        f"no price is known for {model}, so its cost cannot be capped: cap `tokens` or `requests` instead, "
        "or name a model that has a price (`deputy models` lists them)"
    )


def most_cost(task: Task, prices: PriceBounds) -> float | None:
    """The maximum cost of one task; None if neither its budget nor its prices bound it."""
    budget, price = task.budget, prices.ceiling
    if price(1_000_000, 1_000_000) == 0:
        return 0
    bounds = [budget.cost]
    if budget.tokens is not None:
        # The worst split of the tokens between input and output.
        prices_of_all = (price(budget.tokens, 0), price(0, budget.tokens))
        bounds.append(None if None in prices_of_all else max(cost for cost in prices_of_all if cost is not None))
    if budget.requests is not None and prices.window is not None:
        one = price(prices.window, task.max_output_tokens)
        bounds.append(None if one is None else exact(one * budget.requests))
    return min((bound for bound in bounds if bound is not None), default=None)


def _sha256(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()
