"""The queues of workers and their labels."""

from __future__ import annotations

QUEUE = "deputy"
"""The queue of workers without a label; that of a label is `deputy.LABEL`."""
_LABEL_LENGTH = 40


def is_label(text: str) -> bool:
    """Whether a text can be the label of workers."""
    return 0 < len(text) <= _LABEL_LENGTH and text.isascii() and text.replace("-", "").isalnum()


def queue_of(label: str) -> str:
    """The queue of the workers with a label; those without one have an empty label."""
    return f"{QUEUE}.{label}" if label else QUEUE


def label_of(queue: str) -> str:
    """The label of a queue."""
    return queue.removeprefix(QUEUE).removeprefix(".")


def no_worker(queue: str) -> str:
    """Why a run waits on a queue that no worker serves, and what to do."""
    label = label_of(queue)
    if not label:
        return "queued: no worker is there. Start one: deputy worker; or cancel it, and use --here"
    start = f"deputy worker --labels {label}"
    return f"queued: no worker serves `{label}`. Start one: {start}; or cancel it, and use --here"
