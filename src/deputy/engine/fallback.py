"""Try the candidates of one delegation in turn: native models, programs, and finally inline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.errors import Error, blame_of
from deputy.core.events import FellBack, Resumed, Returned, Started
from deputy.core.fallback import (
    DO_IT_YOURSELF,
    INLINE,
    NATIVE,
    NATIVE_FAILURES,
    UNCHOSEN_SCOUT,
    Candidate,
    FailedAttempt,
    native_skipped,
    next_candidate,
    no_key,
    not_inline,
    not_installed,
)
from deputy.core.outcome import Failed, Fallback
from deputy.core.progress import Progress
from deputy.engine.attempt import attempt, record_attempt
from deputy.engine.history import of_rounds_that_worked
from deputy.engine.ports import NotReady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.fallback import Routing
    from deputy.engine.attempt import AttemptInput, AttemptResult
    from deputy.engine.ports import Backends, RunContext
    from deputy.engine.services import Services


class FallbackRunner:
    """Chooses candidates for one delegation or parent, and records each fallback.

    A parent only uses models that we call ourselves: programs lack its tools and approvals.
    """

    def __init__(
        self, run: RunContext, services: Services, label: str, model: str, routing: Routing, *, is_parent: bool = False
    ) -> None:
        self._run = run
        self._services = services
        self._label = label
        self._model = model
        self._routing = routing
        self._is_parent = is_parent
        self._unready: dict[str, Error] | None = None
        earlier = () if is_parent else run.history
        self._fallbacks = [record.event.fallback for record in earlier if isinstance(record.event, FellBack)]

    async def first(self) -> Candidate:
        """The first candidate: the last one of an earlier round unless it failed, else the best available."""
        before = _last_candidate(self._run, self._model)
        if before is not None:
            return before
        candidates = await self._candidates()
        best = candidates[0]
        is_native = best.backend == NATIVE and self._missing_key(best.model) is None
        if is_native and await self._native_failures() < NATIVE_FAILURES:
            return best
        taken, skipped = await self._open_after(candidates, ())
        if taken is None or not skipped:
            return taken or best
        left, *others = skipped
        return await self._fall_back(left, taken, others, 0, candidates)

    async def run(self, work: AttemptInput, first: Candidate) -> AttemptResult:
        """Try candidates until an attempt does not fail or none is left."""
        candidates = await self._candidates()
        candidate = going = first
        steps: list[FailedAttempt] = []
        number = 0
        while (error := (result := await attempt(work, going)).failure) is not None:
            step = FailedAttempt(
                candidate=candidate, error=error, blame=blame_of(error), has_changed_something=result.has_acted
            )
            steps.append(step)
            taken, skipped = await self._open_after(candidates, steps)
            steps.extend(skipped)
            if taken is None:
                break
            number += 1
            candidate = going = await self._fall_back(step, taken, skipped, number, candidates)
            if not self._is_parent:
                going = await record_attempt(self._run, candidate, number, self._run.state.scratchpad, self._services)
        report = result.report
        if error is not None and report.kind == "failed" and error.code != DO_IT_YOURSELF:
            # The cause that is nearest to the user's own choice: of the first candidate, not of the last.
            error = steps[0].error
            report = structs.replace(report, error=error)
        reasons = {
            (step.error.code, step.error.message): structs.replace(step.error, candidate=str(step.candidate))
            for step in steps
            if step.error != error
        }
        return structs.replace(result, report=report, fallbacks=tuple(self._fallbacks), reasons=tuple(reasons.values()))

    # --- which candidate ----------------------------------------------------------------------------------------------

    async def _candidates(self) -> tuple[Candidate, ...]:
        native, backends = Candidate(backend=NATIVE, model=self._model), self._services.backends
        routing, own = self._routing, self._routing.session_model or self._model
        if backends is None:
            return (native,)
        found = backends.candidates(self._model, falls_back=routing.falls_back)
        if self._is_parent:
            return tuple(one for one in found if one.backend == NATIVE and self._missing_key(one.model) is None)
        if not routing.falls_back or routing.inline == "never" or own == UNCHOSEN_SCOUT:
            return found or (native,)
        # A subagent with the session's own model is isolated, so it comes before inline.
        session = backends.candidates(own, falls_back=True)
        return tuple(dict.fromkeys((*found, *session, Candidate(backend=INLINE, model=own))))

    async def _native_failures(self) -> int:
        return await self._services.native_failures(self._run.lineage.root_id)

    async def _open_after(
        self, candidates: Sequence[Candidate], steps: Sequence[FailedAttempt]
    ) -> tuple[Candidate | None, list[FailedAttempt]]:
        """The next available candidate, and the skipped ones with their errors."""
        closed: list[FailedAttempt] = []
        while (candidate := next_candidate(candidates, [*steps, *closed])) is not None:
            unready = await self._check_backends(candidates)
            error = (
                self._why_not_inline(candidate, steps) if candidate.backend == INLINE else unready.get(str(candidate))
            )
            if error is None:
                break
            closed.append(FailedAttempt(candidate=candidate, error=error, blame="backend"))
        # That the session's own model has failed is among the reasons already.
        skipped = (step for step in closed if step.candidate.backend != INLINE)
        return candidate, [step for step in skipped if not _is_other_wording(step, candidates)]

    def _why_not_inline(self, inline: Candidate, steps: Sequence[FailedAttempt]) -> Error | None:
        if self._routing.inline == "parent":
            return None
        if any(step.candidate == Candidate(backend=NATIVE, model=inline.model) for step in steps):
            return not_inline(inline.model)
        return self._missing_key(inline.model)

    def _missing_key(self, model: str) -> Error | None:
        provider = None if self._services.backends is None else self._services.backends.missing_key(model)
        return None if provider is None else no_key(provider)

    async def _check_backends(self, candidates: Sequence[Candidate]) -> dict[str, Error]:
        """The errors of unavailable candidates: checked once in a step, so that a replay chooses the same."""
        if self._services.backends is None or self._is_parent:
            return {}
        if self._unready is None:
            checked, backends = [one for one in candidates if one.backend != INLINE], self._services.backends
            failures = await self._native_failures()
            self._unready = await self._run.value(
                "fallback:ready", dict[str, Error], check_backends, checked, backends, failures, step="fallback"
            )
        return self._unready

    async def _fall_back(
        self,
        left: FailedAttempt,
        taken: Candidate,
        skipped: Sequence[FailedAttempt],
        number: int,
        candidates: Sequence[Candidate],
    ) -> Candidate:
        """Record the fallback and show it to watchers; number 0 precedes the first attempt."""
        messages = [left.error.message, *(f"{step.candidate}: {step.error.message}" for step in skipped)]
        # The message of a provider may lack its full stop.
        reasons = [message if message.endswith((".", "!", "?")) else f"{message}." for message in messages]
        fallback = Fallback(left=str(left.candidate), taken=str(taken), reason=" ".join(dict.fromkeys(reasons)))
        # Only a failed attempt of a delegation counts as a failure of its backend.
        failed = left.candidate.backend if number and not self._is_parent else ""
        event = FellBack(fallback=fallback, left=failed, backend=taken.backend, model=taken.model)
        is_new = not self._run.is_replaying
        fell = await self._run.record(f"fallback:{number}", event)
        self._fallbacks.append(fell.fallback)
        if fell.left == NATIVE:
            self._services.count_native_failure(self._run.lineage.root_id)
        if is_new:
            fallback = fell.fallback
            progress = Progress(event="fallback", label=self._label, content=fallback.taken, reason=fallback.reason)
            self._services.emit(self._run, progress)
        recorded = Candidate(backend=fell.backend, model=fell.model)
        # Redaction may have changed its name in the record.
        return recorded if recorded in candidates else taken


def _is_other_wording(step: FailedAttempt, candidates: Sequence[Candidate]) -> bool:
    """Whether the program has no ACP adapter but a CLI candidate exists: not worth a report."""
    kind, _, name = step.candidate.backend.partition(":")
    other = Candidate(backend=f"cli:{name}", model=step.candidate.model)
    return kind == "acp" and step.error.code == "PROGRAM_NOT_INSTALLED" and other in candidates


def _last_candidate(run: RunContext, asked: str) -> Candidate | None:
    """The last candidate of the previous round, unless that round failed."""
    started: Started | None = None
    has_failed = False
    for record in of_rounds_that_worked(run.history):
        match record.event:
            case Started() as event:
                started = event
            case Resumed(changes=changes) if changes.model:
                started = None
            case Returned(outcome=outcome):
                has_failed = isinstance(outcome, Failed)
            case _:
                continue
    if started is None or has_failed:
        return None
    return Candidate(backend=started.backend or NATIVE, model=started.asked or started.model or asked)


async def check_backends(
    candidates: Sequence[Candidate], backends: Backends, native_failures: int = 0
) -> dict[str, Error]:
    """The errors of the unavailable candidates, by name; native is skipped after failures if there is a program."""
    has_program = any(candidate.backend != NATIVE for candidate in candidates)
    skipped = native_skipped() if has_program and native_failures >= NATIVE_FAILURES else None
    return {
        str(candidate): error
        for candidate in candidates
        if (error := (skipped if candidate.backend == NATIVE else None) or await why_unavailable(candidate, backends))
        is not None
    }


async def why_unavailable(candidate: Candidate, backends: Backends) -> Error | None:
    """The error that makes a candidate unavailable; None if it is available."""
    if candidate.backend == NATIVE:
        provider = backends.missing_key(candidate.model)
        return None if provider is None else no_key(provider)
    backend = backends.open(candidate.backend)
    if backend is None:
        return not_installed(candidate.backend)
    ready = await backend.check()
    return ready.error if isinstance(ready, NotReady) else None
