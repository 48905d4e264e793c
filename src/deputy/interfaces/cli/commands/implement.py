"""`deputy implement`: a command of a project's task."""

from __future__ import annotations

from deputy.interfaces.cli.task_commands import task_command

command = task_command("implement", "Carry a task out.")
