"""Read subtask requests from a tool call or from text, and report all their problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import Struct

from deputy.core.field_readers import (
    FieldProblem,
    json_object,
    one_of,
    read_field,
    read_object,
    read_required,
    text,
    texts,
    whole,
    wrong_value,
)
from deputy.core.subtask.context_settings import SETTINGS_SCHEMA, PartialContextSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.field_readers import Reader

MAX_REQUESTS = 64
MAX_TYPE = 64
MAX_HINTS = 16
MAX_FILES = 50
MAX_CONTINUATIONS = 16
"""How many continuations one task may have."""
SUBTYPE = "subtask"
_PLACEHOLDERS = ("…", "...")

Join: TypeAlias = Literal["all", "any", "quorum"]


class SubtaskRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for one subtask."""

    type: str
    description: str
    inputs: dict[str, Any] = {}
    template_hints: tuple[str, ...] = ()
    return_expectations: str | dict[str, Any] | None = None
    """Text for the prompt, or a JSON Schema that is enforced too."""
    max_depth: int | None = None
    subtype: str = SUBTYPE
    file_paths: tuple[str, ...] = ()
    context_management: PartialContextSettings = PartialContextSettings()


class Continuation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The subtasks that a task waits for, and how many of them must complete."""

    requests: tuple[SubtaskRequest, ...]
    join: Join = "all"
    quorum: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def needed(self) -> int:
        """How many must complete before the task continues; the others are then cancelled."""
        match self.join:
            case "all":
                return len(self.requests)
            case "any":
                return 1
            case "quorum":
                return self.quorum


_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_TYPE,
            "description": "The kind of work.",
        },
        "description": {"type": "string", "minLength": 1, "description": "What to do."},
        "inputs": {"type": "object", "description": "Values by name."},
        "template_hints": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_HINTS},
        "return_expectations": {
            "type": ["string", "object"],
            "description": "Text, or a JSON Schema.",
        },
        "max_depth": {"type": "integer", "minimum": 1},
        "subtype": {"type": "string", "minLength": 1, "maxLength": MAX_TYPE, "default": SUBTYPE},
        "file_paths": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": MAX_FILES,
        },
        "context_management": SETTINGS_SCHEMA,
    },
    "required": ["type", "description"],
    "additionalProperties": False,
}

SUBTASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "requests": {"type": "array", "minItems": 1, "maxItems": MAX_REQUESTS, "items": _REQUEST_SCHEMA},
        "join": {
            "type": "string",
            "enum": ["all", "any", "quorum"],
            "default": "all",
            "description": "Which must complete.",
        },
        "quorum": {"type": "integer", "minimum": 1},
    },
    "required": ["requests"],
    "additionalProperties": False,
}
"""The schema of the Subtask tool."""


def read_continuation(arguments: object) -> Continuation | tuple[FieldProblem, ...]:
    """The subtasks of a Subtask tool call, or all its problems."""
    problems: list[FieldProblem] = []
    fields = read_object("arguments", arguments, ("requests", "join", "quorum"), problems)
    if isinstance(arguments, dict) and "requests" not in fields:
        problems.append(FieldProblem("requests", f"is missing; it must be {_LIST}"))
    continuation = _continuation(fields.get("requests"), "requests", fields, problems)
    return tuple(problems) or continuation


def read_notes(notes: object) -> Continuation | tuple[FieldProblem, ...]:
    """The subtasks in the notes of a CONTINUATION: one request, a list, or the old form; or all problems."""
    problems: list[FieldProblem] = []
    if not isinstance(notes, dict):
        return (FieldProblem("notes", wrong_value(notes, "an object with a subtask_request")),)
    fields = cast("dict[str, Any]", notes)
    if "subtask_request" in fields:
        asked: Any = fields["subtask_request"]
        continuation = _continuation(
            cast("Any", asked if isinstance(asked, list) else [asked]), "notes.subtask_request", fields, problems
        )
        return tuple(problems) or continuation
    if "task" in fields:
        return _old_form(fields)
    return (
        FieldProblem("notes.subtask_request", wrong_value(None, "an object with type and description", missing=True)),
    )


_LIST = f"a list of 1 to {MAX_REQUESTS} requests"


def _continuation(items: object, where: str, fields: Mapping[str, Any], problems: list[FieldProblem]) -> Continuation:
    requests: list[SubtaskRequest] = []
    at = "" if where == "requests" else "notes."
    if not isinstance(items, list) or not 1 <= len(cast("list[Any]", items)) <= MAX_REQUESTS:
        if where != "requests" or "requests" in fields:
            problems.append(FieldProblem(where, wrong_value(cast("object", items), _LIST)))
    else:
        entries = cast("list[Any]", items)
        is_single = where != "requests" and not isinstance(fields.get("subtask_request"), list)
        for index, item in enumerate(entries):
            read = read_request(item, where if is_single else f"{where}[{index}]", problems)
            if read is not None:
                requests.append(read)
    join: Join = read_field(fields, "join", at, one_of("all", "any", "quorum"), "all", problems)
    quorum = read_field(fields, "quorum", at, whole(1, max(1, len(requests))), 0, problems)
    if join == "quorum" and "quorum" not in fields:
        problems.append(
            FieldProblem(f"{at}quorum", "is missing; join 'quorum' needs the number of subtasks that must complete")
        )
    return Continuation(requests=tuple(requests), join=join, quorum=quorum)


_FIELDS = SubtaskRequest.__struct_fields__


def read_request(value: object, where: str, problems: list[FieldProblem]) -> SubtaskRequest | None:
    """One request; None when it has problems, which are added to the list."""
    before = len(problems)
    fields = read_object(where, value, _FIELDS, problems)
    if not isinstance(value, dict):
        return None
    at = f"{where}."
    kind = read_required(fields, "type", at, _own_words(MAX_TYPE), problems)
    description = read_required(fields, "description", at, _own_words(), problems)
    inputs = read_field(fields, "inputs", at, json_object(), {}, problems)
    hints = read_field(fields, "template_hints", at, texts(MAX_HINTS), (), problems)
    expectations = read_field(fields, "return_expectations", at, _expectations, None, problems)
    depth = read_field(fields, "max_depth", at, whole(1), None, problems)
    subtype = read_field(fields, "subtype", at, text(MAX_TYPE), SUBTYPE, problems)
    files = read_field(fields, "file_paths", at, texts(MAX_FILES), (), problems)
    settings = PartialContextSettings()
    if fields.get("context_management") is not None:
        settings = read_settings(fields["context_management"], f"{where}.context_management", problems)
    if len(problems) > before:
        return None
    return SubtaskRequest(
        type=kind.strip(),
        description=description,
        inputs=inputs,
        template_hints=hints,
        return_expectations=expectations,
        max_depth=depth,
        subtype=subtype.strip(),
        file_paths=files,
        context_management=settings,
    )


def _own_words(longest: int | None = None) -> Reader:
    """A text that is not the placeholder of an example."""
    read = text(longest)

    def read_own(value: Any) -> tuple[Any, str]:
        is_copied = isinstance(value, str) and value.strip() in _PLACEHOLDERS
        return (None, "your own words") if is_copied else read(value)

    return read_own


def _expectations(value: object) -> tuple[Any, str]:
    if isinstance(value, dict):
        return cast("Any", value), ""
    return (value, "") if isinstance(value, str) and value.strip() else (None, "a text or a JSON Schema")


def _old_form(fields: dict[str, Any]) -> Continuation | tuple[FieldProblem, ...]:
    """`{task, …}`: the task is the type, and every other field is an input."""
    kind = fields["task"]
    if not isinstance(kind, str) or not kind.strip() or len(kind) > MAX_TYPE:
        return (FieldProblem("notes.task", wrong_value(kind, f"a string of 1 to {MAX_TYPE} characters")),)
    inputs = {name: value for name, value in fields.items() if name not in ("task", "description")}
    described = fields.get("description")
    description = described if isinstance(described, str) and described.strip() else kind.replace("_", " ")
    request = SubtaskRequest(type=kind.strip(), description=description, inputs=inputs)
    warning = "notes.task is the old form of a request; write notes.subtask_request with type, description and inputs."
    return Continuation(requests=(request,), warnings=(warning,))
