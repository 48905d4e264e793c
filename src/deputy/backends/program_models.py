"""The models of a program, as the program itself lists them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from deputy.processes.bounded_output import HeadAndTail, take
from deputy.processes.environment import NETWORK, scrubbed
from deputy.processes.supervise import Command, supervise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deputy.backends.cli.program import Program

LIST_SECONDS = 30.0
_LIST_BYTES = 8_000_000
_MOST_MODELS = 2_000
_NAME_CHARACTERS = 200


async def list_models(program: Program, path: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The program's own names of its models; None if it has no command for it, empty if the command failed."""
    if program.models is None:
        return None
    more = (pattern for patterns in program.variables_by.values() for pattern in patterns)
    command = Command(
        argv=(path, *program.models.arguments),
        cwd="/",
        environment={**program.models.settings, **scrubbed(environ, (*NETWORK, *program.variables, *more))},
        owner=f"models-of-{program.name}",
        has_input=False,
        grace_seconds=0.5,
    )
    printed = HeadAndTail(_LIST_BYTES, 0)
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(LIST_SECONDS), supervise(command) as child:
            async with asyncio.TaskGroup() as group:
                group.create_task(take(child.stdout, printed))
                group.create_task(take(child.stderr, HeadAndTail(0, 0)))
            if (await child.exited()).code == 0:
                return tuple(dict.fromkeys(_names(program.models.read(printed.text))))[:_MOST_MODELS]
    return ()


def _names(listed: Iterable[str]) -> Iterator[str]:
    """Only names that can be an argument of the program and a part of our own names."""
    for name in listed:
        if name and len(name) <= _NAME_CHARACTERS and name.isprintable() and not name.startswith("-"):
            yield name
