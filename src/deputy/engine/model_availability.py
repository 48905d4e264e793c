"""Check whether models can be called, with a key or by an installed program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.approval import cost_not_bounded
from deputy.core.fallback import cannot_spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from deputy.core.approval import PriceBounds
    from deputy.engine.ports import RunContext


async def why_unreachable(
    run: RunContext,
    key: str,
    models: Iterable[str],
    missing_key: Callable[[str], str | None],
    has_program: Callable[[str], Awaitable[bool]] | None,
    *,
    capped: dict[str, str] | None = None,
    prices_of: Callable[[str], PriceBounds] | None = None,
) -> str:
    """The reason why one of these models cannot be called, or not under its cost cap; empty if all can.

    A step, because a resume on another machine may see other keys.
    """
    names = tuple(dict.fromkeys(models))

    async def check() -> str:
        for model in names:
            provider = missing_key(model)
            # A program reports its own cost.
            field = capped.get(model) if provider is None and capped else None
            if field is not None and prices_of is not None and not prices_of(model).are_known:
                return f"{field}: {cost_not_bounded(model)}. Nothing was started."
            if provider is not None and (has_program is None or not await has_program(model)):
                return cannot_spawn(model, provider)
        return ""

    return await run.value(f"{key}:model_availability", str, check, step="model_availability", reads=True)
