"""Grep: find lines or files that match a regular expression, with ripgrep."""

from __future__ import annotations

import re
from base64 import b64decode
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import DecodeError, Meta, Struct, structs
from msgspec.json import Decoder

from deputy.processes.child_process import interruptible
from deputy.tools.ripgrep import SEARCH_SECONDS, Collector, FoundPaths, SearchOutput, search
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import NotThere, ToolError, shown_path
from deputy.tools.what_exists import instead_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.engine.ports import ToolContext, ToolOutput
    from deputy.processes.child_process import Slots, StopSignal
    from deputy.tools.workspace import Workspace

_MOST_MATCHES = 1000
_ELSEWHERE = 10
"""How many files are named that match, where the searched file or folder does not."""
_LINE_BYTES = 400
_RECORD_BYTES = 1024 * 1024
_WORDS = re.compile(r"\w+")
_SHORT_WORD = 2
_BOUNDS = ("--regex-size-limit=10M", "--dfa-size-limit=10M", "--max-filesize=16M")


class _GrepArguments(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=4096, description="A regular expression (ripgrep).")]
    path: Annotated[str, Meta(min_length=1, max_length=4096, description="A folder or file; default: all.")] = "."
    glob: Annotated[str, Meta(max_length=1024, description="Only files whose names match.")] = ""
    output: Annotated[Literal["lines", "files"], Meta(description="Show lines, or only file names.")] = "lines"
    context: Annotated[int, Meta(ge=0, le=20, description="Lines around each match.")] = 0
    ignore_case: bool = False
    literal: Annotated[bool, Meta(description="The pattern is plain text.")] = False
    include_ignored: Annotated[bool, Meta(description="Search excluded files too.")] = False
    limit: Annotated[int, Meta(ge=1, le=_MOST_MATCHES, description="How many matches.")] = 100


def grep_tool(workspace: Workspace, slots: Slots | None = None) -> StructTool[_GrepArguments]:
    """Make the tool Grep; shared slots limit the programs that run at once."""
    traits = traits_of("Grep", "low", SEARCH_SECONDS, is_local=True)

    async def execute(arguments: _GrepArguments, context: ToolContext) -> ToolOutput:
        async with slots or nullcontext():
            try:
                return await interruptible(partial(_search, workspace, arguments, context.output_bytes))
            except NotThere as missing:
                raise await instead_of(workspace, arguments.path, missing) from missing

    return StructTool("Grep", _GrepArguments, traits, execute)


def _search(workspace: Workspace, arguments: _GrepArguments, output_bytes: int, stop: StopSignal) -> ToolOutput:
    found = SearchOutput([], [])
    for wanted, words in _attempts(arguments):
        collect = partial(_FoundLines if wanted.output == "lines" else FoundPaths, workspace)
        found = search(workspace, wanted.path, _options(wanted), wanted.limit, collect, stop)
        if found.lines or found.notes:
            if words:
                found.lines.insert(0, words)
            break
    # A small model reports a bare "No matches." as its answer.
    nothing = "No matches. Search for another word, or read a file that may have it."
    return found.shown(output_bytes, "narrow the pattern, the path or the glob", nothing)


def _attempts(arguments: _GrepArguments) -> Iterator[tuple[_GrepArguments, str]]:
    """The search, then wider ones if it finds nothing, each with what it is."""
    yield arguments, ""
    if not arguments.ignore_case:
        yield structs.replace(arguments, ignore_case=True), "Matches if case is ignored:"
    words = [word for word in _WORDS.findall(arguments.pattern) if len(word) > _SHORT_WORD]
    if " " in arguments.pattern and words:
        any_word = structs.replace(arguments, pattern="|".join(words), literal=False, ignore_case=True)
        yield any_word, "No line has all of this. Lines with one of the words:"
    if arguments.path != "." or arguments.glob:
        elsewhere = structs.replace(arguments, path=".", glob="", output="files", ignore_case=True, limit=_ELSEWHERE)
        where = " ".join(filter(None, (shown_path(arguments.path), arguments.glob)))
        yield elsewhere, f"No matches in {where}. There are matches in these files:"


def _options(arguments: _GrepArguments) -> list[str]:
    if "\0" in arguments.pattern + arguments.glob:
        raise ToolError("A pattern must not contain a NUL character; nothing was searched. Remove it.")
    options = [*_BOUNDS, f"--max-count={arguments.limit + 1}"]
    options += ["--json", f"--context={arguments.context}"] if arguments.output == "lines" else ["-l", "--null"]
    if arguments.ignore_case:
        options.append("--ignore-case")
    if arguments.literal:
        options.append("--fixed-strings")
    if arguments.include_ignored:
        options.append("--no-ignore")
    if arguments.glob:
        options.append(f"--glob={arguments.glob}")
    return [*options, f"--regexp={arguments.pattern}"]


class _Text(Struct):
    """Text, or base64 of bytes that are not text."""

    text: str | None = None
    bytes: str | None = None

    def decoded(self) -> bytes:
        return b64decode(self.bytes) if self.bytes is not None else (self.text or "").encode("utf-8", "replace")


class _Submatch(Struct):
    start: int


class _Data(Struct):
    path: _Text | None = None
    lines: _Text | None = None
    line_number: int | None = None
    submatches: tuple[_Submatch, ...] = ()


class _Record(Struct):
    type: str
    data: _Data


_RECORDS = Decoder(_Record)


class _FoundLines(Collector):
    _is_skipping = False
    _path = ""

    def feed(self, data: bytes) -> bool:
        *records, self._rest = (self._rest + data).split(b"\n")
        for record in records:
            if self._is_skipping:
                self._is_skipping = False
            elif not self._take(record):
                return False
        if len(self._rest) > _RECORD_BYTES:
            if not self._is_skipping and self._path:
                self.lines.append(f"{self._path}: [match in a line that is too long to show]")
            self._is_skipping, self._rest = True, b""
        return True

    def _take(self, line: bytes) -> bool:
        try:
            record = _RECORDS.decode(line)
        except DecodeError:
            return True
        data = record.data
        if data.path is None:
            return True
        self._path = self.shown(data.path.decoded())
        if not self._path or record.type not in ("match", "context") or data.lines is None:
            return True
        is_match = record.type == "match"
        if is_match and not self.has_room():
            return False
        mark = ":" if is_match else "-"
        text = _excerpt(data.lines.decoded(), data.submatches)
        self.lines.append(f"{self._path}{mark}{data.line_number}{mark}{text}")
        return True


def _excerpt(line: bytes, submatches: tuple[_Submatch, ...]) -> str:
    """The line; of a long line the part around its first match."""
    line = line.rstrip(b"\r\n")
    if len(line) <= _LINE_BYTES:
        return line.decode("utf-8", "replace")
    start = max(0, min(submatches[0].start if submatches else 0, len(line)) - _LINE_BYTES // 4)
    excerpt = line[start : start + _LINE_BYTES].decode("utf-8", "ignore")
    return f"{'…' if start else ''}{excerpt} [… {len(line):,} bytes in all]"
