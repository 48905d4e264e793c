"""What a subtask is given of its parent's context: three settings, each from the nearest who names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, structs

from deputy.core.field_readers import FieldProblem, one_of, read_field, read_object

if TYPE_CHECKING:
    from collections.abc import Iterable

RULE = "subtask.context"

Inheritance: TypeAlias = Literal["full", "subset", "none"]
Format: TypeAlias = Literal["notes_only", "full_output"]
Freshness: TypeAlias = Literal["enabled", "disabled"]


class PartialContextSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings that one side names; None leaves the choice to the next."""

    inherit_context: Inheritance | None = None
    accumulate_data: bool | None = None
    accumulation_format: Format | None = None
    fresh_context: Freshness | None = None


class ContextSettings(Struct, frozen=True, kw_only=True):
    """What is passed: of the parent's conversation, of earlier results, and of new context."""

    inherit_context: Inheritance
    accumulate_data: bool
    accumulation_format: Format
    fresh_context: Freshness

    @property
    def warning(self) -> str:
        """What is legal here and hardly meant; "" for nothing."""
        if (self.inherit_context, self.accumulate_data, self.fresh_context) == ("none", False, "disabled"):
            return "Nothing but its inputs is passed to this subtask: no context is inherited, accumulated or gathered."
        return ""


STANDARD = ContextSettings(
    inherit_context="full", accumulate_data=False, accumulation_format="notes_only", fresh_context="disabled"
)
SUBTASK = ContextSettings(
    inherit_context="none", accumulate_data=False, accumulation_format="notes_only", fresh_context="enabled"
)


def defaults_of(subtype: str) -> ContextSettings:
    """What a subtype has when nobody says otherwise."""
    return STANDARD if subtype == "standard" else SUBTASK


def resolve_settings(subtype: str, layers: Iterable[PartialContextSettings]) -> ContextSettings | FieldProblem:
    """The settings in force: each layer, the template before the request, overrides the ones before it.

    Who asks for the parent's context without a word on fresh context does not want both.
    """
    settled = defaults_of(subtype)
    for layer in layers:
        named = {name: value for name, value in structs.asdict(layer).items() if value is not None}
        if layer.inherit_context in ("full", "subset") and layer.fresh_context is None:
            named["fresh_context"] = "disabled"
        settled = structs.replace(settled, **named)
    if settled.fresh_context == "enabled" and settled.inherit_context != "none":
        return FieldProblem(
            "context_management",
            f"has fresh_context 'enabled' with inherit_context {settled.inherit_context!r} ({RULE}); "
            "they exclude each other: set fresh_context to 'disabled', or inherit_context to 'none'",
        )
    return settled


SETTINGS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "What is passed on. Left out: nothing of your conversation, and fresh context that matches.",
    "properties": {
        "inherit_context": {
            "type": "string",
            "enum": ["full", "subset", "none"],
            "description": "Your conversation: all of it, the parts relevant to the request, or nothing.",
        },
        "accumulate_data": {"type": "boolean", "description": "Whether it sees the results of your earlier subtasks."},
        "accumulation_format": {
            "type": "string",
            "enum": ["notes_only", "full_output"],
            "description": "Those results as their notes, or whole.",
        },
        "fresh_context": {
            "type": "string",
            "enum": ["enabled", "disabled"],
            "description": "Whether matching files are gathered for it; only with inherit_context none.",
        },
    },
    "additionalProperties": False,
}

_TRUTHS = {"true": True, "false": False}


def read_settings(value: object, where: str, problems: list[FieldProblem]) -> PartialContextSettings:
    """The settings that an object names."""
    fields = read_object(where, value, PartialContextSettings.__struct_fields__, problems)
    at = f"{where}."
    return PartialContextSettings(
        inherit_context=read_field(fields, "inherit_context", at, one_of("full", "subset", "none"), None, problems),
        accumulate_data=read_field(fields, "accumulate_data", at, _truth, None, problems),
        accumulation_format=read_field(
            fields, "accumulation_format", at, one_of("notes_only", "full_output"), None, problems
        ),
        fresh_context=read_field(fields, "fresh_context", at, one_of("enabled", "disabled"), None, problems),
    )


def _truth(value: object) -> tuple[Any, str]:
    """True or false, also as the words that files have for them."""
    if isinstance(value, bool):
        return value, ""
    found = _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else None
    return (found, "") if found is not None else (None, "true or false")
