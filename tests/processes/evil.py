"""Every evil shape of a program, many times: who survives, and how long after its grace the last one is gone.

usage: python -m tests.processes.evil [TIMES]
"""

import asyncio
import os
import sys
import time

from tests.processes.shapes import SHAPES, script, survivors

from deputy.processes.supervise import Command, supervise

GRACE_SECONDS = 0.2
ALLOWED_SECONDS = 1.0


async def end_one(shape: str, mark: str) -> tuple[int, float]:
    """How many are left of it, and how long it took beyond its grace."""
    command = Command(
        argv=("/bin/bash", "-c", script(shape, mark)),
        cwd="/tmp",
        environment={"PATH": os.environ["PATH"]},
        owner="evil",
        grace_seconds=GRACE_SECONDS,
    )
    async with supervise(command) as child:
        await child.stdout.readline()
        began = time.monotonic()
    return len(survivors(mark)), time.monotonic() - began - GRACE_SECONDS


def main(times: int = 20) -> int:
    print(f"{'shape':<34}{'times':>6}{'left':>6}{'worst beyond its grace':>24}")
    is_well = True
    for number, shape in enumerate(SHAPES):
        marks = [f"600.{os.getpid()}{number:02}{time_:03}" for time_ in range(times)]
        ends = [asyncio.run(end_one(shape, mark)) for mark in marks]
        left, worst = sum(left for left, _ in ends), max(seconds for _, seconds in ends)
        is_well = is_well and not left and worst <= ALLOWED_SECONDS
        print(f"{shape:<34}{times:>6}{left:>6}{max(0.0, worst):>22.2f} s")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
