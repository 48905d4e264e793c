"""What a model is to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from deputy.core.conversation import Conversation, GenerationSettings, StreamEvent, Toolset


def is_metered(model: Model) -> bool:
    """Whether a model's reports of usage are held against our estimate: those of providers are, of scripts not."""
    return bool(getattr(model, "is_metered", False))


class Model(Protocol):
    """Something that answers a conversation, one turn at a time."""

    @property
    def name(self) -> str:
        """`provider:model`, as people write it."""
        ...

    @property
    def context_window(self) -> int | None:
        """The most tokens that input and output may have together; None where it is not known."""
        ...

    def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """The next turn as it is told: deltas, then its calls and usage, then one Stop; or a ModelError.

        What the turn used is the sum of all Used events, and of what the error says was used if it fails.
        """
        ...
