"""Many seeds on two processes, with progress, until they are played or time is up.

usage: python -m tests.simulation.many [COUNT] [FIRST] [SECONDS]
"""

import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.simulation.stage import LocalStage
from tests.support.simulation import Violation, simulate

PROCESSES = 2
BATCH = 100
SHOWN = 5


def play(first: int, end: int) -> list[tuple[int, str]]:
    """The seeds that fail, and what does not hold."""
    failed: list[tuple[int, str]] = []
    for seed in range(first, end):
        try:
            simulate(seed, LocalStage())
        except Violation as violation:
            failed.append((seed, str(violation)))
    return failed


def main(count: int = 20_000, first: int = 0, seconds: float = 1800.0) -> int:
    began = time.monotonic()
    batches = iter(range(first, first + count, BATCH))
    played, failed = 0, list[tuple[int, str]]()
    running: dict[Future[list[tuple[int, str]]], int] = {}
    with ProcessPoolExecutor(PROCESSES) as pool:
        while True:
            while len(running) < PROCESSES * 2 and time.monotonic() - began < seconds:
                start = next(batches, None)
                if start is None:
                    break
                end = min(start + BATCH, first + count)
                running[pool.submit(play, start, end)] = end - start
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                played += running.pop(done)
                for seed, violation in done.result():
                    failed.append((seed, violation))
                    print(f"\rseed {seed}: {violation.splitlines()[0]}")
            print(f"\r{played:,} of {count:,} seeds, {len(failed)} failed, {time.monotonic() - began:.0f} s", end="")
    print()
    for seed, violation in failed[:SHOWN]:
        print(f"\nseed {seed}: {violation}")
    if played < count:
        print(f"Time was up after {seconds:g} s; go on with: make simulate FIRST={first + played} N={count - played}")
    return 1 if failed or played < count else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
