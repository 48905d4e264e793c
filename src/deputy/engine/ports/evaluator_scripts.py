"""What runs a program of the user's that judges work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.refinement import ScriptOutput


class Scripts(Protocol):
    """Runs programs, each within its time and with bounded output; nothing of one is left afterwards."""

    async def run(self, argv: Sequence[str], given: str, *, seconds: float, owner: str) -> ScriptOutput:
        """Run one with a text as its input. One that cannot be run or takes too long has a code that says so."""
        ...
