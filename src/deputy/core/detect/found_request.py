"""The types of a request found in a text, and its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, convert

if TYPE_CHECKING:
    from collections.abc import Sequence

Pattern = Literal["xml", "prose", "user"]
ModelSource = Literal["explicit", "heuristic", "default"]


class RequestDraft(Struct, frozen=True, kw_only=True):
    """A request as a pattern matched it, before inference."""

    pattern: Pattern
    span: tuple[int, int]
    prompt: str
    model: str | None = None
    system: str | None = None
    context: tuple[str, ...] = ()
    output: str | None = None
    degradation: str | None = None
    agent: str | None = None
    tools: tuple[str, ...] | None = None
    timeout: float | None = None
    warnings: tuple[str, ...] = ()
    is_unclear: bool = False


class RequestJson(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delegation request in a text, as JSON."""

    pattern: Pattern
    model: str | None
    """The name of the model in the text, if there is one."""
    model_source: ModelSource
    resolved_model: str
    prompt: str
    system: str | None
    context: tuple[str, ...]
    output: str | None
    degradation: str | None
    span: tuple[int, int]
    """The character range in the text; the end is exclusive."""
    normalized: str
    agent: str | None = None
    tools: tuple[str, ...] | None = None
    timeout: float | None = None
    """Seconds."""
    warnings: tuple[str, ...] = ()
    """Attributes that are not used, and why."""


class FoundRequest(RequestJson, frozen=True, kw_only=True):
    """A delegation request in a text."""

    is_unclear: bool
    """The task is unclear, so the whole text is the prompt; a person may be asked instead."""


def request_json(request: FoundRequest) -> RequestJson:
    """The request in its JSON form."""
    return convert(request, RequestJson, from_attributes=True)


ESCALATION = """\
You work on your own; no person reads your messages. If you need a decision or a fact that only a person has, do not \
guess: finish everything that does not depend on it, then end your answer with your question, why you need the answer \
and which answers you can work with, followed by a last line that contains only

[AWAITING_HUMAN_INPUT]

You then get the answer and continue. Never write that line for any other reason."""


def normalize(*, system: str | None, task: str, context: Sequence[str], output: str | None) -> str:
    """The prompt of a request; empty sections are omitted, the escalation protocol is always there."""
    sections = {
        "System Instructions": system,
        "Escalation Protocol": ESCALATION,
        "Task": task,
        "Context": "\n".join(map(_item, context)),
        "Expected Output": output,
    }
    return "\n\n".join(f"## {title}\n\n{content}" for title, content in sections.items() if content)


def _item(text: str) -> str:
    return "- " + text.replace("\n", "\n  ")
