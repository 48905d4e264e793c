"""Texts of tools: their errors, cut output, and paths that cannot deceive."""

from __future__ import annotations

from string import ascii_letters, digits

from deputy.core.errors import DeputyError

_PATH_LENGTH = 4096
_NAME_LETTERS = frozenset(ascii_letters + digits + "_-")


class ToolError(DeputyError):
    """A tool call failed or was refused; the model gets the message, and `data` as untrusted text after it."""

    def __init__(self, message: str, data: str = "") -> None:
        super().__init__(message)
        self.data = data


class NotThere(ToolError):
    """A path does not exist, or is a folder where a file is needed."""

    def __init__(self, message: str, *, is_folder: bool = False) -> None:
        super().__init__(message)
        self.is_folder = is_folder


def cut(text: str, limit_bytes: int, remedy: str = "") -> str:
    """Cut a text that is too long, if possible at a line end, and say how much is missing."""
    kept = beginning(text, limit_bytes)
    missing = len(text) - len(kept)
    return f"{kept}\n[cut here: {missing:,} more characters{remedy and '; '}{remedy}]" if missing else text


def beginning(text: str, limit_bytes: int) -> str:
    """As much of a text as fits, cut at a line end where one is near."""
    encoded = text[:limit_bytes].encode("utf-8", "replace")
    if len(encoded) <= limit_bytes and len(text) <= limit_bytes:
        return text
    kept = encoded[:limit_bytes].decode("utf-8", "ignore")
    line_end = kept.rfind("\n")
    return kept[: line_end + 1] if line_end > len(kept) // 2 else kept


def safe_name(text: str, replacement: str) -> str:
    """The text with letters, digits, `_` and `-` only."""
    return "".join(letter if letter in _NAME_LETTERS else replacement for letter in text)


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def shown_path(path: str) -> str:
    """A path on one line: quoted if it has unprintable characters, cut if it is too long."""
    shown = path if path.isprintable() else repr(path)
    return shown if len(shown) <= _PATH_LENGTH else f"{shown[:_PATH_LENGTH]}…"
