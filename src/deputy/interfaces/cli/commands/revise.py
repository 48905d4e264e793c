"""`deputy revise`: a command of a project's task."""

from __future__ import annotations

from deputy.interfaces.cli.task_commands import task_command

command = task_command("revise", "Bring the plan of a task up to date.")
