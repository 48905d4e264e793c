"""Deputy as a library: `Deputy.run`, `Deputy.delegate`, `Deputy.resume`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from gauntlet.subjects import deputy_settings

TITLE = "Deputy (library)"
LACKS: dict[str, str] = {}
dialect = deputy_settings.dialect


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    root = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-m", "gauntlet.subjects.deputy_library", plan["path"]], {
        **deputy_settings.prepare(plan),
        "PYTHONPATH": root,
    }


async def main(plan: dict[str, Any]) -> None:
    """Run the trial, and print what the program gets."""
    from deputy import Budget, Deputy, Policy, Question, Task, tool

    @tool
    def explode() -> str:
        """Fail."""
        raise RuntimeError("the tool failed")

    async def answer(question: Question) -> bool:
        print(question.text, flush=True)
        return True

    limits = plan["limits"]
    options: dict[str, Any] = {"tools": [explode]} if "own_tool" in plan["needs"] else {}
    options |= {"answer": answer, "approval": "ask"} if "approval" in plan["needs"] else {}
    options |= {"redact": True} if "redaction" in plan["needs"] else {}
    options |= {"budget": Budget(requests=limits["requests"])} if "requests" in limits else {}
    options |= (
        {"policy": Policy(max_spawns=1000, max_live=1000, max_live_per_provider=1000)} if plan["is_direct"] else {}
    )
    noted = Path(plan["state"]) / "session"
    async with Deputy(deputy_settings.MODEL, **options) as deputy:
        if plan["is_direct"]:
            for outcome in await deputy.delegate([Task(**one) for one in plan["tasks"]], concurrency=1000):
                print(outcome.status, outcome.report)
            return
        if plan["is_resumed"]:
            outcome = await deputy.resume(noted.read_text())
        else:
            session_id = await deputy.start(plan["prompt"], timeout=limits.get("seconds"))
            noted.write_text(session_id)
            outcome = await deputy.outcome(session_id)
        print(outcome.status, outcome.report)


if __name__ == "__main__":
    asyncio.run(main(deputy_settings.read_plan(sys.argv[1])))
