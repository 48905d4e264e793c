"""Our own estimate of what a request used, and whether a provider's report is close enough to it to be charged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

if TYPE_CHECKING:
    from deputy.core.conversation import TokenUsage, ToolCall

BYTES_PER_TOKEN = 4
FACTOR = 3
"""A report that differs from the estimate by more than this is not charged."""
MOST_THINKING_TOKENS = 64_000
"""The most that hidden thinking may add where the request sets no limit on the output."""


def text_size(text: str) -> int:
    """How many bytes a text has."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def call_size(call: ToolCall) -> int:
    """How many bytes a tool call has, about as the model wrote it."""
    written = len(json.encode(call.arguments)) if call.malformed is None else text_size(call.malformed)
    return len(call.name) + written


def estimated_tokens(size: int) -> int:
    """About how many tokens so many bytes of text are; never 0 for some text."""
    return -(-size // BYTES_PER_TOKEN)


def is_plausible(reported: TokenUsage, *, sent_tokens: int, received_tokens: int, most_output: int | None) -> bool:
    """Whether a report is within the factor of what was sent and received, by our estimate.

    Thinking that a provider hides is not in what we received, so a report of it is added to the estimate, up to what
    the request allowed.
    """
    if not reported.is_reported or reported.cached_tokens + reported.cache_write_tokens > reported.input_tokens:
        return False
    thinking = min(reported.thinking_tokens, reported.output_tokens, most_output or MOST_THINKING_TOKENS)
    expected = sent_tokens + received_tokens + thinking
    total = reported.input_tokens + reported.output_tokens
    return expected <= total * FACTOR and total <= expected * FACTOR
