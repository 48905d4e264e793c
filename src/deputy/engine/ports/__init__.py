"""What the engine needs from the world outside, as protocols of a few methods."""

from typing import TYPE_CHECKING

from deputy.engine.ports.backend import Assignment, Backend, BackendEnd, NotReady, OwnSession, Ready, Ways
from deputy.engine.ports.durable import Engine, Journal, L, Lease, RunContext, World, Writing
from deputy.engine.ports.model import Model
from deputy.engine.ports.ranker import Ranker
from deputy.engine.ports.tool import (
    Agents,
    Files,
    FlowTool,
    Folder,
    Preview,
    PreviewedTool,
    TaskFiles,
    Tool,
    ToolContext,
    ToolOutput,
    Tools,
    ToolTraits,
)
from deputy.engine.ports.workplace import NoWorkplace, WorkDone, Workplace, Workplaces

if TYPE_CHECKING:
    from deputy.engine.ports.backend import BackendEvent as BackendEvent
    from deputy.engine.ports.backend import Emit as Emit
    from deputy.engine.ports.durable import Beginning as Beginning
    from deputy.engine.ports.durable import Birth as Birth
    from deputy.engine.ports.durable import Workflow as Workflow

__all__ = [
    "Agents",
    "Assignment",
    "Backend",
    "BackendEnd",
    "Engine",
    "Files",
    "FlowTool",
    "Folder",
    "Journal",
    "L",
    "Lease",
    "Model",
    "NoWorkplace",
    "NotReady",
    "OwnSession",
    "Preview",
    "PreviewedTool",
    "Ranker",
    "Ready",
    "RunContext",
    "TaskFiles",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolTraits",
    "Tools",
    "Ways",
    "WorkDone",
    "Workplace",
    "Workplaces",
    "World",
    "Writing",
]
