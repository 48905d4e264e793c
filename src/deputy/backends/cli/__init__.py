"""Other agents' command-line programs, run without a terminal; one file for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.cli.cli_turn import CliBackend
    from deputy.core.redaction import Redactor
    from deputy.engine.ports import NotReady, Ready

NAMES = ("claude", "codex", "gemini", "opencode", "cursor-agent")
"""The known programs, as in `cli:<name>`."""


def cli_backend(name: str, environ: Mapping[str, str], redactor: Redactor | None = None) -> CliBackend | None:
    """The backend for the program of this name; None when it is unknown."""
    from importlib import import_module

    from deputy.backends.cli.cli_turn import CliBackend

    if name not in NAMES:
        return None
    module = import_module(f"deputy.backends.cli.{name.replace('-', '_')}")
    return CliBackend(module.PROGRAM, environ, redactor=redactor)


async def check_programs(environ: Mapping[str, str]) -> dict[str, Ready | NotReady]:
    """Check which programs are installed, in parallel."""
    import asyncio

    backends = {name: backend for name in NAMES if (backend := cli_backend(name, environ)) is not None}
    async with asyncio.TaskGroup() as group:
        looks = {name: group.create_task(backend.check()) for name, backend in backends.items()}
    return {name: look.result() for name, look in looks.items()}
