"""Build an agent definition from front matter, with a remark for every corrected value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.agents.definition import AgentDefinition, DefinitionLimits, DefinitionOrigin, DefinitionRemark, Raw
from deputy.agents.front_matter_keys import CARRIED, DECORATION, FIELDS, field_of, spelling_of
from deputy.agents.lenient_yaml import unquote
from deputy.agents.tool_grants import ToolGrants, read_grants, read_permission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from deputy.agents.strict_yaml import YamlField

LIMIT_REMARKS = 20
LIMIT_MESSAGE = 200
NOTHING = frozenset({"", "null", "~"})
YES = frozenset({"true", "yes", "on", "1"})
NO = frozenset({"false", "no", "off", "0", ""})
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


def define(
    fields: Sequence[YamlField], body: str, origin: DefinitionOrigin, remarks: Iterable[DefinitionRemark]
) -> AgentDefinition:
    """Build the definition; remarks are added to the given ones."""
    noted = list(remarks)
    known, extra = _sort(fields, noted)
    tools, withheld = _tools(known, noted)
    model, inherits_model = _model(known.get("model"), noted)
    disabled = _truth(known.get("disabled"), noted)
    if disabled:
        noted.append(DefinitionRemark(known["disabled"].line, "the agent is disabled: it is listed but never run"))
    return AgentDefinition(
        name=_name(known.get("name"), origin, noted),
        description=_description(known.get("description"), noted),
        prompt=body or _text(known.get("prompt")).strip(),
        tools=tools,
        disallowed_tools=withheld,
        model=model,
        inherits_model=inherits_model,
        recursive=_truth(known.get("recursive"), noted),
        disabled=disabled,
        limits=_limits(known, noted),
        extra=extra,
        path=origin.path,
        source=origin.source,
        warnings=_in_order(noted),
    )


def _sort(fields: Sequence[YamlField], noted: list[DefinitionRemark]) -> tuple[dict[str, YamlField], dict[str, Raw]]:
    """The known fields by name, and all other fields unchanged; of two equal keys the later one counts."""
    known: dict[str, YamlField] = {}
    extra: dict[str, Raw] = {}
    unknown: list[YamlField] = []
    for field in sorted(fields, key=lambda field: field.key not in FIELDS):
        target = field_of(field.key)
        is_spelled_right = field.key in FIELDS
        if target is None or (target in known and not is_spelled_right):
            extra[field.key] = field.value
            if not (field.key in CARRIED or field.key in DECORATION):
                unknown.append(field)
            continue
        if target in known:
            earlier = known[target].line
            noted.append(
                DefinitionRemark(
                    field.line, f"{field.key!r} is repeated; this value is used, not the one of line {earlier}"
                )
            )
        if not is_spelled_right:
            noted.append(DefinitionRemark(field.line, f"the key {field.key!r} was read as {spelling_of(target)!r}"))
        if target in {"permission", "prompt"}:
            extra[field.key] = field.value
        known[target] = field
    if unknown:
        keys = ", ".join(repr(field.key) for field in unknown)
        noted.append(DefinitionRemark(unknown[0].line, f"unknown keys, kept but not used: {keys}"))
    return known, extra


def _name(field: YamlField | None, origin: DefinitionOrigin, noted: list[DefinitionRemark]) -> str:
    """The name in the front matter, else the file name; opencode uses only the file name."""
    name = unquote(" ".join(_text(field).split())).strip("`")
    line = field.line if field else 1
    if origin.family == "opencode":
        if name and name != origin.file_name:
            noted.append(
                DefinitionRemark(line, f"the name {name!r} is not used: opencode names an agent after its file")
            )
        return origin.file_name
    if not name:
        noted.append(DefinitionRemark(line, f"no name; the name of the file is used: {origin.file_name!r}"))
    return name or origin.file_name


def _description(field: YamlField | None, noted: list[DefinitionRemark]) -> str:
    text = _text(field).strip()
    line = field.line if field else 1
    if not text:
        noted.append(DefinitionRemark(line, "no description; add one that says when to use the agent"))
    unescaped = _unescape(text)
    if unescaped != text:
        noted.append(DefinitionRemark(line, "'\\n' in the description was read as the end of a line"))
    return unescaped


def _unescape(text: str) -> str:
    """Replace a literal `\\n` by a line end, except in a Windows path."""
    if "\\n" not in text:
        return text
    words = text.replace("\\\\n", "\\n").split(" ")
    return " ".join(word if _is_windows_path(word) else word.replace("\\n", "\n").replace('\\"', '"') for word in words)


def _is_windows_path(word: str) -> bool:
    path = word.lstrip("\"'(`")
    return path[:1].isalpha() and path[1:3] == ":\\"


def _tools(
    known: Mapping[str, YamlField], noted: list[DefinitionRemark]
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The granted and the withheld tools, from `tools`, `disallowedTools` and `permission`."""
    granted = _grants(known.get("tools"), read_grants, noted)
    denied = _grants(known.get("disallowed_tools"), read_grants, noted)
    permitted = _grants(known.get("permission"), read_permission, noted)
    withheld = tuple(dict.fromkeys((*granted.withheld, *(denied.tools or ()), *permitted.withheld)))
    tools = granted.tools
    if permitted.tools is not None:
        has_all = tools is None or "*" in tools
        tools = permitted.tools if has_all else tuple(tool for tool in tools or () if tool in permitted.tools)
    if "*" in withheld:
        return (), withheld
    return None if tools is None else tuple(tool for tool in tools if tool not in withheld), withheld


def _grants(field: YamlField | None, read: Callable[[Raw], ToolGrants], noted: list[DefinitionRemark]) -> ToolGrants:
    if field is None:
        return ToolGrants()
    grants = read(field.value)
    noted += (DefinitionRemark(field.line, f"{field.key}: {message}") for message in grants.forgiven)
    return grants


def _model(field: YamlField | None, noted: list[DefinitionRemark]) -> tuple[str | None, bool]:
    """The model without quotes and white space around it, and whether the file says `inherit`."""
    value = field.value if field else ""
    if field and isinstance(value, list):
        noted.append(DefinitionRemark(field.line, "several models; the first one is used"))
        value = value[0] if value else ""
    if field and not isinstance(value, str):
        noted.append(DefinitionRemark(field.line, "the model is not a name and is ignored"))
        return None, False
    name = unquote(" ".join(value.split())).strip("` ") if isinstance(value, str) else ""
    if name.lower() == "inherit":
        return None, True
    return (None if name.lower() in NOTHING else name), False


def _limits(known: Mapping[str, YamlField], noted: list[DefinitionRemark]) -> DefinitionLimits:
    minutes = _number(known.get("timeout_mins"), noted)
    seconds = _number(known.get("timeout"), noted)
    return DefinitionLimits(
        max_turns=_number(known.get("max_turns"), noted),
        timeout_seconds=seconds if seconds is not None or minutes is None else minutes * 60,
    )


def _number(field: YamlField | None, noted: list[DefinitionRemark]) -> int | None:
    """A whole number above zero; with s, m or h after it, in seconds."""
    if field is None:
        return None
    text = _text(field).strip().lower()
    unit = UNIT_SECONDS.get(text[-1:], 0)
    digits = text[:-1].rstrip() if unit else text
    if digits.isascii() and digits.isdecimal() and len(digits) < 10 and int(digits):
        return int(digits) * (unit or 1)
    noted.append(DefinitionRemark(field.line, f"{field.key} is not a whole number above zero and is ignored"))
    return None


def _truth(field: YamlField | None, noted: list[DefinitionRemark]) -> bool:
    word = _text(field).strip().lower()
    if field and word not in YES and word not in NO:
        noted.append(DefinitionRemark(field.line, f"{field.key} is neither true nor false and was read as false"))
    return word in YES


def _text(field: YamlField | None) -> str:
    return field.value if field and isinstance(field.value, str) else ""


def _in_order(noted: Sequence[DefinitionRemark]) -> tuple[DefinitionRemark, ...]:
    """The remarks by line, cut to a readable number and length."""
    in_order = sorted(dict.fromkeys(noted), key=lambda remark: remark.line)
    remarks = [DefinitionRemark(remark.line, _cut(remark.message)) for remark in in_order]
    if len(remarks) <= LIMIT_REMARKS:
        return tuple(remarks)
    more = DefinitionRemark(
        remarks[LIMIT_REMARKS].line, f"{len(remarks) - LIMIT_REMARKS} more warnings from this line on"
    )
    return (*remarks[:LIMIT_REMARKS], more)


def _cut(message: str) -> str:
    return message if len(message) <= LIMIT_MESSAGE else f"{message[: LIMIT_MESSAGE - 1]}…"
