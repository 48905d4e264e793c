"""Workers on a Postgres store beside one process on SQLite, within one run; each figure beside its demand.

All use one provider in a process of its own, and the same subagents: 40 deltas per answer, a real Read per turn.
Postgres syncs its commits and runs on the same cores; its own CPU is not counted. The load is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import subagents
from tests.support.real_workers import WorkerCrew

if TYPE_CHECKING:
    from collections.abc import Iterator

WARM = 16
CANCELS = 30
SETTLE_SECONDS, IDLE_SECONDS = 5.0, 20.0
PARKED = "SELECT count(*) FROM leases JOIN runs USING (run) WHERE is_parked AND parent IS NOT NULL"
LINE = "{:<46} {:>12}   {}"


def show(name: str, figure: str, demand: str = "") -> None:
    """Print a figure beside its demand."""
    print(LINE.format(name, figure, demand), flush=True)


# --- processes --------------------------------------------------------------------------------------------------------


async def delegate(count: int) -> None:
    """Delegate when told to, and print the time and CPU of it."""
    from deputy import Deputy, Task

    async with Deputy("openai-chat:m", workspace=Path.cwd()) as place:
        await place.delegate([Task(label=f"w{number}", prompt="work") for number in range(WARM)], concurrency=WARM)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        spent, began = subagents.cpu(), time.perf_counter()
        tasks = [Task(label=f"t{number}", prompt=f"work {number}") for number in range(count)]
        outcomes = await place.delegate(tasks, concurrency=count)
        wall = time.perf_counter() - began
        assert all(outcome.status == "completed" for outcome in outcomes), outcomes[0]
        print(json.dumps({"wall": wall, "cpu": subagents.cpu() - spent}), flush=True)


def memory_mb() -> float:
    """The memory that this process has now."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def work(slots: int) -> None:
    """A worker that tells its tasks, memory and CPU when asked."""
    from deputy.interfaces.freed_memory import give_back_memory
    from deputy.options import DeputyOptions
    from deputy.worker import open_worker

    stop = asyncio.Event()

    async def tell() -> None:
        while await asyncio.to_thread(sys.stdin.readline):
            # Without this task.
            tasks = len(asyncio.all_tasks()) - 1
            print(json.dumps({"tasks": tasks, "memory": memory_mb(), "cpu": subagents.cpu()}), flush=True)
        stop.set()

    async with open_worker(DeputyOptions()) as worker, asyncio.TaskGroup() as group:
        group.create_task(tell())
        # As `deputy worker` does.
        giving_back = group.create_task(give_back_memory())
        await worker.work(slots, stop, is_ready=lambda: print("ready", flush=True))
        giving_back.cancel()


@contextmanager
def provider(turns: int, latency: float) -> Iterator[str]:
    """The address of a provider."""
    argv = [sys.executable, str(Path(subagents.__file__)), "serve", str(turns), str(latency)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


def start(crew: WorkerCrew, *arguments: str) -> subprocess.Popen[bytes]:
    """A part of this file in a process of its own, that is ready."""
    process = crew.start(
        sys.executable, __file__, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if line.strip() != b"ready":
        sys.exit(f"{arguments[0]} did not start: {line.decode()}")
    return process


def ask(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a process says when it is asked."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


# --- figures ----------------------------------------------------------------------------------------------------------


def compare(crew: WorkerCrew, workers: int, children: int, turns: int) -> None:
    """Makespan and CPU per step: SQLite, the Postgres journal, and workers."""
    steps = children * (2 * turns - 1)
    found: dict[str, dict[str, float]] = {}
    for name in ("sqlite", "postgres", "workers"):
        crew.use_new_database()
        if name != "workers":
            del crew.environ["DEPUTY_DISPATCH"]
        if name == "sqlite":
            del crew.environ["DEPUTY_STORE"]
        crew_of = [start(crew, "work", str(children)) for _ in range(workers)] if name == "workers" else []
        client = start(crew, "delegate", str(children))
        spent = sum(ask(worker)["cpu"] for worker in crew_of)
        found[name] = ask(client)
        if crew_of:
            found[name]["cpu"] = sum(ask(worker)["cpu"] for worker in crew_of) - spent
        show(f"{name}: {children} subagents × {turns} turns", f"{found[name]['wall']:.2f} s",
             f"{1000 * found[name]['cpu'] / steps:.2f} ms CPU per step")  # fmt: skip
        for process in (client, *crew_of):
            process.kill()
            process.wait()
    own, one, many = found["sqlite"], found["postgres"], found["workers"]
    show("Postgres journal, one process: time over SQLite's", f"{one['wall'] / own['wall']:.2f}×", "≤ 1.3×")
    show("worker CPU per step over SQLite's", f"{many['cpu'] / own['cpu']:.2f}×", "≤ 2.5×")
    show(f"{workers} workers: speed over one SQLite process", f"{own['wall'] / many['wall']:.2f}×", "≥ 0.5×")


class Holding:
    """A provider that notes when each call comes, and answers none."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self.at = 0.0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hold one call."""
        await reader.readuntil(b"\r\n\r\n")
        self.at = time.perf_counter()
        self.came.set()
        await reader.read()
        writer.close()


async def measure_delays(crew: WorkerCrew) -> None:
    """From submit to the first call, and from cancel in another process to the outcome."""
    from deputy import Deputy

    holding = Holding()
    server = await asyncio.start_server(holding, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    crew.environ |= {"OPENAI_BASE_URL": url}
    crew.use_new_database()
    worker = await asyncio.to_thread(start, crew, "work", "8")
    os.environ.update(crew.environ)
    firsts, cancels = list[float](), list[float]()
    async with Deputy("openai-chat:m", workspace=crew.workspace, home=crew.folder / "own") as place:
        for _ in range(CANCELS):
            holding.came.clear()
            began = time.perf_counter()
            session = await place.start(["work"])
            await holding.came.wait()
            firsts.append(holding.at - began)
            began = time.perf_counter()
            await place.cancel(session)
            outcome = await place.outcome(session)
            cancels.append(time.perf_counter() - began)
            assert outcome.status == "cancelled", outcome
    firsts, cancels = sorted(firsts[1:]), sorted(cancels)
    show("submit to first model call, p50 and most", f"{firsts[len(firsts) // 2]:.2f} {firsts[-1]:.2f} s")
    show(f"cancel in another process, most of {CANCELS}", f"{cancels[-1]:.2f} s", "p99 ≤ 1 s")
    worker.kill()
    server.close()


def asking(turns: int) -> list[bytes]:
    """The answers of a model that asks a person, then ends."""
    read = json.dumps(json.dumps({"path": "file_0.txt", "offset": 1}))[1:-1].encode()
    asked = json.dumps(json.dumps({"question": "Which?"}))[1:-1].encode()
    raw = subagents.answer(0, turns).partition(b"\r\n\r\n")[2]
    events = b"".join(piece for piece in raw.split(b"\r\n") if piece.startswith(b"data: "))
    events = events.replace(b'"Read"', b'"Ask"').replace(read, asked)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events)
    return [head + events, subagents.answer(turns - 1, turns)]


def until_all_wait(crew: WorkerCrew, count: int) -> None:
    """Wait until the store has so many runs that wait."""
    while crew.count(PARKED) < count:
        time.sleep(1)


async def measure_waiting(crew: WorkerCrew, workers: int, count: int) -> None:
    """What workers cost while all runs wait for an answer, and whether each answer arrives."""
    from deputy import Deputy, Task

    gate, answers = asyncio.Event(), asking(2)

    async def answer(*_: object) -> str:
        await gate.wait()
        return "the first"

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: subagents.Provider(answers, 0.0), "127.0.0.1", 0, backlog=2048)
    crew.environ |= {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"}
    crew.use_new_database()
    crew_of = [await asyncio.to_thread(start, crew, "work", "50") for _ in range(workers)]
    os.environ.update(crew.environ)
    async with Deputy("openai-chat:m", workspace=crew.workspace, home=crew.folder / "asking", answer=answer) as place:
        began = time.perf_counter()
        tasks = [Task(label=f"t{number}", prompt=f"work {number}") for number in range(count)]
        session = await place.start(tasks, concurrency=count)
        await asyncio.to_thread(until_all_wait, crew, count)
        show(f"{count:,} runs until all wait", f"{time.perf_counter() - began:.0f} s")
        await asyncio.sleep(SETTLE_SECONDS)
        before = [await asyncio.to_thread(ask, worker) for worker in crew_of]
        await asyncio.sleep(IDLE_SECONDS)
        after = [await asyncio.to_thread(ask, worker) for worker in crew_of]
        idle = max(100 * (b["cpu"] - a["cpu"]) / IDLE_SECONDS for a, b in zip(before, after, strict=True))
        show(f"{count:,} waiting: memory of a worker", f"{max(one['memory'] for one in after):.0f} MB", "≤ 200 MB")
        show(f"{count:,} waiting: tasks of a worker", f"{max(one['tasks'] for one in after)}", "≤ 20")
        show(f"{count:,} waiting: CPU of a worker", f"{idle:.1f} %", "≤ 3 %")
        gate.set()
        began = time.perf_counter()
        outcomes = [result.outcome.status for result in await place.results(session)]
    show("answered and completed", f"{outcomes.count('completed'):,}", f"{count:,}")
    show("all answers until the last result", f"{time.perf_counter() - began:.0f} s")
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--children", type=int, default=200)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--waiting", type=int, default=10_000)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    # The processes import this file from their workspace.
    environ = {"OPENAI_API_KEY": "k" * 20, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    with provider(given.turns, 0.0) as url, WorkerCrew({**environ, "OPENAI_BASE_URL": url}) as crew:
        for number in range(subagents.FILES):
            (crew.workspace / f"file_{number}.txt").write_text(subagents.RESULT)
        compare(crew, given.workers, given.children, given.turns)
        asyncio.run(measure_delays(crew))
        if given.waiting:
            asyncio.run(measure_waiting(crew, given.workers, given.waiting))
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["delegate", count]:
            asyncio.run(delegate(int(count)))
        case ["work", slots]:
            asyncio.run(work(int(slots)))
        case _:
            main()
