"""The model port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from deputy.core.conversation import Conversation, GenerationSettings, StreamEvent, Toolset


def is_metered(model: Model) -> bool:
    """Whether reported usage is checked against our estimate: true for providers, false for scripted models."""
    return bool(getattr(model, "is_metered", False))


class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    @property
    def context_window(self) -> int | None:
        """The maximum of input and output tokens together; None if unknown."""
        ...

    def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """Stream the next turn: deltas, then tool calls and usage, then one Stop; or raise a ModelError.

        The usage of the turn is the sum of all TokenUsage events and of the usage in the error.
        """
        ...
