"""The workspace as the flow of a delegation needs it: files before a prompt, evidence, and what was left behind."""

from __future__ import annotations

import asyncio
import os
import stat
from itertools import islice
from typing import TYPE_CHECKING

from deputy.core.contract import FileFact
from deputy.tools.errors import ToolError
from deputy.tools.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from deputy.core.request import Grant
    from deputy.core.subtask.passing import File
    from deputy.engine.ports import TaskFiles

CONTEXT_BYTES = 200_000
MOST_CHANGED = 200
_MOST_LOOKED_AT = 20_000
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceFolder:
    """A directory, as much of it as a grant gives."""

    def __init__(self, root: Path | str, grant: Grant | None = None, *, private: Sequence[Path | str] = ()) -> None:
        self._workspace = Workspace(root, grant, private=private)

    @property
    def root(self) -> str:
        """Its absolute path, free of links."""
        return self._workspace.root

    async def before_prompt(self, paths: Sequence[str]) -> TaskFiles:
        """The files that a task names, each under its path."""
        from deputy.tools.context_files import files_before_prompt

        return await asyncio.to_thread(files_before_prompt, paths, self._workspace, CONTEXT_BYTES)

    async def named(self, paths: Sequence[str]) -> Sequence[File]:
        """The files that a subtask is always given."""
        from deputy.tools.passed_files import named_files

        return await named_files(paths, self._workspace)

    async def candidates(self) -> Sequence[File]:
        """The text files that may match a subtask."""
        from deputy.tools.passed_files import candidate_files

        return await candidate_files(self._workspace)

    async def facts(self, paths: Sequence[str]) -> Sequence[FileFact]:
        """What is on disk where artifacts are said to be; what cannot be looked at is not there."""
        return await asyncio.to_thread(lambda: [self.fact(path) for path in paths])

    async def changed_in(self, folder: str, since: float) -> Sequence[str]:
        """The files of a folder that were written since a moment, a bounded number of them."""
        return await asyncio.to_thread(lambda: list(islice(self._changed(folder, since), MOST_CHANGED)))

    def fact(self, path: str) -> FileFact:
        """What is on disk at a path."""
        try:
            with self._workspace.place(path) as place:
                found = place.status
                if found is None:
                    return FileFact(path=path, exists=False)
                size = _has_entries(place.name, place.directory) if place.is_directory else found.st_size
                is_file = stat.S_ISREG(found.st_mode)
                return FileFact(path=path, exists=True, size=size, modified_at=found.st_mtime, is_file=is_file)
        except (ToolError, OSError, ValueError):
            return FileFact(path=path, exists=self._leads_out(path), is_inside=False)

    def _leads_out(self, path: str) -> bool:
        try:
            real = os.path.realpath(os.path.join(self.root, path), strict=True)  # noqa: PTH118  the path is foreign text
        except (OSError, ValueError):
            return False
        return os.path.commonpath((real, self.root)) != self.root

    def _changed(self, folder: str, since: float) -> Iterator[str]:
        try:
            with self._workspace.place(folder) as place:
                top = os.path.normpath(f"{self.root}/{place.path}")
        except (ToolError, OSError, ValueError):
            return
        left = _MOST_LOOKED_AT
        for directory, folders, files in os.walk(top):
            # What programs keep for themselves is not what was worked on.
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            left -= len(folders) + len(files)
            if left < 0:
                return
            for name in sorted(files):
                path = os.path.relpath(f"{directory}/{name}", self.root)
                if self._workspace.shows(path.split("/")) and _is_newer(f"{directory}/{name}", since):
                    yield path


def _has_entries(name: str, directory: int) -> int:
    """Whether there is anything in a directory: 1 or 0."""
    descriptor = os.open(name, _LISTED, dir_fd=directory)
    try:
        with os.scandir(descriptor) as entries:
            return sum(1 for _ in islice(entries, 1))
    finally:
        os.close(descriptor)


def _is_newer(path: str, since: float) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime >= since
