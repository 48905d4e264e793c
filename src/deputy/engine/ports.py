"""What the engine needs from the world outside, as protocols of a few methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- tools ------------------------------------------------------------------------------------------------------------

Risk: TypeAlias = Literal["low", "medium", "high"]


class ToolTraits(Struct, frozen=True, kw_only=True):
    """What the engine must know of a tool before it runs it; what is not said is taken for the worst."""

    reads_only: bool = False
    """It changes nothing, so that several of one turn may run at once."""
    repeatable: bool = False
    """A call that was under way when a process died may be made again."""
    needs_approval: bool = True
    risk: Risk = "high"
    limit_seconds: float = 120
    """How long a call may take; until then it counts as activity."""


class ToolContext(Struct, frozen=True, kw_only=True):
    """What one call is given beside its arguments."""

    call_id: str = ""
    """The call's id; child processes carry it, so that what a dead process left running can be found."""
    output_bytes: int = 50_000
    """The most text that goes back to the model; what is longer is cut, and says so."""


class ToolOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call came to. A failure that the model can act on is an output too."""

    text: str
    is_error: bool = False
    changed: tuple[str, ...] = ()
    """Files of the workspace that the call wrote."""


class Tool(Protocol):
    """Something a model can call."""

    @property
    def name(self) -> str:
        """What models call it."""
        ...

    @property
    def description(self) -> str:
        """What it does and when to use it, in words for models."""
        ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, which allows no others."""
        ...

    @property
    def traits(self) -> ToolTraits:
        """What the engine must know of it."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Carry out one call. Bad arguments are an output that names every field, and nothing is done."""
        ...
