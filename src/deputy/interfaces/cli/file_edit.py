"""A change of a user's file: shown as a diff, asked, and written whole, with a backup."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Literal, TypeAlias

import click
from msgspec import Struct

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import note, read_source
from deputy.interfaces.cli.terminal_prompt import ask_line, can_ask
from deputy.interfaces.text_lines import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LIMIT_BYTES = 4 * 1024 * 1024

EditResult: TypeAlias = Literal["written", "unchanged", "shown", "declined"]


class FileEdit(Struct, frozen=True, kw_only=True):
    """The content of a file before and after; None is no file."""

    path: str
    before: str | None
    after: str | None
    is_kept: bool = True
    """Whether the content before is kept as a backup."""

    @property
    def is_change(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after

    def diff(self) -> Iterator[str]:
        """The lines of a unified diff."""
        from difflib import unified_diff

        old = "/dev/null" if self.before is None else self.path
        new = "/dev/null" if self.after is None else self.path
        before, after = (self.before or "").splitlines(), (self.after or "").splitlines()
        yield from unified_diff(before, after, old, new, lineterm="")

    def write(self) -> str | None:
        """Replace the file, or remove it; returns the path of the backup."""
        # A link of a person who keeps settings elsewhere stays a link.
        path = Path(self.path).resolve()
        if read_user_file(self.path) != self.before:
            raise UsageError("file", self.path, "another program has changed it meanwhile; try again")
        backup = _back_up(path) if self.before is not None and self.is_kept else None
        if self.after is None:
            path.unlink()
            with suppress(OSError):
                for folder in takewhile(lambda folder: folder != Path.home(), path.parents):
                    folder.rmdir()  # only an empty one
            return backup
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if self.before is not None else 0o600
        new = path.with_name(f"{path.name}.{token_hex(4)}.new")
        try:
            _write_new(new, self.after.encode(), mode)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
        return backup


def read_user_file(path: str) -> str | None:
    """The text of a user's file; None without a file."""
    if not Path(path).exists():
        return None
    try:
        return read_source(path, limit_bytes=_LIMIT_BYTES, field="file").decode()
    except UnicodeDecodeError as error:
        raise UsageError("file", path, "it is not UTF-8; change it by hand") from error


def apply_edits(edits: Sequence[FileEdit], *, yes: bool, dry_run: bool = False) -> tuple[EditResult, list[str]]:
    """Show the diffs, ask unless `yes`, and write; returns what was done, and the backups."""
    changes = [edit for edit in edits if edit.is_change]
    if not changes:
        return "unchanged", []
    for edit in changes:
        for line in edit.diff():
            click.echo(plain(line), err=True)
    if dry_run:
        return "shown", []
    if not yes:
        if not can_ask():
            note("No terminal to ask at; pass --yes to write it.")
            return "declined", []
        answer = ask_line(f"Write {'this file' if len(changes) == 1 else f'these {len(changes)} files'}? [y/N] ")
        if answer is None or answer.lower() not in ("y", "yes"):
            return "declined", []
    return "written", [backup for edit in changes if (backup := edit.write()) is not None]


def _back_up(path: Path) -> str:
    import time

    content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    backup = path.with_name(f"{path.name}.{time.strftime('%Y%m%d-%H%M%S')}-{token_hex(2)}.bak")
    _write_new(backup, content, mode)
    return str(backup)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
        os.fchmod(descriptor, mode)
