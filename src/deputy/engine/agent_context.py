"""What one subagent works with: its model, its tools, its purse and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field, json, structs

from deputy.core.conversation import GenerationSettings, Toolset, ToolSpec
from deputy.core.fallback import Routing
from deputy.core.limits import final_turn_seconds
from deputy.core.progress import Progress
from deputy.core.provider_keys import ProviderKeys
from deputy.core.redaction import Redactor
from deputy.core.request import Grant
from deputy.engine.budget import BudgetLedger
from deputy.engine.history import CHARACTERS_PER_TOKEN, SUBTASK, History
from deputy.engine.ports import Backends, FlowTool, Folder, Model, Tool, Tools
from deputy.engine.ports.subtask_services import Subtasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.conversation import OutputSchema
    from deputy.core.outcome import Usage
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services

_RUN = "Run"
"""The tool that starts programs."""
Approval = Literal["granted", "ask", "refuse"]
"""What happens when a tool needs approval: it was given before, a person is asked, or nobody can be."""


class ToolCatalog:
    """Tools as models are told of them: made once for all who have the same, and encoded once with it."""

    def __init__(self, tools: tuple[Tool | FlowTool, ...], keys: ProviderKeys) -> None:
        self.tools = tools
        # The texts of an MCP server's tools are written by that server: they may hold a key.
        specs = [ToolSpec(name=tool.name, description=tool.description, parameters=tool.schema) for tool in tools]
        text = json.encode(specs)
        masked = keys.mask_json(text)
        self.toolset = Toolset(specs if masked is text else json.decode(masked, type=list[ToolSpec]))
        size = sum(len(spec.description) + len(json.encode(spec.parameters)) for spec in self.toolset.items)
        self.tokens = size // CHARACTERS_PER_TOKEN
        """About how many of them it takes in every request."""


class AgentContext(Struct, frozen=True, kw_only=True):
    """What one subagent works with."""

    label: str
    model: Model
    asked: str
    """The model's name as it was asked for: an alias says more than what it stands for."""
    grant: Grant
    tools: Tools
    folder: Folder
    root: str
    """The directory it works in, where that is not the workspace."""
    flow_tools: Mapping[str, FlowTool]
    offer: ToolCatalog
    ledger: BudgetLedger
    settings: GenerationSettings
    emit: Callable[[Progress], None]
    redactor: Redactor
    keys: ProviderKeys
    clock: Callable[[], float]
    random_string: Callable[[str, int], str]
    """So many letters at random, for what nobody may guess."""
    max_cost_nanos: Callable[[int, int], int | None]
    """The most that so many tokens in and out can cost; None where no price is known."""
    seconds: float | None = None
    window: int | None = None
    approval: Approval = "granted"
    without_asking: frozenset[str] = frozenset()
    """Tools whose every call was approved with the task, in words."""
    always: set[str] = field(default_factory=set[str])
    """The tools that a person has chosen "always" for in this round of this run."""
    can_ask: bool = False
    history: History | None = None
    """What has been said, while it is at work."""
    subtasks: Subtasks | None = None
    """What its requests for subtasks are carried out with; None where it may not ask for any."""
    repairs: int = 1
    routing: Routing = Routing()
    """Which ways those may go to whom it hands work on."""
    backends: Backends | None = None
    """The ways that there are beside our own loop."""

    def toolset(self) -> Toolset:
        """The tools as the model is told of them."""
        return self.offer.toolset

    def overhead(self) -> int:
        """About how many tokens the tools' definitions take in every request."""
        return self.offer.tokens

    def emit_tokens(self, usage: Usage) -> None:
        """Tell who watches what it has used by now."""
        self.emit(
            Progress(
                event="tokens",
                label=self.label,
                input=usage.input,
                output=usage.output,
                cost=usage.cost,
                estimated=usage.estimated,
            )
        )

    def soft_deadline(self, run: RunContext) -> float | None:
        """When the last turn must begin, so that it has its time inside the limit."""
        deadline, began = self.deadline(run), run.state.started_clock
        if deadline is None or began is None:
            return deadline
        # What its caller left it may be less than the limit of its own, or all that there is.
        left = deadline - began
        return deadline - final_turn_seconds(max(0.0, left if self.seconds is None else min(left, self.seconds)))

    def seconds_left(self, run: RunContext) -> float | None:
        """How long there is until the last turn must begin, never nothing; None is for ever."""
        soft = self.soft_deadline(run)
        return None if soft is None else max(0.001, soft - self.clock())

    def deadline(self, run: RunContext) -> float | None:
        """When it must be over; waiting for a person moves it."""
        lineage = run.state.lineage
        return None if lineage is None else lineage.deadline


async def open_agent(
    run: RunContext,
    services: Services,
    *,
    label: str,
    model: str,
    grant: Grant,
    flow_tools: Sequence[FlowTool],
    output_tokens: int,
    output: OutputSchema | None = None,
    root: str = "",
    parent: str | None = None,
    routing: Routing | None = None,
    opened: Model | None = None,
    without_asking: frozenset[str] = frozenset(),
) -> AgentContext:
    """A desk in this workshop for a run, which pays from its own purse and from its parent's."""
    opened = services.open_model(model) if opened is None else opened
    tools = services.open_tools(grant, root)

    def emit(progress: Progress) -> None:
        if run.is_replaying:
            return
        services.emit(run, progress)

    ledger = await services.open_ledger(run, grant.budget, parent)
    if _RUN in grant.tools:
        ledger.note_programs()
    return AgentContext(
        label=label,
        model=opened,
        asked=model,
        grant=grant,
        tools=tools,
        folder=services.files.open(grant, root),
        root=root,
        flow_tools={tool.name: tool for tool in flow_tools},
        offer=services.offer((*tools.definitions(), *flow_tools)),
        ledger=ledger,
        settings=GenerationSettings(max_output_tokens=output_tokens, thinking=services.thinking(model), output=output),
        emit=emit,
        redactor=services.redactor,
        keys=services.keys,
        clock=services.world.now,
        random_string=services.world.random_string,
        max_cost_nanos=partial(services.max_cost_nanos, model),
        seconds=run.state.seconds,
        window=services.window(model, opened),
        approval=services.approval,
        without_asking=without_asking,
        can_ask=services.can_ask,
        subtasks=services.subtasks if any(tool.name == SUBTASK for tool in flow_tools) else None,
        repairs=services.policy.repairs,
        routing=routing or Routing(),
        backends=services.backends,
    )


def with_model(agent: AgentContext, services: Services, name: str, model: Model) -> AgentContext:
    """The same desk for another model."""
    return structs.replace(
        agent,
        model=model,
        asked=name,
        settings=structs.replace(agent.settings, thinking=services.thinking(name)),
        max_cost_nanos=partial(services.max_cost_nanos, name),
        window=services.window(name, model),
    )
