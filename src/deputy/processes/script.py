"""A script that judges: run in a process group of its own, within its time, with as much of its output as is kept."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

from deputy.core.refinement import Script
from deputy.processes.environment import scrubbed
from deputy.processes.head_and_tail import HeadAndTail, take
from deputy.processes.supervise import Command, supervised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deputy.processes.supervise import Child, Exit

OUTPUT_BYTES = 200_000
TIMED_OUT, CANNOT_RUN = 124, 127
"""The exit codes that shells have for these."""


class ProgramScripts:
    """Runs programs of this machine in the workspace; of the environment only what is harmless is passed on."""

    def __init__(self, workspace: Path, environment: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._environment = scrubbed(environment)

    async def run(self, argv: Sequence[str], given: str, *, seconds: float, owner: str) -> Script:
        """Run one with a text as its input."""
        program = self._found(argv[0])
        if program is None:
            return Script(stderr=f"{argv[0]}: there is no such program", exit_code=CANNOT_RUN)
        command = Command(
            argv=(program, *argv[1:]),
            cwd=str(self._workspace),
            environment=self._environment,
            owner=owner,
        )
        out, errors = _kept(), _kept()
        try:
            async with asyncio.timeout(seconds), supervised(command) as child:
                ended = await _until_exit(child, given, out, errors)
        except TimeoutError:
            told = f"{errors.text}\n[stopped: it took longer than {seconds:g} s]".lstrip()
            return Script(stdout=out.text, stderr=told, exit_code=TIMED_OUT)
        code = CANNOT_RUN if ended.code is None else ended.code
        told = errors.text or (os.strerror(ended.errno) if ended.errno else "")
        return Script(stdout=out.text, stderr=told, exit_code=code)

    def _found(self, name: str) -> str | None:
        """The program of this name, on the PATH or as a path from the workspace."""
        if "/" in name:
            path = self._workspace / name
            return str(path) if os.access(path, os.X_OK) and path.is_file() else None
        return shutil.which(name, path=self._environment.get("PATH", os.defpath))


def _kept() -> HeadAndTail:
    return HeadAndTail(OUTPUT_BYTES // 2, OUTPUT_BYTES // 2)


async def _until_exit(child: Child, given: str, out: HeadAndTail, errors: HeadAndTail) -> Exit:
    async with asyncio.TaskGroup() as group:
        group.create_task(child.feed(given.encode("utf-8", "replace")))
        group.create_task(take(child.stdout, out))
        group.create_task(take(child.stderr, errors))
    return await child.exited()
