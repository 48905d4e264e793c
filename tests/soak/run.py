"""Many subagents under random faults for a long time: nothing leaks.

Workers start one delegation after another. A provider in another process answers with tool calls, commands, reports and
every fault; some calls are cancelled. Four quarters; after each one all work ends and is measured. At the end, without
a Deputy, descriptors, threads and child processes must be as before, and the memory after the last quarter at most 1.1
times that after the first.

usage: python -m tests.soak.run [--minutes 30] [--workers 100] [--seed 1]
"""

import argparse
import asyncio
import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

QUARTERS = 4
MOST_GROWTH = 1.1
CANCEL_SHARE = 0.1
SETTLE_SECONDS = 20.0


class Sample(NamedTuple):
    """What this process uses."""

    descriptors: int
    threads: int
    children: int
    memory: int


def sample() -> Sample:
    gc.collect()
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return Sample(descriptors, threading.active_count(), children(os.getpid()), memory)


def children(root: int) -> int:
    """The number of processes below one."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                below.setdefault(parent, []).append(int(entry.name))
    found, todo = 0, [root]
    while todo:
        mine = below.get(todo.pop(), [])
        found += len(mine)
        todo += mine
    return found


def show(name: str, found: Sample, counts: Counter[str]) -> None:
    ended = ", ".join(f"{count:,} {word}" for word, count in sorted(counts.items()))
    memory = found.memory / 1e6
    print(
        f"{name:12} {found.descriptors:>11} {found.threads:>8} {found.children:>9} {memory:>9.1f}  {ended}", flush=True
    )


async def quarter(deputy: object, seconds: float, workers: int, chance: random.Random, counts: Counter[str]) -> None:
    """Keep so many subagents at work for a while, then let all of them end."""
    from deputy import Deputy, Task

    assert isinstance(deputy, Deputy)
    end = time.monotonic() + seconds

    async def work(number: int) -> None:
        while time.monotonic() < end:
            task = Task(label=f"t{number}", prompt="Where is alpha?", tools=("Read", "Grep", "Run"), timeout=60)
            limit = chance.uniform(0.05, 2) if chance.random() < CANCEL_SHARE else None
            try:
                async with asyncio.timeout(limit):
                    (outcome,) = await deputy.delegate([task])
                counts[outcome.status] += 1
            except TimeoutError:
                counts["stopped by us"] += 1

    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(work(number))


async def soak(home: Path, minutes: float, workers: int, seed: int, before: Sample) -> list[Sample]:
    from deputy import Deputy

    chance, samples = random.Random(seed), list[Sample]()
    async with Deputy(
        "openai-chat:m", workspace=home / "work", home=home / "home", allow=("Read", "Grep", "Run")
    ) as deputy:
        for number in range(QUARTERS):
            counts: Counter[str] = Counter()
            await quarter(deputy, minutes * 60 / QUARTERS, workers, chance, counts)
            until = time.monotonic() + SETTLE_SECONDS
            while time.monotonic() < until and sample().children > before.children:  # noqa: ASYNC110  no event says so
                await asyncio.sleep(0.2)
            samples.append(sample())
            show(f"quarter {number + 1}", samples[-1], counts)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    command = [sys.executable, "-m", "tests.soak.provider", str(options.seed)]
    with (
        tempfile.TemporaryDirectory(prefix="deputy-soak-") as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as provider,
    ):
        assert provider.stdin is not None
        assert provider.stdout is not None
        url, home = provider.stdout.readline().strip(), Path(folder)
        (home / "work").mkdir()
        (home / "work/notes.txt").write_text("alpha beta gamma\n" * 200)
        (home / ".config/deputy").mkdir(parents=True)
        (home / ".config/deputy/config.toml").write_text("[limits]\nidle_seconds = 2\n")
        os.environ.update(HOME=folder, OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="k" * 20)
        print(f"{'':12} descriptors  threads  children    MB RSS  delegations ended")
        asyncio.run(asyncio.sleep(0))
        before = sample()
        show("before", before, Counter())
        samples = asyncio.run(soak(home, options.minutes, options.workers, options.seed, before))
        after = sample()
        show("after", after, Counter())
        provider.stdin.close()
    growth = samples[-1].memory / samples[0].memory
    problems = [
        f"{name}: {new} after, {old} before"
        for name, new, old in zip(Sample._fields[:3], after[:3], before[:3], strict=True)
        if new > old
    ]
    if growth > MOST_GROWTH:
        problems.append(f"memory: {growth:.2f} times that after the first quarter, at most {MOST_GROWTH}")
    print(f"memory after the last quarter: {growth:.2f} times that after the first")
    for problem in problems:
        print(f"LEAK {problem}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
