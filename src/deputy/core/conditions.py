"""What a worker must know of the process that submitted a tree of runs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from deputy.core.guard import Policy
from deputy.core.snapshot import Snapshot


class Conditions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of the process that submitted a tree, for the workers that carry it out."""

    approval: Literal["granted", "ask", "refuse"] = "granted"
    can_ask: bool = False
    """Whether a person or a program answers questions."""
    policy: Policy = Policy()
    base_prompt: str = ""
    trusts_project: bool = False
    private: tuple[str, ...] = ()
    """Files that tools never read."""
    snapshot: Snapshot | None = None
    """The files of its workspace; None if workers have its folder."""
    shared: str | None = None
    """Its folder below the volume that all machines share; None if it is not there."""
