"""Going one way: our own loop with a model, another agent's program, or the task handed back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.events import Requested, Started
from deputy.core.fallback import INLINE, NATIVE, Candidate, do_it_yourself, not_agreed, not_installed
from deputy.core.task import DELEGATE, WRITING_TOOLS
from deputy.engine.agent_context import AgentContext, with_model
from deputy.engine.approvals import ask_person
from deputy.engine.backend_loop import BackendRun, last_session, run_backend_loop, starts_afresh
from deputy.engine.fallback import AttemptResult
from deputy.engine.history import History
from deputy.engine.loop import Report, append_user_message, run_loop
from deputy.engine.ports import BackendRequest, RunContext
from deputy.engine.prompts import prompt
from deputy.engine.services import Services
from deputy.engine.validate import ValidReturn, accept

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from deputy.core.conversation import Conversation, GenerationSettings, StreamEvent, Toolset
    from deputy.core.errors import Error
    from deputy.engine.ports import Backend, Model


class AttemptInput(Struct, frozen=True, kw_only=True):
    """A delegation that is ready to be worked on, whoever does it."""

    run: RunContext
    start: Requested
    history: History
    agent: AgentContext
    system: str
    """What a program is told before the task."""
    task: str
    services: Services
    agreed: dict[str, bool] = {}
    """By program, what a person said to its changing things unasked."""


async def record_attempt(
    run: RunContext, candidate: Candidate, number: int, scratchpad: str, services: Services
) -> Candidate:
    """Write down which way is gone; one that was gone before a crash is gone again."""
    name = open_model(candidate, services).name
    asked = "" if candidate.model == name else candidate.model
    started = Started(backend=candidate.backend, model=name, asked=asked, scratchpad=scratchpad)
    event = await run.record("started" if number == 0 else f"started:{number}", started)
    return Candidate(backend=event.backend or candidate.backend, model=event.asked or event.model or candidate.model)


def open_model(candidate: Candidate, services: Services) -> Model:
    """The model of a rung: one that we ask, or the name of one that only a program does."""
    return services.open_model(candidate.model) if candidate.backend == NATIVE else _Elsewhere(candidate.model)


async def attempt(work: AttemptInput, candidate: Candidate) -> AttemptResult:
    """Carry the work out this way."""
    if candidate.backend == INLINE:
        return await _inline(work, candidate)
    if candidate.backend == NATIVE:
        return await _native(work, candidate.model)
    return await _program(work, candidate)


async def _native(work: AttemptInput, model: str) -> AttemptResult:
    agent = with_model(work.agent, work.services, model, work.services.open_model(model))

    async def answer(at: AgentContext) -> Report:
        return await run_loop(work.run, work.history, at)

    return await _arrived(work, agent, answer, model=agent.model.name)


async def _inline(work: AttemptInput, candidate: Candidate) -> AttemptResult:
    """Without a subagent: by the session's own model, or by whoever handed the work over."""
    options = work.start.options
    if options.routing.inline == "parent":
        task = "\n\n".join(filter(None, (options.degradation, work.start.request.prompt)))
        report = Report(kind="failed", text=prompt("do_it_yourself").format(task=task), error=do_it_yourself())
        return AttemptResult(verdict=ValidReturn(report=report), model=candidate.model)
    before = (record.event.backend for record in work.run.history if isinstance(record.event, Started))
    if INLINE not in before:
        words = "\n\n".join(filter(None, (options.degradation, work.task)))
        work.history.start_over()
        await append_user_message(work.run, work.history, "inline", prompt("inline").format(task=words))
    return await _native(work, candidate.model)


async def _program(work: AttemptInput, candidate: Candidate) -> AttemptResult:
    backends = work.services.backends
    backend = None if backends is None else backends.open(candidate.backend)
    if backends is None or backend is None:
        return _unavailable(candidate, not_installed(candidate.backend))
    if not await _is_agreed(work, candidate.backend):
        return _unavailable(candidate, not_agreed(candidate.backend, _writing(work.agent)))
    agent = with_model(work.agent, work.services, candidate.model, _Elsewhere(candidate.model))
    program = _called(work, agent, backend, backends.model_for(candidate))

    async def answer(at: AgentContext) -> Report:
        return await run_backend_loop(work.run, work.history, at, program)

    arrived = await _arrived(work, agent, answer, model=candidate.model, is_lenient=True)
    return structs.replace(arrived, model=program.model or candidate.model)


async def _arrived(
    work: AttemptInput,
    agent: AgentContext,
    answer: Callable[[AgentContext], Awaitable[Report]],
    *,
    model: str,
    is_lenient: bool = False,
) -> AttemptResult:
    run, history, options = work.run, work.history, work.start.options
    if history.is_answered:
        # Somebody else stopped in the middle.
        await append_user_message(run, history, f"handover:{history.turn}", prompt("interrupted"))
    report = await answer(agent)
    verdict = await accept(run, history, agent, options, report, answer=answer, is_lenient=is_lenient)
    return AttemptResult(verdict=verdict, model=model, has_acted=history.has_acted)


def _unavailable(candidate: Candidate, error: Error) -> AttemptResult:
    return AttemptResult(verdict=ValidReturn(report=Report(kind="failed", text="", error=error)), model=candidate.model)


def _called(work: AttemptInput, agent: AgentContext, backend: Backend, model: str) -> BackendRun:
    """A program with its assignment, and the session that it may go on in."""
    run, history = work.run, work.history
    session = last_session(run.history, backend.name)
    if session is None and history.turn and not history.is_answered and history.text:
        history.warnings += (starts_afresh(backend.name, "it has no session to go on with."),)
    request = BackendRequest(
        session_id=run.run,
        prompt="",
        system=work.system,
        workspace=agent.folder.root,
        model=model,
        grant=structs.replace(agent.grant, tools=agent.grant.tools - {DELEGATE}),
        idle_seconds=work.services.idle_seconds,
        max_output_tokens=work.start.options.max_output_tokens,
    )
    scratchpad, files = run.state.scratchpad, work.services.files
    return BackendRun(backend, request, lambda content: files.note(scratchpad, content), session)


async def _is_agreed(work: AttemptInput, backend: str) -> bool:
    """Whether a program may do it: it would change things without asking each time, so somebody must agree, once."""
    run, agent, writing = work.run, work.agent, _writing(work.agent)
    is_named = agent.grant.tools & WRITING_TOOLS <= set(work.start.options.without_asking)
    if not writing or is_named or agent.approval == "granted":
        return True
    if backend not in work.agreed:
        key = f"fallback:{backend}:approval"

        async def make() -> ApprovalRequest:
            parts = (
                ApprovalPart(name="program", text=backend),
                ApprovalPart(name="without asking", text=f"may use {writing} without asking for each call"),
                ApprovalPart(name="directory", text=agent.folder.root),
                ApprovalPart(name="task", text=work.task),
            )
            return ApprovalRequest(tool=backend, title="Let a program do the task", parts=parts, risk="high")

        is_agreed = False
        if agent.approval == "ask" or run.recorded_question(key) is not None:
            verdict = await ask_person(run, key, make, begun=f"{key}:agreed", tell=agent.emit, approval=agent.approval)
            is_agreed = verdict.is_yes
        work.agreed[backend] = is_agreed
    return work.agreed[backend]


def _writing(agent: AgentContext) -> str:
    return ", ".join(sorted(agent.grant.tools & WRITING_TOOLS))


class _Elsewhere:
    """The name of a model that is not asked by us."""

    context_window: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """Never."""
        raise TypeError(f"{self.name} is asked by somebody else")
