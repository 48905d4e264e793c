"""Read the fields of a template from Markdown or XML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.agents.front_matter_yaml import LIMIT_CHARACTERS, YamlField, YamlFields, YamlRefusal, read_strictly

if TYPE_CHECKING:
    from deputy.agents.definition import Raw

RULE = "---"
HOW_TO_BEGIN = "start the file with a line '---', then description:, then '---', and the prompt below"


def read_markdown(text: str) -> tuple[YamlField, ...] | YamlRefusal:
    """The fields of a template with its prompt, or why it cannot be read."""
    lines = text.splitlines()
    opening = next((number for number, line in enumerate(lines) if line.strip()), None)
    if opening is None or lines[opening].rstrip() != RULE:
        return YamlRefusal(1, f"no front matter; {HOW_TO_BEGIN}")
    closing = next((number for number in range(opening + 1, len(lines)) if lines[number].rstrip() == RULE), None)
    if closing is None:
        return YamlRefusal(opening + 1, "the line '---' that closes the front matter is missing")
    front_matter = lines[opening + 1 : closing]
    if sum(map(len, front_matter)) > LIMIT_CHARACTERS:
        return YamlRefusal(opening + 1, f"the front matter is larger than {LIMIT_CHARACTERS // 1024} KiB, the limit")
    read = read_strictly(front_matter, opening + 2)
    match read:
        case YamlRefusal():
            return read
        case YamlFields(fields=fields):
            body = "\n".join(lines[closing + 1 :]).strip()
            return (*fields, YamlField("prompt", body, closing + 2)) if body else fields


ROOTS = ("task", "template")
LISTS = {"inputs": "input", "file_paths": "path", "template_hints": "hint"}
"""Elements with a list, and the element of one item."""
LIMIT_DEPTH = 8


class _Node:
    __slots__ = ("attributes", "children", "line", "name", "text")

    def __init__(self, name: str, attributes: dict[str, str], line: int) -> None:
        self.name = name
        self.attributes = attributes
        self.line = line
        self.text: list[str] = []
        self.children: list[_Node] = []


class _UnwelcomeError(Exception):
    """Well-formed XML that is refused."""


def read_xml(text: str) -> tuple[YamlField, ...] | YamlRefusal:
    """The fields of a template, or the line that is not accepted."""
    from xml.parsers import expat

    parser = expat.ParserCreate()
    parser.buffer_text = True
    open_nodes: list[_Node] = []
    roots: list[_Node] = []

    def begin(name: str, attributes: dict[str, str]) -> None:
        if len(open_nodes) >= LIMIT_DEPTH:
            raise _UnwelcomeError("it is nested too deeply")
        node = _Node(name, attributes, parser.CurrentLineNumber)
        (open_nodes[-1].children if open_nodes else roots).append(node)
        open_nodes.append(node)

    def hear(data: str) -> None:
        open_nodes[-1].text.append(data)

    def refuse(*_: object) -> None:
        raise _UnwelcomeError("document types and entities are not supported")

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: open_nodes.pop()
    parser.CharacterDataHandler = hear
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        return YamlRefusal(error.lineno, f"not well-formed XML: {expat.ErrorString(error.code)}")
    except _UnwelcomeError as error:
        return YamlRefusal(parser.CurrentLineNumber, str(error))
    root = roots[0]
    if root.name not in ROOTS:
        return YamlRefusal(root.line, f"the root is <{root.name[:40]}>; it must be <task> or <template>")
    given = [YamlField(name, value, root.line) for name, value in root.attributes.items()]
    return (*given, *map(_field, root.children))


def _field(node: _Node) -> YamlField:
    return YamlField(node.name, _value(node), node.line, {child.name: child.line for child in node.children})


def _value(node: _Node) -> Raw:
    if item := LISTS.get(node.name):
        entries: list[Raw] = [_entry(child) if child.name == item else {"": child.name} for child in node.children]
        return entries or _text(node)
    if node.children:
        return {child.name: _text(child) for child in node.children}
    return _text(node)


def _entry(node: _Node) -> Raw:
    if node.name != "input":
        return _text(node)
    entry: dict[str, Raw] = {**node.attributes, **{child.name: _text(child) for child in node.children}}
    if text := _text(node):
        entry.setdefault("description", text)
    return entry


def _text(node: _Node) -> str:
    return "".join(node.text).strip()
