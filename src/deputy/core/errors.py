"""What can go wrong: errors as values that travel in outcomes, and the exceptions of this project.

DeputyError                 everything this project raises on purpose
├── UsageError              the user or caller misused us; raised before any side effect
│   ├── BadFields           … in several fields at once
│   └── TaskBusy            a command is at work on the task already
├── StorageError            the home directory or a file in it failed; names the path and the way out
│   ├── StorageFull         no space is left
│   ├── StorageDenied       not allowed to read or write it, or not safe to
│   ├── StorageCorrupt      what is there is not what was written
│   │   └── StorageGone     deleted or replaced while this process wrote to it
│   ├── StorageTooNew       written by a newer version
│   ├── StorageBusy         another process kept it locked for longer than any transaction takes
│   └── StorageFailed       reading, writing or opening failed otherwise
├── NotAdmitted             this process is part of a run, which may not start what it is asked for
├── LeaseLost               another process has taken the run over; nothing was written
├── LeaseHeld               another process is at work on the run
├── UnknownRun              the journal has no run of this id
├── ContextChanged          a context file is not as it was when it was approved
├── StepFailed              a step of a run ended in an error, which is in its record
└── ModelError              a model gave no turn; says whether asking again may help, what was used and told so far
    ├── NoKey               no key for its provider
    ├── BadKey              the provider does not accept the key
    ├── ModelNotFound       the provider does not know the model
    ├── ContextExhausted    the conversation does not fit the model's window
    ├── RateLimited         too many requests or tokens for now
    ├── QuotaSpent          too much for good: waiting does not help
    ├── Overloaded          the provider has no room for now
    ├── ServerFailed        the provider broke
    ├── Refused             declined by policy
    ├── BadRequest          the provider does not understand or allow what was sent
    ├── NetworkFailed       no connection, or it was lost before the answer began
    ├── StreamCut           the answer ended in the middle
    ├── Silent              no progress within the idle limit
    ├── BadReply            what came is not what the protocol says
    ├── EmptyReply          a turn that says and does nothing
    └── ReplyTooLarge       more than any model may say
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType, structs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deputy.core.conversation import TokenUsage


class DeputyError(Exception):
    """Everything this project raises on purpose."""

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """What it says, after a function that takes secrets out."""
        return redact(str(self))


class UsageError(DeputyError):
    """The user or caller misused us: names the field, the value found and what would be right."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(self.safe_text(_without_secrets))

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """What it says, after a function that takes secrets out."""
        return f"{redact(self.field)}: found {_shown(self.found, redact)}; {redact(self.expected)}"


class TaskBusy(UsageError):
    """A command is at work on the task already; names its session."""

    def __init__(self, number: int, found: str, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"task {number}", found, f"it is session {session_id}: watch it, resume it or cancel it")


class BadFields(UsageError):
    """Fields that are not as they must be, all of them named at once: each with what is wrong and what is right."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        text = "; ".join(f"{field} {problem}" for field, problem in problems)
        self.field, self.found, self.expected = problems[0][0], None, text
        DeputyError.__init__(self, self.safe_text(_without_secrets))

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """What it says, after a function that takes secrets out."""
        return redact(self.expected)


class Unquoted(str):
    """What was found, said in words: an error shows it without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class StorageError(DeputyError):
    """The home directory or a file in it failed: names the path, what happened and the way out."""

    retryable = False
    remedy = "Look at the file and the disk it is on."

    def __init__(self, path: str, what: str, remedy: str = "") -> None:
        self.path = path
        self.what = what
        self.remedy = remedy or type(self).remedy
        super().__init__(f"{path}: {what}. {self.remedy}")


class StorageFull(StorageError):
    """No space is left where the journal lives."""

    retryable = True
    remedy = "Free some space (`deputy prune` removes old runs), or move the home with DEPUTY_HOME; then try again."


class StorageDenied(StorageError):
    """The home may not be read or written by this user, or would not be safe."""

    remedy = "Give your user the right to read and write it, or name another home with DEPUTY_HOME."


class StorageCorrupt(StorageError):
    """What is there is not what was written."""

    remedy = "Run `deputy doctor --repair`: it copies what can be read into a new journal, and keeps the damaged files."


class StorageGone(StorageCorrupt):
    """The journal was deleted or replaced while this process wrote to it: what it writes now is kept nowhere."""

    remedy = "This run cannot be resumed. Put the journal back from a copy, or start the work again."


class StorageTooNew(StorageError):
    """A newer version of Deputy wrote it; reading it as the old form could damage it."""

    remedy = "Upgrade Deputy, or name another home with DEPUTY_HOME."


class StorageBusy(StorageError):
    """Another process kept the journal locked for longer than any transaction takes."""

    retryable = True
    remedy = "End or wake the process that holds it (one that is stopped, perhaps), then try again."


class StorageFailed(StorageError):
    """Reading, writing or opening failed for another reason."""

    retryable = True
    remedy = "Check the disk and the limit on open files, then try again."


class NotAdmitted(DeputyError):
    """A run started this process, and the limits of that run do not allow what it is asked for."""


class LeaseLost(DeputyError):
    """Another process has taken the run over; nothing of this was written."""

    def __init__(self, run: str, epoch: int) -> None:
        self.run = run
        self.epoch = epoch
        super().__init__(f"{run}: another process has taken this run over (lease {epoch} is no longer valid)")


class LeaseHeld(DeputyError):
    """Another process is at work on the run."""

    def __init__(self, run: str, holder: str) -> None:
        self.run = run
        self.holder = holder
        super().__init__(f"{run}: {holder} is at work on it; wait for it to end, or cancel the run")


class UnknownRun(DeputyError):
    """The journal has no run of this id."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(self.safe_text(_without_secrets))

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """What it says, after a function that takes secrets out."""
        return f"no run has the id {_shown(self.run, redact)}; `deputy ps --all` lists those there are"


class ContextChanged(DeputyError):
    """A context file is not as it was when a person approved the task."""

    def __init__(self, paths: Sequence[str]) -> None:
        named = ", ".join(map(repr, paths))
        self.error = Error(
            type="validation",
            code="CONTEXT_CHANGED",
            message=f"Changed since the task was approved: {named:.500}.",
            recoverable=True,
            recommendation="Hand the task over again: its context is approved as it is then.",
        )
        super().__init__(self.error.message)


class StepFailed(DeputyError):
    """A step of a run ended in an error, which is in its record."""

    def __init__(self, key: str, error: Error) -> None:
        self.key = key
        self.error = error
        super().__init__(f"{key}: {error.message}")


class ModelError(DeputyError):
    """A model gave no turn. Its class says why, `retryable` whether the same request may succeed later."""

    code = "MODEL_FAILED"
    type = "provider"
    retryable = False
    recommendation = "Read the message, or try another model."

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
        """Who was asked, as `provider:model`."""
        self.status = status
        self.retry_after = retry_after
        """Seconds the provider wants left alone, where it said so."""
        if retryable is not None:
            self.retryable = retryable
        self.used: TokenUsage | None = None
        """What the failed attempt used, where the provider told."""
        self.text = ""
        """What the model had said until then."""

    def __str__(self) -> str:
        return f"{self.model}: {self.message}" if self.model else self.message

    def as_value(self) -> Error:
        """The same as a value for an outcome."""
        return Error(
            type=self.type,
            message=str(self),
            recoverable=self.retryable,
            recommendation=self.recommendation,
            code=self.code,
        )


class NoKey(ModelError):
    """There is no key for the model's provider."""

    code = "NO_API_KEY"
    recommendation = "Set the provider's key variable; `deputy models` lists them."


class BadKey(ModelError):
    """The provider does not accept the key, or not for this."""

    code = "BAD_API_KEY"
    recommendation = "Check the key and what it may be used for."


class ModelNotFound(ModelError):
    """The provider does not know the model."""

    code = "MODEL_NOT_FOUND"
    recommendation = "Check the model's name; `deputy models` lists known ones."


class ContextExhausted(ModelError):
    """The conversation does not fit the model's window."""

    code = "CONTEXT_EXHAUSTED"
    type = "context_exhausted"
    recommendation = "Hand in what there is, or go on with less in the conversation."

    def __init__(self, message: str, *, window: int | None = None, model: str = "", status: int | None = None) -> None:
        super().__init__(message, model=model, status=status)
        self.window = window
        """The window's size in tokens, where the provider told it."""


class RateLimited(ModelError):
    """Too many requests or tokens for now."""

    code = "RATE_LIMITED"
    retryable = True
    recommendation = "Wait and try again, or run fewer subagents at once."


class QuotaSpent(ModelError):
    """Too much for good: waiting does not help."""

    code = "QUOTA_SPENT"
    recommendation = "Check the plan and its limits with the provider, or send less at once."


class Overloaded(ModelError):
    """The provider has no room for now."""

    code = "OVERLOADED"
    retryable = True
    recommendation = "Try again later, or another model."


class ServerFailed(ModelError):
    """The provider broke."""

    code = "PROVIDER_FAILED"
    retryable = True
    recommendation = "Try again later, or another model."


class ModelRefused(ModelError):
    """Declined by the provider's or the model's policy."""

    code = "REFUSED"
    recommendation = "Word the task differently, or try another model."


class BadRequest(ModelError):
    """The provider does not understand or allow what was sent."""

    code = "BAD_REQUEST"


class NetworkFailed(ModelError):
    """There was no connection, or it was lost before the answer began."""

    code = "NETWORK_FAILED"
    retryable = True
    recommendation = "Check the network, the address and the proxy."


class StreamCut(ModelError):
    """The answer ended in the middle; nothing of it is taken for whole."""

    code = "STREAM_CUT"
    retryable = True
    recommendation = "Try again."


class Silent(ModelError):
    """The model made no progress within the idle limit, whatever bytes kept the line open."""

    code = "SILENT"
    type = "timeout"
    retryable = True
    recommendation = "Try again, or raise the idle limit of a model that is slow by nature."


class BadReply(ModelError):
    """What came is not what the protocol says."""

    code = "BAD_REPLY"
    retryable = True
    recommendation = "Check that the address speaks this protocol, or try again."


class EmptyReply(ModelError):
    """A turn that says nothing and calls nothing."""

    code = "EMPTY_REPLY"
    retryable = True
    recommendation = "Try again, or another model."


class ReplyTooLarge(ModelError):
    """More than any model may say."""

    code = "REPLY_TOO_LARGE"
    recommendation = "Ask for less at once, or try another model."


class Error(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as a value: what went wrong, whether it can be recovered from, and what to do about it."""

    type: str
    message: str
    recoverable: bool
    recommendation: str
    code: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    """The delegation it comes from, when it was passed up from a child."""


def passed_up(errors: Sequence[Error], session_id: str) -> tuple[Error, ...]:
    """A child's errors as its caller sees them: each names the delegation it first came from."""
    return tuple(e if e.session_id is not UNSET else structs.replace(e, session_id=session_id) for e in errors)


def remedy(errors: Sequence[Error]) -> str:
    """What to do about these errors: the first recovery instruction, or that a person must act, and why."""
    final = next((error for error in errors if not error.recoverable), None)
    if final is not None:
        return f"A person must act: {final.message} {final.recommendation}".rstrip()
    return errors[0].recommendation if errors else ""


_SHOWN = 200
_READ = 4_000
"""How much of a value an error message quotes, and how much of it is looked at for secrets first."""


def _shown(value: object, redact: Callable[[str], str]) -> str:
    """A value as an error message quotes it: without secrets, on one line, cut when it is long."""
    # First the secrets, then the cut: half a secret is not known for one.
    text = redact(repr(value)[:_READ])
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _without_secrets(text: str) -> str:
    """A text without what looks like a secret; the values of this machine are known only to who catches an error."""
    from deputy.core.redaction import Redactor

    return Redactor().redact(text)
