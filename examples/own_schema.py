"""A return schema of your own: what does not match is sent back once, and what comes out is the value alone."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from deputy import Task, run_sync

SCRIPT = Path(__file__).with_name("scripts") / "own_schema.json"
FINDING = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "severity": {"enum": ["low", "medium", "high"]},
        "lines": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["title", "severity", "lines"],
    "additionalProperties": False,
}

# A pydantic model does as well: Task(..., schema=Finding), then Finding.model_validate_json(outcome.report).
task = Task(label="finding", prompt="Report the worst finding.", schema=FINDING)
with TemporaryDirectory() as home:
    [outcome] = run_sync(task, model=f"script:{SCRIPT}", workspace=home, home=Path(home) / "home")

finding = json.loads(outcome.report)
print(f"{finding['severity']}: {finding['title']}, lines {finding['lines']}, after {outcome.usage.requests} turns")
assert outcome.status == "completed"
assert finding == {"title": "Redirect without a limit", "severity": "high", "lines": [12, 40]}
assert outcome.usage.requests == 2, "the first answer did not match and was sent back"
