"""How many returns a second are read and checked, in one process on one core.

Each figure stands beside the floor: decoding the same JSON with msgspec and doing nothing else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from deputy.core.contract import ExpectedReturn, check, parse, read, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 0.5
ROUNDS = 3

VALUE = {
    "status": "completed",
    "summary": "Compared three queues on one machine. The report recommends the second one and says why.",
    "artifacts": [{"type": "report", "path": "docs/reports/queues.md", "summary": "Figures and method"}],
    "metadata": {
        "session_id": "sess_1767225600_k3x9q2",
        "agent_type": "researcher",
        "delegation_depth": 1,
        "delegation_path": ["orchestrator", "research", "researcher"],
        "duration_seconds": 812.4,
    },
    "errors": [],
    "next_steps": "Plan the migration.",
}
EXPECTED = ExpectedReturn(
    session_id="sess_1767225600_k3x9q2",
    agent_type="researcher",
    depth=1,
    path=("orchestrator", "research", "researcher"),
    workspace="/work",
)


def main() -> None:
    text = msgspec.json.encode(VALUE).decode()
    prose = f"I have finished the research.\n\n```json\n{text}\n```\n\nTell me if you need more."
    loose = msgspec.json.encode(
        {"status": "done", "summary": "All done.", "artifacts": ["a.md"], "session_id": EXPECTED.session_id}
    ).decode()
    schema = schema_of({"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}})
    floor = per_second(lambda: msgspec.json.decode(text))
    print(f"returns per second ({len(text)} bytes each)")
    for name, run in {
        "parse and check": lambda: read(text, EXPECTED),
        "… between prose": lambda: read(prose, EXPECTED),
        "… leniently": lambda: read(loose, EXPECTED, "lenient"),
        "… plain text": lambda: read("I have finished the research.", EXPECTED),
        "… by a JSON Schema": lambda: read(text, schema=schema),
        "parse alone": lambda: parse(text),
        "check alone": lambda: check(VALUE, EXPECTED),
    }.items():
        rate = per_second(run)
        print(f"  {name:20} {rate:>10,.0f}   {floor / rate:5.1f} × the floor")
    print(f"  {'floor: decode JSON':20} {floor:>10,.0f}")


def per_second(run: Callable[[], object]) -> float:
    """The best of some rounds."""
    return max(_round(run) for _ in range(ROUNDS))


def _round(run: Callable[[], object]) -> float:
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < SECONDS / ROUNDS:
        for _ in range(50):
            run()
        count += 50
    return count / spent


if __name__ == "__main__":
    main()
