"""The cost of a turn, and the detection of silently truncated prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from deputy.core.usage_estimate import FACTOR, estimated_tokens

if TYPE_CHECKING:
    from deputy.core.conversation import StopReason, TokenUsage


class ModelPrices(Struct, frozen=True, kw_only=True):
    """Prices in billionths of a dollar per million tokens."""

    input: int
    output: int
    cached: int | None = None
    """For input read from a cache; None means the price of input."""
    cache_write: int | None = None
    long_above: int | None = None
    """Above this input, `long` applies to the whole request."""
    long: ModelPrices | None = None


def priced(used: TokenUsage, prices: ModelPrices | None) -> TokenUsage:
    """The usage with its cost; without a known price, a cost reported by the provider stays."""
    if prices is None or not used.is_reported:
        return used
    if prices.long is not None and prices.long_above is not None and used.input_tokens > prices.long_above:
        prices = prices.long
    cached_price = prices.input if prices.cached is None else prices.cached
    write_price = prices.input if prices.cache_write is None else prices.cache_write
    fresh = max(0, used.input_tokens - used.cached_tokens - used.cache_write_tokens)
    total = (
        fresh * prices.input
        + used.cached_tokens * cached_price
        + used.cache_write_tokens * write_price
        + used.output_tokens * prices.output
    )
    return structs.replace(used, cost=(total + 500_000) // 1_000_000)


def was_cut_silently(used: TokenUsage, reason: StopReason, *, window: int | None, sent_bytes: int) -> bool:
    """Whether the provider silently dropped part of the prompt, or all room for an answer."""
    if not used.is_reported:
        return False
    if reason == "length" and used.output_tokens == 0:
        return True
    # A server cannot read more than it was sent: ignore such a number.
    if window is None or used.input_tokens > estimated_tokens(sent_bytes) * FACTOR:
        return False
    if used.input_tokens > window:
        return True
    # A server that truncates fills its window.
    return used.input_tokens >= window * 0.95 and estimated_tokens(sent_bytes) > window * 1.25
