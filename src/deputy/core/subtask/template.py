"""The template of a kind of subtask, its inputs and its prompt."""

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
"""Types of templates that consist of others: they are started by name, never by matching."""

SUBTYPES = ("subtask", "standard", "evaluation", "script")
"""Subtypes with a meaning: they change the default context or the result."""

ATOMIC = "atomic"
"""The type of a template without a specific purpose."""


class TemplateInput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input of a template."""

    name: str
    type: InputType = "any"
    is_required: bool = True
    description: str = ""


class Template(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes subtasks of one kind."""

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
        """Whether requests can match the template."""
        return self.type not in COMPOSITES


DEFAULT = Template(name="default", type=ATOMIC, description="The template for requests that no other template matches.")
"""The template of a subtask that matches no other."""


def check_inputs(template: Template, inputs: Mapping[str, Any], where: str = "inputs") -> tuple[FieldProblem, ...]:
    """The inputs that are missing or have the wrong type; undeclared inputs are allowed."""
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
    """A prompt with `{{name}}` replaced by inputs, in one pass, and the names of inputs without a placeholder."""
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
    """An input as text for a model: a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.encode(cast("Any", value)).decode()
