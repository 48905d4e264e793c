"""Errors for backends that cannot be used, each with a remedy."""

from __future__ import annotations

from deputy.core.errors import Error


def no_key(provider: str) -> Error:
    """The native backend has no key for the provider."""
    return Error(
        type="provider",
        code="NO_API_KEY",
        message=f"No API key for provider {provider}.",
        recoverable=False,
        recommendation="Set the key; `deputy doctor` names the variable.",
    )


def unknown(backend: str) -> Error:
    """No installed adapter can run the backend."""
    return Error(
        type="tool_unavailable",
        code="PROGRAM_NOT_INSTALLED",
        message=f"Backend {backend!r} is not installed.",
        recoverable=False,
        recommendation="Install it (`deputy doctor` says how), or use another backend.",
    )


def not_inline(model: str) -> Error:
    """The session's own model has failed already."""
    return Error(
        type="provider",
        code="MODEL_FAILED",
        message=f"Inline execution is not possible: the session's own model {model} has just failed.",
        recoverable=True,
        recommendation="Try again later, or with another model.",
    )


def yourself() -> Error:
    """The task goes back to its caller."""
    return Error(
        type="provider",
        code="DO_IT_YOURSELF",
        message="No subagent is available for this task.",
        recoverable=True,
        recommendation="Do the task yourself, in this conversation.",
    )


def not_agreed(backend: str, tools: str) -> Error:
    """The backend's program would use writing tools without approval."""
    return Error(
        type="tool_unavailable",
        code="GRANT_NOT_HELD",
        message=f"{backend} would use {tools} without asking, and this was not approved.",
        recoverable=True,
        recommendation="Approve it, or delegate a task that only reads.",
    )
