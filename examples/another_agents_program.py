"""No key, and another agent's program instead: the outcome says which way was gone, and why."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from deputy import Task, run_sync
from deputy.core.model_script import ScriptedTurn
from deputy.testing.programs import install_fake_programs

with TemporaryDirectory() as folder:
    # Stands for the real `claude`, which would be found on the PATH just so.
    programs = install_fake_programs(Path(folder) / "bin", ["claude"])
    programs.play("claude", [ScriptedTurn(text="The parser reads one line at a time.")])
    os.environ["PATH"] = f"{programs.folder}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("ANTHROPIC_API_KEY", None)

    task = Task(label="parser", prompt="What does the parser do?", model="anthropic:claude-sonnet-4-5")
    [outcome] = run_sync(task, model="offline:scout", workspace=folder, home=Path(folder) / "home")

[fallback] = outcome.fallbacks
print(f"{outcome.backend}: {outcome.report} ({fallback.reason})")
assert outcome.status == "completed"
assert (outcome.backend, outcome.is_isolated) == ("cli:claude", True)
assert fallback.left == "anthropic:claude-sonnet-4-5 on native"
