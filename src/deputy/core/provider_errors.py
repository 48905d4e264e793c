"""Classify a provider's error by its status, headers and body."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Struct

from deputy.core import model_errors as errors

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_LIMIT: Final = 2000
_NO_MESSAGE: Final = "the provider gave no message"
_NUMBER: Final = re.compile("[0-9][0-9,_]*")
_DURATION: Final = re.compile("([0-9.]+)(ms|[hms])")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class _ParsedError(Struct):
    message: str
    codes: frozenset[str]
    status: int | None
    delay: float | None


def provider_error(
    body: bytes | msgspec.Raw, *, status: int | None, headers: Mapping[str, str] | None = None, now: float = 0.0
) -> errors.ModelError:
    """The typed error for a provider's answer; `status` is None inside a stream, `now` resolves a Retry-After date."""
    text = _read(bytes(body))
    headers = headers or {}
    status = status if status is not None and status >= 300 else text.status
    if (remedy := _tools_remedy(text.message.lower())) is not None:
        error = errors.ToolsUnsupported(text.message, status=status)
        error.remedy = remedy
        return error
    kind = _kind(text, status)
    if kind is errors.ContextExhausted:
        return errors.ContextExhausted(text.message, window=window_in_message(text.message), status=status)
    error = kind(text.message, status=status, retry_after=_retry_after(headers, text, now))
    if headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def _kind(text: _ParsedError, status: int | None) -> type[errors.ModelError]:
    words, codes = text.message.lower(), text.codes
    is_throttled = _has(words, _THROTTLE_WORDS)
    if is_throttled and (status == 413 or _has(words, _TOO_MUCH_AT_ONCE_WORDS)):
        return errors.QuotaSpent
    if not is_throttled and (codes & _CONTEXT_CODES or _has(words, _CONTEXT_WORDS)):
        return errors.ContextExhausted
    if status == 402 or codes & _QUOTA_CODES or (_has(words, _QUOTA_WORDS) and text.delay is None):
        return errors.QuotaSpent
    if status == 429 or (status != 413 and codes & _RATE_CODES):
        return errors.RateLimited
    for kind, statuses, known_codes, known_words in _RULES:
        if status in statuses or codes & known_codes or _has(words, known_words):
            return kind
    if status is None:
        return errors.BadRequest if codes & _REQUEST_CODES else errors.ServerFailed
    return (
        errors.ServerFailed
        if status >= 500 or status in (408, 409, 425) or codes & _SERVER_CODES
        else errors.BadRequest
    )


def _tools_remedy(words: str) -> str | None:
    return next((remedy for wording, remedy in _NO_TOOLS if wording in words), None)


def _has(words: str, needles: tuple[str, ...]) -> bool:
    return any(needle in words for needle in needles)


def window_in_message(message: str) -> int | None:
    """The context window, if an error message names it."""
    words = message.lower()
    for mark in _CONTEXT_LIMIT_MARKS:
        at = words.find(mark)
        found = _NUMBER.search(words[at + len(mark) : at + len(mark) + 24]) if at >= 0 else None
        if found is not None and 256 <= (number := int(found[0].replace(",", "").replace("_", ""))) <= 100_000_000:
            return number
    return None


# --- shapes of bodies -------------------------------------------------------------------------------------------------


def _read(body: bytes) -> _ParsedError:
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _ParsedError(_plain(body), frozenset(), None, None)
    fields = as_object(as_list(value)[0] if as_list(value) else value) or {}
    inner = fields.get("error")
    fields = {"message": inner, **fields} if isinstance(inner, str) else as_object(inner) or fields
    codes = [fields.get(name) for name in ("code", "type", "status", "reason")]
    number = next((code for code in codes if isinstance(code, int) and 400 <= code < 600), None)
    message = next((m for name in ("message", "detail", "msg") if (m := fields.get(name))), None)
    text = message if isinstance(message, str) else msgspec.json.encode(message or value).decode()
    reasons = [str(detail.get("reason")) for detail in _details(fields)]
    return _ParsedError(
        _short(text) or _NO_MESSAGE,
        frozenset(str(code).lower() for code in [*codes, *reasons] if code is not None),
        number,
        next((seconds for detail in _details(fields) if (seconds := _duration(detail.get("retryDelay")))), None),
    )


def as_object(value: object) -> dict[str, Any] | None:
    """The value if it is a JSON object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _details(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [detail for item in as_list(fields.get("details")) if (detail := as_object(item)) is not None]


def _plain(body: bytes) -> str:
    """The message of a body that is not JSON: its first line; an HTML page has none."""
    text = body[:MESSAGE_LIMIT].decode("utf-8", "replace").strip()
    if not text or text.startswith("<"):
        return _NO_MESSAGE
    return _short(text.splitlines()[0])


def _short(text: str) -> str:
    flat = " ".join(text[: MESSAGE_LIMIT * 2].split())
    return flat if len(flat) <= MESSAGE_LIMIT else f"{flat[: MESSAGE_LIMIT - 1]}…"


# --- how long to wait -------------------------------------------------------------------------------------------------


def _retry_after(headers: Mapping[str, str], text: _ParsedError, now: float) -> float | None:
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    if (value := headers.get("retry-after")) is not None:
        seconds = _number(value)
        return seconds if seconds is not None else _until(value, now)
    if text.delay is not None:
        return text.delay
    words = text.message.lower()
    for mark in ("try again in ", "retry in ", "retry after "):
        at = words.find(mark)
        if at >= 0:
            return _duration(words[at + len(mark) :].split(" ", 1)[0].rstrip(".,;"))
    return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < 1e9 else None


def _until(date: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _duration(text: object) -> float | None:
    """Seconds in `7s`, `7.5s`, `120ms`, `1m30s` or `1h2m3s`."""
    parts = _DURATION.findall(text) if isinstance(text, str) and len(text) <= 40 else []
    numbers = [_number(number) for number, _ in parts]
    if "".join(map("".join, parts)) != text or None in numbers:
        return None
    return sum(number * _UNITS[unit] for number, (_, unit) in zip(numbers, parts, strict=True) if number) or None


# --- the wordings of providers, in the order of the checks ------------------------------------------------------------

_JINJA: Final = "Start llama-server with --jinja."
_VLLM: Final = "Start vLLM with --enable-auto-tool-choice and --tool-call-parser NAME, such as hermes for Qwen."
_OLLAMA: Final = "Choose a model for which `ollama show NAME` lists tools, such as qwen3."
_OPENROUTER: Final = "Choose a model of https://openrouter.ai/models?supported_parameters=tools."
_NO_TOOLS: Final = (
    ("tools param requires --jinja", _JINJA), ("unsupported param: tools", _JINJA),
    ("--tool-call-parser", _VLLM), ("--enable-auto-tool-choice", _VLLM),
    ("does not support tools", _OLLAMA),
    ("no endpoints found that support tool use", _OPENROUTER),
    ("does not support function calling", ""), ("does not support tool", ""), ("function calling is not enabled", ""),
    ("tool calling` is not supported", ""), ("tool use is not supported", ""), ("tools are not supported", ""),
)  # fmt: skip
"""Wordings of servers that take no tools, whatever the status, and the remedy for each."""
_CONTEXT_CODES: Final = frozenset({
    "context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded", "1261",
    "request_too_large",
})  # fmt: skip
_CONTEXT_WORDS: Final = (
    "prompt is too long", "prompt too long", "prompt as too long", "input is too long", "exceed context limit",
    "exceeds the context window", "exceeds the maximum context length", "context exceeds model limit",
    "exceeds maximum context length", "exceeds the model's maximum context", "exceeds the maximum number of tokens",
    "exceeds the available context size", "exceeds the limit of", "exceeds max length", "exceeded model token limit",
    "exceed_context_size", "maximum context length", "maximum prompt length", "maximum model length",
    "max_context_length", "context length exceeded", "context_length_exceeded", "context window exceeds limit",
    "context size has been exceeded", "greater than the context length", "is longer than the model's context length",
    "longer than the maximum model length", "reduce the length of the messages", "reduce the length of the input",
    "too large for model with", "tokens + `max_new_tokens` must be <=",
    "tokens in request more than max tokens allowed", "input token count", "too many input tokens",
    "request exceeds the maximum size",
)  # fmt: skip
_CONTEXT_LIMIT_MARKS: Final = (
    " > ", "maximum context length is", "maximum context length of", "maximum prompt length is",
    "maximum model length is", "maximum number of tokens allowed", "context window of", "context limit of",
    "context size (", "context length of", "context length (", "context length is", "exceeds the limit of",
    "token limit:", '"n_ctx":', "must be <=",
)  # fmt: skip
"""The context window is the number after one of these."""
_THROTTLE_WORDS: Final = (
    "rate limit", "rate_limit", "too many requests", "throttl", "tokens per min", "per minute", "tpm",
)  # fmt: skip
_TOO_MUCH_AT_ONCE_WORDS: Final = ("request too large", "too large for model")
_QUOTA_CODES: Final = frozenset(
    {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "billing_error"}
)
_QUOTA_WORDS: Final = (
    "exceeded your current quota", "credit balance is too low", "insufficient balance", "insufficient credits",
    "payment required",
)  # fmt: skip
_RATE_CODES: Final = frozenset({
    "rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "too_many_requests", "rate_limited", "tokens",
    "requests",
})  # fmt: skip
_RULES: Final[tuple[tuple[type[errors.ModelError], tuple[int, ...], frozenset[str], tuple[str, ...]], ...]] = (
    (errors.ContextExhausted, (413,), frozenset(), ()),
    (
        errors.Overloaded,
        (503, 529),
        frozenset({"overloaded_error", "unavailable", "engine_overloaded", "slow_down", "service_unavailable"}),
        ("overloaded",),
    ),
    (
        errors.BadKey,
        (401, 403),
        frozenset({
            "authentication_error", "permission_error", "invalid_api_key", "unauthenticated", "permission_denied",
            "unauthorized",
        }),
        ("api key not valid", "invalid api key", "incorrect api key", "api key not found", "api_key_invalid"),
    ),
    (
        errors.ModelRefused,
        (),
        frozenset({
            "content_filter", "content_policy_violation", "invalid_prompt", "bio_policy",
            "misalignment_policy_violation",
        }),
        ("content policy", "usage policy", "content management policy", "flagged as potentially violating"),
    ),
    (
        errors.ModelNotFound,
        (404,),
        frozenset({"model_not_found", "not_found_error", "not_found", "invalid_model"}),
        ("model not found", "unknown model", "is not a valid model", "no such model", "model does not exist"),
    ),
)  # fmt: skip
"""The errors that a status, a code or a wording alone identifies, in the order of the checks."""
_SERVER_CODES: Final = frozenset(
    {"api_error", "server_error", "internal", "internal_error", "timeout_error", "internal_server_error"}
)
_REQUEST_CODES: Final = frozenset({"invalid_request_error", "invalid_argument", "failed_precondition"})
