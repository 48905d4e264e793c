"""Whether the models that work is to be handed to can be asked at all, by a key or by a program that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Raw, Struct, json

from deputy.core.approval import cost_not_bounded
from deputy.core.events import StepEnded, StepLost
from deputy.core.fallback import cannot_spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from deputy.core.approval import PriceBounds
    from deputy.engine.ports import RunContext


class AvailabilityArgs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The models that are to be asked."""

    names: tuple[str, ...]
    capped: dict[str, str] = {}
    """Those whose cost is capped, each with the field that says so."""


class AvailabilityChecks(NamedTuple):
    """What they could be asked by."""

    missing_key: Callable[[str], str | None]
    has_program: Callable[[str], Awaitable[bool]] | None
    prices_of: Callable[[str], PriceBounds] | None


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
    """Why one of these models cannot be asked by anything here, or not under a cap on cost; nothing when all can.

    It is looked at once: whoever goes on elsewhere, where there are other keys, must find what was found before.
    """
    args = AvailabilityArgs(names=tuple(dict.fromkeys(models)), capped=capped or {})
    checks = AvailabilityChecks(missing_key, has_program, prices_of)
    ended = await run.step(f"{key}:model_availability", _check_models, args, view=checks, reads=True)
    if isinstance(ended, StepLost) or ended.result is UNSET:
        raise TypeError("looking may be repeated, is never lost and has a result")
    return json.decode(ended.result, type=str)


async def _check_models(args: AvailabilityArgs, checks: AvailabilityChecks) -> StepEnded:
    return StepEnded(step="model_availability", result=Raw(json.encode(await _why(args, checks))))


async def _why(args: AvailabilityArgs, checks: AvailabilityChecks) -> str:
    for model in args.names:
        provider = checks.missing_key(model)
        # A program needs no price: it says itself what it cost.
        is_bound = provider is None and model in args.capped
        if is_bound and checks.prices_of is not None and not checks.prices_of(model).are_known:
            return f"{args.capped[model]}: {cost_not_bounded(model)}. Nothing was started."
        if provider is not None and (checks.has_program is None or not await checks.has_program(model)):
            return cannot_spawn(model, provider)
    return ""
