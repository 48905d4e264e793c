"""`deputy research`: research a project task."""

from __future__ import annotations

from deputy.interfaces.cli.task_commands import task_command

command = task_command("research", "Research what a task needs.")
