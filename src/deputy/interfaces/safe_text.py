"""Make error text safe to print: redact secrets, strip terminal escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deputy.core.errors import DeputyError


def print_error(error: DeputyError) -> str:
    """The text of an error, safe to print."""
    return error.safe_text(safe_message)


def safe_message(text: str) -> str:
    """A text with secrets redacted and terminal escapes stripped."""
    from deputy.processes.outgoing import outgoing_text

    return outgoing_text(text)
