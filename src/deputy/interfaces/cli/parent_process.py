"""Commands that speak for a person refuse to work below a run: a caller never approves its own call."""

from __future__ import annotations

from deputy.core.errors import Unquoted, UsageError


def refuse_below_a_run(command: str) -> None:
    """Refuse a command that speaks for a person where a run of Deputy has started it."""
    from deputy.processes.ancestry import below_run

    if (supervisor := below_run()) is not None:
        run = supervisor.run or "a server of a run"
        raise UsageError(
            f"deputy {command}",
            Unquoted(f"a process that {run} started"),
            "a run never approves or answers its own call: a person does, in a terminal of their own",
        )
