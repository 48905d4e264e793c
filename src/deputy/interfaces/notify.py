"""Run the user's own program when something waits for a person: `[notify] command` of the user's config file."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from deputy.core.progress import Progress
from deputy.core.task import cleaned_label
from deputy.processes.environment import scrubbed
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Callable

NOTIFY_SECONDS = 10.0
"""How long the program may take."""
_LEAVE_SECONDS = 2.0
"""How long the end of a Deputy waits for programs that run."""
_DESKTOP = ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_*", "TMUX", "TMUX_PANE")


class Notifier:
    """Runs the program for each question, one at a time; a failure is a warning event. Use it with `async with`."""

    def __init__(self, command: tuple[str, ...], emit: Callable[[Progress], None], problems: list[str]) -> None:
        """Failures are also added to `problems`."""
        self._command = command
        self._emit = emit
        self._problems = problems
        self._turn = asyncio.Lock()
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=_LEAVE_SECONDS)
        for task in self._running:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def notify(self, progress: Progress) -> None:
        """Run the program for the run of this event."""
        task = self._group.create_task(self._run_program(progress.label, progress.session_id))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run_program(self, label: str, run: str) -> None:
        # The question itself is not passed: arguments are visible to other users of the machine.
        title = f"Deputy: [{process_redactor().redact(cleaned_label(label)) or 'run'}] waits for you"
        async with self._turn:
            problem = await _run((*self._command, title, run), {"DEPUTY_NOTIFY_TITLE": title, "DEPUTY_NOTIFY_ID": run})
        if problem:
            text = f"The notify program {self._command[0]} {problem}. Correct [notify] command in your config.toml."
            self._problems.append(text)
            self._emit(Progress(event="warning", label=label, session_id=run, content=text))


async def _run(command: tuple[str, ...], variables: dict[str, str]) -> str:
    """Run a program without a shell; why it failed, or an empty text."""
    nothing = asyncio.subprocess.DEVNULL
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env={**scrubbed(os.environ, _DESKTOP), **variables},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"cannot be started: {getattr(error, 'strerror', None) or error}"
    try:
        async with asyncio.timeout(NOTIFY_SECONDS):
            code = await child.wait()
    except TimeoutError:
        return f"took longer than {NOTIFY_SECONDS:g} s and was stopped"
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
    return f"ended with exit code {code}" if code else ""
