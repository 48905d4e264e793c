"""Check whether a program is installed, its version and its login."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from deputy.backends.program_errors import cannot_run, not_installed, wrong_version
from deputy.engine.ports.backend import NotReady, Ready
from deputy.processes.environment import NETWORK, scrubbed
from deputy.processes.supervise import Command, supervise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.cli.program import Program

_VERSION_SECONDS = 20.0
_VERSION_BYTES = 2000
_PARENTS = 4


class _Package(Struct):
    name: str = ""
    version: str = ""


async def find_installed(program: Program, environ: Mapping[str, str]) -> Ready | NotReady:
    """Check one program."""
    found = find(program, environ)
    if found is None:
        return NotReady(error=not_installed(program.name, program.install))
    path = found.path
    version = await asyncio.to_thread(_packaged_version, path, program.package) if program.package else ""
    # Without a least version the program is not run: not every program knows `--version`.
    if not version and program.least_version:
        version = await _printed_version(program, path, environ)
    if not version and program.least_version:
        error = cannot_run(program.name, "`--version` printed nothing", program.install)
        return NotReady(error=error, path=path)
    if version and (not program.is_version(version) or numbers(version) < program.least_version):
        wanted = f"{'.'.join(map(str, program.least_version))} or later"
        return NotReady(error=wrong_version(program.name, version, wanted, program.install), path=path, version=version)
    return Ready(path=path, version=version, is_logged_in=_is_logged_in(program, environ))


class InstalledProgram(Struct, frozen=True):
    """A program's file and its time of change, which an upgrade changes."""

    path: str
    changed_at: int


def find(program: Program, environ: Mapping[str, str]) -> InstalledProgram | None:
    """The program's file on the PATH."""
    path = shutil.which(program.name, path=environ.get("PATH", ""))
    if path is None:
        return None
    try:
        return InstalledProgram(path, Path(path).stat().st_mtime_ns)
    except OSError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of the first version in a text."""
    for word in version.replace("(", " ").split():
        pieces = word.lstrip("v").partition("-")[0].split(".")
        if len(pieces) > 1 and all(piece.isascii() and piece.isdecimal() for piece in pieces):
            return tuple(int(piece[:9]) for piece in pieces)
    return ()


def _packaged_version(path: str, package: str) -> str:
    """The version from the program's package.json; starting the program would take seconds."""
    with suppress(OSError, ValueError, RecursionError):
        for folder in list(Path(path).resolve().parents)[:_PARENTS]:
            description = folder / "package.json"
            if description.is_file() and description.stat().st_size < 1_000_000:
                described = msgspec.json.decode(description.read_bytes(), type=_Package)
                if described.name == package:
                    return described.version
    return ""


async def _printed_version(program: Program, path: str, environ: Mapping[str, str]) -> str:
    command = Command(
        argv=(path, "--version"),
        cwd="/",
        environment=scrubbed(environ, NETWORK),
        owner=f"version-of-{program.name}",
        has_input=False,
        grace_seconds=0.5,
    )
    with suppress(TimeoutError):
        async with asyncio.timeout(_VERSION_SECONDS), supervise(command) as child:
            printed = await child.stdout.read(_VERSION_BYTES)
            lines = printed.decode("utf-8", "replace").strip().splitlines()
            return lines[0][:100] if lines else ""
    return ""


def _is_logged_in(program: Program, environ: Mapping[str, str]) -> bool | None:
    if any(environ.get(key, "").strip() for key in program.keys):
        return True
    home = Path(environ.get("HOME", "/nonexistent"))
    with suppress(OSError):
        return True if any((home / file).exists() for file in program.login_files) else None
    return None
