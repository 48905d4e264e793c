"""The workspace as the engine uses it: context files, evidence of artifacts, changed files."""

from __future__ import annotations

import asyncio
import os
import stat
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from deputy.core.contract import FileFact
from deputy.core.contract.evidence import is_kept
from deputy.processes.child_process import interruptible
from deputy.tools.tool_text import ToolError
from deputy.tools.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deputy.core.approval import FileDigest
    from deputy.core.request import Grant
    from deputy.core.subtask.context_passing import PassedFile
    from deputy.engine.ports import TaskFiles
    from deputy.processes.child_process import StopSignal

CONTEXT_BYTES = 200_000
MOST_CHANGED = 200
_MOST_LOOKED_AT = 20_000

Untouched: TypeAlias = "Callable[[str, Sequence[str], StopSignal], Callable[[str], bool]]"
"""Makes the predicate `git_worktrees.untouched` for a directory and paths in it."""


class WorkspaceFolder:
    """A directory limited to a grant."""

    def __init__(
        self,
        root: Path | str,
        grant: Grant | None = None,
        *,
        private: Sequence[Path | str] = (),
        main: Path | str | None = None,
        untouched: Untouched | None = None,
        approval_id: tuple[str, str] | None = None,
    ) -> None:
        self._workspace = Workspace(root, grant, private=private, main=main)
        self._untouched = untouched
        self._approval_id = approval_id

    @property
    def root(self) -> str:
        """Its absolute path without links."""
        return self._workspace.root

    def approval_id(self) -> tuple[str, str]:
        """Its path, and the device and inode of the directory that is there now, unless others were given."""
        if self._approval_id is not None:
            return self._approval_id
        try:
            found = Path(self.root).stat()
        except OSError:
            return self.root, "missing"
        return self.root, f"{found.st_dev}:{found.st_ino}"

    async def before_prompt(self, paths: Sequence[str], approved: Mapping[str, str] | None = None) -> TaskFiles:
        """The context files of a task, as text."""
        from deputy.tools.task_files import files_before_prompt

        return await asyncio.to_thread(files_before_prompt, paths, self._workspace, CONTEXT_BYTES, approved)

    async def digests(self, paths: Sequence[str]) -> Sequence[FileDigest]:
        """The digests of a task's context files, for approval."""
        from deputy.tools.task_files import context_digest

        return await asyncio.to_thread(lambda: [context_digest(path, self._workspace, CONTEXT_BYTES) for path in paths])

    async def named(self, paths: Sequence[str]) -> Sequence[PassedFile]:
        """The files that a subtask names."""
        from deputy.tools.task_files import passed_file

        return await asyncio.to_thread(lambda: [passed_file(path, self._workspace) for path in paths])

    async def candidates(self) -> Sequence[PassedFile]:
        """The text files that may match a subtask."""
        from deputy.tools.task_files import candidate_files

        return await interruptible(partial(candidate_files, self._workspace))

    async def facts(self, paths: Sequence[str]) -> Sequence[FileFact]:
        """The state on disk of reported artifacts; an unreadable one counts as missing."""
        return await interruptible(partial(self._facts, paths))

    async def changed_in(self, folder: str, since: float) -> Sequence[str]:
        """Files of a folder that were written since a moment, up to a limit."""
        return await asyncio.to_thread(lambda: list(islice(self._changed(folder, since), MOST_CHANGED)))

    def _facts(self, paths: Sequence[str], stop: StopSignal) -> list[FileFact]:
        if self._untouched is None:
            return [self.fact(path) for path in paths]
        own = [where for path in paths if (where := self._where(path)) is not None]
        is_untouched = self._untouched(self.root, own, stop)
        return [self.fact(path, is_untouched) for path in paths]

    def _where(self, path: str) -> str | None:
        """The path from the root, without links, of an existing file in this worktree."""
        try:
            with self._workspace.place(path) as place:
                is_own = place.status is not None and not self._workspace.is_elsewhere(place)
                return place.path if is_own and not is_kept(place.parts) else None
        except (ToolError, OSError, ValueError):
            return None

    def fact(self, path: str, is_untouched: Callable[[str], bool] = lambda path: False) -> FileFact:
        """The state on disk of one path."""
        try:
            with self._workspace.place(path) as place:
                found = place.status
                if found is None:
                    return FileFact(path=path, exists=False)
                fact = FileFact(
                    path=path,
                    exists=True,
                    size=found.st_size,
                    modified_at=found.st_mtime,
                    is_file=stat.S_ISREG(found.st_mode),
                    is_kept=is_kept(place.parts),
                )
                if place.is_directory:
                    return fact if fact.is_kept else self._directory(fact, place.path, is_untouched)
                is_own = not self._workspace.is_elsewhere(place)
                return structs.replace(fact, is_touched=not (is_own and is_untouched(place.path)))
        except (ToolError, OSError, ValueError):
            return FileFact(path=path, exists=self._leads_out(path), is_inside=False)

    def _directory(self, fact: FileFact, path: str, is_untouched: Callable[[str], bool]) -> FileFact:
        """The state of a directory is that of its files."""
        root = self._workspace.top_of(path)
        full = [(name, status) for name, status in self._files(path) if status.st_size]
        is_own = root == self.root
        times = [status.st_mtime for name, status in full if not (is_own and is_untouched(name))]
        newest = max(times, default=None)
        return structs.replace(fact, size=min(1, len(full)), modified_at=newest, is_touched=newest is not None)

    def _leads_out(self, path: str) -> bool:
        try:
            real = os.path.realpath(os.path.join(self.root, path), strict=True)  # noqa: PTH118  the path is foreign text
        except (OSError, ValueError):
            return False
        return os.path.commonpath((real, self.root)) != self.root

    def _changed(self, folder: str, since: float) -> Iterator[str]:
        return (path for path, status in self._files(folder) if status.st_mtime >= since)

    def _files(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        """The visible regular files below a folder, up to a limit."""
        try:
            with self._workspace.place(folder) as place:
                root = self._workspace.top_of(place.path)
                top = os.path.normpath(f"{root}/{place.path}")
        except (ToolError, OSError, ValueError):
            return
        left = _MOST_LOOKED_AT
        for directory, folders, files in os.walk(top):
            # Hidden folders belong to programs, not to the work.
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            left -= len(folders) + len(files)
            if left < 0:
                return
            for name in sorted(files):
                path = os.path.relpath(f"{directory}/{name}", root)
                parts = tuple(path.split("/"))
                status = None if is_kept(parts) else _status(f"{directory}/{name}")
                if status is not None and self._workspace.shows(parts):
                    yield path, status


def _status(path: str) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
