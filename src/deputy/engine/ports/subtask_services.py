"""What requests for subtasks are carried out with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from deputy.core.approval import PriceBounds
from deputy.core.subtask.template_match import TemplateIndex
from deputy.engine.ports.ranker import Ranker

CHAIN_SECONDS = 3600.0
"""How long a whole chain of subtasks may take when nothing else is said."""


class Subtasks(Struct, frozen=True, kw_only=True):
    """Templates, relevance, and what must be known of models before they are used."""

    templates: Callable[[], Awaitable[TemplateIndex]]
    """Loaded when first asked for, and then kept."""
    ranker: Ranker
    window_of: Callable[[str], int | None]
    """How much a model can hold; a UsageError when there is no such model."""
    missing_key: Callable[[str], str | None]
    prices_of: Callable[[str], PriceBounds]
    has_default: bool = True
    """Whether a request that no template fits is made from the default one."""
    seconds: float = CHAIN_SECONDS
