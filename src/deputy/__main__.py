"""`deputy` and `python -m deputy`: the command line, which from its first moment is quiet about a Ctrl-C."""

from __future__ import annotations

import os
import signal

_CANCELLED = 130


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, _leave)
    from deputy.interfaces.cli import main as command_line

    command_line()


def _leave(_number: int, _frame: object) -> None:
    """Ctrl-C where no command has taken care of it yet: nothing was begun, and there is nothing to say."""
    # An exception could be raised where nobody passes it on, as in the middle of an import.
    os._exit(_CANCELLED)


if __name__ == "__main__":
    main()
