"""What a kind of subtask is made from: its prompt, the inputs it needs, its context, its model, its return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import Struct, json

from deputy.core.field_readers import FieldProblem, wrong_value
from deputy.core.subtask.context_settings import PartialContextSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

InputType: TypeAlias = Literal["any", "string", "number", "integer", "boolean", "array", "object"]
INPUT_TYPES: tuple[InputType, ...] = ("any", "string", "number", "integer", "boolean", "array", "object")

COMPOSITES = frozenset({"sequential", "parallel", "reduce", "loop", "director_evaluator_loop", "composite"})
"""Types of templates that are made of others: they are started by name, and never matched to a request."""

SUBTYPES = ("subtask", "standard", "evaluation", "script")
"""Subtypes that mean something: what is passed by default, and what a result has."""

ATOMIC = "atomic"
"""The type of a template that says nothing of what it is for."""


class TemplateInput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a template is given."""

    name: str
    type: InputType = "any"
    is_required: bool = True
    description: str = ""


class Template(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How subtasks of one kind are carried out."""

    name: str
    type: str
    description: str
    prompt: str = ""
    subtype: str = ""
    hints: tuple[str, ...] = ()
    inputs: tuple[TemplateInput, ...] = ()
    context_management: PartialContextSettings = PartialContextSettings()
    file_paths: tuple[str, ...] = ()
    model: str | None = None
    return_expectations: str | dict[str, Any] | None = None
    path: str = ""

    @property
    def is_atomic(self) -> bool:
        """Whether it takes part in matching."""
        return self.type not in COMPOSITES


DEFAULT = Template(name="default", type=ATOMIC, description="Whatever no other template is for.")
"""What a subtask is made from when no template matches it."""


def check_inputs(template: Template, inputs: Mapping[str, Any], where: str = "inputs") -> tuple[FieldProblem, ...]:
    """Every input that is missing or of another type than the template says; what it does not name is passed on."""
    problems: list[FieldProblem] = []
    for wanted in template.inputs:
        at = f"{where}.{wanted.name}"
        if inputs.get(wanted.name) is None:
            if wanted.is_required:
                problems.append(FieldProblem(at, f"is missing; template {template.name!r} needs {_kind(wanted)}"))
        elif not _is_a(inputs[wanted.name], wanted.type):
            problems.append(FieldProblem(at, wrong_value(inputs[wanted.name], _kind(wanted))))
    return tuple(problems)


def _kind(wanted: TemplateInput) -> str:
    kind = "a value" if wanted.type == "any" else f"{'an' if wanted.type[0] in 'aio' else 'a'} {wanted.type}"
    return f"{kind} ({wanted.description})" if wanted.description else kind


_TYPES: Mapping[InputType, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def _is_a(value: object, kind: InputType) -> bool:
    if kind == "any":
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def filled(prompt: str, inputs: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """A prompt with `{{name}}` replaced by inputs, and the names of the inputs that had no place in it.

    One pass over the prompt: what an input holds is never read as a place for another.
    """
    pieces: list[str] = []
    placed: set[str] = set()
    at = 0
    while (start := prompt.find("{{", at)) >= 0 and (end := prompt.find("}}", start)) >= 0:
        name = prompt[start + 2 : end].strip()
        if name in inputs:
            pieces += (prompt[at:start], shown(inputs[name]))
            placed.add(name)
            at = end + 2
        else:
            pieces.append(prompt[at : start + 2])
            at = start + 2
    pieces.append(prompt[at:])
    return "".join(pieces), tuple(name for name in inputs if name not in placed)


def shown(value: object) -> str:
    """An input as a model reads it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.encode(cast("Any", value)).decode()
