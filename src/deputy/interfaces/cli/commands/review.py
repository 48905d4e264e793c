"""`deputy review`: review the work on a project task."""

from __future__ import annotations

from deputy.interfaces.cli.task_commands import task_command

command = task_command("review", "Review the work done for a task.")
