"""`deputy` and `python -m deputy`: the command line, which from its first moment is quiet about a Ctrl-C."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from deputy.processes.private import make_private

_CANCELLED = 130


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, _leave)
    # The environment holds the keys of providers, which nothing that a run starts may read.
    make_private()
    from deputy.interfaces.cli import deputy
    from deputy.interfaces.cli import main as command_line

    # It is called when the command is loaded, and has not begun.
    deputy.callback = _begin
    command_line()


def _begin() -> None:
    """Have a Ctrl-C pass whatever a command cleans up, unless that takes care of it itself."""
    signal.signal(signal.SIGINT, _stop)


def _leave(_number: int, _frame: object) -> NoReturn:
    """Ctrl-C where no command is loaded: nothing was begun, and there is nothing to say."""
    # An exception could be raised where nobody passes it on, as in the middle of an import.
    os._exit(_CANCELLED)


def _stop(_number: int, _frame: object) -> NoReturn:
    """Ctrl-C in a command, which may have begun something; of a KeyboardInterrupt the parser would tell."""
    raise SystemExit(_CANCELLED)


if __name__ == "__main__":
    main()
