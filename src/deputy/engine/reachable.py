"""Whether the models that work is to be handed to can be asked at all, by a key or by a program that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json

from deputy.core.events import Lost, StepEnded
from deputy.core.ladder import cannot_spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from deputy.engine.ports import RunContext


async def why_unreachable(
    run: RunContext,
    key: str,
    models: Iterable[str],
    missing_key: Callable[[str], str | None],
    has_program: Callable[[str], Awaitable[bool]] | None,
) -> str:
    """Why one of these models cannot be asked by anything here; nothing when all can, and a replay finds the same."""
    missing = {model: provider for model in dict.fromkeys(models) if (provider := missing_key(model)) is not None}
    if missing and has_program is not None:
        ended = await run.step(f"{key}:programs", _without, ModelArgs(models=tuple(missing)), view=has_program)
        if isinstance(ended, Lost) or ended.result is UNSET:
            raise TypeError("looking may be repeated, is never lost and has a result")
        missing = {model: missing[model] for model in json.decode(ended.result, type=list[str])}
    return next((cannot_spawn(model, provider) for model, provider in missing.items()), "")


class ModelArgs(Struct, frozen=True, kw_only=True):
    """The models that are to be asked."""

    models: tuple[str, ...]


async def _without(args: ModelArgs, has_program: Callable[[str], Awaitable[bool]]) -> StepEnded:
    without = [model for model in args.models if not await has_program(model)]
    return StepEnded(step="programs", result=Raw(json.encode(without)))
