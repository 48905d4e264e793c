"""Read front matter that is not valid YAML: split it at known keys, and read each block as YAML, else as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.agents.definition import DefinitionRemark, Raw
from deputy.agents.front_matter_keys import SPEAKERS, TEXT_FIELDS, field_of, is_known_key, key_of
from deputy.agents.strict_yaml import YamlField, YamlFields, read_strictly

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_YAML_BLOCKS = 200
BLOCK_SCALARS = frozenset({"|", ">", "|-", ">-", "|+", ">+"})


class _Block(Struct):
    """A key and the lines up to the next key."""

    key: str
    line: int
    lines: list[str]
    runs_on: bool = False
    """Whether the value has a line at column 0 or a blank line: then an apparent key may be a label in prose."""

    @property
    def is_text(self) -> bool:
        return field_of(self.key) in TEXT_FIELDS


def read_forgivingly(lines: Sequence[str], first_line: int) -> YamlFields:
    """Read the values of known keys, whatever is between them."""
    blocks, remarks = _cut(lines, first_line)
    read = [_read_block(block, try_yaml=number < LIMIT_YAML_BLOCKS) for number, block in enumerate(blocks)]
    fields = tuple(field for part in read for field in part.fields)
    return YamlFields(fields, (*remarks, *(remark for part in read for remark in part.remarks)))


def _cut(lines: Sequence[str], first_line: int) -> tuple[list[_Block], list[DefinitionRemark]]:
    """The blocks of keys, and remarks on lines outside of them."""
    any_spelling = not any(key_of(line) in {"name", "description"} for line in lines)
    has_name = False
    blocks: list[_Block] = []
    remarks: list[DefinitionRemark] = []
    for number, line in enumerate(lines, first_line):
        key = _opened(line, blocks, any_spelling=any_spelling, has_name=has_name)
        has_name |= key == "name"
        if key is not None:
            blocks.append(_Block(key, number, [line]))
        elif blocks and (blocks[-1].is_text or not _is_stray(line)):
            blocks[-1].lines.append(line)
            blocks[-1].runs_on |= not line[:1].isspace()
        elif line.strip() and not line.startswith("#"):
            remarks.append(DefinitionRemark(number, "this line was not understood and is ignored"))
    return blocks, remarks


def _opened(line: str, blocks: Sequence[_Block], *, any_spelling: bool, has_name: bool) -> str | None:
    """The key of a line after these blocks."""
    key = key_of(line)
    if key is None or not blocks or not blocks[-1].is_text:
        return key
    if is_known_key(line) or (any_spelling and field_of(key) is not None):
        return key if key != "name" or not has_name else None
    is_label = key in SPEAKERS or not key[0].islower() or blocks[-1].runs_on
    return None if is_label else key


def _is_stray(line: str) -> bool:
    """Whether a line at column 0 cannot belong to the list or map above it."""
    return bool(line.strip()) and not line[0].isspace() and not line.startswith(("-", "#", "]", "}"))


def _read_block(block: _Block, *, try_yaml: bool) -> YamlFields:
    if try_yaml:
        match read_strictly(block.lines, block.line):
            case YamlFields(fields=(YamlField(key=block.key),)) as read:
                return read
            case _:
                pass
    first = block.lines[0].partition(":")[2].strip()
    value = _text(first, block.lines[1:]) if block.is_text else _items(first, block.lines[1:])
    return YamlFields((YamlField(block.key, value, block.line),))


def _text(first: str, rest: Sequence[str]) -> str:
    """A prose value: wrapped lines are joined as in YAML, other line ends stay."""
    is_literal = first.startswith("|")
    parts = ["" if first in BLOCK_SCALARS else first]
    for line in rest:
        stripped = line.strip()
        wraps = line[:1].isspace() and not is_literal and not _starts_entry(stripped) and parts[-1]
        parts += [" " if wraps and not parts[-1].endswith(">") else "\n", stripped]
    return unquote("".join(parts).strip())


def _starts_entry(line: str) -> bool:
    """Whether a line starts a list item, a tag or a labelled line."""
    return not line or line.startswith(("<", "-", "*", "•")) or line.partition(" ")[0].endswith(":")


def _items(first: str, rest: Sequence[str]) -> Raw:
    """Any other value: a list if every line is an item, a map if every line is a pair."""
    lines = [stripped for line in rest if (stripped := _uncommented(line.strip()))]
    first = _uncommented(first)
    if not first and lines and all(line.startswith("-") for line in lines):
        return [unquote(line[1:].strip()) for line in lines]
    if not first and lines and all(key_of(line) for line in lines):
        return {key_of(line) or "": unquote(line.partition(":")[2].strip()) for line in lines}
    return unquote(" ".join([first, *lines]).strip())


def _uncommented(line: str) -> str:
    return "" if line.startswith("#") else line.partition(" #")[0].rstrip()


def unquote(text: str) -> str:
    """The text without quotes around it, also when the closing quote is missing or more quotes are inside."""
    quote = text[:1]
    if quote not in {'"', "'"}:
        return text
    second = text.find(quote, 1)
    if second == -1:
        # A lone apostrophe probably belongs to the word: 'tis.
        return text[1:] if quote == '"' else text
    closes_early = second < len(text) - 1 and not text[second - 1].isspace() and not text[second + 1].isalnum()
    if not text.endswith(quote) or (closes_early and text[second - 1] != "\\"):
        return text
    inside = text[1:-1]
    return inside.replace('\\"', '"') if quote == '"' else inside.replace("''", "'")
