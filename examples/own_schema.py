"""A return type of your own: what does not match is sent back once, and what comes out is the value alone."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from deputy import Task, run_sync

SCRIPT = Path(__file__).with_name("scripts") / "own_schema.json"


@dataclass
class Finding:
    """What the subagent must report; a pydantic model, a msgspec.Struct or a JSON Schema does as well."""

    title: str
    severity: Literal["low", "medium", "high"]
    lines: list[int]


task = Task(label="finding", prompt="Report the worst finding.", schema=Finding)
with TemporaryDirectory() as home:
    [outcome] = run_sync(task, model=f"script:{SCRIPT}", workspace=home, home=Path(home) / "home")

finding = outcome.value
print(f"{finding.severity}: {finding.title}, lines {finding.lines}, after {outcome.usage.requests} turns")
assert outcome.status == "completed"
assert finding == Finding(title="Redirect without a limit", severity="high", lines=[12, 40])
assert outcome.usage.requests == 2, "the first answer did not match and was sent back"
