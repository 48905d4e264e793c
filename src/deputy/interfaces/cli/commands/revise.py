"""`deputy revise`: update the plan of a project task."""

from __future__ import annotations

from deputy.interfaces.cli.task_commands import task_command

command = task_command("revise", "Update the plan of a task.")
