"""Build the prompt of a request, in sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.detect.found_request import FoundRequest

ESCALATION = """\
You work on your own; no person reads your messages. If you need a decision or a fact that only a person has, do not \
guess: finish everything that does not depend on it, then end your answer with your question, why you need the answer \
and which answers you can work with, followed by a last line that contains only

[AWAITING_HUMAN_INPUT]

You then get the answer and continue. Never write that line for any other reason."""


def normalize(
    *, system: str | None, task: str, context: Sequence[str], output: str | None, fallback: str | None = None
) -> str:
    """The prompt of a request; empty sections are omitted, the escalation protocol is always there."""
    sections = {
        "System Instructions": system,
        "Escalation Protocol": ESCALATION,
        "Without a Subagent": fallback,
        "Task": task,
        "Context": "\n".join(map(_item, context)),
        "Expected Output": output,
    }
    return "\n\n".join(f"## {title}\n\n{content}" for title, content in sections.items() if content)


def inline_prompt(request: FoundRequest) -> str:
    """The prompt for the inline backend: the degradation instructions are before the task."""
    return normalize(
        system=request.system,
        task=request.prompt,
        context=request.context,
        output=request.output,
        fallback=request.degradation,
    )


def _item(text: str) -> str:
    return "- " + text.replace("\n", "\n  ")
