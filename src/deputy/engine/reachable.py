"""Whether the models that work is to be handed to can be asked at all, by a key or by a program that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Raw, Struct, json

from deputy.core.events import Lost, StepEnded
from deputy.core.ladder import cannot_spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from deputy.engine.ports import RunContext


class Models(Struct, frozen=True, kw_only=True):
    """The models that are to be asked."""

    names: tuple[str, ...]


class Means(NamedTuple):
    """What they could be asked by."""

    missing_key: Callable[[str], str | None]
    has_program: Callable[[str], Awaitable[bool]] | None


async def why_unreachable(
    run: RunContext,
    key: str,
    models: Iterable[str],
    missing_key: Callable[[str], str | None],
    has_program: Callable[[str], Awaitable[bool]] | None,
) -> str:
    """Why one of these models cannot be asked by anything here; nothing when all can.

    It is looked at once: whoever goes on elsewhere, where there are other keys, must find what was found before.
    """
    args, means = Models(names=tuple(dict.fromkeys(models))), Means(missing_key, has_program)
    ended = await run.step(f"{key}:reachable", _look, args, view=means, reads=True)
    if isinstance(ended, Lost) or ended.result is UNSET:
        raise TypeError("looking may be repeated, is never lost and has a result")
    return json.decode(ended.result, type=str)


async def _look(args: Models, means: Means) -> StepEnded:
    return StepEnded(step="reachable", result=Raw(json.encode(await _why(args.names, means))))


async def _why(models: Iterable[str], means: Means) -> str:
    for model in models:
        provider = means.missing_key(model)
        if provider is not None and (means.has_program is None or not await means.has_program(model)):
            return cannot_spawn(model, provider)
    return ""
