"""The error of a tool call."""

from __future__ import annotations

from deputy.core.errors import DeputyError


class ToolError(DeputyError):
    """A tool call failed or was refused; the model gets the message."""
