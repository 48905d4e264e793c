"""What a whole subagent costs: ours with journal, events, redaction and a real Read, beside an aiohttp loop by hand.

The floor streams, keeps its conversation as encoded bytes and reads the same files, and does nothing else: no journal,
no limits, no events. Both run in a process of their own against one provider in another, in one run; CPU is user and
system time between the first and the last turn, imports and a warm-up excluded. A turn streams an answer of 40 deltas.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES = 64
MANY_TURNS = 10_000
GOALS = {(50, 10): 3.3, 200: 3.0}
"""CPU over the floor's, by subagents and turns, or by turns; 4 for the rest."""
MOST_AT_ONCE = 10_000
RESULT = "alpha beta gamma delta read write parse agent report state error value line\n" * 26
WORDS = [f"word{n} " for n in range(40)]

# --- the provider -----------------------------------------------------------------------------------------------------


def answer(number: int, turns: int) -> bytes:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict, finish: str | None = None) -> str:
        return json.dumps({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    events = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": word}) for word in WORDS)]
    if number < turns - 1:
        function = {
            "name": "Read",
            "arguments": json.dumps({"path": f"file_{number % FILES}.txt", "offset": 1 + number // FILES}),
        }
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        events += [chunk({"tool_calls": [call]}), chunk({}, "tool_calls")]
    else:
        events.append(chunk({}, "stop"))
    usage = {"prompt_tokens": 50 + 30 * number, "completion_tokens": 50, "total_tokens": 100 + 30 * number}
    events += [json.dumps({**base, "choices": [], "usage": usage}), "[DONE]"]
    parts = [f"data: {event}\n\n".encode() for event in events]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class Provider(asyncio.Protocol):
    def __init__(self, answers: list[bytes], latency: float) -> None:
        self.answers = answers
        self.latency = latency
        self.pieces: list[bytes] = []
        self.missing = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if self.missing < 0:
            whole = b"".join(self.pieces)
            self.pieces = [whole]
            end = whole.find(b"\r\n\r\n")
            if end < 0:
                return
            length = int(whole[:end].lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            self.missing = length - (len(whole) - end - 4)
        else:
            self.missing -= len(data)
        if self.missing <= 0:
            number = b"".join(self.pieces).count(b'"role":"tool"')
            self.pieces, self.missing = [], -1
            asyncio.get_running_loop().call_later(self.latency, self.transport.write, self.answers[number])


async def serve(turns: int, latency: float) -> None:
    answers = [answer(number, turns) for number in range(turns)]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Provider(answers, latency), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the contenders ---------------------------------------------------------------------------------------------------


async def floor(url: str, folder: Path, count: int) -> None:
    import aiohttp
    import msgspec

    decode = msgspec.json.Decoder().decode
    encode = msgspec.json.Encoder().encode
    tool = {"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}
    tail = b'],"tools":' + encode([tool]) + b"}"

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        body = b'{"model":"m","stream":true,"messages":[' + encode({"role": "user", "content": f"work {number}"})
        while True:
            text, calls, buffer = [], {}, b""
            async with session.post(f"{url}/v1/chat/completions", data=body + tail) as response:
                async for data in response.content.iter_any():
                    buffer += data
                    *events, buffer = buffer.split(b"\n\n")
                    for event in events:
                        if event == b"data: [DONE]":
                            continue
                        choices = decode(event[6:])["choices"]
                        delta = choices[0]["delta"] if choices else {}
                        if delta.get("content"):
                            text.append(delta["content"])
                        for call in delta.get("tool_calls", ()):
                            calls[call["index"]] = call
            if not calls:
                return
            message = {"role": "assistant", "content": "".join(text), "tool_calls": list(calls.values())}
            body += b"," + encode(message)
            for call in calls.values():
                path = decode(call["function"]["arguments"])["path"]
                content = (folder / path).read_text()
                body += b"," + encode({"role": "tool", "tool_call_id": call["id"], "content": content})

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await one(session, -1)
        ready()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(session, number))


async def ours(url: str, folder: Path, count: int) -> None:
    from deputy import Deputy, Task

    os.environ.update(OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="k" * 20)
    home = Path(tempfile.mkdtemp()) / "home"
    async with Deputy("openai-chat:m", workspace=folder, home=home) as place:
        await place.delegate([Task(label="warm", prompt="work")])
        ready()
        tasks = [Task(label=f"t{number}", prompt=f"work {number}") for number in range(count)]
        outcomes = await place.delegate(tasks, concurrency=count)
        STARTED["done"] = time.perf_counter()
        assert all(outcome.status == "completed" for outcome in outcomes), outcomes[0]


STARTED: dict[str, float] = {}


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rss_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def ready() -> None:
    STARTED.update(cpu=cpu(), wall=time.perf_counter(), rss=rss_kb())


async def gaps(found: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.01)
        found.append(time.perf_counter() - before - 0.01)


async def contend(name: str, url: str, folder: Path, count: int) -> None:
    found: list[float] = []
    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(gaps(found))
        await {"floor": floor, "ours": ours}[name](url, folder, count)
        watcher.cancel()
    found.sort()
    gap = found[int(len(found) * 0.99)] if found else 0.0
    # The makespan ends with the last outcome; what is closed behind it is in the CPU.
    wall = STARTED.get("done", time.perf_counter()) - STARTED["wall"]
    print(json.dumps({"cpu": cpu() - STARTED["cpu"], "wall": wall,
                      "rss": rss_kb() - STARTED["rss"], "gap": gap}))  # fmt: skip


# --- the run ----------------------------------------------------------------------------------------------------------


def measure(names: tuple[str, ...], count: int, turns: int, latency: float, rounds: int) -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            (Path(folder) / f"file_{number}.txt").write_text(RESULT)
        argv = [sys.executable, __file__, "serve", str(turns), str(latency)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as provider:
            assert provider.stdout is not None
            url = f"http://127.0.0.1:{provider.stdout.readline().strip()}"
            for _ in range(rounds):
                for name in names:
                    argv = [sys.executable, __file__, name, url, folder, str(count)]
                    run = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
                    figures = json.loads(run.stdout.splitlines()[-1])
                    if name not in best or figures["cpu"] < best[name]["cpu"]:
                        best[name] = figures
            provider.terminate()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="50 subagents of 10 turns only")
    options = parser.parse_args()
    sizes = [(50, 10)] if options.quick else [(count, turns) for count in (50, 500) for turns in (10, 50, 200)]
    ratios: dict[tuple[int, int], float] = {}
    print(f"{'CPU ms per turn':34} {'floor':>8} {'ours':>8} {'ratio':>7} {'goal':>12}")
    for count, turns in sizes:
        # Long runs even out by themselves.
        best = measure(("floor", "ours"), count, turns, 0.0, options.rounds if count * turns < MANY_TURNS else 1)
        per = {name: figures["cpu"] / (count * turns) * 1000 for name, figures in best.items()}
        ratio = ratios[count, turns] = per["ours"] / per["floor"]
        figures = f"{per['floor']:8.3f} {per['ours']:8.3f} {ratio:6.1f}×"
        limit = f"≤ {GOALS.get((count, turns), GOALS.get(turns, 4)):g}×"
        print(f"{f'{count} subagents, {turns} turns':34} {figures} {limit:>12}", flush=True)
    if options.quick:
        return
    for count in (50, 500):
        # How the ratio grows with the conversation: sending a longer one costs the floor something too.
        growth = ratios[count, 200] / ratios[count, 10]
        print(f"{f'{count} subagents, 200 turns over 10':34} {'':8} {'':8} {growth:6.2f}× {'≤ 1.3×':>12}")
    for count, turns, latency, goal in ((1000, 3, 10.0, 1.25), (1000, 5, 0.2, None), (MOST_AT_ONCE, 1, 10.0, None)):
        # Where all the time is work, one run says little.
        best = measure(("floor", "ours"), count, turns, latency, options.rounds if latency < 1 else 1)
        a, b, ideal = best["floor"], best["ours"], turns * latency
        least = ideal if goal else a["wall"]
        # A process that has more to do than a core can do has gaps, the floor's as well.
        most = 1.4 if count == MOST_AT_ONCE else 2
        limit, gap_limit = (f"≤ {goal}× ideal", "≤ 100 ms") if goal else (f"≤ {most}× floor", "")
        print(f"\n{count} subagents at once, {turns} turns, {latency:g} s latency")
        print(f"{'  makespan':34} {a['wall']:7.1f}s {b['wall']:7.1f}s {b['wall'] / least:6.2f}× {limit:>12}")
        print(f"{'  loop gap, p99':34} {a['gap'] * 1000:6.0f}ms {b['gap'] * 1000:6.0f}ms {'':7} {gap_limit:>12}")
        memory = f"{a['rss'] / count:6.0f}kB {b['rss'] / count:6.0f}kB"
        print(f"{'  memory per subagent':34} {memory} {'':7} {'≤ floor + 30':>12}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", turns, latency]:
            asyncio.run(serve(int(turns), float(latency)))
        case [("floor" | "ours") as name, url, folder, count]:
            asyncio.run(contend(name, url, Path(folder), int(count)))
        case _:
            main()
