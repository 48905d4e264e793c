"""What the engine needs from the world outside, as protocols of a few methods."""

from typing import TYPE_CHECKING

from deputy.engine.ports.durable import Engine, Journal, L, Lease, RunContext, World, Writing
from deputy.engine.ports.model import Model
from deputy.engine.ports.tool import Files, FlowTool, Tool, ToolContext, ToolOutput, Tools, ToolTraits

if TYPE_CHECKING:
    from deputy.engine.ports.durable import Beginning as Beginning
    from deputy.engine.ports.durable import Birth as Birth
    from deputy.engine.ports.durable import Workflow as Workflow

__all__ = [
    "Engine",
    "Files",
    "FlowTool",
    "Journal",
    "L",
    "Lease",
    "Model",
    "RunContext",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolTraits",
    "Tools",
    "World",
    "Writing",
]
