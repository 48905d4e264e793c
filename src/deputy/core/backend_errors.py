"""Why a way to carry a delegation out is not gone: each with what to do."""

from __future__ import annotations

from deputy.core.errors import Error


def no_key(provider: str) -> Error:
    """Our loop has no key for it."""
    return Error(
        type="provider",
        code="NO_API_KEY",
        message=f"There is no API key for provider {provider}.",
        recoverable=False,
        recommendation="Set it; `deputy doctor` says which variable.",
    )


def unknown(backend: str) -> Error:
    """Nothing here speaks to it."""
    return Error(
        type="tool_unavailable",
        code="PROGRAM_NOT_INSTALLED",
        message=f"{backend} cannot be spoken to here.",
        recoverable=False,
        recommendation="Install what it needs (`deputy doctor`), or use another one.",
    )


def not_inline(model: str) -> Error:
    """The session's own model cannot do it either."""
    return Error(
        type="provider",
        code="MODEL_FAILED",
        message=f"It could not be done inline: {model}, with which this session works, has just failed.",
        recoverable=True,
        recommendation="Try again later, or with another model.",
    )


def yourself() -> Error:
    """It goes back to whoever handed it over."""
    return Error(
        type="provider",
        code="DO_IT_YOURSELF",
        message="No subagent could be had for this task.",
        recoverable=True,
        recommendation="Do it yourself, in this conversation.",
    )


def not_agreed(backend: str, tools: str) -> Error:
    """Nobody lets a program change things unasked."""
    return Error(
        type="tool_unavailable",
        code="GRANT_NOT_HELD",
        message=f"{backend} would use {tools} without asking, and nobody agreed to that.",
        recoverable=True,
        recommendation="Approve it, or hand over work that only reads.",
    )
