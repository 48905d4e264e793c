"""`deputy review`: a command of a project's task."""

from __future__ import annotations

from deputy.interfaces.cli.task_commands import task_command

command = task_command("review", "Look critically at what was done for a task.")
