"""Build a template from the fields of a file, and check it; problems have line and rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import DecodeError, Struct, json

from deputy.core.errors import UsageError
from deputy.core.fallback import ONLY_A_PERSON, is_script
from deputy.core.field_readers import FieldProblem
from deputy.core.subtask.context_settings import RULE as CONTEXT
from deputy.core.subtask.context_settings import (
    ContextSettings,
    PartialContextSettings,
    read_settings,
    resolve_settings,
)
from deputy.core.subtask.subtask_request import MAX_FILES, MAX_HINTS, MAX_TYPE
from deputy.core.subtask.template import ATOMIC, INPUT_TYPES, SUBTYPES, Template, TemplateInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deputy.agents.definition import Raw
    from deputy.agents.front_matter_yaml import YamlField

TEMPLATE = "subtask.template"

KEYS: Mapping[str, str] = {
    "name": "name",
    "type": "type",
    "subtype": "subtype",
    "description": "description",
    "inputs": "inputs",
    "template_hints": "hints",
    "hints": "hints",
    "context_management": "context_management",
    "file_paths": "file_paths",
    "model": "model",
    "return_expectations": "return_expectations",
    "returns": "return_expectations",
    "prompt": "prompt",
    "instructions": "prompt",
}
"""Supported keys, and the field of each."""

_INPUT_KEYS = frozenset({"name", "type", "required", "description"})
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


class TemplateProblem(Struct, frozen=True, kw_only=True):
    """An error or a warning of a template, with line and rule."""

    path: str
    line: int
    rule: str
    message: str
    is_fatal: bool = True


class _Reader:
    """Reads the fields of one file, and collects problems."""

    def __init__(self, fields: Iterable[YamlField], path: str) -> None:
        self.path = path
        self.findings: list[TemplateProblem] = []
        self._fields: dict[str, YamlField] = {}
        for field in fields:
            name = KEYS.get(field.key.strip().replace("-", "_"))
            if name is None:
                self.find(field.line, f"unknown field {field.key[:40]!r}; the fields are {', '.join(sorted(KEYS))}")
            elif name in self._fields:
                self.find(field.line, f"{field.key} is repeated; it is already on line {self._fields[name].line}")
            else:
                self._fields[name] = field
            for key, line in field.twice.items():
                self.find(line, f"{key!r:.80} is repeated in {field.key}")

    def find(self, line: int, message: str, rule: str = TEMPLATE, *, is_fatal: bool = True) -> None:
        self.findings.append(TemplateProblem(path=self.path, line=line, rule=rule, message=message, is_fatal=is_fatal))

    def line(self, name: str, key: str = "") -> int:
        """The line of a field, or of a key within it."""
        field = self._fields.get(name)
        return 1 if field is None else field.lines.get(key, field.line)

    def raw(self, name: str) -> Raw | None:
        return self._fields[name].value if name in self._fields else None

    def text(self, name: str, *, longest: int | None = None, is_required: bool = False) -> str:
        value = self.raw(name)
        if value is None or value == "":
            if is_required:
                self.find(1, f"{name} is missing; a template needs a {name}")
            return ""
        if not isinstance(value, str):
            self.find(self.line(name), f"{name} must be a text")
            return ""
        if longest is not None and len(value) > longest:
            self.find(self.line(name), f"{name} has {len(value)} characters; the maximum is {longest}")
            return ""
        return value.strip()

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        value = self.raw(name)
        if value is None or value == "":
            return ()
        items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(items, list) or len(items) > most:
            self.find(self.line(name), f"{name} must be a list of at most {most} texts")
            return ()
        text = [item for item in items if isinstance(item, str) and item]
        if len(text) != len(items):
            self.find(self.line(name), f"{name} must be a list of texts")
        return tuple(text)


def make_template(
    fields: Sequence[YamlField], file_name: str, path: str
) -> tuple[Template | None, tuple[TemplateProblem, ...]]:
    """The template of a file, None when it has an error, and all errors and warnings."""
    reader = _Reader(fields, path)
    name = reader.text("name", longest=MAX_TYPE) or file_name
    kind = reader.text("type", longest=MAX_TYPE) or ATOMIC
    subtype = reader.text("subtype", longest=MAX_TYPE)
    if subtype and subtype not in SUBTYPES:
        text = f"subtype {subtype!r:.80} has no effect; the subtypes are {', '.join(SUBTYPES)}"
        reader.find(reader.line("subtype"), text, is_fatal=False)
    description = reader.text("description", is_required=True)
    inputs = _inputs(reader)
    file_paths = reader.texts("file_paths", MAX_FILES)
    settings = _settings(reader, subtype, has_files=bool(file_paths))
    expectations = _expectations(reader)
    prompt = reader.text("prompt")
    _check_prompt(reader, prompt, inputs)
    model = reader.text("model")
    if is_script(model):
        reader.find(reader.line("model"), f"model is {model!r:.80}: {ONLY_A_PERSON}")
    made = Template(
        name=name,
        type=kind,
        subtype=subtype,
        description=description,
        prompt=prompt,
        hints=reader.texts("hints", MAX_HINTS),
        inputs=inputs,
        context_management=settings,
        file_paths=file_paths,
        model=model or None,
        return_expectations=expectations,
        path=path,
    )
    is_usable = not any(finding.is_fatal for finding in reader.findings)
    return made if is_usable else None, tuple(reader.findings)


def _inputs(reader: _Reader) -> tuple[TemplateInput, ...]:
    value = reader.raw("inputs")
    line = reader.line("inputs")
    if value is None or value == "":
        return ()
    entries: list[Raw]
    if isinstance(value, dict):
        # `code: string` is short for an input of that name and type.
        entries = [
            {"name": name, **(kind if isinstance(kind, dict) else {"type": kind})} for name, kind in value.items()
        ]
    elif isinstance(value, list):
        entries = [{"name": entry} if isinstance(entry, str) else entry for entry in value]
    else:
        reader.find(line, "inputs must be a list of inputs, or a map of names to types")
        return ()
    read = [_input(reader, entry, line) for entry in entries]
    names = [one.name for one in read if one is not None]
    for name in {name for name in names if names.count(name) > 1}:
        reader.find(line, f"the input {name!r} is declared twice")
    return tuple(one for one in read if one is not None)


def _input(reader: _Reader, entry: Raw, line: int) -> TemplateInput | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        reader.find(line, "an input must have a name")
        return None
    name = str(entry["name"]).strip()
    if unknown := sorted(entry.keys() - _INPUT_KEYS):
        reader.find(
            line, f"input {name!r}: unknown field {unknown[0]!r}; the fields are {', '.join(sorted(_INPUT_KEYS))}"
        )
    kind = entry.get("type") or "any"
    kind = _TYPES.get(kind, kind) if isinstance(kind, str) else kind
    if kind not in INPUT_TYPES:
        reader.find(line, f"input {name!r}: type {str(kind)[:40]!r} must be one of {', '.join(INPUT_TYPES)}")
        kind = "any"
    required = entry.get("required", "true")
    is_required = _TRUTHS.get(required.strip().lower()) if isinstance(required, str) else None
    if is_required is None:
        reader.find(line, f"input {name!r}: required must be true or false")
    description = entry.get("description", "")
    return TemplateInput(
        name=name,
        type=kind,
        is_required=is_required is not False,
        description=description if isinstance(description, str) else "",
    )


def _settings(reader: _Reader, subtype: str, *, has_files: bool) -> PartialContextSettings:
    value = reader.raw("context_management")
    if value is None or value == "":
        return PartialContextSettings()
    problems: list[FieldProblem] = []
    read = read_settings(value, "context_management", problems)
    line = reader.line("context_management")
    settled = resolve_settings(subtype, [read])
    if not problems and isinstance(settled, FieldProblem):
        problems.append(settled)
    elif isinstance(settled, ContextSettings) and (warning := settled.warning(has_files=has_files)):
        reader.find(line, warning, CONTEXT, is_fatal=False)
    for problem in problems:
        key = problem.field.removeprefix("context_management").lstrip(".")
        reader.find(reader.line("context_management", key), f"{problem.field} {problem.message}", CONTEXT)
    return read


def _expectations(reader: _Reader) -> str | dict[str, Any] | None:
    value = reader.raw("return_expectations")
    if value is None or value == "":
        return None
    schema: object = value
    if isinstance(value, str):
        if not value.lstrip().startswith("{"):
            return value
        try:
            schema = json.decode(value)
        except DecodeError:
            return value
    return _checked_schema(reader, schema)


def _checked_schema(reader: _Reader, schema: object) -> dict[str, Any] | None:
    from deputy.core.contract import schema_of

    try:
        schema_of(schema)
    except UsageError as error:
        reader.find(reader.line("return_expectations"), f"return_expectations is not a valid JSON Schema: {error}")
        return None
    return cast("dict[str, Any]", schema)


def _check_prompt(reader: _Reader, prompt: str, inputs: Sequence[TemplateInput]) -> None:
    """Warn of placeholders without an input."""
    declared = {one.name for one in inputs}
    for piece in prompt.split("{{")[1:]:
        name, closing, _ = piece.partition("}}")
        if closing and name.strip().isidentifier() and name.strip() not in declared:
            reader.find(
                reader.line("prompt"),
                f"the prompt has a placeholder {name.strip()!r}, which is not an input",
                is_fatal=False,
            )
