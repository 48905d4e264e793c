"""A tool of your own: a typed function, whose signature is the schema and whose docstring is the description."""

from pathlib import Path
from tempfile import TemporaryDirectory

import deputy

SCRIPT = Path(__file__).with_name("scripts") / "own_tool.json"
asked: list[tuple[str, int]] = []


@deputy.tool(traits=deputy.ToolTraits(reads_only=True, repeatable=True, needs_approval=False, risk="low"))
def price_of(item: str, count: int = 1) -> float:
    """What so many of an item cost, in euros."""
    asked.append((item, count))
    return round(19.95 * count, 2)


# A real model is named here as `anthropic:…`, `openai:…`; a script says what one would say, for free.
with TemporaryDirectory() as home:
    [outcome] = deputy.run_sync(
        "What do three lamps cost?",
        model=f"script:{SCRIPT}",
        tools=[price_of],
        workspace=home,
        home=Path(home) / "home",
    )

print(outcome.report)
assert outcome.status == "completed"
assert asked == [("lamp", 3)]
assert price_of("lamp") == 19.95, "for the program it is still the function it was"
assert price_of.schema["properties"]["count"]["type"] == "integer"
