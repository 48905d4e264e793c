"""`deputy implement`: a command of a project's task."""

from __future__ import annotations

from deputy.interfaces.cli.commanding import task_command

command = task_command("implement", "Carry a task out.")
