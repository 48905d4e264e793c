"""Read a template from XML: elements are fields with lines; entities and document types are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.agents.strict_yaml import YamlField, YamlRefusal

if TYPE_CHECKING:
    from deputy.agents.definition import Raw

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
