"""Read front matter as strict YAML within limits: no aliases, no merge keys, every scalar is a string."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from deputy.agents.definition import DefinitionRemark, Raw
from deputy.agents.front_matter_keys import FIELDS, SPEAKERS, TEXT_FIELDS, field_of

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
