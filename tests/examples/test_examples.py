"""Every example runs without a key, and asserts its own result."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fork_server import run

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = EXAMPLES / "demo.py"
# It starts a Postgres and three workers; `make demo-cluster` runs it.
DEMO_CLUSTER = EXAMPLES / "demo_cluster.py"
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


@pytest.mark.parametrize(
    "example", sorted(set(EXAMPLES.glob("*.py")) - {DEMO, DEMO_CLUSTER}), ids=lambda path: path.stem
)
def test_an_example_runs_and_is_right(example, tmp_path):
    env = {**kept_environ(), "DEPUTY_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    ended = run([sys.executable, example], capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


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
    assert re.search(r"The time limit of 15 s was (nearly )?reached\.", said)
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


REVIEW = EXAMPLES / "ci" / "review.py"
WELL = {"text": "a.py:3 <img src=x> **bold** is unsafe."}


def review(folder: Path, *options: str, turns: list[dict[str, object]]) -> subprocess.CompletedProcess[str]:
    asked = zip(("Review one.", "Review two."), turns, strict=True)
    script = {"conversations": [{"turns": [turn], "when": prompt} for prompt, turn in asked]}
    (folder / "model.json").write_text(json.dumps(script))
    tasks = [{"label": "a|b", "prompt": "Review one."}, {"label": "tests", "prompt": "Review two."}]
    (folder / "tasks.json").write_text(json.dumps(tasks))
    bin_folder = str(Path(sys.executable).parent)
    env = {**kept_environ(), "DEPUTY_HOME": str(folder / "home"), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    env |= {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "NO_COLOR": "1"}
    command = [sys.executable, REVIEW, "--tasks", "tasks.json", "--model", "script:model.json", *options]
    if "--budget" not in options:
        command += ["--budget", "requests=9"]
    return run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_the_review_of_a_pipeline_leaves_a_result_a_summary_and_an_exit_code(tmp_path):
    ran = review(tmp_path, turns=[WELL, {"text": "All is tested."}])
    assert ran.returncode == 0, ran.stderr
    result = json.loads((tmp_path / "review.json").read_text())
    assert [one["outcome"] for one in result["results"]] == ["completed", "completed"]
    page = (tmp_path / "summary.md").read_text()
    assert page.startswith("## Review passed\n\n| task | outcome | tokens | cost |\n")
    assert "| tests | completed | 120 | unknown |" in page
    assert "a.py:3 &lt;img src=x&gt; **bold** is unsafe." in page
    assert "<img" not in page


def test_the_policy_of_the_review_decides_its_exit_code(tmp_path):
    # One completed, one failed: `deputy delegate` exits with 4.
    turns = [WELL, {"text": "I look.", "calls": [{"name": "Glob", "arguments": {"pattern": "*"}}]}]
    assert review(tmp_path, "--pass-on", "strict", turns=turns).returncode == 4
    page = (tmp_path / "summary.md").read_text()
    assert "## Review failed: partial" in page
    assert page.index("the script has no answer") < page.index("I look.")
    assert review(tmp_path, turns=turns).returncode == 0
    # A wrong call never passes.
    assert review(tmp_path, "--pass-on", "never", "--budget", "much", turns=turns).returncode == 2
