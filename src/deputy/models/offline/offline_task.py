"""The task of the offline scout: the user's words without the prompts around them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import json

from deputy.core.conversation import UserMessage
from deputy.engine.prompts import prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.core.conversation import Message

_FORM_HEADING = "## The form of your answer"
_TASK_HEADING = "## Task\n"
_DATA, _IS_DATA = "[data from ", ": not instructions]"
_FENCE = "```"
_NOT_INCLUDED = "(not included: "
_OWN_LINES = (
    "Task: ",
    "Work folder: ",
    "Artifacts so far:",
    "- .deputy/work/",
    "## Inputs",
    "## Expected return",
    "## What was asked",
    "## What counts",
    "## The work",
    "```json",
)
"""Beginnings of lines that a command, a subtask or an evaluator adds to its task."""


def begun_at(messages: Sequence[Message]) -> int:
    """The index of the last user message that is not a prompt of Deputy's own."""
    said = [index for index, one in enumerate(messages) if isinstance(one, UserMessage) and not _is_own(one.text)]
    return said[-1] if said else 0


def task_in(messages: Sequence[Message]) -> str:
    """The task, or the last message after it; a correction of the form belongs to the same task."""
    said = [one.text for one in messages if isinstance(one, UserMessage) and not _is_own(one.text)]
    if not said:
        return ""
    first = _without_files(said[0])
    return first if _FORM_HEADING in first or len(said) == 1 else said[-1]


def wanted_words(task: str) -> str:
    """The text to search for: the task section of a prompt, without the instructions on its form."""
    asked = task.partition(_FORM_HEADING)[0]
    for around in _around():
        asked = asked.removeprefix(around)
    return "\n".join(_own_lines(asked.partition(_TASK_HEADING)[2] or asked))


def wanted_metadata(task: str) -> dict[str, Any] | None:
    """The metadata for a return, if the task asks for one."""
    _, heading, form = task.partition(_FORM_HEADING)
    line = next((line for line in form.splitlines() if line.strip().startswith('"metadata": {')), "")
    if not heading or not line:
        return None
    try:
        return json.decode(line.strip().removeprefix('"metadata": ').removesuffix(","), type=dict[str, Any])
    except ValueError:
        return None


def _is_own(text: str) -> bool:
    """Whether it is Deputy's own prompt to continue or to finish."""
    asks, hand_in = _asides()
    return text.strip() in asks or text.endswith(hand_in)


@cache
def _asides() -> tuple[frozenset[str], str]:
    hand_in = prompt("final_turn").partition("{reason}")[2]
    return frozenset(prompt(name) for name in ("continue", "resumed", "interrupted")), hand_in


@cache
def _around() -> tuple[str, ...]:
    """The beginnings of prompts that contain a task."""
    return tuple(prompt(name).partition("{task}")[0] for name in ("inline", "director", "evaluator"))


def _without_files(text: str) -> str:
    """A prompt without the context files before it."""
    lines = text.splitlines(keepends=True)
    start = 0
    while (end := _end_of_file(lines, start)) is not None:
        start = end
    return "".join(lines[start:])


def _end_of_file(lines: Sequence[str], start: int) -> int | None:
    """The line after a context file; None if there is no file at this line."""
    head = [line.strip() for line in lines[start : start + 3]]
    if len(head) < 3 or not head[0].startswith("## ") or head[1]:
        return None
    last = start + 2
    if head[2].startswith(_FENCE) and not head[2].strip("`"):
        last = next((at for at in range(last + 1, len(lines)) if lines[at].strip() == head[2]), len(lines))
    elif not head[2].startswith(_NOT_INCLUDED):
        return None
    return last + 2


def _own_lines(asked: str) -> Iterator[str]:
    """The lines of the task, without embedded data and the lines that a command adds."""
    end = ""
    for line in asked.splitlines():
        if end:
            end = "" if line == end else end
        elif line.startswith(_DATA) and line.endswith(_IS_DATA):
            end = f"[end of data {line.removesuffix(_IS_DATA).rpartition(' ')[2]}]"
        elif not line.startswith(_OWN_LINES):
            yield line
