"""The ways to carry one delegation out, one after another: our own loop, programs, and at last no subagent at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json

from deputy.core.errors import Error, blame_of
from deputy.core.events import FellBack, Returned, Started, StepEnded, StepLost
from deputy.core.fallback import (
    INLINE,
    NATIVE,
    SILENT,
    Candidate,
    FailedAttempt,
    next_candidate,
    no_key,
    not_inline,
    not_installed,
)
from deputy.core.outcome import Failed, Fallback
from deputy.core.progress import Progress
from deputy.engine.ports import Backends, NotReady
from deputy.engine.validate import InvalidReturn, ValidReturn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.core.events import Requested
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services


class AttemptResult(Struct, frozen=True, kw_only=True):
    """What came of one way, and the model that was really asked on it."""

    verdict: ValidReturn | InvalidReturn
    model: str
    has_acted: bool = False
    """Whether something may have been changed on it, so that the work must not be begun again."""

    @property
    def failure(self) -> Error | None:
        """What kept this way from leading to an end, if that is so."""
        if not isinstance(self.verdict, ValidReturn):
            return None
        report = self.verdict.report
        # Who falls silent for good has more time left, and does not use it.
        is_silent = report.error is not None and report.error.code == SILENT
        return report.error if report.kind == "failed" or is_silent else None


class DelegationResult(Struct, frozen=True, kw_only=True):
    """How a delegation was carried out at last."""

    arrived: AttemptResult
    backend: str
    fallbacks: tuple[Fallback, ...] = ()
    reasons: tuple[Error, ...] = ()
    """Why the other ways were not gone to their end, where this one was not either."""


class FallbackRunner:
    """The ways of one delegation, as things stand when they are looked at."""

    def __init__(self, run: RunContext, start: Requested, services: Services) -> None:
        self._run = run
        self._start = start
        self._routing = start.options.routing
        self._workshop = services
        self._unready: dict[str, Error] | None = None
        self._fallbacks = [record.event.fallback for record in run.history if isinstance(record.event, FellBack)]

    async def first(self) -> Candidate:
        """Where it begins: where an earlier round left off unless that failed, else at the best way that is open."""
        before = _last_candidate(self._run, self._start.model)
        if before is not None:
            return before
        candidates = await self._candidates()
        best = candidates[0]
        if best.backend == NATIVE and self._missing_key(best.model) is None:
            return best
        taken, skipped = await self._open_after(candidates, ())
        if taken is None or not skipped:
            return taken or best
        left, *others = skipped
        fell = await self._fall_back(left, taken, others, 0, has_failed=False)
        return _recorded(fell, candidates) or taken

    async def run(
        self, first: Candidate, attempt: Callable[[Candidate, int], Awaitable[AttemptResult]]
    ) -> DelegationResult:
        """Go one way after another until one leads to an end, or none is left that may be gone."""
        candidates = await self._candidates()
        candidate, steps = first, list[FailedAttempt]()
        number = 0
        while (error := (arrived := await attempt(candidate, number)).failure) is not None:
            step = FailedAttempt(
                candidate=candidate, error=error, blame=blame_of(error), has_changed_something=arrived.has_acted
            )
            steps.append(step)
            taken, skipped = await self._open_after(candidates, steps)
            steps.extend(skipped)
            if taken is None:
                break
            number += 1
            fell = await self._fall_back(step, taken, skipped, number)
            candidate = _recorded(fell, candidates) or taken
        reasons = {(step.error.code, step.error.message): step.error for step in steps if step.error != error}
        return DelegationResult(
            arrived=arrived,
            backend=candidate.backend,
            fallbacks=tuple(self._fallbacks),
            reasons=tuple(reasons.values()),
        )

    # --- which way ----------------------------------------------------------------------------------------------------

    async def _candidates(self) -> tuple[Candidate, ...]:
        native, backends, routing = (
            Candidate(backend=NATIVE, model=self._start.model),
            self._workshop.backends,
            self._routing,
        )
        if backends is None:
            return (native,)
        failures = await self._workshop.native_failures(self._start.request.caller.root_id)
        found = backends.candidates(self._start.model, falls_back=routing.falls_back, native_failures=failures) or (
            native,
        )
        if not routing.falls_back or routing.inline == "never":
            return found
        return (*found, Candidate(backend=INLINE, model=routing.session_model or self._start.model))

    async def _open_after(
        self, candidates: Sequence[Candidate], steps: Sequence[FailedAttempt]
    ) -> tuple[Candidate | None, list[FailedAttempt]]:
        """The next way that is open, and those that are not, each with its reason."""
        closed: list[FailedAttempt] = []
        while (candidate := next_candidate(candidates, [*steps, *closed])) is not None:
            unready = await self._check_backends(candidates)
            error = (
                self._why_not_inline(candidate, steps) if candidate.backend == INLINE else unready.get(str(candidate))
            )
            if error is None:
                break
            closed.append(FailedAttempt(candidate=candidate, error=error, blame="backend"))
        return candidate, [step for step in closed if not _is_other_wording(step, candidates)]

    def _why_not_inline(self, inline: Candidate, steps: Sequence[FailedAttempt]) -> Error | None:
        if self._routing.inline == "parent":
            return None
        if any(step.candidate == Candidate(backend=NATIVE, model=inline.model) for step in steps):
            return not_inline(inline.model)
        return self._missing_key(inline.model)

    def _missing_key(self, model: str) -> Error | None:
        provider = None if self._workshop.backends is None else self._workshop.backends.missing_key(model)
        return None if provider is None else no_key(provider)

    async def _check_backends(self, candidates: Sequence[Candidate]) -> dict[str, Error]:
        """Which ways are not open, and why: looked at once, so that a replay goes the same ones."""
        if self._workshop.backends is None:
            return {}
        if self._unready is None:
            args = BackendCheckArgs(
                candidates=tuple(candidate for candidate in candidates if candidate.backend != INLINE)
            )
            ended = await self._run.step("fallback:ready", check_backends, args, view=self._workshop.backends)
            if isinstance(ended, StepLost) or ended.result is UNSET:
                raise TypeError("looking may be repeated, is never lost and has a result")
            self._unready = json.decode(ended.result, type=dict[str, Error])
        return self._unready

    async def _fall_back(
        self,
        left: FailedAttempt,
        taken: Candidate,
        skipped: Sequence[FailedAttempt],
        number: int,
        *,
        has_failed: bool = True,
    ) -> FellBack:
        """Write down that the next way is taken, and tell of it."""
        reasons = [left.error.message, *(f"{step.candidate}: {step.error.message}" for step in skipped)]
        fallback = Fallback(left=str(left.candidate), taken=str(taken), reason=" ".join(dict.fromkeys(reasons)))
        event = FellBack(
            fallback=fallback,
            left=left.candidate.backend if has_failed else "",
            backend=taken.backend,
            model=taken.model,
        )
        is_new = not self._run.is_replaying
        fell = await self._run.record(f"fallback:{number}", event)
        self._fallbacks.append(fell.fallback)
        if fell.left == NATIVE:
            self._workshop.count_native_failure(self._start.request.caller.root_id)
        if is_new:
            text = Progress(
                event="fallback", label=self._start.label, content=fell.fallback.taken, reason=fell.fallback.reason
            )
            self._workshop.emit(self._run, text)
        return fell


def _recorded(fell: FellBack, candidates: Sequence[Candidate]) -> Candidate | None:
    """The way that is on record; None where secrets taken out of its name have made it that of no way."""
    candidate = Candidate(backend=fell.backend, model=fell.model)
    return candidate if candidate in candidates else None


def _is_other_wording(step: FailedAttempt, candidates: Sequence[Candidate]) -> bool:
    """Whether a program is only not spoken to by the protocol here, and by its command line instead: no step at all."""
    kind, _, name = step.candidate.backend.partition(":")
    other = Candidate(backend=f"cli:{name}", model=step.candidate.model)
    return kind == "acp" and step.error.code == "PROGRAM_NOT_INSTALLED" and other in candidates


def _last_candidate(run: RunContext, asked: str) -> Candidate | None:
    """The way that the last round was on, unless it led to nothing."""
    started: Started | None = None
    has_failed = False
    for record in run.history:
        match record.event:
            case Started() as event:
                started = event
            case Returned(outcome=outcome):
                has_failed = isinstance(outcome, Failed)
            case _:
                continue
    if started is None or has_failed:
        return None
    return Candidate(backend=started.backend or NATIVE, model=started.asked or started.model or asked)


class BackendCheckArgs(Struct, frozen=True, kw_only=True):
    """The ways to look at."""

    candidates: tuple[Candidate, ...]


async def check_backends(args: BackendCheckArgs, backends: Backends) -> StepEnded:
    """Which of the ways are not open, and why."""
    found = {
        str(candidate): error
        for candidate in args.candidates
        if (error := await why_unavailable(candidate, backends)) is not None
    }
    return StepEnded(step="fallback", result=Raw(json.encode(found)))


async def why_unavailable(candidate: Candidate, backends: Backends) -> Error | None:
    """Why a way cannot be tried; None when it can."""
    if candidate.backend == NATIVE:
        provider = backends.missing_key(candidate.model)
        return None if provider is None else no_key(provider)
    backend = backends.open(candidate.backend)
    if backend is None:
        return not_installed(candidate.backend)
    ready = await backend.check()
    return ready.error if isinstance(ready, NotReady) else None
