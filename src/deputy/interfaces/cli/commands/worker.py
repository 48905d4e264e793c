"""`deputy worker`: carry out runs that other machines place in the store."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UsageError
from deputy.interfaces.background import background, cause_of
from deputy.interfaces.cli.console import Console, warn, with_console
from deputy.interfaces.cli.runner import run_command

if TYPE_CHECKING:
    import asyncio

    from deputy.worker import Worker


@click.command(
    epilog="\b\nExamples:\n  deputy worker\n  deputy worker --concurrency 16 --labels gpu\n\n\b\n"
    "After SIGTERM or Ctrl-C the worker claims no more runs. Running steps get 30 s\n"
    "to end; then other workers continue its runs. A second signal ends it at once."
)
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Runs at once; the same for all workers of a label.")
@click.option("--labels", default="", metavar="LABELS", help="Serve only runs for these labels, like gpu,eu.")
@click.option("--health", metavar="[HOST:]PORT", help="Serve /livez, /readyz and /metrics; without HOST on 127.0.0.1.")
@with_console()
def command(console: Console, concurrency: int | None, labels: str, health: str | None) -> int:
    """Carry out runs that other machines place in the store.

    DEPUTY_STORE names the store, and DEPUTY_DISPATCH=dbos lets `deputy delegate` place runs in it. Keys of providers
    come from the environment of this process. The files of a run come as a git snapshot,
    or from a volume that all machines share: docs/cluster.md.
    """
    from deputy.core.queue_names import is_label

    named = tuple(dict.fromkeys(label.strip() for label in labels.split(",") if label.strip()))
    for label in named:
        if not is_label(label):
            raise UsageError("--labels", label, "a label has letters, digits and -")
    if health is not None:
        from deputy.interfaces.worker_health import health_address

        health_address(health)
    return run_command(lambda stop: _work(named, concurrency, health, stop))


async def _work(labels: tuple[str, ...], slots: int | None, health: str | None, stop: asyncio.Event) -> int:
    from deputy.interfaces.freed_memory import give_back_memory
    from deputy.options import DeputyOptions
    from deputy.worker import open_worker

    try:
        async with open_worker(DeputyOptions(), labels) as worker, AsyncExitStack() as stack:
            if health is not None:
                from deputy.interfaces.worker_health import serving_health

                warn(f"health: {await stack.enter_async_context(serving_health(worker, health))}/readyz")
            await stack.enter_async_context(background(give_back_memory()))
            await worker.work(slots, stop, is_ready=lambda: _tell_ready(worker))
    except BaseExceptionGroup as raised:
        raise cause_of(raised) from None
    return 0


def _tell_ready(worker: Worker) -> None:
    served = ", ".join(worker.labels) or "runs without a label"
    warn(f"worker ready: it serves {served}, {worker.slots} at once. Ctrl-C: it hands over its runs and ends.")
