"""What can go wrong: errors as values that travel in outcomes, and the exceptions of this project.

DeputyError                 everything this project raises on purpose
├── UsageError              the user or caller misused us; raised before any side effect
├── StorageError            the home directory or a file in it failed; names the path and the way out
│   ├── StorageFull         no space is left
│   ├── StorageDenied       not allowed to read or write it, or not safe to
│   ├── StorageCorrupt      what is there is not what was written
│   ├── StorageTooNew       written by a newer version
│   ├── StorageBusy         another process kept it locked for longer than any transaction takes
│   └── StorageFailed       reading, writing or opening failed otherwise
├── LeaseLost               another process has taken the run over; nothing was written
├── LeaseHeld               another process is at work on the run
├── UnknownRun              the journal has no run of this id
└── StepFailed              a step of a run ended in an error, which is in its record
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType, structs

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeputyError(Exception):
    """Everything this project raises on purpose."""


class UsageError(DeputyError):
    """The user or caller misused us: names the field, the value found and what would be right."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field}: found {_shown(found)}; {expected}")


class StorageError(DeputyError):
    """The home directory or a file in it failed: names the path, what happened and the way out."""

    retryable = False
    way_out = "Look at the file and the disk it is on."

    def __init__(self, path: str, what: str, way_out: str = "") -> None:
        self.path = path
        self.what = what
        self.way_out = way_out or type(self).way_out
        super().__init__(f"{path}: {what}. {self.way_out}")


class StorageFull(StorageError):
    """No space is left where the journal lives."""

    retryable = True
    way_out = "Free some space (`deputy prune` removes old runs), or move the home with DEPUTY_HOME; then try again."


class StorageDenied(StorageError):
    """The home may not be read or written by this user, or would not be safe."""

    way_out = "Give your user the right to read and write it, or name another home with DEPUTY_HOME."


class StorageCorrupt(StorageError):
    """What is there is not what was written."""

    way_out = "Move it aside (what can still be read stays readable with DEPUTY_HOME set to it) and start anew."


class StorageTooNew(StorageError):
    """A newer version of Deputy wrote it; reading it as the old form could damage it."""

    way_out = "Upgrade Deputy, or name another home with DEPUTY_HOME."


class StorageBusy(StorageError):
    """Another process kept the journal locked for longer than any transaction takes."""

    retryable = True
    way_out = "End or wake the process that holds it (one that is stopped, perhaps), then try again."


class StorageFailed(StorageError):
    """Reading, writing or opening failed for another reason."""

    retryable = True
    way_out = "Check the disk and the limit on open files, then try again."


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
        super().__init__(f"no run has the id {_shown(run)}; `deputy ps --all` lists those there are")


class StepFailed(DeputyError):
    """A step of a run ended in an error, which is in its record."""

    def __init__(self, key: str, error: Error) -> None:
        self.key = key
        self.error = error
        super().__init__(f"{key}: {error.message}")


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


def advice(errors: Sequence[Error]) -> str:
    """What to do about these errors: the first recovery instruction, or that a person must act, and why."""
    final = next((error for error in errors if not error.recoverable), None)
    if final is not None:
        return f"A person must act: {final.message} {final.recommendation}".rstrip()
    return errors[0].recommendation if errors else ""


def _shown(value: object, limit: int = 80) -> str:
    """A value as an error message quotes it: on one line, cut when it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
