"""Protocols through which the engine reaches models, tools, backends, worktrees and the journal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deputy.engine.ports.backend import (
        Backend,
        BackendRequest,
        BackendResult,
        Backends,
        BackendSession,
        NotReady,
        Ready,
    )
    from deputy.engine.ports.backend import BackendEvent as BackendEvent
    from deputy.engine.ports.backend import Emit as Emit
    from deputy.engine.ports.durable import Beginning as Beginning
    from deputy.engine.ports.durable import Engine, Journal, L, Lease, RunContext, World, Writing
    from deputy.engine.ports.durable import RunStart as RunStart
    from deputy.engine.ports.durable import Workflow as Workflow
    from deputy.engine.ports.model import Model
    from deputy.engine.ports.observer import Observer
    from deputy.engine.ports.placement import Dispatch, PlacingJournal
    from deputy.engine.ports.subtask_services import Ranker
    from deputy.engine.ports.tool import (
        Agents,
        Files,
        FlowTool,
        Folder,
        NoWorktree,
        Preview,
        PreviewedTool,
        TaskFiles,
        Tool,
        ToolContext,
        ToolOutput,
        Tools,
        ToolTraits,
        Worktree,
        WorktreeChanges,
        Worktrees,
    )

__all__ = [
    "Agents",
    "Backend",
    "BackendRequest",
    "BackendResult",
    "BackendSession",
    "Backends",
    "Dispatch",
    "Engine",
    "Files",
    "FlowTool",
    "Folder",
    "Journal",
    "L",
    "Lease",
    "Model",
    "NoWorktree",
    "NotReady",
    "Observer",
    "PlacingJournal",
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
    "Worktree",
    "WorktreeChanges",
    "Worktrees",
    "World",
    "Writing",
]


def __getattr__(name: str) -> object:
    """Load the protocols with the first use of one: what only reads the journal needs `queries` alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from deputy.engine.ports import backend, durable, model, observer, placement, subtask_services, tool

    modules = (backend, durable, model, observer, placement, subtask_services, tool)
    return next(getattr(module, name) for module in modules if hasattr(module, name))
