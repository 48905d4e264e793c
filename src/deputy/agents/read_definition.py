"""Read an agent definition from the content of a file: strictly first, then leniently; never raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.agents.definition import (
    AgentDefinition,
    DefinitionLimits,
    DefinitionOrigin,
    DefinitionProblem,
    DefinitionRemark,
    Raw,
)
from deputy.agents.front_matter import CARRIED, DECORATION, FIELDS, FrontMatter, field_of, spelling_of, split
from deputy.agents.front_matter_yaml import (
    LIMIT_CHARACTERS,
    YamlFields,
    YamlRefusal,
    read_forgivingly,
    read_strictly,
    unquote,
)
from deputy.agents.tool_grants import ToolGrants, read_grants, read_permission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from deputy.agents.front_matter_yaml import YamlField

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
LIMIT_BYTES = 256 * 1024

HOW_TO_BEGIN = "start the file with front matter: a line '---', then name: and description:, then '---'"


def read_content(content: bytes, origin: DefinitionOrigin) -> AgentDefinition | DefinitionProblem:
    """Read a definition from bytes; a binary file is a problem."""
    if len(content) > LIMIT_BYTES:
        return _too_large(origin)
    if b"\0" in content and not content.startswith(UTF_16_MARKS):
        return DefinitionProblem(path=origin.path, line=1, message="this is a binary file; a definition is text")
    text, remarks = _decode(content)
    return read_definition(text, origin, remarks)


def _decode(content: bytes) -> tuple[str, tuple[DefinitionRemark, ...]]:
    if content.startswith(UTF_16_MARKS):
        return content.decode("utf-16", errors="replace"), (
            DefinitionRemark(1, "the file is UTF-16; save it as UTF-8"),
        )
    try:
        return content.decode(), ()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    text = content.decode(errors="replace")
    if all(character.isascii() or character == "\ufffd" for character in text):
        # No character is valid UTF-8 beyond ASCII, so the file is in an older encoding.
        return content.decode("cp1252", errors="replace"), (
            DefinitionRemark(line, "the file is Latin-1; save it as UTF-8"),
        )
    return text, (DefinitionRemark(line, "bytes that are not UTF-8 were replaced"),)


def read_definition(
    text: str, origin: DefinitionOrigin, remarks: Sequence[DefinitionRemark] = ()
) -> AgentDefinition | DefinitionProblem:
    """Read one definition; never raises: anything else is returned as a problem."""
    if len(text) > LIMIT_BYTES:
        return _too_large(origin)
    tidy, forgiven = _tidy(text)
    front_matter = split(tidy)
    if front_matter is None:
        return DefinitionProblem(path=origin.path, line=1, message=f"no front matter; {HOW_TO_BEGIN}")
    if sum(map(len, front_matter.lines)) + len(front_matter.lines) > LIMIT_CHARACTERS:
        message = f"the front matter is larger than {LIMIT_CHARACTERS // 1024} KiB, the limit"
        return DefinitionProblem(path=origin.path, line=front_matter.first_line, message=message)
    read = _read_front_matter(front_matter)
    if not any(field_of(field.key) or field.key in CARRIED for field in read.fields):
        message = f"the front matter has no key of an agent; {HOW_TO_BEGIN}"
        return DefinitionProblem(path=origin.path, line=front_matter.first_line, message=message)
    return define(read.fields, front_matter.body, origin, (*remarks, *forgiven, *front_matter.remarks, *read.remarks))


def _too_large(origin: DefinitionOrigin) -> DefinitionProblem:
    message = f"the file is larger than {LIMIT_BYTES // 1024} KiB, the limit"
    return DefinitionProblem(path=origin.path, line=1, message=message)


def _tidy(text: str) -> tuple[str, list[DefinitionRemark]]:
    """The text with plain line ends and without a byte order mark."""
    forgiven: list[DefinitionRemark] = []
    # A lone surrogate can be neither encoded nor printed.
    text = text.encode(errors="replace").decode()
    if text.startswith("\ufeff"):
        forgiven.append(DefinitionRemark(1, "a byte order mark before the front matter was skipped"))
        text = text.lstrip("\ufeff")
    if "\r" in text:
        forgiven.append(DefinitionRemark(1, "line ends with a carriage return (CRLF) were read as plain ones"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    # YAML takes these for line ends, editors do not.
    return text.translate({0x85: " ", 0x2028: " ", 0x2029: " "}), forgiven


def _read_front_matter(front_matter: FrontMatter) -> YamlFields:
    match read_strictly(front_matter.lines, front_matter.first_line):
        case YamlFields() as read:
            return read
        case YamlRefusal(line=line, reason=reason):
            read = read_forgivingly(front_matter.lines, front_matter.first_line)
            broken = DefinitionRemark(
                line, f"not valid YAML ({reason}), so it was read key by key; quote the value to fix it"
            )
            return YamlFields(read.fields, (broken, *read.remarks))


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
    disabled = _truth(known.get("disabled"), noted)
    if disabled:
        noted.append(DefinitionRemark(known["disabled"].line, "the agent is disabled: it is listed but never run"))
    return AgentDefinition(
        name=_name(known.get("name"), origin, noted),
        description=_description(known.get("description"), noted),
        prompt=body or _text(known.get("prompt")).strip(),
        tools=tools,
        disallowed_tools=withheld,
        model=_model(known.get("model"), noted),
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


def _model(field: YamlField | None, noted: list[DefinitionRemark]) -> str | None:
    """The model without quotes and white space around it; None for the model of the caller, also as `inherit`."""
    value = field.value if field else ""
    if field and isinstance(value, list):
        noted.append(DefinitionRemark(field.line, "several models; the first one is used"))
        value = value[0] if value else ""
    if field and not isinstance(value, str):
        noted.append(DefinitionRemark(field.line, "the model is not a name and is ignored"))
        return None
    name = unquote(" ".join(value.split())).strip("` ") if isinstance(value, str) else ""
    return None if name.lower() in (*NOTHING, "inherit") else name


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
    remarks = [DefinitionRemark(remark.line, _short(remark.message)) for remark in in_order]
    if len(remarks) <= LIMIT_REMARKS:
        return tuple(remarks)
    more = DefinitionRemark(
        remarks[LIMIT_REMARKS].line, f"{len(remarks) - LIMIT_REMARKS} more warnings from this line on"
    )
    return (*remarks[:LIMIT_REMARKS], more)


def _short(message: str) -> str:
    return message if len(message) <= LIMIT_MESSAGE else f"{message[: LIMIT_MESSAGE - 1]}…"
