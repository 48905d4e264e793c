"""The command line in a process that is killed at one stage: MODULE ATTRIBUTE before|after, then its arguments."""

import asyncio
import os
import signal
import sys
from functools import wraps
from importlib import import_module
from typing import Any


def main() -> None:
    module, attribute, moment, *arguments = sys.argv[1:]
    *owners, name = attribute.split(".")
    owner: Any = import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    do = getattr(owner, name)
    # Where this process was forked, other modules have the function by its name already.
    holders = [one for one in sys.modules.values() if vars(one).get(name) is do and do.__module__ == module]
    for holder in [owner, *holders]:
        setattr(holder, name, deadly(do, moment))
    sys.argv = ["deputy", *arguments]
    from deputy.interfaces.cli import main as command_line

    command_line()


def deadly(do: Any, moment: str) -> Any:
    """The function, with the end of the process before it begins or after it is done."""

    def end(now: str) -> None:
        if now == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    @wraps(do)
    def whole(*args: Any, **options: Any) -> Any:
        end("before")
        result = do(*args, **options)
        end("after")
        return result

    @wraps(do)
    async def awaited(*args: Any, **options: Any) -> Any:
        end("before")
        result = await do(*args, **options)
        end("after")
        return result

    return awaited if asyncio.iscoroutinefunction(do) else whole


if __name__ == "__main__":
    main()
