"""Classify a provider's error by its status, headers and body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Struct

from deputy.core import provider_error_patterns
from deputy.core.errors import (
    BadKey,
    BadRequest,
    ContextExhausted,
    ModelError,
    ModelNotFound,
    ModelRefused,
    Overloaded,
    QuotaSpent,
    RateLimited,
    ServerFailed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_LIMIT: Final = 2000


class _ParsedError(Struct):
    """The parts of an error body, whatever its shape."""

    message: str
    codes: frozenset[str]
    status: int | None
    delay: float | None


def provider_error(
    body: bytes | msgspec.Raw, *, status: int | None, headers: Mapping[str, str] | None = None, now: float = 0.0
) -> ModelError:
    """The typed error for a provider's answer; `status` is None inside a stream, `now` resolves a Retry-After date."""
    text = _read(bytes(body), status)
    headers = headers or {}
    status = status if status is not None and status >= 300 else text.status
    kind = _kind(text, status)
    if kind is ContextExhausted:
        return ContextExhausted(text.message, window=window_in_message(text.message), status=status)
    error = kind(text.message, status=status, retry_after=_retry_after(headers, text, now))
    if headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def _kind(text: _ParsedError, status: int | None) -> type[ModelError]:
    words, codes = text.message.lower(), text.codes
    is_throttled = _has(words, provider_error_patterns.NOT_CONTEXT_WORDS)
    if is_throttled and (status == 413 or _has(words, provider_error_patterns.TOO_MUCH_AT_ONCE_WORDS)):
        return QuotaSpent
    if not is_throttled and (
        codes & provider_error_patterns.CONTEXT_CODES or _has(words, provider_error_patterns.CONTEXT_WORDS)
    ):
        return ContextExhausted
    if (
        status == 402
        or codes & provider_error_patterns.QUOTA_CODES
        or (_has(words, provider_error_patterns.QUOTA_WORDS) and text.delay is None)
    ):
        return QuotaSpent
    if status == 429 or (status != 413 and codes & provider_error_patterns.RATE_CODES):
        return RateLimited
    if status == 413:
        return ContextExhausted
    if status in (503, 529) or codes & provider_error_patterns.OVERLOAD_CODES or "overloaded" in words:
        return Overloaded
    if (
        status in (401, 403)
        or codes & provider_error_patterns.KEY_CODES
        or _has(words, provider_error_patterns.KEY_WORDS)
    ):
        return BadKey
    if codes & provider_error_patterns.POLICY_CODES or _has(words, provider_error_patterns.POLICY_WORDS):
        return ModelRefused
    if (
        status == 404
        or codes & provider_error_patterns.MISSING_CODES
        or _has(words, provider_error_patterns.MISSING_WORDS)
    ):
        return ModelNotFound
    if status is None:
        return BadRequest if codes & provider_error_patterns.REQUEST_CODES else ServerFailed
    if status >= 500 or status in (408, 409, 425) or codes & provider_error_patterns.SERVER_CODES:
        return ServerFailed
    return BadRequest


def _has(words: str, needles: tuple[str, ...]) -> bool:
    return any(needle in words for needle in needles)


def window_in_message(message: str) -> int | None:
    """The context window, if an error message names it."""
    words = message.lower()
    for mark in provider_error_patterns.CONTEXT_LIMIT_MARKS:
        at = words.find(mark)
        if at >= 0 and (number := _first_number(words[at + len(mark) : at + len(mark) + 24])):
            return number
    return None


def _first_number(text: str) -> int | None:
    start = next((i for i, character in enumerate(text) if character.isascii() and character.isdigit()), None)
    if start is None:
        return None
    digits = ""
    for character in text[start:]:
        if character.isascii() and character.isdigit():
            digits += character
        elif character not in ",_":
            break
    value = int(digits)
    return value if 256 <= value <= 100_000_000 else None


# --- shapes of bodies -------------------------------------------------------------------------------------------------


def _read(body: bytes, status: int | None) -> _ParsedError:
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _ParsedError(_plain(body, status), frozenset(), None, None)
    fields = as_object(as_list(value)[0] if as_list(value) else value) or {}
    inner = fields.get("error")
    fields = {"message": inner, **fields} if isinstance(inner, str) else as_object(inner) or fields
    codes = [fields.get(name) for name in ("code", "type", "status", "reason")]
    number = next((code for code in codes if isinstance(code, int) and 400 <= code < 600), None)
    message = next((m for name in ("message", "detail", "msg") if (m := fields.get(name))), None)
    text = message if isinstance(message, str) else msgspec.json.encode(message or value).decode()
    reasons = [str(detail.get("reason")) for detail in _details(fields)]
    return _ParsedError(
        _short(text) or f"the provider answered with status {status}",
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


def _plain(body: bytes, status: int | None) -> str:
    """The message of a body that is not JSON: its first line, or only the status for an HTML page."""
    text = body[:MESSAGE_LIMIT].decode("utf-8", "replace").strip()
    if not text or text.startswith("<"):
        return (
            f"the provider answered with status {status} and no message" if status else "the provider gave no message"
        )
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
    if not isinstance(text, str) or len(text) > 40:
        return None
    total, digits, units = 0.0, "", {"h": 3600.0, "m": 60.0, "s": 1.0}
    text = text.replace("ms", "i")
    for character in text:
        if character in "0123456789.":
            digits += character
            continue
        unit = 0.001 if character == "i" else units.get(character)
        number = _number(digits)
        if unit is None or number is None:
            return None
        total, digits = total + number * unit, ""
    return total if not digits and total else None
