"""How a tool says that it could not do what was asked."""

from __future__ import annotations

from deputy.core.errors import DeputyError


class ToolError(DeputyError):
    """Something outside failed or was refused; its message is told to the model, which can act on it."""
