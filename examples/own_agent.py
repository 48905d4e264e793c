"""Your own async function is the agent: it has the limits, the journal and the checked return of every subagent."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from deputy import BackendRequest, Deputy, Task


async def counter(request: BackendRequest) -> dict[str, int]:
    """Any code: a workflow, a service, another framework. A value becomes the JSON of the report."""
    return {word: request.prompt.count(word) for word in ("sea", "whale")}


async def storyteller(request: BackendRequest):
    """What was yielded before a limit is kept."""
    for word in ("Once", " upon", " a", " time"):
        yield word
    await asyncio.sleep(3600)


async def main(folder: Path) -> None:
    agents = {"counter": counter, "storyteller": storyteller}
    async with Deputy("offline:scout", agents=agents, workspace=folder, home=folder / "home", fallback=False) as deputy:
        counted, told = await deputy.delegate(
            [
                Task(label="count", prompt="the sea, the whale, the sea", agent="counter", schema=dict[str, int]),
                Task(label="tell", prompt="Tell a story", agent="storyteller", timeout=0.5),
            ]
        )
    print(f"{counted.backend}: {counted.value}")
    print(f"{told.backend}: {told.status}: {told.report}")
    assert (counted.status, counted.value) == ("completed", {"sea": 2, "whale": 1})
    assert (told.status, told.errors[0].type, told.report) == ("partial", "timeout", "Once upon a time")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
