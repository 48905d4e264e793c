"""Without a key, another agent's program does the work: the outcome names the backend and why."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from deputy import Task, run_sync

# Stands for the real `claude`, which Deputy finds on the PATH in the same way.
CLAUDE = """#!/bin/sh
[ "$1" = --version ] && echo "2.1.325 (Claude Code)" && exit
cat >/dev/null
echo '{"type": "system", "subtype": "init", "session_id": "ses_1", "model": "claude-sonnet-5-5"}'
echo '{"type": "result", "subtype": "success", "session_id": "ses_1", "result": "The parser reads one line at a time."}'
"""

with TemporaryDirectory() as folder:
    program = Path(folder) / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(CLAUDE)
    program.chmod(0o755)
    os.environ["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("ANTHROPIC_API_KEY", None)

    task = Task(label="parser", prompt="What does the parser do?", model="anthropic:claude-sonnet-5-5")
    [outcome] = run_sync(task, model="offline:scout", workspace=folder, home=Path(folder) / "home")

[fallback] = outcome.fallbacks
print(f"{outcome.backend}: {outcome.report} ({fallback.reason})")
assert outcome.status == "completed"
assert (outcome.backend, outcome.is_isolated) == ("cli:claude", True)
assert fallback.left == "anthropic:claude-sonnet-5-5 on native"
