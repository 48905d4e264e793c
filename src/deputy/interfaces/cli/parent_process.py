"""Refuse commands that act for a person when a run has started this process."""

from __future__ import annotations

from deputy.core.errors import Unquoted, UsageError


def refuse_below_a_run(command: str) -> None:
    """Refuse a command that approves or answers, when a run of Deputy has started this process."""
    from deputy.processes.ancestry import below_run

    if (supervisor := below_run()) is not None:
        run = supervisor.run or "a server of a run"
        raise UsageError(
            f"deputy {command}",
            Unquoted(f"a process that {run} started"),
            "a run cannot approve or answer its own call; a person does that in another terminal",
        )
