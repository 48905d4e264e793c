"""Every example runs without a key, and asserts its own result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = EXAMPLES / "demo.py"


@pytest.mark.parametrize("example", sorted(set(EXAMPLES.glob("*.py")) - {DEMO}), ids=lambda path: path.stem)
def test_an_example_runs_and_is_right(example, tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_AUTH_TOKEN"))}
    env = {**kept, "DEPUTY_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, env=env, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_the_demo_shows_three_subagents_and_three_commands_to_try(tmp_path):
    run = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=True, timeout=60)
    assert "## Subagents: 3 completed of 3" in run.stdout
    assert run.stdout.count("offline scout: no model was asked") == 3
    assert run.stderr.startswith("Delegate [3 subagents]")
    _, _, after = run.stdout.partition("Three commands to try next:")
    commands = [line.split()[1] for line in after.splitlines() if "bin/deputy " in line]
    assert commands == ["doctor", "delegate", "run"]
