"""The record of the context that was passed to a subtask."""

from __future__ import annotations

from msgspec import Struct


class PassedContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The context that was passed to a subtask, and its size."""

    messages: int = 0
    messages_left_out: int = 0
    results: int = 0
    files: tuple[str, ...] = ()
    tokens: int = 0
    """The approximate size of the whole prompt."""
    warnings: tuple[str, ...] = ()
