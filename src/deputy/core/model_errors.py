"""Why a model call failed.

ModelError              has `retryable`, the usage and the text so far
├── NoKey               no key for its provider
├── BadKey              the provider does not accept the key
├── ModelNotFound       the provider does not know the model
├── ContextExhausted    the conversation does not fit the context window
├── RateLimited         too many requests or tokens for now
├── QuotaSpent          the quota is used up; waiting does not help
├── Overloaded          the provider is overloaded
├── ServerFailed        the provider had an internal error
├── ModelRefused        declined by policy
├── BadRequest          the provider does not accept the request
├── ToolsUnsupported    the model, or its server as it was started, takes no tools
├── NetworkFailed       no connection, or it was lost before the answer began
├── StreamCut           the answer ended in the middle
├── Silent              no progress within the idle limit
├── BadReply            the answer violates the protocol
├── EmptyReply          a turn without text and calls
└── ReplyTooLarge       the answer is over the size limit
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import CATALOG, DeputyError, new_error

if TYPE_CHECKING:
    from deputy.core.conversation import TokenUsage
    from deputy.core.errors import Error


class ModelError(DeputyError):
    """A model call failed. The class says why, `retryable` whether the same request may succeed later."""

    code = "MODEL_FAILED"
    remedy = ""
    """Replaces the remedy of the catalogue."""

    def __init__(
        self,
        message: str,
        *,
        model: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.model = model
        self.status = status
        self.retry_after = retry_after
        self.retryable = CATALOG[self.code].recoverable if retryable is None else retryable
        self.used: TokenUsage | None = None
        self.text = ""
        self.attempts = 1
        """How many requests were sent, with retries."""

    def __str__(self) -> str:
        facts = [f"HTTP {self.status}"] if self.status else []
        facts += [f"{self.attempts} attempts"] if self.attempts > 1 else []
        message = f"{self.message} ({', '.join(facts)})" if facts else self.message
        return f"{self.model}: {message}" if self.model else message

    def as_value(self) -> Error:
        """The error as a value for an outcome."""
        return new_error(self.code, str(self), self.remedy, recoverable=self.retryable)


class NoKey(ModelError):
    """No key for the model's provider."""

    code = "NO_API_KEY"


class BadKey(ModelError):
    """The provider does not accept the key, or not for this request."""

    code = "BAD_API_KEY"


class ModelNotFound(ModelError):
    """The provider does not know the model."""

    code = "MODEL_NOT_FOUND"


class ContextExhausted(ModelError):
    """The conversation does not fit the context window."""

    code = "CONTEXT_EXHAUSTED"

    def __init__(self, message: str, *, window: int | None = None, model: str = "", status: int | None = None) -> None:
        super().__init__(message, model=model, status=status)
        self.window = window

    def as_value(self) -> Error:
        """The error as a value: the request cannot be repeated, but a new conversation can go on."""
        return new_error(self.code, str(self), recoverable=True)


class RateLimited(ModelError):
    """Too many requests or tokens for now."""

    code = "RATE_LIMITED"


class QuotaSpent(ModelError):
    """The quota is used up; waiting does not help."""

    code = "QUOTA_SPENT"


class Overloaded(ModelError):
    """The provider is overloaded."""

    code = "OVERLOADED"


class ServerFailed(ModelError):
    """The provider had an internal error."""

    code = "PROVIDER_FAILED"


class ModelRefused(ModelError):
    """Declined by the provider's or the model's policy."""

    code = "REFUSED"


class BadRequest(ModelError):
    """The provider does not accept the request."""

    code = "BAD_REQUEST"


class ToolsUnsupported(ModelError):
    """The model, or its server as it was started, takes no tools."""

    code = "TOOLS_UNSUPPORTED"


class NetworkFailed(ModelError):
    """No connection, or it was lost before the answer began."""

    code = "NETWORK_FAILED"


class StreamCut(ModelError):
    """The answer ended in the middle."""

    code = "STREAM_CUT"


class Silent(ModelError):
    """No progress within the idle limit, even if keep-alive bytes came."""

    code = "SILENT"


class BadReply(ModelError):
    """The answer violates the protocol."""

    code = "BAD_REPLY"


class EmptyReply(ModelError):
    """A turn without text and calls."""

    code = "EMPTY_REPLY"


class ReplyTooLarge(ModelError):
    """The answer is over the size limit."""

    code = "REPLY_TOO_LARGE"
