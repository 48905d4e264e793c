"""Errors: values that outcomes carry, and the exceptions of this project.

DeputyError                 every exception that Deputy raises on purpose
├── UsageError              wrong input of a user or caller; raised before any side effect
│   ├── BadFields           several wrong fields at once
│   ├── CannotSpawn         no model is configured, or nothing here can serve the model
│   └── TaskBusy            another command is running on the task
├── StorageError            the home directory or a file in it failed; names the path and a remedy
│   ├── StorageFull         no space is left
│   ├── StorageDenied       no permission to read or write it, or unsafe permissions
│   ├── StorageCorrupt      the content is damaged
│   │   └── StorageGone     deleted or replaced while this process wrote to it
│   ├── StorageTooNew       written by a newer version
│   ├── StorageTooOld       the tables of a store are missing or too old
│   ├── StorageBusy         another process kept it locked for too long
│   │   └── StorageAway     the database was away for too long; its runs stay live
│   └── StorageFailed       reading, writing or opening failed for another reason
├── WorkspaceError          a workspace cannot be sent, opened or brought back
├── NotAdmitted             a run started this process, and its limits do not allow the request
├── LeaseLost               another process has taken the run over; nothing was written
├── LeaseHeld               another process is running it
├── UnknownRun              the journal has no run with this id
├── ContextChanged          a context file has changed since its approval
├── StepFailed              a step of a run failed; the error is in its record
└── ModelError              a model call failed; its tree is in `model_errors.py`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, structs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class DeputyError(Exception):
    """The base of every exception that Deputy raises on purpose."""

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """The message, redacted with this function."""
        return redact(str(self))


class UsageError(DeputyError):
    """Wrong input of a user or caller: names the field, the value found and the valid values."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(self.safe_text(_without_secrets))

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """The message, redacted with this function."""
        return f"{redact(self.field)}: found {_shown(self.found, redact)}; {redact(self.expected)}"


class TaskBusy(UsageError):
    """Another command is running on the task; names its session."""

    def __init__(self, number: int, found: str, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"task {number}", found, f"watch, resume or cancel session {session_id}")


class BadFields(UsageError):
    """Several wrong fields, each with its problem and the valid values."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        text = "; ".join(f"{field} {problem}" for field, problem in problems)
        self.field, self.found, self.expected = problems[0][0], None, text
        DeputyError.__init__(self, self.safe_text(_without_secrets))

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """The message, redacted with this function."""
        return redact(self.expected)


class CannotSpawn(UsageError):
    """No model is configured, or nothing here can serve the model."""

    def __init__(self, message: str, remedy: str) -> None:
        self.field, self.found, self.expected = "model", None, f"{message}. {remedy}"
        DeputyError.__init__(self, self.expected)

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """The message, redacted with this function."""
        return redact(self.expected)


class Unquoted(str):
    """A found value in words, which an error shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class StorageError(DeputyError):
    """The home directory or a file in it failed: names the path, the problem and a remedy."""

    retryable = False
    remedy = "Check the file and its disk."

    def __init__(self, path: str, what: str, remedy: str = "") -> None:
        self.path = path
        self.what = what
        self.remedy = remedy or type(self).remedy
        super().__init__(f"{path}: {what}. {self.remedy}")


class StorageFull(StorageError):
    """No space is left on the journal's disk."""

    retryable = True
    remedy = "Free some space (`deputy prune` removes old runs), or move the home with DEPUTY_HOME; then try again."


class StorageDenied(StorageError):
    """The user has no permission to read or write the home, or its permissions are unsafe."""

    remedy = "Give your user permission to read and write it, or name another home with DEPUTY_HOME."


class StorageCorrupt(StorageError):
    """The content is damaged."""

    remedy = (
        "Run `deputy doctor --repair`: it copies all readable data into a new journal, and keeps the damaged files."
    )


class StorageGone(StorageCorrupt):
    """The journal was deleted or replaced while this process wrote to it; further writes are lost."""

    remedy = "This run cannot be resumed. Restore the journal from a copy, or start the work again."


class StorageTooNew(StorageError):
    """A newer version of Deputy wrote it; an older version could damage it."""

    remedy = "Upgrade Deputy, or name another home with DEPUTY_HOME."


class StorageTooOld(StorageError):
    """The tables of a store are missing, or older than this version needs."""

    remedy = "Run `deputy store migrate`."


class StorageBusy(StorageError):
    """Another process kept the journal locked for longer than any transaction takes."""

    retryable = True
    remedy = "End or continue the process that holds the lock (it may be stopped), then try again."


class StorageAway(StorageBusy):
    """The database of the store was away for longer than a process waits. Its runs stay live."""

    remedy = "Start the database, then run `deputy resume`: the runs are live, and nothing durable is lost."


class StorageFailed(StorageError):
    """Reading, writing or opening failed for another reason."""

    retryable = True
    remedy = "Check the disk and the limit on open files, then try again."


class WorkspaceError(DeputyError):
    """A workspace cannot be sent, opened or brought back: says what happened and what to do. Nothing is lost."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = f"{what}."
        self.remedy = remedy
        super().__init__(f"{what}. {remedy}")


class NotAdmitted(DeputyError):
    """A run started this process, and the limits of that run do not allow the request."""


class LeaseLost(DeputyError):
    """Another process has taken the run over; nothing was written."""

    def __init__(self, run: str, epoch: int) -> None:
        self.run = run
        self.epoch = epoch
        super().__init__(f"{run}: another process has taken this run over; follow it with `deputy watch {run}`")


class LeaseHeld(DeputyError):
    """Another process is running it."""

    def __init__(self, run: str, holder: str) -> None:
        self.run = run
        self.holder = holder
        super().__init__(f"{run}: {holder} is running it; wait until it ends, or cancel the run")


class UnknownRun(DeputyError):
    """The journal has no run with this id."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(self.safe_text(_without_secrets))

    def safe_text(self, redact: Callable[[str], str]) -> str:
        """The message, redacted with this function."""
        return f"no run has the id {_shown(self.run, redact)}; `deputy ps --all` lists all runs"


class ContextChanged(DeputyError):
    """A context file has changed since a person approved the task."""

    def __init__(self, paths: Sequence[str]) -> None:
        named = ", ".join(map(repr, paths))
        self.error = new_error("CONTEXT_CHANGED", f"Changed since the task was approved: {named:.500}.")
        super().__init__(self.error.message)


class StepFailed(DeputyError):
    """A step of a run failed; the error is in its record."""

    def __init__(self, key: str, error: Error) -> None:
        self.key = key
        self.error = error
        super().__init__(f"{key}: {error.message}")


# --- errors as values -------------------------------------------------------------------------------------------------


class Error(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as a value: the problem, whether it is recoverable, and a remedy."""

    type: str
    message: str
    recoverable: bool
    recommendation: str
    code: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    """The delegation that it comes from, if a child passed it up."""
    candidate: str | UnsetType = UNSET
    """The model and backend that it comes from, if they were only a fallback."""

    def __post_init__(self) -> None:
        if not self.recoverable and not self.recommendation.startswith(MANUAL):
            structs.force_setattr(self, "recommendation", f"{MANUAL}{self.recommendation or self.message}")


MANUAL = "Manual intervention required: "
"""The beginning of the recommendation of every error that a resume or a retry cannot repair."""


Blame: TypeAlias = Literal["backend", "model", "work"]
"""What failed: the backend (try the model elsewhere), the model (try another one), or the work itself (no fallback)."""


class ErrorKind(Struct, frozen=True, gc=False):
    """The fixed parts of an error code."""

    type: str
    remedy: str
    recoverable: bool = True
    blame: Blame = "work"


_DO_IT = "Do this work yourself instead of delegating it."
_NO_MORE_SPAWNS = "Continue with the results you have, or do this work yourself."
_RAISE_LIMIT = "Use the results so far, or resume it with a higher limit."

HOW_TO_CHOOSE_MODEL = (
    "Set the key of a provider (like ANTHROPIC_API_KEY or OPENAI_API_KEY), start a local model server (like Ollama), "
    "or name a model with --model, DEPUTY_MODEL or (in a program) Deputy(MODEL); `deputy doctor` shows what is found."
)

CATALOG: Mapping[str, ErrorKind] = {
    # refused by the guard
    "MAX_DEPTH_EXCEEDED": ErrorKind("depth", _DO_IT),
    "CYCLE_DETECTED": ErrorKind("cycle", _DO_IT),
    "GRANT_EXCEEDED": ErrorKind("grant", "Request only tools, paths and budget that you have yourself."),
    "SPAWN_QUOTA": ErrorKind("quota", _NO_MORE_SPAWNS),
    "SPAWN_BUDGET": ErrorKind("budget", _NO_MORE_SPAWNS),
    "LIVE_QUOTA": ErrorKind("quota", "Wait until one of them ends, then try again."),
    "PROVIDER_QUOTA": ErrorKind("quota", "Wait until one of them ends, or use a model of another provider."),
    "NO_TIME_LEFT": ErrorKind("timeout", "Finish with the results you have."),
    # limits and cancellation
    "TIMEOUT": ErrorKind("timeout", _RAISE_LIMIT),
    "BUDGET_SPENT": ErrorKind("budget", _RAISE_LIMIT),
    "PROMPT_TOO_LONG": ErrorKind("context_exhausted", "Use a model with a larger window.", False, blame="model"),
    "REPETITION": ErrorKind("repetition", "Use the results so far, or resume it and say what to do differently."),
    "NOTHING_READ": ErrorKind("validation", "Do not use the report. Name the file in the task, or use a larger model."),
    "TOOL_FAILED": ErrorKind("execution", "Correct the tool: `deputy errors --json` shows the stack trace."),
    "CANCELLED": ErrorKind("cancelled", "Resume it by its session id, or ask for the work again."),
    "CONTEXT_CHANGED": ErrorKind(
        "validation", "Resume the call at a terminal, or with --yes, to approve the new content."
    ),
    # backends
    "DO_IT_YOURSELF": ErrorKind("provider", "Do the task yourself, in this conversation."),
    "GRANT_NOT_HELD": ErrorKind("tool_unavailable", "Approve it, or delegate a task that only reads.", blame="backend"),
    "NATIVE_SKIPPED": ErrorKind("provider", "Start a new session to use it again.", blame="backend"),
    "PROGRAM_NOT_INSTALLED": ErrorKind("tool_unavailable", "Install it: `deputy doctor` says how.", False, "backend"),
    "PROGRAM_NOT_LOGGED_IN": ErrorKind("tool_unavailable", "Log in to the program.", False, "backend"),
    "PROGRAM_WRONG_VERSION": ErrorKind("tool_unavailable", "Install the program again.", False, "backend"),
    "PROGRAM_CRASHED": ErrorKind("execution", "Try again, or use another backend.", blame="backend"),
    "SESSION_GONE": ErrorKind("execution", "Start a new session with the findings so far.", blame="backend"),
    "NO_ANSWER": ErrorKind("execution", "Try again, or use another backend.", blame="backend"),
    # models
    "NO_MODEL": ErrorKind("no_model", HOW_TO_CHOOSE_MODEL, False),
    "MODEL_FAILED": ErrorKind("provider", "Read the message, or try another model.", False, "backend"),
    "NO_API_KEY": ErrorKind("provider", "Set the key; `deputy doctor` names the variable.", False, "backend"),
    "BAD_API_KEY": ErrorKind("provider", "Check the key and its permissions.", False, "backend"),
    "MODEL_NOT_FOUND": ErrorKind("provider", "Check the name; `deputy models` lists known ones.", False, "model"),
    "CONTEXT_EXHAUSTED": ErrorKind("context_exhausted", "Use the results, or resume it in a new conversation.", False),
    "RATE_LIMITED": ErrorKind("provider", "Wait and try again, or run fewer subagents at once.", blame="model"),
    "QUOTA_SPENT": ErrorKind("provider", "Check your plan with the provider, or send less at once.", False, "model"),
    "OVERLOADED": ErrorKind("provider", "Try again later, or another model.", blame="model"),
    "PROVIDER_FAILED": ErrorKind("provider", "Try again later, or another model.", blame="backend"),
    "REFUSED": ErrorKind("provider", "Word the task differently, or try another model.", False, "model"),
    "BAD_REQUEST": ErrorKind("provider", "Read the message, or try another model.", False, "backend"),
    # Another model would hide the remedy, so there is no fallback.
    "TOOLS_UNSUPPORTED": ErrorKind("provider", "Choose a model that supports tools.", False),
    "NETWORK_FAILED": ErrorKind(
        "provider", "Check that the server runs; else check the address, the network and the proxy.", blame="backend"
    ),
    "STREAM_CUT": ErrorKind("provider", "Try again.", blame="backend"),
    "SILENT": ErrorKind("timeout", "Try again, or raise the idle limit for a slow model.", blame="backend"),
    "BAD_REPLY": ErrorKind("provider", "Check that the address speaks this protocol, or try again.", blame="backend"),
    "EMPTY_REPLY": ErrorKind("provider", "Try again, or another model.", blame="backend"),
    # messages that are no report
    "TOOL_CALL_AS_TEXT": ErrorKind(
        "validation",
        "Use a model that supports tool calls, or start its server so that it reads them (llama.cpp: --jinja).",
        False,
    ),
    "INVALID_REQUEST": ErrorKind(
        "validation",
        "Say in the task that it must be done without subtasks, or grant Subtask with --allow or in its `tools`.",
    ),
    "REPLY_TOO_LARGE": ErrorKind("provider", "Ask for less at once, or try another model.", False, "backend"),
}
"""Every code that several places use; an error of another code is always the work's own."""


def new_error(code: str, message: str, remedy: str = "", *, recoverable: bool | None = None) -> Error:
    """The error with this code; a given remedy replaces that of the catalogue."""
    kind = CATALOG[code]
    return Error(
        type=kind.type,
        code=code,
        message=message,
        recoverable=kind.recoverable if recoverable is None else recoverable,
        recommendation=remedy or kind.remedy,
    )


def blame_of(error: Error) -> Blame:
    """What failed, by the error's code; unknown codes blame the work."""
    kind = None if error.code is UNSET else CATALOG.get(error.code)
    return "work" if kind is None else kind.blame


def passed_up(errors: Sequence[Error], session_id: str) -> tuple[Error, ...]:
    """A child's errors for its caller: each names the delegation that it comes from."""
    return tuple(e if e.session_id is not UNSET else structs.replace(e, session_id=session_id) for e in errors)


def remedy(errors: Sequence[Error]) -> str:
    """What to do about these errors: the first recommendation, or why a person must act."""
    final = unrecoverable(errors)
    if final is not None:
        advice = final.recommendation.removeprefix(MANUAL)
        return f"{MANUAL}{in_sentences(final.message, advice)}" if advice != final.message else final.recommendation
    return errors[0].recommendation if errors else ""


def in_sentences(message: str, advice: str) -> str:
    """A message and the advice after it; the message of a provider may lack its full stop."""
    return f"{message}{'' if message.endswith(('.', '!', '?')) or not advice else '.'} {advice}".rstrip()


def unrecoverable(errors: Sequence[Error]) -> Error | None:
    """The first error that needs a person; those of fallbacks do not, since the first candidate was chosen."""
    return next((error for error in errors if not error.recoverable and error.candidate is UNSET), None)


_SHOWN = 200
_READ = 4_000
"""The characters of a value that an error quotes, and those that are redacted first."""


def _shown(value: object, redact: Callable[[str], str]) -> str:
    """A value as an error quotes it: redacted, on one line, cut if it is long."""
    # Redact before the cut: half a secret is not recognised.
    text = redact(repr(value)[:_READ])
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _without_secrets(text: str) -> str:
    """Redact secrets by their shape; only the code that catches an error knows this machine's values."""
    from deputy.core.redaction import Redactor

    return Redactor().redact(text)
