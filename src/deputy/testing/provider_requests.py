"""What a request asks, whichever of the four protocols it is written in."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, cast

from msgspec import Struct, json

from deputy.testing.protocol_streams import Protocol


class ProviderRequest(Struct, frozen=True, kw_only=True):
    """A request as a script sees it."""

    protocol: Protocol
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    model: str
    opening: str
    """Its system prompt and what was said before the model's first turn."""
    answered: int
    """How many turns the model has had in it."""
    at: float
    """When it came, on the server's clock."""


def protocol_of(path: str) -> Protocol | None:
    """The protocol that an address belongs to."""
    path = path.partition("?")[0]
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/responses"):
        return "openai-responses"
    if path.endswith("/chat/completions"):
        return "openai-chat"
    if path.endswith(":streamGenerateContent"):
        return "google"
    return None


def read_request(protocol: Protocol, path: str, headers: dict[str, str], content: bytes, at: float) -> ProviderRequest:
    """A request taken apart; ValueError when it is none."""
    fields = json.decode(content, type=dict[str, Any])
    messages: Any = fields.get({"openai-responses": "input", "google": "contents"}.get(protocol, "messages"))
    rows: list[dict[str, Any]] = (
        [{"role": "user", "content": messages}] if isinstance(messages, str) else messages or []
    )
    system = fields.get("system") or fields.get("instructions") or fields.get("systemInstruction") or ""
    # Programs say where they are before they say the task, in messages of their own.
    first = [row for row in takewhile(lambda row: not _is_own(row), rows) if row.get("role") == "user"]
    opening = [_texts(system), *(_texts(row) for row in rows if row.get("role") == "system"), _texts(first)]
    name = str(fields.get("model", "")) or path.partition(":")[0].rpartition("/")[2]
    return ProviderRequest(
        protocol=protocol,
        path=path,
        headers=headers,
        body=fields,
        model=name,
        opening="\n".join(opening),
        answered=_answers(protocol, rows),
        at=at,
    )


def _answers(protocol: Protocol, rows: list[dict[str, Any]]) -> int:
    """Turns are runs of what the model said: in Responses one turn is several items."""
    if protocol != "openai-responses":
        return sum(1 for row in rows if row.get("role") in ("assistant", "model"))
    own = [_is_own(row) for row in rows]
    return sum(1 for before, now in zip([False, *own], own, strict=False) if now and not before)


def _is_own(item: dict[str, Any]) -> bool:
    return item.get("type") in ("function_call", "reasoning") or item.get("role") in ("assistant", "model")


def _texts(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(_texts(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return _texts(fields.get("content") or fields.get("parts") or fields.get("text"))
    return value if isinstance(value, str) else ""
