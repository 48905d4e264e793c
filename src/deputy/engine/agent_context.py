"""The context of one agent: model, tools, budget and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field, json, structs

from deputy.core.conversation import GenerationSettings, Toolset, ToolSpec
from deputy.core.fallback import Routing
from deputy.core.limits import FINAL_TURN_SECONDS, final_turn_seconds
from deputy.core.progress import Progress
from deputy.core.provider_keys import ProviderKeys
from deputy.core.redaction import Redactor
from deputy.core.request import Grant
from deputy.engine.compact_profile import short_parameters
from deputy.engine.history import CHARACTERS_PER_TOKEN, SUBTASK, History
from deputy.engine.ports import Backends, FlowTool, Folder, Model, Tool, Tools
from deputy.engine.ports.budgets import Ledger
from deputy.engine.ports.subtask_services import Subtasks
from deputy.engine.timeouts import SharedTimer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.conversation import OutputSchema
    from deputy.core.outcome import Usage
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services

_RUN = "Run"
"""The tool that starts processes."""
Approval = Literal["granted", "ask", "refuse"]
"""The approval policy: granted in advance, ask a person, or refuse."""


class ToolCatalog:
    """Tool definitions, encoded once for all agents with the same tools."""

    def __init__(self, tools: tuple[Tool | FlowTool, ...], keys: ProviderKeys, *, is_compact: bool = False) -> None:
        self.tools = tools
        # Tool descriptions of an MCP server are written by that server and may contain a key.
        specs = [
            ToolSpec(
                name=tool.name,
                description=tool.description,
                parameters=short_parameters(tool) if is_compact else tool.schema,
            )
            for tool in tools
        ]
        text = json.encode(specs)
        masked = keys.mask_json(text)
        self.toolset = Toolset(specs if masked is text else json.decode(masked, type=list[ToolSpec]))
        self.names = tuple(spec.name for spec in self.toolset.items)
        size = sum(len(spec.description) + len(json.encode(spec.parameters)) for spec in self.toolset.items)
        self.tokens = size // CHARACTERS_PER_TOKEN
        """The approximate tokens of the definitions in every request."""


class AgentContext(Struct, frozen=True, kw_only=True):
    """The context of one agent."""

    label: str
    model: Model
    asked: str
    """The requested model name, possibly an alias."""
    grant: Grant
    tools: Tools
    folder: Folder
    root: str
    """The working directory, if it is not the workspace."""
    flow_tools: Mapping[str, FlowTool]
    offer: ToolCatalog
    ledger: Ledger
    settings: GenerationSettings
    emit: Callable[[Progress], None]
    redactor: Redactor
    keys: ProviderKeys
    timer: SharedTimer
    clock: Callable[[], float]
    random_string: Callable[[str, int], str]
    """Draws unguessable strings."""
    max_cost: Callable[[int, int], float | None]
    """The maximum cost of this many input and output tokens in dollars; None if no price is known."""
    seconds: float | None = None
    window: int | None = None
    approval: Approval = "granted"
    without_asking: frozenset[str] = frozenset()
    """Tools approved in advance with the task."""
    always: set[str] = field(default_factory=set[str])
    """Tools for which a person chose "always" in this round, since this process runs it."""
    can_ask: bool = False
    history: History | None = None
    """The history, while the loop runs."""
    subtasks: Subtasks | None = None
    """The subtask services; None if the agent may not request subtasks."""
    is_compact: bool = False
    """Whether it has the short prompt and few tools, for a small model."""
    task: str = ""
    must_look: bool = False
    """Whether its task is about the workspace, of which it knows nothing before it has looked."""
    repairs: int = 1
    routing: Routing = Routing()
    backends: Backends | None = None

    def toolset(self) -> Toolset:
        """The tool definitions for the model."""
        return self.offer.toolset

    @property
    def held(self) -> tuple[str, ...]:
        """The names of all its tools."""
        return self.offer.names

    def overhead(self) -> int:
        """The approximate tokens of the tool definitions."""
        return self.offer.tokens

    def emit_tokens(self, usage: Usage) -> None:
        """Show the usage to watchers."""
        self.emit(
            Progress(
                event="tokens",
                label=self.label,
                input=usage.input,
                output=usage.output,
                cost=usage.cost,
                estimated=usage.estimated,
                model=self.model.name,
            )
        )

    def soft_deadline(self, run: RunContext) -> float | None:
        """When the final turn must begin to fit into the time limit."""
        deadline = self.deadline(run)
        if deadline is None:
            return None
        # Counted from the request: when the first turn begins, the start may not be written yet.
        # The caller's deadline may leave less than the run's own limit.
        left = deadline - run.state.asked_clock
        return deadline - final_turn_seconds(max(0.0, left if self.seconds is None else min(left, self.seconds)))

    def seconds_left(self, run: RunContext) -> float | None:
        """The seconds until the final turn, always positive; None if there is no limit."""
        soft = self.soft_deadline(run)
        return None if soft is None else max(0.001, soft - self.clock())

    def deadline(self, run: RunContext) -> float | None:
        """When the run must end; waiting for a person extends it."""
        return run.lineage.deadline

    def final_turn_seconds(self, run: RunContext) -> float:
        """The time limit of the final turn."""
        deadline = self.deadline(run)
        return FINAL_TURN_SECONDS if deadline is None else max(0.001, min(FINAL_TURN_SECONDS, deadline - self.clock()))


async def open_agent(
    run: RunContext,
    services: Services,
    *,
    label: str,
    model: str,
    opened: Model,
    window: int | None,
    grant: Grant,
    flow_tools: Sequence[FlowTool],
    output_tokens: int,
    output: OutputSchema | None = None,
    root: str = "",
    parent: str | None = None,
    routing: Routing | None = None,
    without_asking: frozenset[str] = frozenset(),
    is_compact: bool = False,
    task: str = "",
    must_look: bool = False,
    hidden: frozenset[str] = frozenset(),
) -> AgentContext:
    """Open the context of an agent, with a ledger below its parent's; `hidden` tools are not offered to the model."""
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
        offer=services.offer(
            (*(tool for tool in tools.definitions() if tool.name not in hidden), *flow_tools), is_compact=is_compact
        ),
        ledger=ledger,
        settings=GenerationSettings(
            # A small window must have room for more than one answer.
            max_output_tokens=output_tokens if window is None else min(output_tokens, max(1, window // 4)),
            thinking=services.thinking(model),
            output=output,
        ),
        emit=emit,
        redactor=services.redactor,
        keys=services.keys,
        timer=services.timer,
        clock=services.world.now,
        random_string=services.world.random_string,
        max_cost=partial(services.max_cost, model),
        seconds=run.state.seconds,
        window=window,
        approval=services.approval,
        without_asking=without_asking,
        always=services.always_allowed(run.run, run.state.round),
        can_ask=services.can_ask,
        subtasks=services.subtasks if any(tool.name == SUBTASK for tool in flow_tools) else None,
        is_compact=is_compact,
        task=task,
        must_look=must_look,
        repairs=services.policy.repairs,
        routing=routing or Routing(),
        backends=services.backends,
    )


async def with_model(run: RunContext, agent: AgentContext, services: Services, name: str, model: Model) -> AgentContext:
    """The same context with another model."""
    window = agent.window if name == agent.asked else await services.window(run, name, model)
    return structs.replace(
        agent,
        model=model,
        asked=name,
        settings=structs.replace(agent.settings, thinking=services.thinking(name)),
        max_cost=partial(services.max_cost, name),
        window=window,
    )
