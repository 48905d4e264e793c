"""The types of a request found in a text."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, convert

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
    is_unclear: bool = False


class RequestJson(Struct, frozen=True, kw_only=True):
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


class FoundRequest(RequestJson, frozen=True, kw_only=True):
    """A delegation request in a text."""

    is_unclear: bool
    """The task is unclear, so the whole text is the prompt; a person may be asked instead."""


def request_json(request: FoundRequest) -> RequestJson:
    """The request in its JSON form."""
    return convert(request, RequestJson, from_attributes=True)
