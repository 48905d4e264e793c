"""Run a command on an event loop: signals and cancellation."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from deputy.core.errors import StorageCorrupt, StorageError, StorageTooNew
from deputy.interfaces.background import background
from deputy.interfaces.cli.console import CANCELLED, warn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

STOP_SECONDS = 2.5
"""How long a cancelled run may take to stop."""

_T = TypeVar("_T")


def run_command(command: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    """Run a command: the first Ctrl-C or SIGTERM sets its stop event, the second exits at once.

    A closed terminal sets the event too, unless the process ignores SIGHUP (`nohup`).
    """
    try:
        return asyncio.run(_with_signals(command))
    finally:
        # All output is printed: Ctrl-C during interpreter shutdown must not print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


async def until_done(work: Awaitable[_T], stop: asyncio.Event, cancel: Callable[[], Awaitable[object]]) -> _T | None:
    """Wait for work; on stop cancel it and return its result, or None when it does not end in time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:

            async def stopping() -> None:
                await stop.wait()
                limit.reschedule(loop.time() + STOP_SECONDS)
                await cancel()

            async with background(stopping()):
                return await work
    except TimeoutError:
        return None


@contextmanager
def resumable(session_id: str) -> Generator[None]:
    """Add `deputy resume ID` to the remedy of a storage error, unless the journal is damaged or too new."""
    try:
        yield
    except (StorageCorrupt, StorageTooNew):
        raise
    except StorageError as error:
        remedy = f"{error.remedy} No record is lost; then continue with: deputy resume {session_id}"
        raise type(error)(error.path, error.what, remedy) from error


def not_stopped(session_id: str) -> int:
    """Print that the run did not stop in time; return the exit code."""
    warn(f"it did not stop in time; continue it with `deputy resume {session_id}`")
    return CANCELLED


async def _with_signals(command: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    stop = asyncio.Event()

    def asked() -> None:
        if stop.is_set():
            _leave_at_once()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    # SIGHUP may come twice, from the terminal and from the shell: the second one is no hurry. nohup ignores it.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    return await command(stop)


def _leave_at_once() -> None:
    from deputy.interfaces.view.terminal_painter import SHOW_CURSOR, echo_on

    if sys.stderr.isatty():
        # The cursor may be behind the last line of the live view.
        os.write(sys.stderr.fileno(), f"\n{SHOW_CURSOR}".encode())
        echo_on()
    os._exit(CANCELLED)
