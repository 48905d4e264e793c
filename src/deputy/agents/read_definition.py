"""Read an agent definition from the content of a file: strictly first, then leniently; never raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.agents.build_definition import define
from deputy.agents.definition import AgentDefinition, DefinitionOrigin, DefinitionProblem, DefinitionRemark
from deputy.agents.front_matter import FrontMatter, split
from deputy.agents.front_matter_keys import CARRIED, field_of
from deputy.agents.lenient_yaml import read_forgivingly
from deputy.agents.strict_yaml import LIMIT_CHARACTERS, YamlFields, YamlRefusal, read_strictly

if TYPE_CHECKING:
    from collections.abc import Sequence

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
