"""What is said to whoever called us of what they gave: no secret of this machine, and nothing a terminal would obey."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deputy.core.errors import DeputyError


def print_error(error: DeputyError) -> str:
    """What an error says: every secret that it quotes is a mark, and what models and files say in it is harmless."""
    return error.safe_text(safe_message)


def safe_message(text: str) -> str:
    """A text without what a terminal would obey, and with a mark in place of every secret."""
    from deputy.processes.outgoing import outgoing_text

    return outgoing_text(text)
