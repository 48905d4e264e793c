"""Parse a report: JSON as a whole, or one JSON object in a code fence or between prose."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import Struct, json

from deputy.core.contract.quote import one_line
from deputy.core.contract.return_types import RETURN, ContractProblem, Mode

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Sequence
    from json import JSONDecoder


class Span(NamedTuple):
    """The place of an object; not whole if the object is cut off after a key."""

    start: int
    end: int
    is_whole: bool


def find_objects(text: str) -> Iterator[Span]:
    """The outermost objects of a text, in order, without empty ones; the decoder validates them."""
    grammar = _grammar()
    at = 0
    while opening := grammar.opening.search(text, at):
        start = opening.start()
        at, is_whole = _follow(text, start, grammar)
        if is_whole or grammar.key.match(text, start):
            yield Span(start, at, is_whole)


def _follow(text: str, start: int, grammar: _Grammar) -> tuple[int, bool]:
    """How far the object that opens at `start` is valid, and whether that is its end."""
    inside = ["{"]
    at = start + 1
    while True:
        step = grammar.entry[inside[-1]].match(text, at)
        if step is None:
            return at, False
        at = step.end()
        last = text[at - 1]
        if last in "{[":
            inside.append(last)
        while last in "}]":
            inside.pop()
            if not inside:
                return at, True
            step = grammar.after[inside[-1]].match(text, at)
            if step is None:
                return at, False
            at = step.end()
            last = text[at - 1]


class _Grammar(NamedTuple):
    """One pattern per state; the last character of a match determines the next state."""

    opening: re.Pattern[str]
    key: re.Pattern[str]
    entry: dict[str, re.Pattern[str]]
    after: dict[str, re.Pattern[str]]


@cache
def _grammar() -> _Grammar:
    # Possessive quantifiers do not backtrack.
    import re

    space = r"[ \t\r\n]*+"
    string = r'"(?:[^"\\]++|\\.)*+"'
    scalar = rf"(?:{string}|-?[0-9][0-9.eE+-]*+|true|false|null)"
    member = rf"{space}(?:{string}{space}:{space}(?:[{{\[]|{scalar}{space}[,}}])|}})"
    item = rf"{space}(?:[{{\[]|{scalar}{space}[,\]]|\])"
    return _Grammar(
        opening=re.compile(rf'\{{{space}"'),
        key=re.compile(rf"\{{{space}{string}{space}:", re.DOTALL),
        entry={"{": re.compile(member, re.DOTALL), "[": re.compile(item, re.DOTALL)},
        after={"{": re.compile(rf"{space}[,}}]"), "[": re.compile(rf"{space}[,\]]")},
    )


def measure(value: Any, most_levels: int) -> tuple[int, int]:
    """The number of levels, counted up to one above the maximum, and the number of values in them."""
    levels, values = 0, 0
    level: list[Any] = [value]
    while level and levels <= most_levels:
        levels += 1
        values += len(level)
        level = [child for node in level for child in _children(node)]
    return levels, values


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a value, itself included."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield cast("dict[str, Any]", node)
        waiting.extend(_children(node))


def _children(node: Any) -> Iterable[Any]:
    match node:
        case dict():
            return cast("dict[str, Any]", node).values()
        case list():
            return cast("list[Any]", node)
        case _:
            return ()


CHARACTERS_MAX = 4 * 1024 * 1024
DEPTH_MAX = 128
RULE = "contract.parse"
NOT_JSON = "Return is not valid JSON"
RETURN_KEYS = tuple(name for name, field in RETURN.items() if field.is_required and name != "metadata")


class Parsed(Struct, frozen=True, kw_only=True):
    """The JSON value of a report, and the corrections made to read it."""

    value: Any
    corrections: tuple[str, ...] = ()


def parse(text: str, mode: Mode = "strict", *, keys: Sequence[str] = RETURN_KEYS) -> Parsed | ContractProblem:
    """The JSON value of a report.

    Of several objects, the one with the most of `keys` counts. If several have as many and differ, strict reading
    reports a problem, and lenient reading takes the last one.
    """
    if len(text) > CHARACTERS_MAX:
        return _problem(
            f"Return is too long: {len(text):,} characters (max {CHARACTERS_MAX:,})",
            "Return a short object, and write long content to a file.",
        )
    text = _unfenced(text.removeprefix("\ufeff"))
    whole = _decode(text)
    if not isinstance(whole, _NotJson):
        return whole
    found = _choose(text, mode, keys)
    if found is not None:
        return found
    return _problem(NOT_JSON, f"{whole.reason} Return one JSON object and nothing else.".lstrip())


def _choose(text: str, mode: Mode, keys: Sequence[str]) -> Parsed | ContractProblem | None:
    marks = [f'"{key}"' for key in keys]
    best = _Choice(rank=-1)
    is_broken = False
    for start, end, is_whole in find_objects(text):
        if not is_whole:
            is_broken = True
            continue
        rank = sum(text.find(mark, start, end) >= 0 for mark in marks)
        if rank > best.rank:
            best = _Choice(rank)
        if rank == best.rank:
            best.add(_read(text[start:end], mode))
    # After a cut-off object, an object that lacks some keys is probably a part of it.
    is_part = is_broken and (not keys or best.rank < len(keys))
    return None if is_part else best.made(mode)


class _Choice:
    """Collects objects of the same rank and chooses one."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.last: Parsed | ContractProblem | None = None
        self.count = 0
        self.is_clear = True

    def add(self, reading: Parsed | ContractProblem | _NotJson) -> None:
        if isinstance(reading, _NotJson):
            return
        self.is_clear = self.is_clear and (self.last is None or _is_same(reading, self.last))
        self.last = reading
        self.count += 1

    def made(self, mode: Mode) -> Parsed | ContractProblem | None:
        if self.last is None or self.is_clear:
            return self.last
        if mode == "lenient" and isinstance(self.last, Parsed):
            correction = f"the last of {self.count:,} objects was read"
            return Parsed(value=self.last.value, corrections=(*self.last.corrections, correction))
        return _problem(f"Return has {self.count:,} JSON objects: expected one", "Return one object and nothing else.")


def _is_same(one: Parsed | ContractProblem, other: Parsed | ContractProblem) -> bool:
    if isinstance(one, Parsed) and isinstance(other, Parsed):
        return one.value == other.value
    return one == other


def _read(text: str, mode: Mode) -> Parsed | ContractProblem | _NotJson:
    reading = _decode(text)
    return _decode_loosely(text) if mode == "lenient" and isinstance(reading, _NotJson) else reading


class _NotJson(Struct, frozen=True):
    reason: str


class _RefusedError(ValueError):
    """Valid JSON that the contract refuses; raised only in the hooks of the decoder."""

    def __init__(self, problem: ContractProblem) -> None:
        self.problem = problem
        super().__init__(problem.message)


def _decode(text: str, *, allow_controls: bool = False) -> Parsed | ContractProblem | _NotJson:
    from json import JSONDecodeError

    try:
        value = _decoder(allow_controls).decode(text)
        json.encode(value)
    except _RefusedError as refused:
        return refused.problem
    except JSONDecodeError as error:
        return _NotJson(f"{error.msg} at line {error.lineno}, column {error.colno}.")
    except UnicodeEncodeError:
        return _problem("Return has text that is not valid Unicode", "Do not write lone surrogates.")
    except RecursionError:
        return _too_deep()
    return _too_deep() if _is_too_deep(text, value) else Parsed(value=value)


def _decode_loosely(text: str) -> Parsed | ContractProblem | _NotJson:
    tidied = _trailing_commas().sub(r"\1", text)
    reading = _decode(tidied, allow_controls=True)
    if not isinstance(reading, Parsed):
        return reading
    corrections: list[str] = []
    if tidied != text:
        corrections.append("trailing commas were ignored")
    if isinstance(_decode(tidied), _NotJson):
        corrections.append("line ends or control characters inside texts were accepted")
    return Parsed(value=reading.value, corrections=tuple(corrections))


@cache
def _trailing_commas() -> re.Pattern[str]:
    # Strings match too and are put back, so that commas inside of them stay.
    import re

    return re.compile(r'("(?:[^"\\]++|\\.)*+(?:"|\Z))|,(?=[ \t\r\n]*+[}\]])', re.DOTALL)


@cache
def _decoder(allow_controls: bool) -> JSONDecoder:
    # The standard library's decoder: its hooks show repeated keys.
    from json import JSONDecoder

    return JSONDecoder(
        object_pairs_hook=_unique,
        parse_int=_whole,
        parse_float=_finite,
        parse_constant=_no_constant,
        strict=not allow_controls,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))
    raise _RefusedError(_problem(f"Duplicate field: {one_line(twice)}", "Write every field once."))


def _whole(digits: str) -> int:
    # int() of many digits is not linear.
    if len(digits) <= 20 and -(2**63) <= (number := int(digits)) < 2**64:
        return number
    raise _RefusedError(_out_of_range(digits))


def _finite(digits: str) -> float:
    if len(digits) <= 64 and (number := float(digits)) - number == 0:
        return number
    raise _RefusedError(_out_of_range(digits))


def _no_constant(name: str) -> None:
    raise _RefusedError(_problem(NOT_JSON, f"{name} is not JSON: write a number or leave the field out."))


def _is_too_deep(text: str, value: Any) -> bool:
    return text.count("{") + text.count("[") >= DEPTH_MAX and measure(value, DEPTH_MAX)[0] > DEPTH_MAX


def _unfenced(text: str) -> str:
    """The content of a text that is one code fence and nothing else."""
    stripped = text.strip()
    if not (stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped):
        return text
    return stripped[stripped.index("\n") : -3]


def _too_deep() -> ContractProblem:
    return _problem(f"Return is nested too deeply (max {DEPTH_MAX} levels)", "Return a flat object.")


def _out_of_range(digits: str) -> ContractProblem:
    return _problem(f"Number out of range: {one_line(digits, 40)}", "Write a number that fits 64 bits.")


def _problem(message: str, remedy: str) -> ContractProblem:
    return ContractProblem(rule=RULE, message=message, remedy=remedy)
