"""What was passed to a subtask beside its task."""

from __future__ import annotations

from msgspec import Struct


class PassedContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was passed to a subtask beside its task, and what that cost."""

    messages: int = 0
    messages_left_out: int = 0
    results: int = 0
    files: tuple[str, ...] = ()
    tokens: int = 0
    """About how many, of everything it is told."""
    warnings: tuple[str, ...] = ()
