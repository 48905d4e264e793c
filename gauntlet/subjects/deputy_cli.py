"""Deputy on the command line: `deputy run`, `deputy delegate`, `deputy resume`."""

from __future__ import annotations

import json
import os
import pty
import select
import sys
from pathlib import Path
from typing import Any

from gauntlet.subjects import deputy_settings

TITLE = "Deputy (CLI)"
DEPUTY = str(Path(sys.executable).parent / "deputy")
LACKS = {"own_tool": "own tools are functions of a program"}
dialect = deputy_settings.dialect


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    env = deputy_settings.prepare(plan)
    limits = plan["limits"]
    if plan["is_resumed"]:
        return [DEPUTY, "resume", "last", "--yes", "--json"], env
    if "approval" in plan["needs"]:
        return [sys.executable, "-m", "gauntlet.subjects.deputy_cli", plan["path"]], {**env, "PYTHONPATH": plan["root"]}
    if plan["is_direct"]:
        tasks = Path(plan["place"]) / "tasks.json"
        tasks.write_text(json.dumps(deputy_settings.tasks(plan)))
        options = ["delegate", "--tasks", str(tasks), "--concurrency", "100"]
    else:
        options = ["run", plan["prompt"]]
    options += ["--timeout", f"{limits['seconds']:g}"] if "seconds" in limits else []
    options += ["--budget", f"requests={limits['requests']}"] if "requests" in limits else []
    return [DEPUTY, *options, "--model", deputy_settings.MODEL, "--yes", "--json"], env


def answer_at_a_terminal(plan: dict[str, Any]) -> None:
    """Run the command in a terminal, say yes to each question, and print what a person saw."""
    pid, screen = pty.fork()
    if pid == 0:
        os.execv(DEPUTY, [DEPUTY, "run", plan["prompt"], "--model", deputy_settings.MODEL])
    is_quiet = True
    while True:
        ready, _, _ = select.select([screen], [], [], 1.0)
        try:
            if ready:
                sys.stdout.write(os.read(screen, 65536).decode(errors="replace"))
            elif not is_quiet:
                os.write(screen, b"y\n")
        except OSError:
            break
        is_quiet = not ready
    os.waitpid(pid, 0)


if __name__ == "__main__":
    answer_at_a_terminal(deputy_settings.read_plan(sys.argv[1]))
