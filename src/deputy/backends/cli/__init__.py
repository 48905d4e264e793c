"""Other agents' command-line programs, run without a terminal; one file for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.cli.program import Program
    from deputy.backends.program_backend import CliBackend
    from deputy.core.redaction import Redactor

NAMES = ("claude", "codex", "gemini", "opencode", "cursor-agent")
"""The known programs, as in `cli:<name>`."""


def program_of(name: str) -> Program:
    """The description of a known program."""
    from importlib import import_module

    return import_module(f"deputy.backends.cli.{name.replace('-', '_')}").PROGRAM


def cli_backend(name: str, environ: Mapping[str, str], redactor: Redactor | None = None) -> CliBackend | None:
    """The backend for the program of this name; None when it is unknown."""
    from deputy.backends.program_backend import CliBackend

    return CliBackend(program_of(name), environ, redactor=redactor) if name in NAMES else None
