"""Retries of model calls: rate-limited, with jitter, honouring Retry-After, within a budget."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from deputy.core.conversation import RetryNotice
from deputy.core.model_errors import BadRequest, EmptyReply, ModelError, Overloaded, RateLimited
from deputy.engine.ports.model import is_metered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from deputy.core.conversation import Conversation, GenerationSettings, StreamEvent, Toolset
    from deputy.engine.ports import Model
    from deputy.models.rate_limiter import RateLimiter

SHORTEST_WAIT_SECONDS: Final = 0.5


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The number of attempts and the waits."""

    attempts: int = 5
    attempts_when_limited: int = 20
    """More than `attempts`: waiting for a rate limit is not a failure."""
    longest_wait_seconds: float = 60.0
    max_wait_seconds: float = 300.0
    """The total of all waits of one turn; a longer Retry-After ends the turn."""


class RetryingModel:
    """A model that retries retryable failures.

    An incomplete turn has no side effects, so it is safe to repeat. Its usage is emitted, and `RetryNotice` discards
    its deltas.
    """

    def __init__(
        self,
        model: Model,
        limiter: RateLimiter,
        *,
        policy: RetryPolicy | None = None,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = model.name
        self.is_metered = is_metered(model)
        self._model = model
        self._limiter = limiter
        self._policy = policy or RetryPolicy()
        self._draw = draw
        self._sleep = sleep
        self._takes_schemas = True

    @property
    def context_window(self) -> int | None:
        """The context window of the wrapped model."""
        return self._model.context_window

    async def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """One turn, of one or more requests."""
        policy, wait_seconds = self._policy, self._policy.max_wait_seconds
        if settings.output is not None and not self._takes_schemas:
            settings = _without_schema(settings)
        is_throttle = False
        for attempt in count(1):
            started = await self._entered(wait_seconds, is_throttle_retry=is_throttle)
            try:
                async with aclosing(self._model.stream(conversation, tools, settings)) as events:
                    async for event in events:
                        yield event
                self._limiter.succeeded()
                return
            except ModelError as error:
                failure, error.attempts = error, attempt
                if settings.output is not None and _is_schema_refused(error):
                    # Remembered for later turns of this process.
                    self._takes_schemas, settings, is_throttle = False, _without_schema(settings), False
                    continue
                wait = self._wait(error, attempt)
                is_throttle = isinstance(error, RateLimited | Overloaded)
                if is_throttle:
                    await self._limiter.throttled(started, wait)
                most = policy.attempts_when_limited if isinstance(error, RateLimited) else policy.attempts
                # The same request is likely to be answered with nothing again: the loop asks in other words.
                is_final = isinstance(error, EmptyReply) or not error.retryable
                if is_final or attempt >= most or wait > wait_seconds:
                    raise
            finally:
                self._limiter.release()
            wait_seconds -= wait
            if failure.used is not None:
                yield failure.used
            yield RetryNotice(
                attempt=attempt,
                of=most,
                seconds=wait,
                code=failure.code,
                message=failure.message,
                status=failure.status,
            )
            if not is_throttle:
                await self._sleep(wait)

    async def _entered(self, wait_seconds: float, *, is_throttle_retry: bool) -> float:
        try:
            return await self._limiter.enter(wait_seconds, is_throttle_retry=is_throttle_retry)
        except RateLimited as error:
            error.model = self.name
            raise

    def _wait(self, error: ModelError, attempt: int) -> float:
        if error.retry_after is not None:
            return error.retry_after
        longest = min(self._policy.longest_wait_seconds, SHORTEST_WAIT_SECONDS * 2**attempt)
        return longest * (0.5 + self._draw() / 2)


_SCHEMA_WORDS: Final = (
    "response_format", "output_config", "output_format", "text.format", "json_schema", "responsejsonschema",
    "response_json_schema", "response_schema", "responsemimetype", "response_mime_type", "response mime type",
    "structured output", "json mode", "invalid schema", "grammar",
)  # fmt: skip
"""Words in the errors of servers that refuse the schema field."""


def _is_schema_refused(error: ModelError) -> bool:
    words = error.message.lower()
    return isinstance(error, BadRequest) and any(wording in words for wording in _SCHEMA_WORDS)


def _without_schema(settings: GenerationSettings) -> GenerationSettings:
    """The settings without a schema; the idempotency key changes, because it is another request."""
    key = settings.idempotency_key
    return structs.replace(settings, output=None, idempotency_key=None if key is None else f"{key}:plain")
