"""One attempt with one candidate: the native loop, a program, or inline."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.errors import Error
from deputy.core.events import Started
from deputy.core.fallback import INLINE, NATIVE, SILENT, Candidate, do_it_yourself, not_agreed, not_installed
from deputy.core.outcome import Fallback
from deputy.core.task import DELEGATE, WRITING_TOOLS, TaskOptions
from deputy.engine.agent_context import AgentContext, with_model
from deputy.engine.approvals import ask_person
from deputy.engine.backend_loop import BackendRun, last_session, run_backend_loop, starts_afresh
from deputy.engine.history import History
from deputy.engine.loop import Report, append_user_message, run_loop, start_over
from deputy.engine.ports import BackendRequest, RunContext
from deputy.engine.prompts import prompt
from deputy.engine.services import Services
from deputy.engine.validate import check_report

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from deputy.core.conversation import Conversation, GenerationSettings, StreamEvent, Toolset
    from deputy.engine.ports import Model


class AttemptInput(Struct, frozen=True, kw_only=True):
    """Prepared work of a delegation or a parent, independent of the candidate."""

    run: RunContext
    services: Services
    agent: AgentContext
    history: History
    prompt: str
    options: TaskOptions = TaskOptions()
    system: str = ""
    """The system prompt for programs."""
    task: str = ""
    """The prompt with the contract instruction."""
    agreed: dict[str, bool] = {}
    """By program, whether a person allowed it to write without asking for each call."""


class AttemptResult(Struct, frozen=True, kw_only=True):
    """The report of the last attempt, its candidate, and the fallbacks before it."""

    report: Report
    backend: str
    model: str
    """The model that was used."""
    has_acted: bool = False
    """Whether the attempt may have changed something, so that the work must not be repeated."""
    fallbacks: tuple[Fallback, ...] = ()
    reasons: tuple[Error, ...] = ()
    """The errors of the other candidates, if this attempt failed too."""

    @property
    def failure(self) -> Error | None:
        """The error that failed this attempt, if it failed."""
        report = self.report
        # A backend that stays silent has failed, although it has time left.
        is_silent = report.kind != "invalid" and report.error is not None and report.error.code == SILENT
        return report.error if report.kind == "failed" or is_silent else None


async def record_attempt(
    run: RunContext, candidate: Candidate, number: int, scratchpad: str, services: Services
) -> Candidate:
    """Record the candidate of an attempt; on replay the recorded one is returned."""
    name = open_model(candidate, services).name
    asked = "" if candidate.model == name else candidate.model
    started = Started(backend=candidate.backend, model=name, asked=asked, scratchpad=scratchpad)
    event = await run.record("started" if number == 0 else f"started:{number}", started)
    return Candidate(backend=event.backend or candidate.backend, model=event.asked or event.model or candidate.model)


def open_model(candidate: Candidate, services: Services) -> Model:
    """The candidate's model: callable for the native backend, else only a name."""
    return services.open_model(candidate.model) if candidate.backend == NATIVE else Elsewhere(candidate.model)


async def attempt(work: AttemptInput, candidate: Candidate) -> AttemptResult:
    """Run one attempt, with repairs of an invalid return."""
    run, history, backend = work.run, work.history, candidate.backend
    if backend == INLINE and work.options.routing.inline == "parent":
        task = "\n\n".join(filter(None, (work.options.degradation, work.prompt)))
        handed_back = prompt("do_it_yourself").format(task=task)
        return _failed(candidate, do_it_yourself(), handed_back)
    program = None
    if backend == INLINE:
        await _begin_inline(work)
    elif backend != NATIVE:
        program = await _open_program(work, candidate)
        if isinstance(program, Error):
            return _failed(candidate, program)
    model = work.services.open_model(candidate.model) if program is None else Elsewhere(candidate.model)
    notice = "" if work.services.backends is None else work.services.backends.notice(candidate.model)
    agent = repairing = await with_model(run, work.agent, work.services, candidate.model, model)
    if history.is_answered:
        # The previous candidate stopped in the middle of the work.
        await append_user_message(run, history, f"handover:{history.turn}", prompt("interrupted"))
    sent: list[tuple[str, ...]] = []
    while True:
        if program is None:
            report = await run_loop(run, history, repairing)
        else:
            report = await run_backend_loop(run, history, repairing, program)
        checked = await check_report(run, history, agent, work.options, report, sent, is_program=program is not None)
        if not isinstance(checked, AgentContext):
            # A replayed answer may come from a model that has retired since.
            name = history.model or model.name if program is None else program.model or candidate.model
            if notice and (program is not None or name == model.name):
                history.warnings = tuple(dict.fromkeys((*history.warnings, notice)))
            return AttemptResult(report=checked, backend=backend, model=name, has_acted=history.has_acted)
        repairing = checked


def _failed(candidate: Candidate, error: Error, text: str = "") -> AttemptResult:
    report = Report(kind="failed", text=text, error=error)
    return AttemptResult(report=report, backend=candidate.backend, model=candidate.model)


async def _begin_inline(work: AttemptInput) -> None:
    """Start over with the task in the session's own model, unless an earlier round did."""
    before = (record.event.backend for record in work.run.history if isinstance(record.event, Started))
    if INLINE not in before:
        text = "\n\n".join(filter(None, (work.options.degradation, work.task)))
        await start_over(work.run, work.history, "inline", prompt("do_it_yourself").format(task=text))


async def _open_program(work: AttemptInput, candidate: Candidate) -> BackendRun | Error:
    """The program with its request and the session to resume, or why it cannot be used."""
    run, agent, history, backends = work.run, work.agent, work.history, work.services.backends
    backend = None if backends is None else backends.open(candidate.backend)
    if backends is None or backend is None:
        return not_installed(candidate.backend)
    if not await _is_agreed(work, candidate.backend):
        return not_agreed(candidate.backend, _writing(agent))
    session = last_session(run.history, backend.name)
    if session is None and history.turn and not history.is_answered and history.text:
        history.warnings += (starts_afresh(backend.name, "it has no session to resume."),)
    request = BackendRequest(
        session_id=run.run,
        prompt="",
        system=work.system,
        workspace=agent.folder.root,
        model=backends.model_for(candidate),
        grant=structs.replace(agent.grant, tools=agent.grant.tools - {DELEGATE}),
        idle_seconds=work.services.idle_seconds,
        max_output_tokens=work.options.max_output_tokens,
    )
    return BackendRun(backend, request, partial(work.services.files.note, run.state.scratchpad), session)


async def _is_agreed(work: AttemptInput, backend: str) -> bool:
    """Whether a program may write without asking for each call; a person approves this once per program."""
    run, agent, writing = work.run, work.agent, _writing(work.agent)
    is_named = agent.grant.tools & WRITING_TOOLS <= set(work.options.without_asking)
    if not writing or is_named or agent.approval == "granted":
        return True
    if backend not in work.agreed:
        key = f"fallback:{backend}:approval"

        is_agreed = False
        if agent.approval == "ask" or run.recorded_question(key) is not None:
            parts = (
                ApprovalPart(name="program", text=backend),
                ApprovalPart(name="without asking", text=f"may use {writing} without asking for each call"),
                ApprovalPart(name="task", text=work.task),
            )
            request = ApprovalRequest(tool=backend, title="Let a program do the task", parts=parts, risk="high")
            begun = f"{key}:agreed"
            verdict = await ask_person(
                run, key, request, begun=begun, emit=agent.emit, approval=agent.approval, folder=agent.folder
            )
            is_agreed = verdict.is_yes
        work.agreed[backend] = is_agreed
    return work.agreed[backend]


def _writing(agent: AgentContext) -> str:
    return ", ".join(sorted(agent.grant.tools & WRITING_TOOLS))


class Elsewhere:
    """The name of a model that only a program calls."""

    context_window: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """Not supported."""
        raise TypeError(f"{self.name} is called by its program, not by us")
