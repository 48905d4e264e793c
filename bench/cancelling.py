"""How long it takes to cancel a thousand subagents that all wait for their model, until each has its outcome."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from subagents import cpu

COUNT = 1000
GOAL_MS = 500
RUNS = 3


async def cancel_all(url: str) -> tuple[float, float]:
    """Wall and CPU seconds from the wish to the last outcome."""
    from deputy import Deputy, Task
    from deputy.models.http_client import HttpClient

    sent = 0
    all_sent = asyncio.Event()
    post = HttpClient.post

    async def counted(*arguments):
        nonlocal sent
        sent += 1
        if sent == COUNT:
            asyncio.get_running_loop().call_later(1.0, all_sent.set)
        return await post(*arguments)

    HttpClient.post = counted
    os.environ.update(OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="k" * 20)
    with tempfile.TemporaryDirectory() as folder:
        async with Deputy("openai-chat:m", workspace=folder, home=Path(folder) / "home") as place:
            tasks = [Task(label=f"t{number}", prompt=f"work {number}") for number in range(COUNT)]
            session = await place.start(tasks, concurrency=COUNT)
            await all_sent.wait()
            began, used = time.perf_counter(), cpu()
            await place.cancel(session)
            results = await place.results(session)
            ended = time.perf_counter() - began, cpu() - used
        assert [result.outcome.status for result in results] == ["cancelled"] * COUNT
    return ended


def main() -> None:
    argv = [sys.executable, str(Path(__file__).with_name("subagents.py")), "serve", "2", "600"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        url = f"http://127.0.0.1:{provider.stdout.readline().strip()}"
        runs = [
            tuple(
                map(
                    float,
                    subprocess.run([sys.executable, __file__, url], stdout=subprocess.PIPE, check=True).stdout.split(),
                )
            )
            for _ in range(RUNS)
        ]
        provider.terminate()
    wall, used = (1000 * min(figures) for figures in zip(*runs, strict=True))
    print(f"\n{f'cancel of {COUNT:,} subagents':34} {wall:5.0f} ms, CPU {used:5.0f} ms {f'≤ {GOAL_MS} ms':>16}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*asyncio.run(cancel_all(sys.argv[1])))
    else:
        main()
