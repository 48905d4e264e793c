"""Read one settings file within limits, and check it."""

from __future__ import annotations

import os
import stat

from msgspec import ValidationError, convert

from deputy.config.settings import Settings
from deputy.core.errors import Unquoted, UsageError

LIMIT_BYTES = 64 * 1024


def read_settings(path: str, kind: type[Settings] = Settings) -> Settings | None:
    """The settings of a file, None without a file; a UsageError names the file, the key and a valid value."""
    content = _content(path)
    if content is None:
        return None
    try:
        return _read(path, content, kind)
    except UsageError as error:
        from pathlib import Path

        if not Path(path).is_symlink():
            raise
        # A link may lead to a private file: do not show its content.
        found = Unquoted("a link to a file without settings")
        raise UsageError(path, found, "put the settings here, or remove it") from error.__cause__


def _read(path: str, content: bytes, kind: type[Settings]) -> Settings:
    import tomllib

    from deputy.config.setting_checks import check, explained, line_of

    try:
        said = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        # Python reads no number of more than 4,300 digits, which is a ValueError of its own.
        raise UsageError(path, line_of(content, str(error)), f"it must be TOML in UTF-8: {error}") from error
    try:
        settings = convert(said, kind)
    except ValidationError as error:
        raise explained(path, said, str(error), kind) from error
    check(path, settings)
    return settings


def _content(path: str) -> bytes | None:
    try:
        # Opening a pipe would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        found = Unquoted(f"a file that cannot be read ({error.strerror})")
        raise UsageError(path, found, "make it readable, or remove it") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(path, Unquoted("something that is not a file"), "make it a regular file, or remove it")
        content = os.read(descriptor, LIMIT_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > LIMIT_BYTES:
        raise UsageError(path, Unquoted(f"more than {LIMIT_BYTES} bytes"), f"keep it under {LIMIT_BYTES // 1024} KiB")
    return content
