"""`deputy` and `python -m deputy`: the command line, without a traceback on Ctrl-C at any moment."""

from __future__ import annotations

import gc
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from deputy.processes import make_private

if TYPE_CHECKING:
    from collections.abc import Callable

_CANCELLED = 130
_COLLECT_AFTER = 50_000


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, _leave)
    # Our environment holds the providers' keys; a program started by a run must not read them from /proc.
    make_private()
    # A start keeps nearly all that it makes: collecting after each 700 new objects is a tenth of its CPU for nothing.
    gc.set_threshold(_COLLECT_AFTER)
    from deputy.interfaces.cli import deputy
    from deputy.interfaces.cli import main as command_line

    # click calls this after the command is loaded and before it starts.
    deputy.callback = partial(_begin, deputy.callback)
    command_line()


def _begin(callback: Callable[..., object] | None, **options: object) -> None:
    """From now on Ctrl-C raises, so that the command cleans up; commands on an event loop install their own handler."""
    signal.signal(signal.SIGINT, _stop)
    if callback is not None:
        callback(**options)


def _leave(_number: int, _frame: object) -> NoReturn:
    """Exit on Ctrl-C before a command has started."""
    # An exception could be swallowed in the middle of an import.
    os._exit(_CANCELLED)


def _stop(_number: int, _frame: object) -> NoReturn:
    """Exit on Ctrl-C in a command; click would print `Aborted!` for a KeyboardInterrupt."""
    raise SystemExit(_CANCELLED)


if __name__ == "__main__":
    main()
