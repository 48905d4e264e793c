"""Progress events for watchers of a running subagent; never replayed, and only the latest are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, json, structs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.conversation import RetryNotice
    from deputy.core.redaction import Redactor

Kind = Literal[
    "started",
    "tool_call",
    "tool_error",
    "note",
    "tokens",
    "thinking",
    "text",
    "retry",
    "fallback",
    "waiting",
    "warning",
    "completed",
]


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One progress event of one subagent; only the fields of its kind are set."""

    event: Kind
    label: str
    session_id: str = ""
    parent: str = ""
    index: int | None = None
    total: int | None = None
    tool: str | None = None
    args: str | None = None
    content: str | None = None
    input: int | None = None
    output: int | None = None
    """Tokens; of `thinking`: how many this turn has spent on it so far, by our estimate."""
    cost: float | None = None
    """In dollars; of `tokens`: None if unknown."""
    model: str | None = None
    """Of `tokens` and `completed`: the model that answered."""
    estimated: bool = False
    status: str | None = None
    reason: str | None = None
    attempt: int | None = None
    """Of `retry`: the number of the attempt that follows."""
    of: int | None = None
    """Of `retry`: the maximum number of attempts."""
    wait: float | None = None
    """Of `retry`: the seconds until that attempt."""
    http_status: int | None = None
    """Of `retry`: the status of the answer that failed, if there was one."""
    seconds: float | None = None
    """Of `started`: seconds worked before, for a late watcher or of a resumed run; of `completed`: all seconds worked.

    For a late watcher: seconds between the start and this event.
    """


def retry_progress(label: str, notice: RetryNotice) -> Progress:
    """The event of a retry."""
    return Progress(
        event="retry",
        label=label,
        attempt=notice.attempt + 1 if notice.attempt else None,
        of=notice.of,
        wait=round(notice.seconds, 3) or None,
        http_status=notice.status,
        reason=notice.message,
    )


def _wait_seconds(seconds: float) -> float:
    """Whole seconds; below one second with one digit, and never 0."""
    return max(0.1, round(seconds, 1)) if seconds < 1 else round(seconds)


def retry_text(progress: Progress) -> str:
    """A model call that is repeated: which attempt of how many, after which wait, and why."""
    count = "" if progress.attempt is None else f" ({progress.attempt}{f'/{progress.of}' if progress.of else ''})"
    wait = "" if progress.wait is None else f" in {_wait_seconds(progress.wait)} s"
    status = "" if progress.http_status is None else f"HTTP {progress.http_status}: "
    return f"retrying{count}{wait}: {status}{progress.reason or ''}"


_TEXTS = ("label", "tool", "args", "content", "reason")
ARGUMENTS_LENGTH = 120
_HEAD = 4
"""How many times the shown length is read: spaces may collapse."""


def redacted(progress: Progress, redactor: Redactor) -> Progress:
    """Redact the texts of an event, except model text, which was redacted as a stream."""
    names = ("label",) if progress.event == "text" else _TEXTS
    found = {name: text for name in names if (text := getattr(progress, name))}
    shown = {name: redactor.redact(text) for name, text in found.items()}
    return progress if shown == found else structs.replace(progress, **shown)


def shown_arguments(arguments: Mapping[str, object], redactor: Redactor) -> str:
    """The arguments of a tool call on one line: the value of a single text, else `name=value` for each."""
    values = list(arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        return shown_head(values[0], ARGUMENTS_LENGTH, redactor)
    pairs = (f"{name}={value if isinstance(value, str) else _json(value)}" for name, value in arguments.items())
    return shown_head(" ".join(pairs), ARGUMENTS_LENGTH, redactor)


def _json(value: object) -> str:
    return json.encode(value).decode()


def shown_head(text: str, length: int, redactor: Redactor) -> str:
    """The beginning of a text on one line, redacted before the cut: half a secret is not recognised."""
    is_long = len(text) > length * _HEAD
    head = redactor.redact(text[: length * _HEAD], is_cut=is_long)
    flat = " ".join(head.split())
    return f"{flat[: length - 1]}…" if is_long or len(flat) > length else flat
