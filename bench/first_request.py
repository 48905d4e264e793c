"""CPU of `deputy delegate` and `deputy ask` until the first request is on the wire, beside a hand-written client.

All are whole processes, interpreter and imports included. The provider looks at what the process has used when the
first bytes of its request arrive. The floor imports aiohttp and msgspec and posts: no journal, no command line.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from subagents import answer

RUNS = 7
GOALS = {"delegate": 2.5, "ask": 2.5}
"""Over the floor, which already takes more CPU than the 300 ms that a first request may cost at best."""

FLOOR = """
import asyncio, aiohttp, msgspec

async def main():
    async with aiohttp.ClientSession() as session:
        body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "look"}]})
        async with session.post("URL/chat/completions", data=body) as response:
            await response.read()

asyncio.run(main())
"""


def cpu_ms(pid: int) -> float:
    """What a live process has used so far, all threads included, ended ones too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


class Provider(asyncio.Protocol):
    """Notes who asks first, and answers with one turn."""

    def __init__(self, asked: asyncio.Event) -> None:
        self._asked = asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"POST"):
            return
        self._asked.set()
        # Not before the process was looked at.
        asyncio.get_running_loop().call_later(0.2, self._transport.write, answer(0, 1))


async def once(argv: list[str], environment: dict[str, str], asked: asyncio.Event) -> float:
    asked.clear()
    out = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*argv, env=environment, stdout=out, stderr=out)
    async with asyncio.timeout(60):
        await asked.wait()
    used = cpu_ms(process.pid)
    assert await process.wait() == 0
    return used


async def main() -> None:
    asked = asyncio.Event()
    server = await asyncio.get_running_loop().create_server(lambda: Provider(asked), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "DEPUTY_HOME": f"{folder}/home",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "k" * 20,
        }
        deputy, model = str(Path(sys.executable).parent / "deputy"), ["--model", "openai-chat:m", "--workspace", folder]
        contenders = {
            "floor": [sys.executable, "-c", FLOOR.replace("URL", url)],
            "delegate": [deputy, "delegate", "look", *model, "--yes"],
            "ask": [deputy, "ask", "look", *model],
        }
        used: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(RUNS):
            for name, argv in contenders.items():
                used[name].append(await once(argv, environment, asked))
    floor = min(used["floor"])
    print(f"\n{'until the first request, CPU ms':34} {'floor':>8} {'ours':>8} {'ratio':>7} {'goal':>12}")
    for name, goal in GOALS.items():
        ours = min(used[name])
        print(f"{f'deputy {name}':34} {floor:8.0f} {ours:8.0f} {ours / floor:6.1f}× {f'≤ {goal}×':>12}")


if __name__ == "__main__":
    asyncio.run(main())
