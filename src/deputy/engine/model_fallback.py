"""A parent's conversation: by its own model, and by the next ones of its chain when that fails.

Only by our own loop: no other agent's program has a parent's tools, or asks the person before it uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.errors import blame_of
from deputy.core.events import FellBack
from deputy.core.fallback import NATIVE, Candidate, FailedAttempt, next_candidate
from deputy.core.outcome import Fallback
from deputy.core.progress import Progress
from deputy.engine.agent_context import with_model
from deputy.engine.loop import Report, run_loop

if TYPE_CHECKING:
    from deputy.core.fallback import Routing
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services


class ParentResult(Struct, frozen=True, kw_only=True):
    """How a parent came to rest, by which model, and which others failed before it."""

    report: Report
    model: str
    fallbacks: tuple[Fallback, ...]


async def run_with_fallback(
    run: RunContext, history: History, agent: AgentContext, routing: Routing, services: Services
) -> ParentResult:
    """Let a parent work until it comes to rest."""
    candidate, steps, fallbacks = Candidate(backend=NATIVE, model=agent.asked), list[FailedAttempt](), list[Fallback]()
    runner = _models(candidate, routing, services)
    while True:
        report = await run_loop(run, history, agent)
        taken = None
        if report.kind == "failed" and report.error is not None:
            error = report.error
            steps.append(
                FailedAttempt(
                    candidate=candidate, error=error, blame=blame_of(error), has_changed_something=history.has_acted
                )
            )
            taken = next_candidate(runner, steps)
        if taken is None or report.error is None:
            return ParentResult(report=report, model=agent.model.name, fallbacks=tuple(fallbacks))
        fallback = Fallback(left=str(candidate), taken=str(taken), reason=report.error.message)
        is_new = not run.is_replaying
        fell = await run.record(
            f"fallback:{len(steps)}", FellBack(fallback=fallback, backend=NATIVE, model=taken.model)
        )
        if is_new:
            text = Progress(event="fallback", label=agent.label, content=str(taken), reason=fell.fallback.reason)
            services.emit(run, text)
        fallbacks.append(fell.fallback)
        candidate = Candidate(backend=NATIVE, model=fell.model)
        agent = with_model(agent, services, candidate.model, services.open_model(candidate.model))


def _models(first: Candidate, routing: Routing, services: Services) -> list[Candidate]:
    """The models that we can ask, best first."""
    backends = services.backends
    if backends is None:
        return [first]
    found = backends.candidates(first.model, falls_back=routing.falls_back, native_failures=0)
    return [
        candidate
        for candidate in found
        if candidate.backend == NATIVE and backends.missing_key(candidate.model) is None
    ]
