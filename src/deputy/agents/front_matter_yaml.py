"""Read front matter: as strict YAML within limits, else leniently, key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from deputy.agents.definition import DefinitionRemark, Raw
from deputy.agents.front_matter import FIELDS, SPEAKERS, TEXT_FIELDS, field_of, is_known_key, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from yaml import Event, ScalarEvent

LIMIT_CHARACTERS = 64 * 1024
LIMIT_DEPTH = 16
LIMIT_EVENTS = 10_000


class YamlField(Struct, frozen=True):
    """One key of front matter, its value and its line."""

    key: str
    value: Raw
    line: int
    lines: dict[str, int] = {}
    """The lines of the keys of its value, if it is a map."""
    twice: dict[str, int] = {}
    """The repeated keys of its value, and the line of the repetition."""


class YamlFields(Struct, frozen=True):
    """The fields of front matter in order; a key may occur twice."""

    fields: tuple[YamlField, ...]
    remarks: tuple[DefinitionRemark, ...] = ()


class YamlRefusal(Struct, frozen=True):
    """Why front matter was not read as YAML."""

    line: int
    reason: str


def read_strictly(lines: Sequence[str], first_line: int) -> YamlFields | YamlRefusal:
    """Read front matter as YAML, or say which line is not accepted."""
    import yaml

    try:
        return _read_document(_welcome(lines), lines, first_line)
    except _UnwelcomeError as unwelcome:
        return YamlRefusal(first_line + unwelcome.index, unwelcome.reason)
    except yaml.MarkedYAMLError as error:
        # The parser reports an unclosed quote at the end of the text.
        is_unclosed = "quoted scalar" in (error.context or "")
        mark = error.context_mark if is_unclosed else error.problem_mark
        return YamlRefusal(first_line + (mark.line if mark else 0), error.problem or error.context or "not understood")
    except yaml.YAMLError as error:
        return YamlRefusal(first_line, str(error).partition("\n")[0])


class _UnwelcomeError(Exception):
    """Valid YAML that is refused: it is ambiguous, or costs too much."""

    def __init__(self, event: Event, reason: str) -> None:
        self.index: int = event.start_mark.line
        self.reason = reason


def _welcome(lines: Sequence[str]) -> Iterator[Event]:
    """The YAML events, checked one by one."""
    import yaml

    depth = 0
    count = 0
    parser = _parser("\n".join(lines) + "\n")
    while parser.check_event():
        event = parser.get_event()
        count += 1
        if count > LIMIT_EVENTS:
            raise _UnwelcomeError(event, "it has too many values")
        if isinstance(event, yaml.NodeEvent) and (event.anchor or getattr(event, "tag", None)):
            raise _UnwelcomeError(event, "YAML anchors (&), aliases (*) and tags (!) are not supported")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > LIMIT_DEPTH:
            raise _UnwelcomeError(event, "it is nested too deeply")
        yield event


class _Parser(Protocol):
    def check_event(self) -> bool: ...
    def get_event(self) -> Event: ...


def _parser(text: str) -> _Parser:
    """The parser of libyaml, which is faster, else the Python one."""
    import yaml

    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)


def _read_document(events: Iterator[Event], lines: Sequence[str], first_line: int) -> YamlFields:
    import yaml

    fields: list[YamlField] = []
    remarks: list[DefinitionRemark] = []
    next(events)  # the stream's start
    if isinstance(start := next(events), yaml.StreamEndEvent) or not isinstance(next(events), yaml.MappingStartEvent):
        raise _UnwelcomeError(start, "it is not a list of keys and values")
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        line = first_line + event.start_mark.line
        key, value_event = _key(event), next(events)
        within: list[tuple[str, int]] = []
        value = _value(value_event, events, within)
        if key in SPEAKERS:
            raise _UnwelcomeError(event, "a dialogue is at the start of the line")
        if ":" in key and key.partition(":")[0] in FIELDS:
            raise _UnwelcomeError(event, "a space is missing after the colon")
        if field_of(key) in TEXT_FIELDS:
            if not isinstance(value, str):
                raise _UnwelcomeError(event, f"the {key} is not one text")
            if tail := _comment_after(value_event, lines):
                value += tail
                remarks.append(
                    DefinitionRemark(line, f"'#' and the text after it are part of the {key}; quote the value")
                )
        keys: dict[str, int] = {}
        twice: dict[str, int] = {}
        for name, index in within:
            (twice if name in keys else keys)[name] = first_line + index
        fields.append(YamlField(key, value, line, {**keys, **twice}, twice))
    next(events)  # the document's end
    if not isinstance(event := next(events), yaml.StreamEndEvent):
        raise _UnwelcomeError(event, "a second YAML document begins here")
    return YamlFields(tuple(fields), tuple(remarks))


def _value(event: Event, events: Iterator[Event], lines: list[tuple[str, int]] | None = None) -> Raw:
    """A value; the keys of a map are added to `lines` with their line, from 0."""
    import yaml

    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Raw] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_value(event, events))
        return items
    if isinstance(event, yaml.MappingStartEvent):
        pairs: dict[str, Raw] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = _key(event)
            if lines is not None:
                lines.append((key, event.start_mark.line))
            pairs[key] = _value(next(events), events)
        return pairs
    return _scalar(event).value


def _key(event: Event) -> str:
    key = _scalar(event).value
    if key == "<<":
        raise _UnwelcomeError(event, "YAML merge keys (<<) are not supported")
    return key


def _scalar(event: Event) -> ScalarEvent:
    import yaml

    if not isinstance(event, yaml.ScalarEvent):
        raise _UnwelcomeError(event, "a key is not a word")
    return event


def _comment_after(event: Event, lines: Sequence[str]) -> str:
    """The comment at the end of an unquoted text, which people mean as text."""
    if getattr(event, "style", None):
        return ""
    line, column = int(event.end_mark.line), int(event.end_mark.column)
    tail = lines[line][column:] if line < len(lines) else ""
    return tail.rstrip() if tail.lstrip().startswith("#") else ""


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
    blocks, remarks = _split_blocks(lines, first_line)
    read = [_read_block(block, try_yaml=number < LIMIT_YAML_BLOCKS) for number, block in enumerate(blocks)]
    fields = tuple(field for part in read for field in part.fields)
    return YamlFields(fields, (*remarks, *(remark for part in read for remark in part.remarks)))


def _split_blocks(lines: Sequence[str], first_line: int) -> tuple[list[_Block], list[DefinitionRemark]]:
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
