"""A project with tasks, a home of its own, and agents that say what a test tells them to."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import to_builtins
from tests.support.scripts import call, talk, write_script

from deputy.client import Deputy
from deputy.core.serialize import outcome_dict
from deputy.project_tasks.orchestrator import CommandRequest, CommandResult, orchestrate
from deputy.project_tasks.task_file import TaskFile

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.core.model_script import ScriptedCall, ScriptedConversation, ScriptedTurn
    from deputy.core.outcome import Outcome
    from deputy.core.project_task import ProjectTask

AT = "2026-01-01T00:00:00Z"
GIT = ("git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org")


def write(path: str, content: str = "found\n") -> ScriptedCall:
    return call("Write", path=path, content=content)


def returned(status: str = "completed", *paths: str, **more: Any) -> str:
    """A return as the contract wants it, with the session id that its writer was told."""
    form: dict[str, Any] = {
        "status": status,
        "summary": "It is done.",
        "artifacts": [{"type": "research", "path": path} for path in paths],
        "metadata": {"session_id": "{session_id}", "agent_type": "researcher"},
    }
    if status != "completed":
        form["errors"] = [ERROR]
    return json.dumps({**form, **more})


ERROR = {"type": "build_error", "message": "It does not build.", "recoverable": True, "recommendation": "Mend it."}


class Project:
    """What tests hold on to: the project's files and tasks, and what its agents will say."""

    def __init__(self, root: Path) -> None:
        self.folder, self.home, self.root = root / "project", root / "home", root
        self.folder.mkdir()
        for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "begin"]):
            subprocess.run([*GIT, *arguments], cwd=self.folder, check=True)
        self.tasks = TaskFile(self.folder)
        self.seen: list[Any] = []

    def add(self, title: str = "Cache the index", **more: str) -> ProjectTask:
        return self.tasks.add(title, at=AT, **more)

    def commit(self, path: str, content: str) -> None:
        """A file that is in the project's repository."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        subprocess.run([*GIT, "add", "--all"], cwd=self.folder, check=True)
        subprocess.run([*GIT, "commit", "-q", "-m", path], cwd=self.folder, check=True)

    def on_branch(self, branch: str, path: str) -> str:
        """A file as a branch of the project has it."""
        shown = subprocess.run([*GIT, "show", f"{branch}:{path}"], cwd=self.folder, check=True, capture_output=True)
        return shown.stdout.decode()

    def task(self, number: int = 1) -> ProjectTask:
        return self.tasks.find(number)

    def script(self, *conversations: ScriptedConversation) -> str:
        return write_script(self.root / "script.json", *conversations)

    def deputy(self, model: str | None = None, **options: Any) -> Deputy:
        return Deputy(model, workspace=self.folder, home=self.home, watch=self.seen.append, **options)

    def order(self, command: str, number: int | None = 1, /, *turns: ScriptedTurn, **order: Any) -> CommandResult:
        """How a command ends whose agent says this."""
        return self.play(command, number, talk(*turns), **order)

    def play(
        self, command: str, number: int | None, /, *conversations: ScriptedConversation, **order: Any
    ) -> CommandResult:
        """The same with conversations of several agents."""

        async def go() -> CommandResult:
            async with self.deputy(self.script(*conversations)) as deputy:
                session_id = await deputy.new_session_id()
                whole = CommandRequest(session_id=session_id, command=command, number=number, **order)
                return await orchestrate(whole, deputy.command_context())

        return asyncio.run(go())

    def resume(self, session_id: str, answer: str | None = None) -> Outcome:
        """The outcome of another go."""

        async def go() -> Outcome:
            async with self.deputy() as deputy:
                return await deputy.resume(session_id, answer)

        return asyncio.run(go())


def form_of(ended: CommandResult) -> dict[str, Any]:
    """The outcome as JSON, with what differs from run to run put in words."""
    text = json.dumps(to_builtins(outcome_dict(ended.outcome))).replace(ended.outcome.session_id, "SESSION")
    form = json.loads(text)
    assert form["duration_seconds"] >= 0
    assert form["deadline"] is not None
    assert form["model"].startswith("script:")
    for name in ("duration_seconds", "deadline", "model"):
        del form[name]
    return form


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    return Project(tmp_path)
