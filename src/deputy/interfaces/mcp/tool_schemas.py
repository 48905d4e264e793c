"""The arguments of the tools as JSON Schemas; Delegate's own schema is in `core/task.py`."""

from __future__ import annotations

from typing import Any

from deputy.core.task import DELEGATE_SCHEMA

MOST_WAIT_SECONDS = 3600
DEFAULT_WAIT_SECONDS = 30
MOST_TEXT = 1_000_000

_SESSION_ID: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "The session_id from DelegateStart or from a result.",
}

START: dict[str, Any] = {
    **DELEGATE_SCHEMA,
    "properties": {name: part for name, part in DELEGATE_SCHEMA["properties"].items() if name != "return"},
}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


RUN = _object(("session_id",), session_id=_SESSION_ID)
RESULT = _object(
    ("session_id",),
    session_id=_SESSION_ID,
    wait={
        "type": "number",
        "minimum": 0,
        "maximum": MOST_WAIT_SECONDS,
        "default": DEFAULT_WAIT_SECONDS,
        "description": "Seconds to wait for the end.",
    },
    **{"return": DELEGATE_SCHEMA["properties"]["return"]},
)
RESUME = _object(
    ("session_id",),
    session_id=_SESSION_ID,
    answer={"type": "string", "minLength": 1, "description": "The answer to its question, or a further message."},
)
DETECT = _object(("text",), text={"type": "string", "maxLength": MOST_TEXT, "description": "The text to search."})
AGENTS = _object()
