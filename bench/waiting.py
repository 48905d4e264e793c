"""CPU of a process whose 10,000 runs only wait for their model, as a share of a core."""

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from subagents import cpu

COUNT, SECONDS, SETTLE_SECONDS = 10_000, 20.0, 10.0
GOAL_PERCENT = 5.0


async def print_share(count: int, seconds: float) -> None:
    """Print the CPU of `seconds` in which no model answers, in percent of a core."""
    from deputy import Deputy, Task

    asked = 0
    all_asked = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if asked == count:
            all_asked.set()
        await reader.read()

    server = await asyncio.start_server(hold, "127.0.0.1", 0, backlog=4096)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    os.environ.update(OPENAI_BASE_URL=url, OPENAI_API_KEY="k" * 20)
    folder = Path(tempfile.mkdtemp())
    async with Deputy("openai-chat:m", workspace=folder, home=folder / "home") as place:
        await place.start(
            [Task(label=f"t{number}", prompt=f"work {number}") for number in range(count)], concurrency=count
        )
        await all_asked.wait()
        # What the start left behind is written first.
        await asyncio.sleep(SETTLE_SECONDS)
        spent, began = cpu(), time.perf_counter()
        await asyncio.sleep(seconds)
        found = 100 * (cpu() - spent) / (time.perf_counter() - began)
        print(
            f"{f'{count:,} runs that wait, % of a core':34} {'':8} {found:7.1f}% {'':7} {f'≤ {GOAL_PERCENT:g} %':>12}",
            flush=True,
        )
        # Closing ten thousand connections is not measured.
        os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=COUNT)
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # A connection has two ends, both in this process.
    runs = options.runs if most > 2 * options.runs + 256 else (most - 256) // 2
    asyncio.run(print_share(runs, SECONDS))
