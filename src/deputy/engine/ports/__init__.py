"""What the engine needs from the world outside, as protocols of a few methods."""

from deputy.engine.ports.durable import Engine, Journal, L, Lease, RunContext, World
from deputy.engine.ports.model import Model
from deputy.engine.ports.tool import Files, FlowTool, Tool, ToolContext, ToolOutput, Tools, ToolTraits

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
]
