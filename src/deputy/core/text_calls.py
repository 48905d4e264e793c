"""Tool calls that a model wrote as text, in the spellings of common local models; and its thinking, removed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import Struct, json

if TYPE_CHECKING:
    import re
    from collections.abc import Collection

CHARACTERS_MAX = 64 * 1024
"""A longer message is an answer."""
PROSE_MAX = 400
"""With more text than this around it, a call is quoted in an answer."""
CALLS_MAX = 16
"""The rest of a message with more calls is not read."""

_NAME_KEYS = ("name", "tool", "tool_name", "function_name", "function", "action", "recipient_name")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input")


class TextCall(Struct, frozen=True, kw_only=True):
    """A tool call that was written as text."""

    name: str
    arguments: dict[str, Any]
    is_untyped: bool = False
    """Whether the spelling has only text as values."""


class TextCalls(Struct, frozen=True, kw_only=True):
    """The calls of a message that is made of them; none if they cannot be read."""

    calls: tuple[TextCall, ...]
    is_alone: bool
    """Whether the message has no other text."""


def read_calls(text: str, known: Collection[str], prose_max: int = PROSE_MAX) -> TextCalls | None:
    """The calls that a message consists of, with little other text; None for an answer.

    JSON without a marker of its own is a call only if it names a known tool. A call within a line is quoted; so is a
    line that begins with `>`.
    """
    # Every spelling has one of these signs: most answers need no further look.
    if len(text) > CHARACTERS_MAX or not any(sign in text for sign in "{<("):
        return None
    grammar, names = _grammar(), {name.lower() for name in known}
    calls: list[TextCall] = []
    prose, at, is_marked, is_broken = 0, 0, False, False
    while at < len(text) and len(calls) <= CALLS_MAX:
        if skipped := grammar.skip.match(text, at):
            is_marked = is_marked or skipped["marker"] is not None
            at = skipped.end()
            continue
        quoted = grammar.quoted.match(text, at)
        found = None if quoted else _call_at(text, at, names, is_marked=is_marked)
        if found is not None:
            calls += found.calls
            at = found.end
            continue
        is_broken = is_broken or (is_marked and text.startswith(("{", "<"), at))
        line = quoted or grammar.prose.match(text, at)
        prose += 0 if line is None else len(line[0])
        at = at + 1 if line is None or line.end() == at else line.end()
        if prose > prose_max:
            return None
    return TextCalls(calls=tuple(calls), is_alone=not prose) if calls or is_broken else None


def without_thinking(text: str) -> str:
    """The text without its `<think>` blocks; a quoted tag is text, and an open block has no end."""
    if "think" not in text:
        return text
    kept: list[str] = []
    at = start = 0
    is_thinking = is_fenced = False
    for tag in _grammar().think.finditer(text):
        is_closing = tag[0].lstrip().startswith("</")
        if is_thinking:
            if is_closing:
                is_thinking, at = False, tag.end()
        elif tag[0] == "```":
            is_fenced = not is_fenced
        elif not is_fenced and not is_closing:
            kept.append(text[at : tag.start()])
            is_thinking, start = True, tag.start()
        elif not is_fenced and not kept and tag["own_line"]:
            # The template of some models opens the block in the prompt.
            at = tag.end()
    if is_thinking:
        at = len(text) if not text[:start].strip() else start
    return ("".join(kept) + text[at:]).strip() if at or kept else text


class _Grammar(NamedTuple):
    skip: re.Pattern[str]
    quoted: re.Pattern[str]
    prose: re.Pattern[str]
    head: re.Pattern[str]
    named: re.Pattern[str]
    python: re.Pattern[str]
    keyword: re.Pattern[str]
    parameter: re.Pattern[str]
    think: re.Pattern[str]


@cache
def _grammar() -> _Grammar:
    # Every pattern is anchored or has possessive quantifiers, so that no text takes more than linear time.
    import re

    bar = r"[|\uff5c]"
    gap = r"[_\u2581]"
    marker = (
        r"<(?:minimax:)?(?:tool_calls?|tools|toolcall|function_calls?|start_function_call)>|\[TOOL_CALLS\]|<\|python_tag\|>"
        rf"|<{bar}tool{gap}calls?(?:{gap}section)?(?:{gap}begin)?{bar}>|<\|START_ACTION\|>|<\|action_start\|>"
        r"|<\|recipient\|>|<\|channel\|>\w++ to=|(?m:^)>>>(?=[\w.-]++\n\{)"
        r"|(?m:^Action:(?=[^\S\n]*+[\w.-]++\s*+^Action Input:))"
    )
    noise = (
        r"[\s,;\[\]]|```\w*+|</(?:minimax:)?\w++>|<end_function_call>|\[/TOOL_CALLS\]|<\|END_ACTION\|>|(?m:^)Action:"
        rf"|<{bar}/?tool{gap}calls?(?:{gap}section)?(?:{gap}end)?{bar}>|<\|(?:from|content)\|>(?:assistant\n)?"
        r"|<\|(?:plugin|action_end|call|start|end|im_end|eom_id|eot_id)\|>"
    )
    name = r"(?:functions\.)?(?P<name>[A-Za-z_][\w.-]{0,63}+)"
    between = (
        rf"(?:\s|:\d++|\[CALL_ID\]\w*+|\[ARGS\]|<{bar}tool{gap}sep{bar}>|<\|tool_call_argument_begin\|>|<\|content\|>"
        r"|<\|constrain\|>\w++|<\|message\|>|Action Input:|```\w*+)*+"
    )
    string = r'"(?:[^"\\]|\\.)*+"|' + r"'(?:[^'\\]|\\.)*+'"
    flags = re.IGNORECASE | re.DOTALL
    return _Grammar(
        skip=re.compile(rf"(?P<marker>{marker})|(?:{noise})++", flags),
        # The spaces before it have been skipped.
        quoted=re.compile(r"(?:(?m:^)|(?<=\n )|(?<=\n  )|(?<=\n   ))>[^\n]*+\n?"),
        prose=re.compile(rf"""(?:(?!(?<![`"'])(?:{marker}|<function=|<invoke ))[^\n])*+\n?""", flags),
        head=re.compile(r"""<(?:function=|invoke\s++name=)["']?(?P<name>[\w.-]{1,64}+)["']?\s*+>""", flags),
        named=re.compile(rf"(?:function<{bar}tool{gap}sep{bar}>|call:)?{name}{between}(?=\{{|<arg_key>)", flags),
        python=re.compile(rf"(?:print\()?(?:default_api\.)?{name.replace('.-', '')}(?:\.call)?\(", re.DOTALL),
        keyword=re.compile(
            rf"\s*+(\w++)\s*+=\s*+({string}|-?\d[\d.]*+|True|False|None|true|false|null)\s*+", re.DOTALL
        ),
        parameter=re.compile(r"""<(?:parameter(?:=|\s++name=)["']?([\w.-]++)["']?\s*+|(arg_key))>""", flags),
        think=re.compile(
            r"```|(?m:^)[^\S\n]*+(?P<own_line></think(?:ing)?>)[^\S\n]*+(?m:$)|(?<!`)</?think(?:ing)?>", flags
        ),
    )


class _Found(NamedTuple):
    calls: list[TextCall]
    end: int


def _call_at(text: str, at: int, known: Collection[str], *, is_marked: bool) -> _Found | None:
    """The calls that begin at this place."""
    grammar = _grammar()
    if text[at : at + 1] == "{":
        decoded = _object_at(text, at)
        calls = [] if decoded is None else _calls_in(decoded[0])
        is_call = is_marked or any(call.name.lower() in known for call in calls)
        return _Found(calls, decoded[1]) if decoded is not None and calls and is_call else None
    if head := grammar.head.match(text, at):
        ends = [text.find(tag, head.end()) for tag in ("</function>", "</invoke>")]
        end = min((end for end in ends if end >= 0), default=len(text))
        return _Found([_tagged(head["name"], text[head.end() : end])], text.find(">", end) + 1 or len(text))
    if is_marked and (named := grammar.named.match(text, at)):
        return _named(text, named["name"], named.end())
    if (python := grammar.python.match(text, at)) and python["name"].lower() in known:
        return _python(text, python["name"], python.end())
    return None


def _object_at(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    from json import JSONDecoder

    try:
        value, end = JSONDecoder(strict=False).raw_decode(text, at)
        json.encode(value)
    except (ValueError, RecursionError):
        return None
    return (cast("dict[str, Any]", value), end) if isinstance(value, dict) else None


def _calls_in(value: dict[str, Any]) -> list[TextCall]:
    """The calls of an object: itself, or its list of calls."""
    several = value.get("tool_calls")
    entries = cast("list[Any]", several) if isinstance(several, list) else [value]
    calls = [_call_of(cast("dict[str, Any]", entry)) for entry in entries if isinstance(entry, dict)]
    return [call for call in calls if call is not None] if len(calls) == len(entries) else []


def _call_of(value: dict[str, Any]) -> TextCall | None:
    if isinstance(inner := value.get("function"), dict):
        value = cast("dict[str, Any]", inner)
    name = next((found for key in _NAME_KEYS if isinstance(found := value.get(key), str)), None)
    arguments = next((value[key] for key in _ARGUMENT_KEYS if key in value), None)
    if isinstance(arguments, str):
        decoded = _object_at(arguments.strip(), 0)
        arguments = None if decoded is None else decoded[0]
    if name is None or not isinstance(arguments, dict):
        return None
    return TextCall(name=name.removeprefix("functions."), arguments=cast("dict[str, Any]", arguments))


def _tagged(name: str, body: str) -> TextCall:
    """A call whose arguments are tags, or one JSON object."""
    decoded = _object_at(body, len(body) - len(body.lstrip())) if body.lstrip().startswith("{") else None
    if decoded is not None:
        return TextCall(name=name, arguments=decoded[0])
    return TextCall(name=name, arguments=_parameters(body), is_untyped=True)


def _parameters(body: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tags = list(_grammar().parameter.finditer(body))
    for index, tag in enumerate(tags):
        end = tags[index + 1].start() if index + 1 < len(tags) else len(body)
        value, name = body[tag.end() : end], tag[1]
        if name is None:
            name, _, value = value.partition("</arg_key>")
            value = value.partition("<arg_value>")[2].rpartition("</arg_value>")[0]
        else:
            value = value.rpartition("</parameter>")[0] or value
        found[name.strip()] = value.removeprefix("\n").removesuffix("\n")
    return found


def _named(text: str, name: str, at: int) -> _Found | None:
    """A name before its arguments."""
    if text[at] == "<":
        end = text.find("</tool_call>", at)
        end = len(text) if end < 0 else end
        return _Found([TextCall(name=name, arguments=_parameters(text[at:end]), is_untyped=True)], end)
    decoded = _object_at(text, at)
    if decoded is not None:
        return _Found([TextCall(name=name, arguments=decoded[0])], decoded[1])
    end = text.find("}", at)
    pairs = text[at + 1 : end].split("<escape>")
    if end < 0 or len(pairs) % 2 == 0:
        return None
    keys = [key.strip(" ,:") for key in pairs[::2]]
    return _Found([TextCall(name=name, arguments=dict(zip(keys, pairs[1::2], strict=False)), is_untyped=True)], end + 1)


def _python(text: str, name: str, at: int) -> _Found | None:
    """A call in the syntax of Python, with keyword arguments."""
    arguments: dict[str, Any] = {}
    while pair := _grammar().keyword.match(text, at):
        decoded = _object_at(f'{{"value": {_as_json(pair[2])}}}', 0)
        if decoded is None:
            return None
        arguments[pair[1]] = decoded[0]["value"]
        at = pair.end() + (text[pair.end() : pair.end() + 1] == ",")
    closing = len(text[at:]) - len(text[at:].lstrip(") "))
    return _Found([TextCall(name=name, arguments=arguments)], at + closing) if closing else None


def _as_json(literal: str) -> str:
    if literal.startswith("'"):
        return '"' + literal[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    return {"True": "true", "False": "false", "None": "null"}.get(literal, literal)
