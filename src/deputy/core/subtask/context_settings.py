"""Context settings of a subtask: the request overrides the template, which overrides the defaults."""

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
    """The settings of a request or a template; None is not set."""

    inherit_context: Inheritance | None = None
    accumulate_data: bool | None = None
    accumulation_format: Format | None = None
    fresh_context: Freshness | None = None


class ContextSettings(Struct, frozen=True, kw_only=True):
    """What is passed: the parent's conversation, earlier results, and fresh context."""

    inherit_context: Inheritance
    accumulate_data: bool
    accumulation_format: Format
    fresh_context: Freshness

    def warning(self, *, has_files: bool) -> str:
        """A warning about a legal combination that is probably a mistake; "" for none."""
        if not has_files and (self.inherit_context, self.accumulate_data, self.fresh_context) == (
            "none",
            False,
            "disabled",
        ):
            return "This subtask gets only its inputs: no context is inherited, accumulated or gathered."
        return ""


STANDARD = ContextSettings(
    inherit_context="full", accumulate_data=False, accumulation_format="notes_only", fresh_context="disabled"
)
SUBTASK = ContextSettings(
    inherit_context="none", accumulate_data=False, accumulation_format="notes_only", fresh_context="enabled"
)


def defaults_of(subtype: str) -> ContextSettings:
    """The defaults of a subtype."""
    return STANDARD if subtype == "standard" else SUBTASK


def resolve_settings(subtype: str, layers: Iterable[PartialContextSettings]) -> ContextSettings | FieldProblem:
    """The effective settings: each layer overrides the ones before it (template, then request).

    A layer that inherits the parent's context and does not set fresh_context disables it.
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
    "description": "What the subtask sees; default: matching files.",
    "properties": {
        "inherit_context": {
            "type": "string",
            "enum": ["full", "subset", "none"],
            "description": "Messages of your conversation.",
        },
        "accumulate_data": {"type": "boolean", "description": "Results of your earlier subtasks."},
        "accumulation_format": {
            "type": "string",
            "enum": ["notes_only", "full_output"],
        },
        "fresh_context": {
            "type": "string",
            "enum": ["enabled", "disabled"],
            "description": "Matching files, with inherit_context none.",
        },
    },
    "additionalProperties": False,
}

_TRUTHS = {"true": True, "false": False}


def read_settings(value: object, where: str, problems: list[FieldProblem]) -> PartialContextSettings:
    """Read the settings of an object."""
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
    """A boolean, also as the text that XML files have."""
    if isinstance(value, bool):
        return value, ""
    found = _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else None
    return (found, "") if found is not None else (None, "true or false")


class PassedContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The context that was passed to a subtask, and its size."""

    messages: int = 0
    messages_left_out: int = 0
    results: int = 0
    files: tuple[str, ...] = ()
    tokens: int = 0
    """The approximate size of the whole prompt."""
    warnings: tuple[str, ...] = ()
