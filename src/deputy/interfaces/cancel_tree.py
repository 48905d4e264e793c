"""Cancel a run and everything below it, blocked runs included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import UnknownRun
from deputy.engine.call import DELEGATE

if TYPE_CHECKING:
    from deputy.core.state import State
    from deputy.wiring import Runtime


async def stop(runtime: Runtime, run: str) -> bool:
    """Cancel a run and all below it; True if any of them was live or blocked."""
    state = await runtime.engine.get(run)
    if state is None:
        raise UnknownRun(run)
    is_open = _is_open(state) or any(map(_is_open, await runtime.journal.descendants(run)))
    await runtime.engine.cancel(run)
    if is_open and state.parent is not None:
        await _stop_caller(runtime, state.parent)
    return is_open


async def wait_until_finished(runtime: Runtime, run: str) -> None:
    """Wait until every descendant has finished."""
    while live := [state.run for state in await runtime.journal.descendants(run) if state.is_live]:
        for below in live:
            await runtime.engine.result(below)


async def cancel_remaining(runtime: Runtime, run: str) -> None:
    """Cancel the live descendants of a call that has ended; blocked ones keep their question."""
    for state in await runtime.journal.descendants(run):
        if state.is_live:
            await runtime.engine.cancel(state.run)


async def _stop_caller(runtime: Runtime, caller: str) -> None:
    """Cancel a blocked call when the last of its open tasks was cancelled."""
    state = await runtime.engine.get(caller)
    if state is None or state.command != DELEGATE or state.status != "blocked":
        return
    if not any(_is_open(one) for one in await runtime.journal.descendants(caller)):
        await runtime.engine.cancel(caller)


def _is_open(state: State) -> bool:
    return state.is_live or state.status == "blocked"
