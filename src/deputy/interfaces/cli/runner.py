"""A command that runs on a loop: what signals do to it, and what its outcome is to a shell."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from deputy.core.errors import StorageCorrupt, StorageError, StorageTooNew
from deputy.interfaces.background import background

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence

    from deputy.core.outcome import Outcome

NOTHING_FOUND, REJECTED, CANCELLED = 3, 6, 130
STOP_SECONDS = 2.5
"""How long work that was asked to stop has for it."""

_CODES = {"completed": 0, "failed": 1, "partial": 4, "blocked": 5, "rejected": REJECTED, "cancelled": CANCELLED}
_SHOW_CURSOR = b"\x1b[?25h"

_T = TypeVar("_T")


def run_command(command: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    """Run a command: the first Ctrl-C or SIGTERM sets the event it is given, the second ends the process at once.

    A terminal that is closed sets it too, unless the process was told to outlive that (`nohup`).
    """
    try:
        return asyncio.run(_with_signals(command))
    finally:
        # All is done and told: who is in a hurry now ends the process, without a word.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


async def until_done(work: Awaitable[_T], stop: asyncio.Event, cancel: Callable[[], Awaitable[object]]) -> _T | None:
    """Wait for work; asked to stop, cancel it and take what it ends with, or None when that takes too long."""
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
    """Trouble with storage in here says how to go on with the run that it stopped, unless what was there is damaged."""
    try:
        yield
    except (StorageCorrupt, StorageTooNew):
        raise
    except StorageError as error:
        remedy = f"{error.remedy} Nothing on record is lost; go on with: deputy resume {session_id}"
        raise type(error)(error.path, error.what, remedy) from error


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """What a shell is told: 0 only when all completed, 4 when something is usable, else what went wrong."""
    from deputy.core.results import overall

    return _CODES[overall(outcomes)]


def not_stopped(session_id: str) -> int:
    """Say that work did not stop in the time it had; it can be gone on with."""
    sys.stderr.write(f"deputy: it did not stop in time; go on with `deputy resume {session_id}`\n")
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
    # A terminal that closes may say so twice, itself and by its shell; whoever is to outlive it is deaf to that.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    return await command(stop)


def _leave_at_once() -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    os._exit(CANCELLED)
