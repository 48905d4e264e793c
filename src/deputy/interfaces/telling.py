"""What is said to whoever called us of what they gave, without the secrets of this machine and what looks like one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deputy.core.errors import DeputyError


def tell(error: DeputyError) -> str:
    """What an error says, with a mark in place of every secret that it quotes."""
    return error.told(hide_secrets)


def hide_secrets(text: str) -> str:
    """A text with a mark in place of every secret."""
    from deputy.core.redact import Redactor, known_secrets

    return Redactor(known_secrets(os.environ)).redact(text)
