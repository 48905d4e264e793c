"""What one subagent works with: its model, its tools, its purse and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field, json, structs

from deputy.core.conversation import ModelSettings, Toolset, ToolSpec
from deputy.core.ladder import Routing
from deputy.core.limits import handin_seconds
from deputy.core.progress import Progress
from deputy.core.provider_keys import ProviderKeys
from deputy.core.redaction import Redactor
from deputy.core.request import Grant
from deputy.engine.ports import FlowTool, Folder, Model, Tool, Tools, Ways
from deputy.engine.ports.subtasks import Subtasks
from deputy.engine.purse import Purse
from deputy.engine.talk import CHARACTERS_PER_TOKEN, SUBTASK, Talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.conversation import OutputSchema
    from deputy.core.outcome import Usage
    from deputy.engine.ports import RunContext
    from deputy.engine.workshop import Workshop

_RUN = "Run"
"""The tool that starts programs."""
Approval = Literal["granted", "ask", "refuse"]
"""What happens when a tool needs approval: it was given before, a person is asked, or nobody can be."""


class Offer:
    """Tools as models are told of them: made once for all who have the same, and encoded once with it."""

    def __init__(self, tools: tuple[Tool | FlowTool, ...], keys: ProviderKeys) -> None:
        self.tools = tools
        # The texts of an MCP server's tools are written by that server: they may hold a key.
        specs = [ToolSpec(name=tool.name, description=tool.description, parameters=tool.schema) for tool in tools]
        told = json.encode(specs)
        masked = keys.mask_json(told)
        self.toolset = Toolset(specs if masked is told else json.decode(masked, type=list[ToolSpec]))
        size = sum(len(spec.description) + len(json.encode(spec.parameters)) for spec in self.toolset.items)
        self.tokens = size // CHARACTERS_PER_TOKEN
        """About how many of them it takes in every request."""


class Desk(Struct, frozen=True, kw_only=True):
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
    offer: Offer
    purse: Purse
    settings: ModelSettings
    emit: Callable[[Progress], None]
    redactor: Redactor
    keys: ProviderKeys
    clock: Callable[[], float]
    draw: Callable[[str, int], str]
    """So many letters at random, for what nobody may guess."""
    ceiling: Callable[[int, int], int | None]
    """The most that so many tokens in and out can cost; None where no price is known."""
    seconds: float | None = None
    window: int | None = None
    approval: Approval = "granted"
    without_asking: frozenset[str] = frozenset()
    """Tools whose every call was approved with the task, in words."""
    always: set[str] = field(default_factory=set[str])
    """The tools that a person has chosen "always" for in this round of this run."""
    can_ask: bool = False
    talk: Talk | None = None
    """What has been said, while it is at work."""
    subtasks: Subtasks | None = None
    """What its requests for subtasks are carried out with; None where it may not ask for any."""
    repairs: int = 1
    routing: Routing = Routing()
    """Which ways those may go to whom it hands work on."""
    ways: Ways | None = None
    """The ways that there are beside our own loop."""

    def toolset(self) -> Toolset:
        """The tools as the model is told of them."""
        return self.offer.toolset

    def overhead(self) -> int:
        """About how many tokens the tools' definitions take in every request."""
        return self.offer.tokens

    def tell_tokens(self, usage: Usage) -> None:
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
        return deadline - handin_seconds(max(0.0, left if self.seconds is None else min(left, self.seconds)))

    def seconds_left(self, run: RunContext) -> float | None:
        """How long there is until the last turn must begin, never nothing; None is for ever."""
        soft = self.soft_deadline(run)
        return None if soft is None else max(0.001, soft - self.clock())

    def deadline(self, run: RunContext) -> float | None:
        """When it must be over; waiting for a person moves it."""
        lineage = run.state.lineage
        return None if lineage is None else lineage.deadline


async def open_desk(
    run: RunContext,
    workshop: Workshop,
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
) -> Desk:
    """A desk in this workshop for a run, which pays from its own purse and from its parent's."""
    opened = workshop.open_model(model) if opened is None else opened
    tools = workshop.open_tools(grant, root)

    def emit(progress: Progress) -> None:
        if run.is_replaying:
            return
        workshop.tell(run, progress)

    purse = await workshop.open_purse(run, grant.budget, parent)
    if _RUN in grant.tools:
        purse.note_programs()
    return Desk(
        label=label,
        model=opened,
        asked=model,
        grant=grant,
        tools=tools,
        folder=workshop.files.open(grant, root),
        root=root,
        flow_tools={tool.name: tool for tool in flow_tools},
        offer=workshop.offer((*tools.definitions(), *flow_tools)),
        purse=purse,
        settings=ModelSettings(max_output_tokens=output_tokens, thinking=workshop.thinking(model), output=output),
        emit=emit,
        redactor=workshop.redactor,
        keys=workshop.keys,
        clock=workshop.world.now,
        draw=workshop.world.draw,
        ceiling=partial(workshop.ceiling, model),
        seconds=run.state.seconds,
        window=workshop.window(model, opened),
        approval=workshop.approval,
        without_asking=without_asking,
        can_ask=workshop.can_ask,
        subtasks=workshop.subtasks if any(tool.name == SUBTASK for tool in flow_tools) else None,
        repairs=workshop.policy.repairs,
        routing=routing or Routing(),
        ways=workshop.ways,
    )


def with_model(desk: Desk, workshop: Workshop, name: str, model: Model) -> Desk:
    """The same desk for another model."""
    return structs.replace(
        desk,
        model=model,
        asked=name,
        settings=structs.replace(desk.settings, thinking=workshop.thinking(name)),
        ceiling=partial(workshop.ceiling, name),
        window=workshop.window(name, model),
    )
