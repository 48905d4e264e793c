"""Run: a shell command in the workspace, limited in time and output; its processes end with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, structs

from deputy.core.approval import ApprovalPart, FileDigest
from deputy.engine.ports import Preview, ToolOutput
from deputy.processes.bounded_output import HeadAndTail, take
from deputy.processes.environment import scrubbed
from deputy.processes.supervise import Command, ExitStatus, supervise
from deputy.tools.sandbox import SANDBOXED, Sandbox
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import NotThere, ToolError
from deputy.tools.what_exists import instead_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from deputy.engine.ports import ToolContext
    from deputy.processes.supervise import SupervisedChild
    from deputy.tools.workspace import Workspace

LIMIT_SECONDS = 120
_MOST_SECONDS = 3600
_MOST_BYTES = 100_000
"""Of a command; Linux starts none with an argument of more than 128 kB."""
_GRACE_SECONDS = 1.0
_LAST_WORDS_SECONDS = 1.0
"""How long to wait for the last output after the command has ended."""


class _RunArguments(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1, max_length=100_000, description="For the shell.")]
    path: Annotated[str, Meta(min_length=1, max_length=4096, description="The folder to run it in.")] = "."
    seconds: Annotated[int, Meta(ge=1, le=_MOST_SECONDS, description="The time limit.")] | None = None


def run_tool(
    workspace: Workspace,
    environment: Mapping[str, str],
    *,
    limit_seconds: float = LIMIT_SECONDS,
    is_sandboxed: bool = False,
) -> StructTool[_RunArguments]:
    """Make the tool Run; only harmless variables of the environment are passed on."""
    traits = traits_of("Run", "high", limit_seconds)
    passed_on = scrubbed(environment)
    sandbox = Sandbox(workspace, environment) if is_sandboxed else None

    def check(arguments: _RunArguments) -> None:
        if not workspace.is_whole:
            raise ToolError("A command cannot be limited to paths, so Run needs the whole workspace; nothing was run.")
        if "\0" in arguments.command:
            raise ToolError("A command must not contain a NUL character; nothing was run. Remove it.")
        if len(arguments.command.encode()) > _MOST_BYTES:
            raise ToolError(
                f"The command has more than {_MOST_BYTES:,} bytes; nothing was run. Write the text to a file first."
            )
        if arguments.seconds is not None and arguments.seconds > limit_seconds:
            raise ToolError(
                f"seconds: {arguments.seconds:g} is more than the limit of {limit_seconds:g}; nothing was run."
            )

    async def execute(arguments: _RunArguments, context: ToolContext) -> ToolOutput:
        seconds = limit_seconds if arguments.seconds is None else arguments.seconds
        output = HeadAndTail(context.output_bytes // 2, context.output_bytes // 2)
        try:
            async with _directory(workspace, arguments.path, context.base) as (directory, place):
                command = Command(
                    argv=(*_shell(), arguments.command),
                    cwd=directory,
                    environment=passed_on,
                    owner=context.call_id,
                    has_input=False,
                    merges_errors=True,
                    grace_seconds=_GRACE_SECONDS,
                )
                async with _confined(command, sandbox, place, seconds) as confined:
                    ended = await _run(confined, output, seconds)
        except NotThere as missing:
            raise await instead_of(workspace, arguments.path, missing) from missing
        text = output.text.rstrip("\n")
        return ToolOutput(text=f"{text}\n{_ending(ended, seconds)}".lstrip("\n"), is_error=ended != _WELL)

    def preview(arguments: _RunArguments) -> Preview:
        with workspace.place(arguments.path) as place:
            base = FileDigest(path=place.path, identity=identity_of(place.status))
        parts = [ApprovalPart(name="command", text=arguments.command), ApprovalPart(name="path", text=arguments.path)]
        if base.path != arguments.path:
            parts.append(ApprovalPart(name="leads to", text=base.path))
        if sandbox is not None:
            parts.append(ApprovalPart(name="sandbox", text=SANDBOXED))
        if arguments.seconds is not None:
            parts.append(ApprovalPart(name="seconds", text=str(arguments.seconds)))
        return Preview(parts=tuple(parts), base=base)

    more = "" if sandbox is None else f"\n- Commands run in a sandbox ({SANDBOXED})."
    return StructTool("Run", _RunArguments, traits, execute, preview, more, check)


_WELL = ExitStatus(code=0)


@asynccontextmanager
async def _confined(command: Command, sandbox: Sandbox | None, place: str, seconds: float) -> AsyncGenerator[Command]:
    """The command in the sandbox; as it is without one."""
    if sandbox is None:
        yield command
        return
    await sandbox.check(seconds)
    async with sandbox.command(command.argv, place, seconds) as inside:
        yield structs.replace(command, argv=inside.argv, descriptors=inside.descriptors)


@asynccontextmanager
async def _directory(workspace: Workspace, path: str, base: FileDigest | None) -> AsyncGenerator[tuple[str, str]]:
    """A path to an open directory, which stays valid when the directory is moved or replaced; and its own path."""
    opening = asyncio.ensure_future(asyncio.to_thread(_opened, workspace, path, base))
    try:
        descriptor, *names = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unused)
        raise
    try:
        yield names[0], names[1]
    finally:
        os.close(descriptor)


def _opened(workspace: Workspace, path: str, base: FileDigest | None) -> tuple[int, str, str]:
    with workspace.place(path) as place:
        if place.status is None:
            raise NotThere(f"{path!r:.200} does not exist; nothing was run. Give a directory as `path`.")
        if not place.is_directory:
            raise ToolError(f"{path!r:.200} is not a directory; nothing was run. Give a directory as `path`.")
        descriptor = place.open_directory()
        if base is not None and (place.path, identity_of(os.fstat(descriptor))) != (base.path, base.identity):
            os.close(descriptor)
            raise ToolError(
                f"{path!r:.200} is another directory than the approved one; nothing was run. Call again to ask for it."
            )
        name = f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else f"{workspace.root}/{place.path}"
        return descriptor, name, place.path


def identity_of(status: os.stat_result | None) -> str:
    """The device and the number of a directory: another one in its place has others."""
    return "" if status is None else f"{status.st_dev}:{status.st_ino}"


def _close_unused(opening: asyncio.Future[tuple[int, str, str]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result()[0])


async def _run(command: Command, output: HeadAndTail, seconds: float) -> ExitStatus | None:
    """The exit status; None after the timeout."""
    async with supervise(command) as child, asyncio.TaskGroup() as group:
        listening = group.create_task(take(child.stdout, output))
        ended = await _exited(child, seconds)
        if ended is None:
            await child.end(command.polite, command.grace_seconds)
        await asyncio.wait({listening}, timeout=_LAST_WORDS_SECONDS)
        listening.cancel()
    return ended


async def _exited(child: SupervisedChild, seconds: float) -> ExitStatus | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await child.exited()
    return None


def _shell() -> list[str]:
    bash = shutil.which("bash")
    return [bash, "--noprofile", "--norc", "-c"] if bash else ["/bin/sh", "-c"]


def _ending(ended: ExitStatus | None, seconds: float) -> str:
    match ended:
        case None:
            return f"[stopped after the timeout of {seconds:g} s]"
        case ExitStatus(code=int() as code) if code < 0:
            return f"[ended by the signal {_signal_name(-code)}]"
        case ExitStatus(code=int() as code):
            return f"[exit code {code}]"
        case ExitStatus(errno=0):
            return "[ended; its exit code is unknown]"
        case ExitStatus(errno=errno):
            return f"[could not be started: {os.strerror(errno)}]"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most real-time signals have no name.
        return str(number)
