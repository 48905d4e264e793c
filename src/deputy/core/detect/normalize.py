"""Every request as one prompt: sections that a subagent can work from without having seen the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.detect.found_request import FoundRequest

ESCALATION = """\
You work on your own and nobody reads along. If you cannot go on without a decision or a fact that only a person \
has, do not guess: finish what does not depend on it, then end your answer with your question, why you need it \
answered and which answers you can work with, followed by a last line that holds nothing but

[AWAITING_HUMAN_INPUT]

You will be given the answer and go on from there. Never write that line for any other reason."""


def normalize(
    *, system: str | None, task: str, context: Sequence[str], output: str | None, fallback: str | None = None
) -> str:
    """The prompt of a request; empty sections are left out, the escalation protocol never is."""
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
    """The prompt for whoever does it without a subagent: its degradation instructions go before the task."""
    return normalize(
        system=request.system,
        task=request.prompt,
        context=request.context,
        output=request.output,
        fallback=request.degradation,
    )


def _item(text: str) -> str:
    return "- " + text.replace("\n", "\n  ")
