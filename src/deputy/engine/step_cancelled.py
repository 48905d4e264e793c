"""A step that is stopped for good in the middle, and leaves what it has come to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deputy.core.events import Known


class StepCancelled(asyncio.CancelledError):
    """A cancel that passes through a step's body; whoever ends the run writes down how far the step was."""

    def __init__(self, event: Known) -> None:
        super().__init__()
        self.event = event
