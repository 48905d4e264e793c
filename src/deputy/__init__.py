"""Delegate work from one agent to another, and get a checked result back."""

from __future__ import annotations

__version__ = "0.1.0"

_PLACES = {
    "AgentEvaluator": "core.refinement",
    "ApprovalRequest": "core.approval",
    "Artifact": "core.outcome",
    "BackendRequest": "engine.ports.backend",
    "Blocked": "core.outcome",
    "Budget": "core.limits",
    "Cancelled": "core.outcome",
    "CannotSpawn": "core.errors",
    "Completed": "core.outcome",
    "Decision": "core.approval",
    "Deputy": "client",
    "DeputyError": "core.errors",
    "Error": "core.errors",
    "Failed": "core.outcome",
    "LeaseHeld": "core.errors",
    "LoggingObserver": "observe.logging_observer",
    "NotAdmitted": "core.errors",
    "ObservedRun": "engine.ports.observer",
    "ObservedStep": "engine.ports.observer",
    "Observer": "engine.ports.observer",
    "OpenTelemetryObserver": "observe.otel_observer",
    "Outcome": "core.outcome",
    "Outcomes": "core.results",
    "Partial": "core.outcome",
    "Policy": "core.guard",
    "Progress": "core.progress",
    "Question": "core.approval",
    "Refined": "interfaces.call_results",
    "Rejected": "core.outcome",
    "Result": "core.results",
    "RunEnd": "engine.ports.observer",
    "ScriptEvaluator": "core.refinement",
    "StepEnd": "engine.ports.observer",
    "StorageError": "core.errors",
    "Task": "core.task",
    "TokenUsage": "core.conversation",
    "ToolTraits": "engine.ports",
    "ToolUse": "engine.ports.backend",
    "UnknownRun": "core.errors",
    "Usage": "core.outcome",
    "UsageError": "core.errors",
    "delegate": "one_call",
    "run_sync": "one_call",
    "tool": "tools.function_tool",
}
"""The module of each public name; `__init__.pyi` has the same list for type checkers."""


def __getattr__(name: str) -> object:
    """Load a public name on first use: importing the package does no work."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return [*_PLACES, "__version__"]
