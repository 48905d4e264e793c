"""A request found in a text: first as a pattern sees it, then complete."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, convert

Pattern = Literal["xml", "prose", "user"]
ModelSource = Literal["explicit", "heuristic", "default"]


class RequestDraft(Struct, frozen=True, kw_only=True):
    """What a pattern sees in a text, before anything is inferred from it."""

    pattern: Pattern
    span: tuple[int, int]
    prompt: str
    model: str | None = None
    system: str | None = None
    context: tuple[str, ...] = ()
    output: str | None = None
    degradation: str | None = None
    is_unclear: bool = False


class RequestJson(Struct, frozen=True, kw_only=True):
    """A delegation request that a text holds, as programs read it."""

    pattern: Pattern
    model: str | None
    """What the text calls the model, if it names one."""
    model_source: ModelSource
    resolved_model: str
    prompt: str
    system: str | None
    context: tuple[str, ...]
    output: str | None
    degradation: str | None
    span: tuple[int, int]
    """Where it stands: characters of the text, from the first to one past the last."""
    normalized: str


class FoundRequest(RequestJson, frozen=True, kw_only=True):
    """A delegation request that a text holds."""

    is_unclear: bool
    """Nothing in or around it says what to do, so all of the text is the prompt; a person may be asked instead."""


def request_json(request: FoundRequest) -> RequestJson:
    """The request as programs read it."""
    return convert(request, RequestJson, from_attributes=True)
