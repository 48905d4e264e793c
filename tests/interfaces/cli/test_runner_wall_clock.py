"""A real process whose wall clock is set while a subagent works; its monotonic clock goes on as it did."""

import json
from pathlib import Path

import pytest

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@pytest.fixture
def faked(house):
    """The environment of a process whose wall clock is moved by what is written to a file."""
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed (Debian package libfaketime)")
    jump = house.home.parent / "jump"
    jump.write_text("+0")
    return jump, {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(jump),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.rule("time.clock")
@pytest.mark.parametrize(
    ("jump", "limit", "works", "status"),
    [("+3600", 60, 0.5, "ok"), ("-3600", 3, 20, "partial")],
)
def test_a_limit_holds_whatever_the_wall_clock_is_set_to(house, faked, jump, limit, works, status):
    path, env = faked
    sets = {"calls": [{"name": "Run", "arguments": {"command": f"echo {jump} > {path}"}}]}
    model = house.script("m", {"turns": [sets, {"text": "Done.", "delay_seconds": works}]})
    tasks = house.workspace.parent / "tasks.json"
    tasks.write_text(json.dumps([{"label": "a", "prompt": "work", "timeout": limit, "tools": ["Run"]}]))
    run = house.run("delegate", "--tasks", str(tasks), "--yes", "--json", "--model", model, **env)
    assert path.read_text().strip() == jump, run.stderr
    (outcome,) = json.loads(run.stdout)["results"]
    assert outcome["status"] == status, outcome
