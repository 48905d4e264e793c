"""Messages for transcripts and exports, read from any model's JSON form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw, Struct, UnsetType, json

if TYPE_CHECKING:
    from collections.abc import Iterator


class MessageCall(Struct, frozen=True, kw_only=True):
    """A tool call that a message makes."""

    id: str
    name: str
    arguments: Any


LOST_CALL = "The process died during this call. Its effect is unknown, and it was not repeated: check first."
"""The result of a call whose real result is lost."""
UNANSWERED_CALL = "No answer was given. The work is suspended; a later message is the answer."
INTERRUPTED_CALL = "This call was interrupted and has no result."


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message: role, text, tool calls, and the call that it answers."""

    role: str
    content: str
    tool_calls: tuple[MessageCall, ...] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET


NO = b"false"
"""A no as it is sent; for a question in words it means no answer."""


def is_unanswered(body: Raw) -> bool:
    """Whether this message means that a question stays unanswered."""
    return bytes(body) == NO


def messages_in(raw: Raw, role: str, call: str = "") -> tuple[Message, ...]:
    """The messages in some JSON: the known forms of models' messages, and anything else as its text."""
    try:
        value: Any = json.decode(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        text = value if isinstance(value, str) else bytes(raw).decode(errors="replace")
        return (_message(role, text, (), call),)
    said = cast("dict[str, Any]", value)
    results = said.get("results")
    if isinstance(results, list):
        found = [cast("dict[str, Any]", result) for result in cast("list[Any]", results) if isinstance(result, dict)]
        return tuple(_message("tool", _text(one.get("content")), (), str(one.get("call_id", call))) for one in found)
    parts = said.get("parts", said.get("content", said.get("text")))
    calls = (*_calls(parts), *_calls(said.get("tool_calls")))
    answered = str(said.get("tool_call_id", said.get("call_id", call)))
    return (_message(str(said.get("role", role)), _text(parts), calls, answered),)


def _message(role: str, content: str, calls: tuple[MessageCall, ...], call: str) -> Message:
    return Message(
        role=role if role in ("user", "assistant", "tool") else "user",
        content=content,
        tool_calls=calls or UNSET,
        tool_call_id=call if role == "tool" and call else UNSET,
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text_of_part(part) for part in cast("list[Any]", value))
    return "" if value is None else json.encode(value).decode()


def _text_of_part(part: Any) -> str:
    if not isinstance(part, dict):
        return part if isinstance(part, str) else ""
    found = cast("dict[str, Any]", part)
    text = found.get("text")
    return text if found.get("type", "text") == "text" and isinstance(text, str) else ""


def _calls(value: Any) -> Iterator[MessageCall]:
    for part in cast("list[Any]", value) if isinstance(value, list) else ():
        found = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        if found.get("name") and ("arguments" in found or "input" in found):
            arguments = found.get("arguments", found.get("input"))
            yield MessageCall(id=str(found.get("id", "")), name=str(found["name"]), arguments=arguments)
