"""Evaluator scripts: run under supervision, with a timeout and bounded output."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from deputy.core.refinement import ScriptOutput
from deputy.processes.bounded_output import HeadAndTail, take
from deputy.processes.environment import scrubbed
from deputy.processes.supervise import Command, supervise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deputy.processes.supervise import ExitStatus, SupervisedChild

OUTPUT_BYTES = 200_000
TIMED_OUT, CANNOT_RUN = 124, 127
"""The exit codes that shells use for these."""
_HEAD = 4096
"""Enough to read the first line of a script, and to recognise a binary."""


class ProgramScripts:
    """Runs programs in the workspace with a scrubbed environment."""

    def __init__(self, workspace: Path, environment: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._environment = scrubbed(environment)

    async def run(self, argv: Sequence[str], given: str, *, seconds: float, owner: str) -> ScriptOutput:
        """Run a program with a text as its input."""
        program = found_program(argv[0], self._workspace, self._environment)
        if program is None:
            return ScriptOutput(stderr=f"{argv[0]}: there is no such program", exit_code=CANNOT_RUN)
        command = Command(
            argv=(program, *argv[1:]),
            cwd=str(self._workspace),
            environment=self._environment,
            owner=owner,
        )
        out, errors = _kept(), _kept()
        try:
            async with asyncio.timeout(seconds), supervise(command) as child:
                ended = await _until_exit(child, given, out, errors)
        except TimeoutError:
            text = f"{errors.text}\n[stopped: it took longer than {seconds:g} s]".lstrip()
            return ScriptOutput(stdout=out.text, stderr=text, exit_code=TIMED_OUT)
        code = CANNOT_RUN if ended.code is None else ended.code
        text = errors.text or (os.strerror(ended.errno) if ended.errno else "")
        return ScriptOutput(stdout=out.text, stderr=text, exit_code=code)


def found_program(name: str, workspace: Path, environment: Mapping[str, str]) -> str | None:
    """The program of this name, on the PATH or relative to the workspace."""
    if "/" in name:
        path = workspace / name
        return str(path) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(name, path=environment.get("PATH", os.defpath))


def why_not_startable(name: str, workspace: Path, environment: Mapping[str, str]) -> str:
    """Why a program cannot be started, as far as can be seen without starting it; empty when it can."""
    program = found_program(name, workspace, environment)
    if program is None:
        is_there = "/" in name and (workspace / name).is_file()
        return "it may not be executed; chmod +x it" if is_there else "there is no such program"
    try:
        with Path(program).open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        # An executable without read permission cannot be inspected.
        return ""
    if head.startswith(b"#!"):
        interpreter = head[2:].partition(b"\n")[0].split()[:1]
        if not interpreter or not os.access(interpreter[0], os.X_OK):
            return "the program that its first line names is not there"
    elif b"\0" not in head:
        return "it is a text without a first line that says what runs it, such as #!/bin/sh"
    return ""


def _kept() -> HeadAndTail:
    return HeadAndTail(OUTPUT_BYTES // 2, OUTPUT_BYTES // 2)


async def _until_exit(child: SupervisedChild, given: str, out: HeadAndTail, errors: HeadAndTail) -> ExitStatus:
    async with asyncio.TaskGroup() as group:
        group.create_task(child.feed(given.encode("utf-8", "replace")))
        group.create_task(take(child.stdout, out))
        group.create_task(take(child.stderr, errors))
    return await child.exited()
