"""Run: a shell command in the workspace, with a bound on its time, its output and its children."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from functools import partial
from secrets import token_hex
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.processes.environment import scrubbed
from deputy.processes.head_and_tail import HeadAndTail
from deputy.processes.sweep import TAG, tag_of
from deputy.tools.children import Ended, watch
from deputy.tools.errors import ToolError
from deputy.tools.interruptible import interruptible
from deputy.tools.typed import TypedTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.engine.ports import ToolContext
    from deputy.tools.interruptible import Stop
    from deputy.tools.workspace import Workspace

LIMIT_SECONDS = 120
_MOST_SECONDS = 3600
_GRACE_SECONDS = 1.0


class RunArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Run is asked for."""

    command: Annotated[str, Meta(min_length=1, max_length=100_000, description="The command, for the shell.")]
    path: Annotated[str, Meta(min_length=1, max_length=4096, description="The directory to run it in.")] = "."
    seconds: Annotated[int, Meta(ge=1, le=_MOST_SECONDS, description="How long it may take.")] | None = None


def run_tool(
    workspace: Workspace, environment: Mapping[str, str], *, limit_seconds: float = LIMIT_SECONDS
) -> TypedTool[RunArguments]:
    """The tool Run over a workspace; of the environment only what is harmless is passed on."""
    traits = ToolTraits(needs_approval=True, risk="high", limit_seconds=limit_seconds)
    passed_on = scrubbed(environment)

    async def carry_out(arguments: RunArguments, context: ToolContext) -> ToolOutput:
        if not workspace.is_whole:
            raise ToolError("A command cannot be kept within paths, so Run needs the whole workspace; nothing was run.")
        if "\0" in arguments.command:
            raise ToolError("A command cannot hold a NUL character; nothing was run.")
        seconds = limit_seconds if arguments.seconds is None else arguments.seconds
        if seconds > limit_seconds:
            raise ToolError(f"seconds: {seconds:g} is more than the limit of {limit_seconds:g}; nothing was run.")
        return await interruptible(partial(_run, workspace, arguments, context, passed_on, seconds))

    return TypedTool("Run", RunArguments, traits, carry_out, description_file="run.md")


def _run(
    workspace: Workspace,
    arguments: RunArguments,
    context: ToolContext,
    environment: Mapping[str, str],
    seconds: float,
    stop: Stop,
) -> ToolOutput:
    tag = f"{tag_of(context.call_id)}{token_hex(8)}"
    output = HeadAndTail(context.output_bytes // 2, context.output_bytes // 2)
    with workspace.place(arguments.path) as place:
        if not place.is_directory:
            raise ToolError(f"{arguments.path!r:.200} is not a directory; nothing was run.")
        directory = place.open_directory()
        try:
            child = Popen(
                [*_shell(), arguments.command],
                cwd=f"/proc/self/fd/{directory}" if sys.platform == "linux" else f"{workspace.root}/{place.path}",
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                env={**environment, TAG: tag},
                start_new_session=True,
            )
        finally:
            os.close(directory)
    with child:
        sinks = {child.stdout: output.feed}
        ended = watch(child, sinks, stop=stop, seconds=seconds, tag=tag, grace_seconds=_GRACE_SECONDS)
    text = output.text.rstrip("\n")
    return ToolOutput(text=f"{text}\n{_ending(ended, seconds)}".lstrip("\n"), is_error=ended != _WELL)


_WELL = Ended("exited", 0)


def _shell() -> list[str]:
    bash = shutil.which("bash")
    return [bash, "--noprofile", "--norc", "-c"] if bash else ["/bin/sh", "-c"]


def _ending(ended: Ended, seconds: float) -> str:
    match ended.how:
        case "exited" if ended.code < 0:
            return f"[ended by the signal {signal.Signals(-ended.code).name}]"
        case "exited":
            return f"[exit code {ended.code}]"
        case "time is up":
            return f"[stopped: it took longer than {seconds:g} s]"
        case "stopped" | "enough":
            return "[stopped]"
