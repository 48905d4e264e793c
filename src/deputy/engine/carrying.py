"""Going one way: our own loop with a model, another agent's program, or the task handed back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from deputy.core.approval import ApprovalRequest, Part
from deputy.core.events import Requested, Started
from deputy.core.ladder import INLINE, NATIVE, Rung
from deputy.core.role import DELEGATE, WRITING_TOOLS
from deputy.engine import no_way
from deputy.engine.approval import ask_person
from deputy.engine.desk import Desk, with_model
from deputy.engine.ladder import Arrived
from deputy.engine.loop import Report, converse, say
from deputy.engine.ports import Assignment, RunContext
from deputy.engine.program import Program, converse_with, session_left, starts_afresh
from deputy.engine.prompts import prompt
from deputy.engine.talk import Talk
from deputy.engine.validate import Accepted, accept
from deputy.engine.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from deputy.core.conversation import Conversation, ModelSettings, StreamEvent, Toolset
    from deputy.core.errors import Error
    from deputy.engine.ports import Backend, Model


class Work(Struct, frozen=True, kw_only=True):
    """A delegation that is ready to be worked on, whoever does it."""

    run: RunContext
    birth: Requested
    talk: Talk
    desk: Desk
    system: str
    """What a program is told before the task."""
    task: str
    workshop: Workshop
    agreed: dict[str, bool] = {}
    """By program, what a person said to its changing things unasked."""


async def begin(run: RunContext, rung: Rung, number: int, scratchpad: str, workshop: Workshop) -> Rung:
    """Write down which way is gone; one that was gone before a crash is gone again."""
    name = opened(rung, workshop).name
    asked = "" if rung.model == name else rung.model
    started = Started(backend=rung.backend, model=name, asked=asked, scratchpad=scratchpad)
    event = await run.record("started" if number == 0 else f"started:{number}", started)
    return Rung(backend=event.backend or rung.backend, model=event.asked or event.model or rung.model)


def opened(rung: Rung, workshop: Workshop) -> Model:
    """The model of a rung: one that we ask, or the name of one that only a program does."""
    return workshop.open_model(rung.model) if rung.backend == NATIVE else _Elsewhere(rung.model)


async def go(work: Work, rung: Rung) -> Arrived:
    """Carry the work out this way."""
    if rung.backend == INLINE:
        return await _inline(work, rung)
    if rung.backend == NATIVE:
        return await _native(work, rung.model)
    return await _program(work, rung)


async def _native(work: Work, model: str) -> Arrived:
    desk = with_model(work.desk, work.workshop, model, work.workshop.open_model(model))

    async def answer(at: Desk) -> Report:
        return await converse(work.run, work.talk, at)

    return await _arrived(work, desk, answer, model=desk.model.name)


async def _inline(work: Work, rung: Rung) -> Arrived:
    """Without a subagent: by the session's own model, or by whoever handed the work over."""
    terms = work.birth.terms
    if terms.routing.inline == "parent":
        task = "\n\n".join(filter(None, (terms.degradation, work.birth.request.prompt)))
        report = Report(kind="failed", text=prompt("yourself").format(task=task), error=no_way.yourself())
        return Arrived(verdict=Accepted(report=report), model=rung.model)
    before = (record.event.backend for record in work.run.past if isinstance(record.event, Started))
    if INLINE not in before:
        words = "\n\n".join(filter(None, (terms.degradation, work.task)))
        work.talk.start_over()
        await say(work.run, work.talk, "inline", prompt("inline").format(task=words))
    return await _native(work, rung.model)


async def _program(work: Work, rung: Rung) -> Arrived:
    ways = work.workshop.ways
    backend = None if ways is None else ways.open(rung.backend)
    if ways is None or backend is None:
        return _not_gone(rung, no_way.unknown(rung.backend))
    if not await _is_agreed(work, rung.backend):
        return _not_gone(rung, no_way.not_agreed(rung.backend, _writing(work.desk)))
    desk = with_model(work.desk, work.workshop, rung.model, _Elsewhere(rung.model))
    program = _called(work, desk, backend, ways.model_for(rung))

    async def answer(at: Desk) -> Report:
        return await converse_with(work.run, work.talk, at, program)

    arrived = await _arrived(work, desk, answer, model=rung.model, is_lenient=True)
    return structs.replace(arrived, model=program.model or rung.model)


async def _arrived(
    work: Work, desk: Desk, answer: Callable[[Desk], Awaitable[Report]], *, model: str, is_lenient: bool = False
) -> Arrived:
    run, talk, terms = work.run, work.talk, work.birth.terms
    if talk.is_answered:
        # Somebody else stopped in the middle.
        await say(run, talk, f"handover:{talk.turn}", prompt("interrupted"))
    report = await answer(desk)
    verdict = await accept(run, talk, desk, terms, report, answer=answer, is_lenient=is_lenient)
    return Arrived(verdict=verdict, model=model, has_acted=talk.has_acted)


def _not_gone(rung: Rung, error: Error) -> Arrived:
    return Arrived(verdict=Accepted(report=Report(kind="failed", text="", error=error)), model=rung.model)


def _called(work: Work, desk: Desk, backend: Backend, model: str) -> Program:
    """A program with its assignment, and the session that it may go on in."""
    run, talk = work.run, work.talk
    session = session_left(run.past, backend.name)
    if session is None and talk.turn and not talk.is_answered and talk.text:
        talk.warnings += (starts_afresh(backend.name, "it has no session to go on with."),)
    assignment = Assignment(
        session_id=run.run,
        prompt="",
        system=work.system,
        workspace=desk.folder.root,
        model=model,
        grant=structs.replace(desk.grant, tools=desk.grant.tools - {DELEGATE}),
        idle_seconds=work.workshop.idle_seconds,
        max_output_tokens=work.birth.terms.max_output_tokens,
    )
    scratchpad, files = run.state.scratchpad, work.workshop.files
    return Program(backend, assignment, lambda content: files.note(scratchpad, content), session)


async def _is_agreed(work: Work, backend: str) -> bool:
    """Whether a program may do it: it would change things without asking each time, so somebody must agree, once."""
    run, desk, writing = work.run, work.desk, _writing(work.desk)
    is_named = desk.grant.tools & WRITING_TOOLS <= set(work.birth.terms.without_asking)
    if not writing or is_named or desk.approval == "granted":
        return True
    if backend not in work.agreed:
        key = f"fallback:{backend}:approval"

        async def make() -> ApprovalRequest:
            parts = (
                Part(name="program", text=backend),
                Part(name="without asking", text=f"may use {writing} without asking for each call"),
                Part(name="directory", text=desk.folder.root),
                Part(name="task", text=work.task),
            )
            return ApprovalRequest(tool=backend, title="Let a program do the task", parts=parts, risk="high")

        is_agreed = False
        if desk.approval == "ask" or run.asked(key) is not None:
            verdict = await ask_person(run, key, make, begun=f"{key}:agreed", tell=desk.emit, approval=desk.approval)
            is_agreed = verdict.is_yes
        work.agreed[backend] = is_agreed
    return work.agreed[backend]


def _writing(desk: Desk) -> str:
    return ", ".join(sorted(desk.grant.tools & WRITING_TOOLS))


class _Elsewhere:
    """The name of a model that is not asked by us."""

    context_window: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(
        self, conversation: Conversation, tools: Toolset, settings: ModelSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """Never."""
        raise TypeError(f"{self.name} is asked by somebody else")
