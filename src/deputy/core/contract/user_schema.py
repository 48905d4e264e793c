"""Check a return against a user's JSON Schema, pydantic model or Python type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, assert_never, cast

from msgspec import Struct, json

from deputy.core.contract.quote import one_line, quoted
from deputy.core.contract.return_parser import DEPTH_MAX, measure, walk
from deputy.core.contract.return_types import BoundedList, CheckedReturn, ContractProblem
from deputy.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jsonschema_rs import ValidationError, Validator

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor", "$id", "id")
_ON_THE_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ON_VALUES_INSIDE = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "unevaluatedItems",
)
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})

Object = dict[str, Any]


class SchemaWeight:
    """Counts the evaluations of one schema."""

    def __init__(self, schema: Any, most: int) -> None:
        self._schema = schema
        self._most = most
        self._anchors = _find_anchors(schema)

    def weigh(self, levels: int | None = None) -> int:
        """The weight for a value with this many levels; without a number, up to the point where the schema recurs."""
        try:
            return self._weigh(self._schema, levels, {})
        except RecursionError:
            return self._most + 1

    def _weigh(self, schema: Any, levels: int | None, known: dict[tuple[int, int | None], int]) -> int:
        if not isinstance(schema, dict) or levels == 0:
            return 1
        key = (id(cast("object", schema)), levels)
        if key not in known:
            known[key] = 1
            total = 1
            for part, below in self._parts(cast("Object", schema), levels):
                total += self._weigh(part, below, known)
                if total > self._most:
                    break
            known[key] = total
        return known[key]

    def _parts(self, schema: Object, levels: int | None) -> Iterator[tuple[Any, int | None]]:
        for name in REFERENCES:
            if name in schema:
                yield self.follow(schema[name]), levels
        for name in _ON_THE_SAME_VALUE:
            for part in _schemas(name, schema.get(name)):
                yield part, levels
        for name in _ON_VALUES_INSIDE:
            for part in _schemas(name, schema.get(name)):
                yield part, None if levels is None else levels - 1

    def follow(self, reference: object) -> Any:
        """The target of a reference; None when it has none."""
        if not isinstance(reference, str):
            return None
        if not reference.startswith("#/"):
            return self._schema if reference == "#" else self._anchors.get(reference)
        target = self._schema
        for token in reference[2:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            match target:
                case dict():
                    target = cast("Object", target).get(name)
                case list() if name.isdecimal() and len(name) < 9 and int(name) < len(cast("list[Any]", target)):
                    target = cast("list[Any]", target)[int(name)]
                case _:
                    return None
        return target


def _schemas(name: str, value: Any) -> list[Any]:
    match value:
        case dict() if name in _BY_NAME:
            return list(cast("Object", value).values())
        case list():
            return cast("list[Any]", value)
        case _:
            return [] if value is None else [value]


def _find_anchors(schema: Any) -> dict[str, Any]:
    named: dict[str, list[Any]] = {}
    for node in walk(schema):
        for keyword in _ANCHORS:
            if isinstance(name := node.get(keyword), str):
                named.setdefault(f"#{name.removeprefix('#')}", []).append(node)
    # Validators differ on a name that is defined twice, so such a name is not resolved.
    return {name: nodes[0] for name, nodes in named.items() if len(nodes) == 1}


RULE = "contract.check"
SCHEMA_BYTES_MAX = 256 * 1024
WEIGHT_MAX = 100_000
PATTERNS_MAX = 100
PATTERN_BYTES_MAX = 4 * 1024 * 1024
"""The size of one compiled pattern."""

# Limits of work: evaluated schemas times values.
JUDGED_MAX = 50_000_000
EXPLAINED_MAX = 200_000
FIRST_EXPLAINED_MAX = 2_000_000


class PydanticModel(Protocol):
    """The methods of a pydantic model class that we use."""

    def model_json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the model."""
        ...

    def model_validate_json(self, json_data: bytes, /) -> Any:
        """An instance; raises a ValueError that lists the errors."""
        ...


class JsonSchema(Struct, frozen=True, kw_only=True):
    """A checked and compiled JSON Schema."""

    form: Any
    keys: tuple[str, ...]
    weight: int
    validator: Any


class ModelSchema(Struct, frozen=True, kw_only=True):
    """A pydantic model and its JSON Schema."""

    form: Any
    keys: tuple[str, ...]
    model: Any


class TypeSchema(Struct, frozen=True, kw_only=True):
    """A type that msgspec reads (a Struct, dataclass, TypedDict, list[…]) and its JSON Schema."""

    form: Any
    keys: tuple[str, ...]
    kind: Any


Schema = JsonSchema | ModelSchema | TypeSchema


def schema_of(source: object) -> Schema:
    """Check and compile a user's schema; a UsageError says where it is wrong."""
    if _is_model(source):
        try:
            form = source.model_json_schema()
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError("schema", source, f"it has no JSON Schema: {one_line(str(error), 200)}") from error
        return ModelSchema(form=form, keys=_keys(form), model=source)
    if isinstance(source, dict | bool):
        form, weight = _bounded(cast("object", source))
        return JsonSchema(form=form, keys=_keys(form), weight=weight, validator=_compile(form))
    if isinstance(source, type) or hasattr(source, "__origin__"):
        form = _form_of(source)
        return TypeSchema(form=form, keys=_keys(form), kind=source)
    raise UsageError("schema", source, _SOURCES)


_SOURCES = "give a JSON Schema as an object, a pydantic model class, or a type such as a dataclass or msgspec.Struct"


def _form_of(source: object) -> Any:
    """The JSON Schema of a type; of a class, with its fields at the root, as providers require."""
    try:
        form = json.schema(source)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("schema", source, f"{_SOURCES}; it has no JSON Schema: {one_line(str(error), 200)}") from error
    named: Any = form.get("$defs", {}).get(str(form.get("$ref", "")).removeprefix("#/$defs/"))
    return form if named is None else {**named, "$defs": form["$defs"]}


def check_schema(value: Any, schema: Schema) -> CheckedReturn[Any]:
    """The value, or an instance of the model; or all problems."""
    match schema:
        case JsonSchema():
            problems = _judge(value, schema)
            return CheckedReturn(return_=None if problems else value, problems=problems)
        case ModelSchema():
            return _make(value, schema.model)
        case TypeSchema():
            return _convert(value, schema.kind)
        case _:
            assert_never(schema)


def _is_model(source: object) -> TypeGuard[PydanticModel]:
    return all(callable(getattr(source, name, None)) for name in ("model_json_schema", "model_validate_json"))


def _keys(form: Any) -> tuple[str, ...]:
    """The required fields of a schema; they identify its objects between prose."""
    required = cast("dict[str, Any]", form).get("required") if isinstance(form, dict) else None
    names = cast("list[object]", required) if isinstance(required, list) else []
    return tuple(name for name in names if isinstance(name, str))


def _bounded(source: object) -> tuple[Any, int]:
    """A copy in plain JSON, without outside references and with bounded work; and its weight."""
    try:
        encoded = json.encode(source)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("schema", type(source).__name__, f"it is not plain JSON: {error}") from error
    if len(encoded) > SCHEMA_BYTES_MAX:
        raise UsageError("schema", f"{len(encoded):,} bytes", f"a schema has at most {SCHEMA_BYTES_MAX:,} bytes")
    form = json.decode(encoded)
    scale = SchemaWeight(form, WEIGHT_MAX)
    for node in walk(form):
        _check_references(node, scale)
        if node is not form and isinstance(base := node.get("$id"), str) and not base.startswith("#"):
            raise UsageError("schema.$id", base, "only the root of the schema can have $id; move this part to $defs")
    weight, patterns = scale.weigh(), sum(map(_count_patterns, walk(form)))
    if weight > WEIGHT_MAX:
        raise UsageError(
            "schema", "too many nested references", "simplify it: a validator follows each reference every time"
        )
    if patterns > PATTERNS_MAX:
        raise UsageError("schema", f"{patterns:,} patterns", f"a schema has at most {PATTERNS_MAX} patterns")
    return form, weight


def _count_patterns(node: dict[str, Any]) -> int:
    by_name = node.get("patternProperties")
    return ("pattern" in node) + (len(cast("dict[str, Any]", by_name)) if isinstance(by_name, dict) else 0)


def _check_references(node: dict[str, Any], scale: SchemaWeight) -> None:
    for keyword in REFERENCES:
        reference = node.get(keyword)
        if isinstance(reference, str) and scale.follow(reference) is None:
            missing = (
                "no such part, or more than one"
                if reference.startswith("#")
                else "references to other documents are not followed"
            )
            raise UsageError(
                f"schema.{keyword}", reference, f"{missing}; refer to a part of the schema, as in #/$defs/name"
            )


def _compile(form: Any) -> Validator:
    from jsonschema_rs import RegexOptions, ValidationError, validator_for

    try:
        # This regex engine is linear in the text; the default one backtracks.
        patterns = RegexOptions(size_limit=PATTERN_BYTES_MAX)
        return validator_for(form, offline=True, pattern_options=patterns, mask="the value")
    except ValidationError as error:
        at = _location(error.instance_path)
        found = _at(form, error.instance_path) if error.instance_path else "a schema that cannot be used"
        raise UsageError(f"schema{f'.{at}' if at else ''}", found, one_line(error.message, 300)) from error
    except ValueError as error:
        raise UsageError("schema", "a schema that cannot be used", one_line(str(error), 300)) from error


def _judge(value: Any, schema: JsonSchema) -> tuple[ContractProblem, ...]:
    validator = cast("Validator", schema.validator)
    levels, values = measure(value, DEPTH_MAX)
    if levels > DEPTH_MAX or schema.weight * values > JUDGED_MAX:
        return (_problem(f"Return is too large for its schema: {values:,} values", "Return less, and flatter."),)
    if validator.is_valid(value):
        return ()
    # Error messages cost far more than validation, and more with every recursive alternative.
    work = SchemaWeight(schema.form, FIRST_EXPLAINED_MAX).weigh(levels) * values
    if work > FIRST_EXPLAINED_MAX:
        return (_problem("Return does not match the schema", "Compare it with the schema field by field."),)
    if work > EXPLAINED_MAX:
        return tuple(_explained(error, value) for error in _first(validator, value))
    return _listed(_explained(error, value) for error in validator.iter_errors(value))


def _first(validator: Validator, value: Any) -> list[ValidationError]:
    from jsonschema_rs import ValidationError

    try:
        validator.validate(value)
    except ValidationError as error:
        return [error]
    return []


def _explained(error: ValidationError, value: Any) -> ContractProblem:
    at = _location(error.instance_path)
    if error.kind.name == "required":
        name = quoted(error.kind.value)
        return _problem(f"Missing required field: {at}{'.' if at else ''}{name}", f"Add {name}.")
    found = quoted(_at(value, error.instance_path))
    return _problem(
        f"{at or 'Return'}: {one_line(error.message, 300)}, found {found}", "Change it to match the schema."
    )


def _make(value: Any, model: Any) -> CheckedReturn[Any]:
    try:
        return CheckedReturn(return_=cast("PydanticModel", model).model_validate_json(json.encode(value)))
    except ValueError as error:
        details = getattr(error, "errors", None)
        entries = cast("list[dict[str, Any]]", details()) if callable(details) else [{"msg": str(error)}]
        return CheckedReturn(return_=None, problems=_listed(_schema_error(entry) for entry in entries))


def _convert(value: Any, kind: Any) -> CheckedReturn[Any]:
    try:
        return CheckedReturn(return_=json.decode(json.encode(value), type=kind))
    except (ValueError, RecursionError) as error:
        text = f"Return: {one_line(str(error), 300)}"
        return CheckedReturn(return_=None, problems=(_problem(text, "Change it to match the schema."),))


def _schema_error(entry: dict[str, Any]) -> ContractProblem:
    at = _location(entry.get("loc", ()))
    if entry.get("type") == "missing":
        return _problem(f"Missing required field: {at}", f"Add {at}.")
    said = one_line(str(entry.get("msg", "")), 300)
    return _problem(f"{at or 'Return'}: {said}, found {quoted(entry.get('input'))}", "Change it to match the schema.")


def _location(path: Sequence[str | int]) -> str:
    """A location such as `findings[0].title`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{quoted(part, 40)}" for part in path)
    return one_line("".join(parts).removeprefix("."), 200)


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


def _listed(problems: Iterable[ContractProblem]) -> tuple[ContractProblem, ...]:
    listing: BoundedList[ContractProblem] = BoundedList(lambda more: ContractProblem(rule=RULE, message=more))
    for problem in problems:
        listing.add(problem)
    return listing.all()


def _problem(message: str, remedy: str) -> ContractProblem:
    return ContractProblem(rule=RULE, message=message, remedy=remedy)
