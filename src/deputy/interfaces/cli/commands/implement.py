"""`deputy implement`: implement a project task."""

from __future__ import annotations

from deputy.interfaces.cli.task_commands import task_command

command = task_command("implement", "Implement a task.")
