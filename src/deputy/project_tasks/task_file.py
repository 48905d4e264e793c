"""The tasks of a project in `.deputy/tasks.json`: changed under a lock, and replaced atomically."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from deputy.core.errors import (
    StorageBusy,
    StorageCorrupt,
    StorageDenied,
    StorageFailed,
    StorageFull,
    StorageTooNew,
    UsageError,
)
from deputy.core.project_task import MAX_TITLE, HistoryEntry, ProjectTask, proposed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

FOLDER = ".deputy"
FILE = "tasks.json"
LOCK = "tasks.lock"
VERSION = 1
LIMIT_BYTES = 16 * 1024 * 1024
LOCK_SECONDS = 10.0
_TOO_LARGE = "Remove old tasks."
_POLL_SECONDS = 0.02
_CONFLICT = (b"<<<<<<<", b">>>>>>>")


class _Content(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = VERSION
    next: int | UnsetType = UNSET
    """The number of the next task; stored only when the last tasks were removed."""
    tasks: tuple[ProjectTask, ...] = ()


class TaskFile:
    """The tasks of one project; each change reads and writes the whole file under one lock."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self.path = project / FOLDER / FILE
        self._lock = project / FOLDER / LOCK

    def tasks(self) -> tuple[ProjectTask, ...]:
        """All tasks, by number."""
        return _read(self.path).tasks

    def find(self, number: int) -> ProjectTask:
        """The task with this number."""
        return _found(self.tasks(), number, self.path)

    def add(self, title: str, *, text: str = "", language: str = "", complexity: str = "", at: str) -> ProjectTask:
        """Add a task with the next number."""
        return self.add_all([(title, text, language, complexity)], at=at)[0]

    def add_all(self, wanted: Sequence[tuple[str, ...]], *, at: str) -> tuple[ProjectTask, ...]:
        """Add tasks, each given as title, text, language and complexity."""
        for title, *_ in wanted:
            check_title(title)
        with self._changing() as content:
            added = tuple(_new(number, at, *one) for number, one in enumerate(wanted, _next(content)))
            self._write(content, (*content.tasks, *added))
        return added

    def draft(self, title: str, *, text: str = "", language: str = "", at: str) -> ProjectTask:
        """A new task as it would be added now; nothing is written, and its number is not reserved."""
        check_title(title)
        return _new(_next(_read(self.path)), at, title, text, language)

    def add_draft(self, draft: ProjectTask, session_id: str) -> ProjectTask:
        """Add the draft of a session's command with the number that is next now."""
        with self._changing() as content:
            added = proposed(structs.replace(draft, number=_next(content)), session_id)
            self._write(content, (*content.tasks, added))
        return added

    def change(self, number: int, change: Callable[[ProjectTask], ProjectTask]) -> ProjectTask:
        """Change one task under the lock."""
        with self._changing() as content:
            before = _found(content.tasks, number, self.path)
            after = change(before)
            if after != before:
                self._write(content, tuple(after if task.number == number else task for task in content.tasks))
        return after

    def remove(self, number: int) -> ProjectTask:
        """Remove a task; its number is never used again."""
        with self._changing() as content:
            gone = _found(content.tasks, number, self.path)
            if gone.work is not None:
                raise UsageError(
                    f"task {number}", f"{gone.work.command} at work", f"cancel session {gone.work.session_id} first"
                )
            self._write(content, tuple(task for task in content.tasks if task.number != number))
        return gone

    def withdraw(self, seen: ProjectTask) -> None:
        """Remove a task, unless it has changed since it was read; its number is never used again."""
        with self._changing() as content:
            if seen in content.tasks:
                self._write(content, tuple(task for task in content.tasks if task != seen))

    def make_folder(self, folder: str) -> None:
        """Create a folder in the project with its parents; a symbolic link on the way is refused."""
        place = self._project
        for part in folder.split("/"):
            place /= part
            with _explained(place):
                place.mkdir(exist_ok=True)
            if place.is_symlink():
                raise StorageDenied(str(place), "it is a symbolic link", "Make it a directory of the project.")

    @contextmanager
    def _changing(self) -> Generator[_Content]:
        with _explained(self.path), _locked(self._lock):
            yield _read(self.path)

    def _write(self, before: _Content, tasks: tuple[ProjectTask, ...]) -> None:
        # One field per line, and a counter only when needed: git merges changes to different tasks.
        after, number = _Content(tasks=tasks), _next(before)
        if number > _next(after):
            after = structs.replace(after, next=number)
        encoded = msgspec.json.format(msgspec.json.encode(after), indent=2) + b"\n"
        if len(encoded) > LIMIT_BYTES:
            # A larger file could not be read again.
            raise StorageFull(str(self.path), f"it would be larger than {LIMIT_BYTES >> 20} MiB", _TOO_LARGE)
        draft = self.path.with_name(f".{FILE}.{os.getpid()}")
        try:
            descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(encoded)
                file.flush()
                os.fsync(descriptor)
            draft.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise


def _new(number: int, at: str, title: str, text: str = "", language: str = "", complexity: str = "") -> ProjectTask:
    return ProjectTask(
        number=number,
        title=" ".join(title.split()),
        text=text,
        language=language,
        complexity=complexity,
        history=(HistoryEntry(at=at, what="added"),),
    )


def _next(content: _Content) -> int:
    """The next number that no task has had."""
    after_last = max((task.number for task in content.tasks), default=0) + 1
    return after_last if content.next is UNSET else max(after_last, content.next)


def project_root(start: Path) -> Path:
    """The nearest directory with tasks, else the root of the repository, else the directory itself."""
    levels = (start, *start.parents)
    with_tasks = (level for level in levels if (level / FOLDER / FILE).exists())
    repositories = (level for level in levels if (level / ".git").exists())
    return next(with_tasks, None) or next(repositories, start)


def check_title(title: str) -> None:
    """Raise unless the title is not blank and short enough."""
    if not title.strip() or len(title) > MAX_TITLE:
        raise UsageError("title", title[:60], f"a title has 1 to {MAX_TITLE} characters; use --text for more")


def _read(path: Path) -> _Content:
    with _explained(path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return _Content()
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StorageDenied(str(path), "it is not a regular file", "Move it away.")
            encoded = file.read(LIMIT_BYTES + 1)
    return _decoded(path, encoded)


def _decoded(path: Path, encoded: bytes) -> _Content:
    if len(encoded) > LIMIT_BYTES:
        raise StorageCorrupt(str(path), f"it is larger than {LIMIT_BYTES >> 20} MiB", _TOO_LARGE)
    for number, line in enumerate(encoded.splitlines(), 1):
        if line.startswith(_CONFLICT):
            raise StorageCorrupt(str(path), f"merge conflict on line {number}", "Resolve it, then try again.")
    try:
        content = msgspec.json.decode(encoded, type=_Content)
    except (msgspec.DecodeError, RecursionError) as error:
        message = str(error) or "it is nested too deeply"
        raise StorageCorrupt(
            str(path), f"it cannot be read: {message}", "Repair it, or restore it from git."
        ) from error
    if content.version > VERSION:
        raise StorageTooNew(
            str(path), f"its version is {content.version}; this Deputy reads {VERSION}", "Upgrade Deputy."
        )
    counted = Counter(task.number for task in content.tasks)
    twice = sorted(number for number, count in counted.items() if number < 1 or count > 1)
    if twice:
        raise StorageCorrupt(
            str(path), f"the task number {twice[0]} is invalid or used twice", "Give every task its own number."
        )
    return structs.replace(content, tasks=tuple(sorted(content.tasks, key=lambda task: task.number)))


def _found(tasks: tuple[ProjectTask, ...], number: int, path: Path) -> ProjectTask:
    for task in tasks:
        if task.number == number:
            return task
    if not tasks:
        raise UsageError("task", number, f'{path} has no tasks yet; add one with `deputy task add "…"`')
    raise UsageError("task", number, f"{path} has no task of this number; `deputy task list --all` lists them")


@contextmanager
def _locked(path: Path) -> Generator[None]:
    path.parent.mkdir(exist_ok=True)
    if path.parent.is_symlink():
        raise StorageDenied(str(path.parent), "it is a symbolic link", "Make it a directory of the project.")
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    held = f"another process holds the lock for more than {LOCK_SECONDS:g} s"
                    raise StorageBusy(str(path), held, "Try again, or end that process.") from None
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        if error.errno == errno.ELOOP:
            where = str(error.filename or path)
            raise StorageDenied(where, "it is a symbolic link", "Replace it by a regular file.") from error
        if error.errno == errno.ENOSPC:
            raise StorageFull(str(path), said, "Free some space, then try again.") from error
        if isinstance(error, PermissionError):
            raise StorageDenied(str(path), said, "Change its permissions, or use another directory.") from error
        raise StorageFailed(str(path), said, "Check the path, then try again.") from error
