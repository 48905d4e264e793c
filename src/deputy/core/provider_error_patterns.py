"""Codes and lower-case message parts of providers' errors, in the order of the checks in provider_errors.py."""

from __future__ import annotations

from typing import Final

CONTEXT_CODES: Final = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "1261",
        "request_too_large",
    }
)
CONTEXT_WORDS: Final = (
    "prompt is too long",
    "prompt too long",
    "prompt as too long",
    "input is too long",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the maximum context length",
    "context exceeds model limit",
    "exceeds maximum context length",
    "exceeds the model's maximum context",
    "exceeds the maximum number of tokens",
    "exceeds the available context size",
    "exceeds the limit of",
    "exceeds max length",
    "exceeded model token limit",
    "exceed_context_size",
    "maximum context length",
    "maximum prompt length",
    "maximum model length",
    "max_context_length",
    "context length exceeded",
    "context_length_exceeded",
    "context window exceeds limit",
    "context size has been exceeded",
    "greater than the context length",
    "is longer than the model's context length",
    "longer than the maximum model length",
    "reduce the length of the messages",
    "reduce the length of the input",
    "too large for model with",
    "tokens + `max_new_tokens` must be <=",
    "tokens in request more than max tokens allowed",
    "input token count",
    "too many input tokens",
    "request exceeds the maximum size",
)
CONTEXT_LIMIT_MARKS: Final = (
    " > ",
    "maximum context length is",
    "maximum context length of",
    "maximum prompt length is",
    "maximum model length is",
    "maximum number of tokens allowed",
    "context window of",
    "context limit of",
    "context size (",
    "context length of",
    "context length (",
    "context length is",
    "exceeds the limit of",
    "token limit:",
    '"n_ctx":',
    "must be <=",
)
"""The context window is the number after one of these."""
NOT_CONTEXT_WORDS: Final = (
    "rate limit",
    "rate_limit",
    "too many requests",
    "throttl",
    "tokens per min",
    "per minute",
    "tpm",
)
TOO_MUCH_AT_ONCE_WORDS: Final = ("request too large", "too large for model")
QUOTA_CODES: Final = frozenset(
    {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "billing_error"}
)
QUOTA_WORDS: Final = (
    "exceeded your current quota",
    "credit balance is too low",
    "insufficient balance",
    "insufficient credits",
    "payment required",
)
RATE_CODES: Final = frozenset(
    {
        "rate_limit_error",
        "rate_limit_exceeded",
        "resource_exhausted",
        "too_many_requests",
        "rate_limited",
        "tokens",
        "requests",
    }
)
OVERLOAD_CODES: Final = frozenset(
    {"overloaded_error", "unavailable", "engine_overloaded", "slow_down", "service_unavailable"}
)
KEY_CODES: Final = frozenset(
    {
        "authentication_error",
        "permission_error",
        "invalid_api_key",
        "unauthenticated",
        "permission_denied",
        "unauthorized",
    }
)
KEY_WORDS: Final = ("api key not valid", "invalid api key", "incorrect api key", "api key not found", "api_key_invalid")
MISSING_CODES: Final = frozenset({"model_not_found", "not_found_error", "not_found", "invalid_model"})
MISSING_WORDS: Final = (
    "model not found",
    "unknown model",
    "is not a valid model",
    "no such model",
    "model does not exist",
)
POLICY_CODES: Final = frozenset(
    {"content_filter", "content_policy_violation", "invalid_prompt", "bio_policy", "misalignment_policy_violation"}
)
POLICY_WORDS: Final = (
    "content policy",
    "usage policy",
    "content management policy",
    "flagged as potentially violating",
)
SERVER_CODES: Final = frozenset(
    {"api_error", "server_error", "internal", "internal_error", "timeout_error", "internal_server_error"}
)
REQUEST_CODES: Final = frozenset({"invalid_request_error", "invalid_argument", "failed_precondition"})
