"""The ways to carry one delegation out, one after another: our own loop, programs, and at last no subagent at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json

from deputy.core.errors import Error
from deputy.core.events import FellBack, Lost, Returned, Started, StepEnded
from deputy.core.ladder import INLINE, NATIVE, SILENT, Rung, Step, blame_of, next_rung
from deputy.core.outcome import Failed, Fallback
from deputy.core.progress import Progress
from deputy.engine import no_way
from deputy.engine.ports import NotReady, Ways
from deputy.engine.validate import Accepted, NotAccepted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.core.events import Requested
    from deputy.engine.ports import RunContext
    from deputy.engine.workshop import Workshop


class Arrived(Struct, frozen=True, kw_only=True):
    """What came of one way, and the model that was really asked on it."""

    verdict: Accepted | NotAccepted
    model: str
    has_acted: bool = False
    """Whether something may have been changed on it, so that the work must not be begun again."""

    @property
    def failure(self) -> Error | None:
        """What kept this way from leading to an end, if that is so."""
        if not isinstance(self.verdict, Accepted):
            return None
        report = self.verdict.report
        # Who falls silent for good has more time left, and does not use it.
        is_silent = report.error is not None and report.error.code == SILENT
        return report.error if report.kind == "failed" or is_silent else None


class Carried(Struct, frozen=True, kw_only=True):
    """How a delegation was carried out at last."""

    arrived: Arrived
    backend: str
    fallbacks: tuple[Fallback, ...] = ()
    reasons: tuple[Error, ...] = ()
    """Why the other ways were not gone to their end, where this one was not either."""


class Ladder:
    """The ways of one delegation, as things stand when they are looked at."""

    def __init__(self, run: RunContext, birth: Requested, workshop: Workshop) -> None:
        self._run = run
        self._birth = birth
        self._routing = birth.terms.routing
        self._workshop = workshop
        self._unready: dict[str, Error] | None = None
        self._fallbacks = [record.event.fallback for record in run.past if isinstance(record.event, FellBack)]

    async def first(self) -> Rung:
        """Where it begins: where an earlier round left off unless that failed, else at the best way that is open."""
        before = _left_off(self._run, self._birth.model)
        if before is not None:
            return before
        ladder = await self._rungs()
        best = ladder[0]
        if best.backend == NATIVE and self._missing_key(best.model) is None:
            return best
        taken, skipped = await self._open_after(ladder, ())
        if taken is None or not skipped:
            return taken or best
        left, *others = skipped
        fell = await self._fall_back(left, taken, others, 0, has_failed=False)
        return _recorded(fell, ladder) or taken

    async def carry(self, first: Rung, go: Callable[[Rung, int], Awaitable[Arrived]]) -> Carried:
        """Go one way after another until one leads to an end, or none is left that may be gone."""
        ladder = await self._rungs()
        rung, steps = first, list[Step]()
        number = 0
        while (error := (arrived := await go(rung, number)).failure) is not None:
            step = Step(rung=rung, error=error, blame=blame_of(error), has_changed_something=arrived.has_acted)
            steps.append(step)
            taken, skipped = await self._open_after(ladder, steps)
            steps.extend(skipped)
            if taken is None:
                break
            number += 1
            fell = await self._fall_back(step, taken, skipped, number)
            rung = _recorded(fell, ladder) or taken
        reasons = {(step.error.code, step.error.message): step.error for step in steps if step.error != error}
        return Carried(
            arrived=arrived, backend=rung.backend, fallbacks=tuple(self._fallbacks), reasons=tuple(reasons.values())
        )

    # --- which way ----------------------------------------------------------------------------------------------------

    async def _rungs(self) -> tuple[Rung, ...]:
        native, ways, routing = Rung(backend=NATIVE, model=self._birth.model), self._workshop.ways, self._routing
        if ways is None:
            return (native,)
        failures = await self._workshop.native_failures(self._birth.request.caller.root_id)
        found = ways.rungs(self._birth.model, falls_back=routing.falls_back, native_failures=failures) or (native,)
        if not routing.falls_back or routing.inline == "never":
            return found
        return (*found, Rung(backend=INLINE, model=routing.session_model or self._birth.model))

    async def _open_after(self, ladder: Sequence[Rung], steps: Sequence[Step]) -> tuple[Rung | None, list[Step]]:
        """The next way that is open, and those that are not, each with its reason."""
        closed: list[Step] = []
        while (rung := next_rung(ladder, [*steps, *closed])) is not None:
            unready = await self._look(ladder)
            error = self._why_not_inline(rung, steps) if rung.backend == INLINE else unready.get(str(rung))
            if error is None:
                break
            closed.append(Step(rung=rung, error=error, blame="backend"))
        return rung, [step for step in closed if not _is_other_wording(step, ladder)]

    def _why_not_inline(self, inline: Rung, steps: Sequence[Step]) -> Error | None:
        if self._routing.inline == "parent":
            return None
        if any(step.rung == Rung(backend=NATIVE, model=inline.model) for step in steps):
            return no_way.not_inline(inline.model)
        return self._missing_key(inline.model)

    def _missing_key(self, model: str) -> Error | None:
        provider = None if self._workshop.ways is None else self._workshop.ways.missing_key(model)
        return None if provider is None else no_way.no_key(provider)

    async def _look(self, ladder: Sequence[Rung]) -> dict[str, Error]:
        """Which ways are not open, and why: looked at once, so that a replay goes the same ones."""
        if self._workshop.ways is None:
            return {}
        if self._unready is None:
            args = LookArgs(rungs=tuple(rung for rung in ladder if rung.backend != INLINE))
            ended = await self._run.step("fallback:ready", look, args, view=self._workshop.ways)
            if isinstance(ended, Lost) or ended.result is UNSET:
                raise TypeError("looking may be repeated, is never lost and has a result")
            self._unready = json.decode(ended.result, type=dict[str, Error])
        return self._unready

    async def _fall_back(
        self, left: Step, taken: Rung, skipped: Sequence[Step], number: int, *, has_failed: bool = True
    ) -> FellBack:
        """Write down that the next way is taken, and tell of it."""
        reasons = [left.error.message, *(f"{step.rung}: {step.error.message}" for step in skipped)]
        fallback = Fallback(left=str(left.rung), taken=str(taken), reason=" ".join(dict.fromkeys(reasons)))
        event = FellBack(
            fallback=fallback, left=left.rung.backend if has_failed else "", backend=taken.backend, model=taken.model
        )
        is_new = not self._run.is_replaying
        fell = await self._run.record(f"fallback:{number}", event)
        self._fallbacks.append(fell.fallback)
        if fell.left == NATIVE:
            self._workshop.count_native_failure(self._birth.request.caller.root_id)
        if is_new:
            told = Progress(
                event="fallback", label=self._birth.label, content=fell.fallback.taken, reason=fell.fallback.reason
            )
            self._workshop.tell(self._run, told)
        return fell


def _recorded(fell: FellBack, ladder: Sequence[Rung]) -> Rung | None:
    """The way that is on record; None where secrets taken out of its name have made it that of no way."""
    rung = Rung(backend=fell.backend, model=fell.model)
    return rung if rung in ladder else None


def _is_other_wording(step: Step, ladder: Sequence[Rung]) -> bool:
    """Whether a program is only not spoken to by the protocol here, and by its command line instead: no step at all."""
    kind, _, name = step.rung.backend.partition(":")
    other = Rung(backend=f"cli:{name}", model=step.rung.model)
    return kind == "acp" and step.error.code == "PROGRAM_NOT_INSTALLED" and other in ladder


def _left_off(run: RunContext, asked: str) -> Rung | None:
    """The way that the last round was on, unless it led to nothing."""
    started: Started | None = None
    has_failed = False
    for record in run.past:
        match record.event:
            case Started() as event:
                started = event
            case Returned(outcome=outcome):
                has_failed = isinstance(outcome, Failed)
            case _:
                continue
    if started is None or has_failed:
        return None
    return Rung(backend=started.backend or NATIVE, model=started.asked or started.model or asked)


class LookArgs(Struct, frozen=True, kw_only=True):
    """The ways to look at."""

    rungs: tuple[Rung, ...]


async def look(args: LookArgs, ways: Ways) -> StepEnded:
    """Which of the ways are not open, and why."""
    found = {str(rung): error for rung in args.rungs if (error := await why_not(rung, ways)) is not None}
    return StepEnded(step="fallback", result=Raw(json.encode(found)))


async def why_not(rung: Rung, ways: Ways) -> Error | None:
    """Why a way cannot be tried; None when it can."""
    if rung.backend == NATIVE:
        provider = ways.missing_key(rung.model)
        return None if provider is None else no_way.no_key(provider)
    backend = ways.open(rung.backend)
    if backend is None:
        return no_way.unknown(rung.backend)
    ready = await backend.check()
    return ready.error if isinstance(ready, NotReady) else None
