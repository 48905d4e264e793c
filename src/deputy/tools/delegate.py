"""Delegate: give tasks to subagents."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from deputy.core.approval import cost_ceiling, spawn_request
from deputy.core.fallback import ONLY_A_PERSON, is_script
from deputy.core.field_readers import FieldProblem
from deputy.core.guard import Policy
from deputy.core.outcome import Rejected
from deputy.core.results import results_dict, results_markdown
from deputy.core.task import DELEGATING_TOOLS, DelegateArguments, DelegateCall, NoRole, Role, in_role, read_call
from deputy.core.tool_arguments import arguments_schema, short_schema
from deputy.core.visible_text import visible_json
from deputy.engine.approvals import ask_person, policy_for, warn_refused
from deputy.engine.fanout import fan_out, ids_key
from deputy.engine.model_availability import why_unreachable
from deputy.engine.ports import Agents, ToolOutput, ToolTraits
from deputy.tools.struct_tool import described

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

    from deputy.core.approval import ApprovalRequest, PriceBounds
    from deputy.core.conversation import ToolCall
    from deputy.core.fallback import Routing
    from deputy.core.request import Grant
    from deputy.core.task import Task
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext

_DENIED = (
    "The person did not approve this. Nothing was started and nothing was spent. "
    "Do the work yourself, or report without it."
)
_FOR_PROGRAMS = ("max_output_tokens", "return_format", "return", "without_asking")
_NO_APPROVER = (
    "Starting subagents needs approval, and no person can be asked here. Nothing was started. "
    "Do the work yourself, or report without it."
)


class DelegateTool:
    """One call, one approval, and one result per task in the order of the tasks."""

    name = "Delegate"
    is_granted = True
    traits = ToolTraits(reads_only=False, repeatable=False, needs_approval=True, risk="medium")

    def __init__(
        self,
        missing_key: Callable[[str], str | None],
        prices_of: Callable[[str], PriceBounds],
        agents: Agents | None = None,
        has_program: Callable[[str], Awaitable[bool]] | None = None,
        *,
        max_depth: int = Policy().max_depth,
    ) -> None:
        self._max_depth = max_depth
        self._missing_key = missing_key
        self._prices_of = prices_of
        self._agents = agents
        self._has_program = has_program
        self._schema: dict[str, Any] | None = None

    @property
    def description(self) -> str:
        """The text of `delegate.md`."""
        return described(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its arguments, with the names of the available agents."""
        if self._schema is None:
            names = () if self._agents is None else self._agents.names()
            self._schema = arguments_for_models(names)
        return self._schema

    async def run(self, call: ToolCall, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Check the call, have it approved, and fan it out."""
        asked = read_wanted(call.arguments)
        if not isinstance(asked, DelegateCall):
            return _problems_error(asked)
        for number in count(1):
            wanted = await self._resolved(asked, _numbered(f"{key}:agents", number), run, agent.grant)
            if not isinstance(wanted, DelegateCall):
                return _problems_error(wanted)
            unreachable = await self._unreachable(wanted, _numbered(key, number), run, agent)
            if unreachable:
                return _error(unreachable)
            approved = await self._approved(wanted, key, number, run, agent)
            if isinstance(approved, str):
                return _error(approved)
            if approved is not None:
                return await self._delegated(wanted, key, run, agent, approved)
        raise AssertionError("the loop ends with a result")

    async def _delegated(
        self, wanted: DelegateCall, key: str, run: RunContext, agent: AgentContext, approved: dict[str, str]
    ) -> ToolOutput:
        results = await fan_out(
            run,
            key,
            wanted.tasks,
            concurrency=wanted.concurrency,
            model=agent.asked,
            grant=agent.grant,
            root=agent.root,
            routing=_below(agent.routing),
            context_digests=approved,
        )
        is_json = wanted.result_form == "json"
        text = visible_json(results_dict(results)).decode() if is_json else results_markdown(results)
        refused = [one.outcome.errors[0].message for one in results if isinstance(one.outcome, Rejected)]
        has_failed = len(refused) == len(results)
        return ToolOutput(text=text, is_error=has_failed, reason=refused[0] if has_failed else "")

    async def _unreachable(self, wanted: DelegateCall, key: str, run: RunContext, agent: AgentContext) -> str:
        models = [task.model or agent.asked for task in wanted.tasks]
        capped = {
            model: f"tasks[{index}].budget.cost"
            for index, (model, task) in enumerate(zip(models, wanted.tasks, strict=True))
            if task.budget.cost is not None
        }
        return await why_unreachable(
            run, key, models, self._missing_key, self._has_program, capped=capped, prices_of=self._prices_of
        )

    async def _resolved(
        self, wanted: DelegateCall, key: str, run: RunContext, grant: Grant
    ) -> DelegateCall | tuple[FieldProblem, ...]:
        """The call with the current roles of the agents that its tasks name; a replay uses the recorded roles."""
        names = tuple(dict.fromkeys(task.agent for task in wanted.tasks if task.agent is not None))
        if not names:
            return wanted
        found = await run.value(key, dict[str, FoundAgent], _find, names, self._agents, step="agents")
        problems = [
            FieldProblem(f"tasks[{index}].agent", f"is {task.agent!r:.80}: {found[task.agent].reason}")
            for index, task in enumerate(wanted.tasks)
            if task.agent is not None and found[task.agent].role is None
        ]
        if problems:
            return tuple(problems)
        roles = {name: one.role for name, one in found.items()}
        tasks = tuple(
            task if (role := roles.get(task.agent or "")) is None else in_role(task, role, grant)
            for task in wanted.tasks
        )
        return structs.replace(wanted, tasks=tasks)

    async def _approved(
        self, wanted: DelegateCall, key: str, number: int, run: RunContext, agent: AgentContext
    ) -> dict[str, str] | str | None:
        """The approved digests of the context files, or why nothing may start; None if an agent has changed since."""
        # At the maximum depth there is nothing to approve: the guard refuses every task.
        is_lowest = run.lineage.depth >= run.lineage.depth_limit(self._max_depth)
        if self.name in agent.without_asking or is_lowest:
            return {}
        match policy_for(run, _approval_key(key, number), agent.approval, begun=ids_key(key), ended=(key,)):
            case "granted":
                return {}
            case "refuse":
                warn_refused(agent.history, f"{self.name} of {len(wanted.tasks)} tasks")
                return _NO_APPROVER
            case "ask":
                return await self._asked(wanted, key, number, run, agent)

    async def _asked(
        self, wanted: DelegateCall, key: str, number: int, run: RunContext, agent: AgentContext
    ) -> dict[str, str] | str | None:
        await agent.ledger.refresh()
        left = agent.ledger.remaining("cost")
        cost = cost_ceiling(wanted.tasks, lambda task: self._prices_of(task.model or agent.asked), left).text
        paths = tuple(dict.fromkeys(path for task in wanted.tasks for path in task.context))

        async def make() -> ApprovalRequest:
            return spawn_request(
                wanted.tasks,
                tool=self.name,
                model=agent.asked,
                cost=cost,
                concurrency=wanted.concurrency,
                files=await agent.folder.digests(paths),
                grant=agent.grant,
            )

        begun = ids_key(key)
        verdict = await ask_person(
            run,
            _approval_key(key, number),
            make,
            begun=begun,
            emit=agent.emit,
            approval=agent.approval,
            folder=agent.folder,
        )
        if not verdict.is_yes:
            return _DENIED
        was_changed = run.has_record(_numbered(f"{key}:agents", number + 1))
        if was_changed or (not run.has_record(begun) and await self._has_changed(wanted)):
            return None
        return verdict.request.digests

    async def _has_changed(self, wanted: DelegateCall) -> bool:
        """Whether the definition of an agent differs from the approved one."""
        roles = {task.agent: task.role for task in wanted.tasks if task.agent is not None}
        return any([self._agents is None or await self._agents.find(name) != role for name, role in roles.items()])


class FoundAgent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The role of an agent, or the reason why there is none."""

    role: Role | None = None
    reason: str = ""


async def _find(names: Sequence[str], agents: Agents | None) -> dict[str, FoundAgent]:
    found: dict[str, FoundAgent] = {}
    for name in names:
        match NoRole(reason="no agents can be used here") if agents is None else await agents.find(name):
            case Role() as role:
                found[name] = FoundAgent(role=role)
            case NoRole(reason=reason):
                found[name] = FoundAgent(reason=reason)
    return found


def _numbered(key: str, number: int) -> str:
    return key if number == 1 else f"{key}.{number}"


def _approval_key(key: str, number: int) -> str:
    """The key of the n-th question: `ask_person` numbers its own repeats with a dot."""
    return f"{key}:approval" if number == 1 else f"{key}:approval:{number}"


def _below(routing: Routing) -> Routing:
    """The routing of subagents: a task that no backend can do is returned to the caller."""
    return routing if routing.inline == "never" else structs.replace(routing, inline="parent")


def arguments_for_models(names: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of the arguments, with the agents' names in the description of `agent`."""
    schema = short_schema(arguments_schema(DelegateArguments), _FOR_PROGRAMS)
    if names:
        agent = schema["properties"]["tasks"]["items"]["properties"]["agent"]
        agent["description"] = f"{agent['description']} Agents: {', '.join(names)}."
    return schema


def read_wanted(
    arguments: object, refused: Collection[str] = DELEGATING_TOOLS
) -> DelegateCall | tuple[FieldProblem, ...]:
    """The call in a model's arguments, or every problem with them; its tasks may not name the refused tools."""
    wanted = read_call(arguments)
    if not isinstance(wanted, DelegateCall):
        return wanted
    problems = [problem for index, task in enumerate(wanted.tasks) for problem in _problems(index, task, refused)]
    return tuple(problems) or wanted


def _problems(index: int, task: Task, refused: Collection[str]) -> Iterator[FieldProblem]:
    # Only an agent's definition can grant recursion, never the calling model.
    for name in task.tools or ():
        if name in refused:
            yield FieldProblem(f"tasks[{index}].tools", f"names {name}, which only an agent's definition can grant")
    if task.model is not None and is_script(task.model):
        yield FieldProblem(f"tasks[{index}].model", f"is {task.model!r:.80}: {ONLY_A_PERSON}")


def problems_text(problems: Sequence[FieldProblem]) -> str:
    """The problems of a call, for the model that made it."""
    return "\n".join(f"{problem.field} {problem.message}." for problem in problems)


def _problems_error(problems: Sequence[FieldProblem]) -> ToolOutput:
    return _error(problems_text(problems))


def _error(text: str) -> ToolOutput:
    return ToolOutput(text=text, is_error=True)
