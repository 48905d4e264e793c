"""A parent's conversation: by its own model, and by the next ones of its chain when that fails.

Only by our own loop: no other agent's program has a parent's tools, or asks the person before it uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.events import FellBack
from deputy.core.ladder import NATIVE, Rung, Step, blame_of, next_rung
from deputy.core.outcome import Fallback
from deputy.core.progress import Progress
from deputy.engine.desk import with_model
from deputy.engine.loop import Report, converse

if TYPE_CHECKING:
    from deputy.core.ladder import Routing
    from deputy.engine.desk import Desk
    from deputy.engine.ports import RunContext
    from deputy.engine.talk import Talk
    from deputy.engine.workshop import Workshop


class Worked(Struct, frozen=True, kw_only=True):
    """How a parent came to rest, by which model, and which others failed before it."""

    report: Report
    model: str
    fallbacks: tuple[Fallback, ...]


async def converse_by_chain(run: RunContext, talk: Talk, desk: Desk, routing: Routing, workshop: Workshop) -> Worked:
    """Let a parent work until it comes to rest."""
    rung, steps, fallbacks = Rung(backend=NATIVE, model=desk.asked), list[Step](), list[Fallback]()
    ladder = _models(rung, routing, workshop)
    while True:
        report = await converse(run, talk, desk)
        taken = None
        if report.kind == "failed" and report.error is not None:
            error = report.error
            steps.append(Step(rung=rung, error=error, blame=blame_of(error), has_changed_something=talk.has_acted))
            taken = next_rung(ladder, steps)
        if taken is None or report.error is None:
            return Worked(report=report, model=desk.model.name, fallbacks=tuple(fallbacks))
        fallback = Fallback(left=str(rung), taken=str(taken), reason=report.error.message)
        is_new = not run.is_replaying
        fell = await run.record(
            f"fallback:{len(steps)}", FellBack(fallback=fallback, backend=NATIVE, model=taken.model)
        )
        if is_new:
            told = Progress(event="fallback", label=desk.label, content=str(taken), reason=fell.fallback.reason)
            workshop.tell(run, told)
        fallbacks.append(fell.fallback)
        rung = Rung(backend=NATIVE, model=fell.model)
        desk = with_model(desk, workshop, rung.model, workshop.open_model(rung.model))


def _models(first: Rung, routing: Routing, workshop: Workshop) -> list[Rung]:
    """The models that we can ask, best first."""
    ways = workshop.ways
    if ways is None:
        return [first]
    found = ways.rungs(first.model, falls_back=routing.falls_back, native_failures=0)
    return [rung for rung in found if rung.backend == NATIVE and ways.missing_key(rung.model) is None]
