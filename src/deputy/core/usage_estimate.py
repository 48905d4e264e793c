"""Estimate the usage of a request, and check a provider's report against the estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

if TYPE_CHECKING:
    from deputy.core.conversation import TokenUsage, ToolCall

BYTES_PER_TOKEN = 4
FACTOR = 3
"""A report that differs from the estimate by more than this factor is not charged."""
MOST_THINKING_TOKENS = 64_000
"""The most hidden thinking that is added if the request has no output limit."""


def text_size(text: str) -> int:
    """The size of a text in bytes."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def call_size(call: ToolCall) -> int:
    """The approximate size in bytes of a tool call."""
    written = len(json.encode(call.arguments)) if call.malformed is None else text_size(call.malformed)
    return len(call.name) + written


def estimated_tokens(size: int) -> int:
    """The approximate number of tokens in this many bytes of text, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def is_plausible(reported: TokenUsage, *, sent_tokens: int, received_tokens: int, most_output: int | None) -> bool:
    """Whether a report is within the factor of the estimate.

    Hidden thinking is not in the received text, so the reported thinking is added, up to the request's output limit.
    """
    if not reported.is_reported or reported.cached_tokens + reported.cache_write_tokens > reported.input_tokens:
        return False
    thinking = min(reported.thinking_tokens, reported.output_tokens, most_output or MOST_THINKING_TOKENS)
    expected = sent_tokens + received_tokens + thinking
    total = reported.input_tokens + reported.output_tokens
    return expected <= total * FACTOR and total <= expected * FACTOR
