"""What a watcher is told while a subagent works; never kept for long, never replayed."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["started", "tool_call", "note", "tokens", "text", "retry", "fallback", "waiting", "warning", "completed"]


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One thing that happened to one subagent; only the fields of its kind are set."""

    event: Kind
    label: str
    session_id: str = ""
    parent: str = ""
    """Told when it starts: whose subagent it is."""
    index: int | None = None
    total: int | None = None
    tool: str | None = None
    args: str | None = None
    content: str | None = None
    input: int | None = None
    output: int | None = None
    cost: int | None = None
    status: str | None = None
    reason: str | None = None
    seconds: float | None = None
    """Told to who comes later: how long ago it started, and how long after that the rest happened.

    Of one that ended elsewhere: how long it worked, with all that it used.
    """
