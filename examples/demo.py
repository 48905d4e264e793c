"""`make demo`: three subagents look at this repository from three sides, at the same time and live.

No key, no network and no money: they are the offline scout, which searches and reads but asks no model.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPUTY = Path(sys.executable).with_name("deputy")

SIDES = {
    "safety": "Which paths does the workspace refuse, symlink and parent folders among them?",
    "durability": "How does the journal survive a crash, and who resumes an interrupted run?",
    "limits": "Where is the deadline of a child inherited, and the budget reserved?",
}

NEXT = f"""
Three commands to try next:

  {DEPUTY.relative_to(ROOT)} doctor
      which model would be asked here, and what to set for a real one
  {DEPUTY.relative_to(ROOT)} delegate -t "mine=Where are secrets redacted?"
      your own question; add -t for each further subagent
  {DEPUTY.relative_to(ROOT)} run "What does the guard refuse?"
      a parent agent with all tools, which asks before it changes anything; needs a model
"""


def main() -> int:
    print(f"Three subagents look at this repository.\n{__doc__.splitlines()[2]}\n", flush=True)
    tasks = [part for label, prompt in SIDES.items() for part in ("-t", f"{label}={prompt}")]
    command = [
        DEPUTY,
        "delegate",
        *tasks,
        "--model",
        "offline:scout",
        "--workspace",
        "src",
        "--concurrency",
        "3",
        "--yes",
    ]
    with tempfile.TemporaryDirectory(prefix="deputy-demo-") as home:
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, "DEPUTY_HOME": home}, check=False).returncode
    if code == 0:
        print(NEXT)
    return code


if __name__ == "__main__":
    sys.exit(main())
