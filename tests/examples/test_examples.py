"""Every example runs without a key, and asserts its own result."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = EXAMPLES / "demo.py"
MISTAKES = {
    "accounts.py:10": "md5",
    "accounts.py:16": "password_hash(password)",
    "accounts.py:23": "random.choices",
    "search.py:8": "LIKE '%{words}%' ORDER BY {order}",
    "payments.py:15": "send(",
    "orders.py:33": "order.refunded += amount",
    "orders.py:6": "REFUND_DAYS = 14",
    "test_orders.py:18": "def test_a_refund",
}


def kept_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_AUTH_TOKEN"))}


@pytest.mark.parametrize("example", sorted(set(EXAMPLES.glob("*.py")) - {DEMO}), ids=lambda path: path.stem)
def test_an_example_runs_and_is_right(example, tmp_path):
    env = {**kept_environ(), "DEPUTY_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, env=env, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_the_demo_survives_kill_9_a_question_and_a_timeout_and_says_what_to_try():
    run = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=False, timeout=90)
    assert run.returncode == 0, run.stdout + run.stderr
    said, shown = run.stdout, run.stderr.splitlines()
    assert "Scripted: what the model says" in said
    assert "kill -9 " in said
    assert said.index("## Subagents: 1 completed, 1 partial, 1 blocked of 3") < said.index(
        "## Subagents: 3 completed of 3"
    )
    assert re.search(r"\d+ model calls; \d of them twice, because kill -9 had cut them off", said)
    assert "The time limit of 15 s was reached." in said
    assert any(line.startswith("[tests] ⚠ partial: timeout") for line in shown)
    assert any(line.startswith("[money] ? blocked: question") for line in shown)
    assert sum(line.startswith("[security] ✎ ") for line in shown) == 3, (
        "each finding is noted once, also after the kill"
    )
    _, _, after = said.partition("What happened\n")
    commands = [line.split()[1] for line in after.splitlines() if "bin/deputy " in line]
    assert commands == ["ps", "transcript", "web", "init", "ask", "delegate"]


def test_the_findings_of_the_demo_are_at_the_lines_that_it_names():
    named = set(re.findall(r"\w+\.py:\d+", (EXAMPLES / "scripts" / "demo.json").read_text("utf-8")))
    assert named == set(MISTAKES)
    for place, text in MISTAKES.items():
        name, _, number = place.partition(":")
        [path] = (EXAMPLES / "bookshop").rglob(name)
        assert text in path.read_text("utf-8").splitlines()[int(number) - 1], place


def test_the_tests_of_the_sample_project_pass():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "tests",
    ]
    run = subprocess.run(command, cwd=EXAMPLES / "bookshop", capture_output=True, text=True, check=False, timeout=60)
    assert "4 passed" in run.stdout, run.stdout
