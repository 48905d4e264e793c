"""What the tools are called with and what they give back, as JSON Schemas; Delegate's own is with its reader."""

from __future__ import annotations

from typing import Any

from deputy.core.results import KINDS
from deputy.core.task import DELEGATE_SCHEMA

MOST_WAIT_SECONDS = 3600
DEFAULT_WAIT_SECONDS = 30
MOST_TEXT = 1_000_000

_SESSION_ID: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "What DelegateStart gave, or a result names.",
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
DETECT = _object(("text",), text={"type": "string", "maxLength": MOST_TEXT, "description": "The text to look into."})
AGENTS = _object()

RESULTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        **{kind: {"type": "integer"} for kind in KINDS},
        "total": {"type": "integer"},
        "notice": {"type": "string"},
        "next": {"type": "string"},
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "label": {"type": "string"},
                    "status": {"enum": ["ok", "partial", "error", "blocked", "cancelled", "rejected"]},
                    "session_id": {"type": "string"},
                    "usage": {"type": "object"},
                    "report": {"type": "string"},
                    "scratchpad": {"type": "string"},
                    "question": {"type": "string"},
                    "error": {"type": "object"},
                    "artifacts": {"type": "array"},
                },
                "required": ["label", "status", "session_id", "usage"],
            },
        },
    },
    "required": [*KINDS, "total", "results"],
}
