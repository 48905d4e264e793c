"""A parent has a part of its work done as a subtask; then a piece of work is refined until a script accepts it."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from deputy import Deputy, ScriptEvaluator

SCRIPT = Path(__file__).with_name("scripts") / "subtasks_and_refine.json"
TEMPLATE = """---
type: verification
description: Verify that a claim about the code is right.
inputs:
  claim: string
---
Read what you are given, and say whether this is so: {{claim}}.
"""
ACCEPTS_THREE = ScriptEvaluator(argv=(sys.executable, "-c", "import sys; sys.exit(sys.stdin.read().count(',') < 2)"))


async def main() -> None:
    with TemporaryDirectory() as name:
        workspace = Path(name) / "workspace"
        (workspace / ".deputy" / "templates").mkdir(parents=True)
        (workspace / ".deputy" / "templates" / "verify.md").write_text(TEMPLATE)
        (workspace / "retry.py").write_text("limit = 3  # the retry limit\n")
        async with Deputy(f"script:{SCRIPT}", workspace=workspace, home=Path(name) / "home") as deputy:
            outcome = await deputy.run("Is it true that there are three tries at most?")
            refined = await deputy.refine("Count to three.", ACCEPTS_THREE)
    print(f"{outcome.status}: {outcome.report}")
    print(f"{refined.ending} after {len(refined.rounds)} rounds: {refined.outcome.report}")
    assert outcome.status == "completed"
    assert outcome.usage.requests == 3, "two turns of the parent, and one of its subtask"
    assert [one.verdict.success for one in refined.rounds] == [False, True]
    assert refined.outcome.report == "one, two, three"


asyncio.run(main())
