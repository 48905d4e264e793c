"""What the three subjects of Deputy share: the config file, the agent that may delegate, and the Delegate tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODEL = "anthropic:claude-sonnet-5-5"
LEAD = "---\nname: lead\ndescription: Delegates.\ntools: Read, Delegate\nrecursive: true\n---\nDo your task.\n"


def prepare(plan: dict[str, Any]) -> dict[str, str]:
    """Write the user's config; return the environment."""
    limits = plan["limits"]
    lines = ["[limits]"]
    lines += [f"max_depth = {limits['depth']}"] if "depth" in limits else []
    lines += [f"max_spawns = {limits['spawns']}"] if "spawns" in limits else []
    lines += ["tasks = 1000", "concurrency = 100"] if plan["is_direct"] else []
    config = Path(plan["home"]) / ".config" / "deputy" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("\n".join(lines) + "\n")
    agents = Path(plan["home"]) / ".deputy" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / "lead.md").write_text(LEAD)
    return {
        "ANTHROPIC_BASE_URL": plan["url"],
        "ANTHROPIC_API_KEY": "test-key-anthropic",
        "DEPUTY_HOME": plan["state"],
    }


def task_fields(plan: dict[str, Any]) -> dict[str, Any]:
    """The fields of each task that a scenario needs."""
    needs = plan["needs"]
    fields: dict[str, Any] = {}
    if "child_seconds" in plan["limits"]:
        fields |= {"timeout": plan["limits"]["child_seconds"]}
    if "nesting" in needs:
        fields |= {"agent": "lead"}
    if "shell" in needs:
        fields |= {"tools": ["Read", "Run"], "isolation": "none"}
    if "own_tool" in needs:
        fields |= {"tools": ["Read", "explode"]}
    if "evidence" in needs:
        fields |= {"return_format": "json"}
    return fields


def dialect(plan: dict[str, Any]) -> dict[str, Any]:
    """How a model calls Deputy's tools."""
    task = {"label": "{label}", "prompt": "{prompt}", **task_fields(plan)}
    return {
        "delegate": {"name": "Delegate", "batch": 8, "arguments": {"tasks": [task], "concurrency": 4}},
        "read": {"name": "Read", "arguments": {"path": "{path}", "offset": "{offset}"}},
        "shell": {"name": "Run", "arguments": {"command": "{command}"}},
        "explode": {"name": "explode", "arguments": {}},
    }


def tasks(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks of a call without a parent model."""
    return [{**task, **task_fields(plan)} for task in plan["tasks"]]


def read_plan(path: str) -> dict[str, Any]:
    """The plan of a trial."""
    return json.loads(Path(path).read_text())
