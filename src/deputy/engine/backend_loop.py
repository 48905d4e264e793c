"""The loop of a backend program: each turn is a step, and the program's session links the turns."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, json, structs

from deputy.core.conversation import (
    FACTOR,
    AssistantMessage,
    RetryNotice,
    Text,
    TextDelta,
    TokenUsage,
    ToolCall,
    ToolMessage,
    UserMessage,
    estimated_tokens,
)
from deputy.core.errors import Error
from deputy.core.events import FinalTurnBegun, ModelCallBegun, ModelCallEnded, Noted, Returned, StepLost
from deputy.core.fallback import RESUMES, SILENT
from deputy.core.limits import Amount, Shortfall, final_turn_message, time_is_nearly_up, time_is_up
from deputy.core.outcome import NO_USAGE, Usage, is_exhausted
from deputy.core.progress import Progress, retry_progress, shown_arguments
from deputy.engine.budget import amount
from deputy.engine.history import raw
from deputy.engine.loop import Report, append_user_message, ask_person, send_back
from deputy.engine.ports import BackendResult
from deputy.engine.prompts import prompt
from deputy.engine.salvage import continuation_sent_back
from deputy.engine.timeouts import StepCancelled
from deputy.engine.turn import out_of_budget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from deputy.core.conversation import Message
    from deputy.core.events import Record
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import Backend, BackendEvent, BackendRequest, BackendSession, RunContext

_KEPT = 200_000
"""The maximum text kept while a program works."""


class BackendRun:
    """A program's request and session during one delegation."""

    def __init__(
        self,
        backend: Backend,
        request: BackendRequest,
        note: Callable[[str], Awaitable[None]],
        session: BackendSession | None = None,
    ) -> None:
        self.backend = backend
        self.request = request
        self.session = session
        self.model = ""
        """The model that the program reported."""
        self.note = note

    def save_session(self, end: BackendResult) -> None:
        """Keep the session for the next turn."""
        self.session = end.own_session if end.is_resumable else None
        self.model = end.model or self.model


def last_session(records: Iterable[Record], backend: str) -> BackendSession | None:
    """The session of earlier rounds, if this program had the last turn."""
    last = None
    for record in records:
        match record.event:
            case ModelCallEnded() as event:
                last = event
            case Returned(outcome=outcome) if is_exhausted(outcome):
                last = None
            case _:
                continue
    if last is None or last.backend != backend or last.turn is UNSET:
        return None
    end = json.decode(last.turn, type=BackendResult)
    return end.own_session if end.is_resumable else None


async def run_backend_loop(run: RunContext, history: History, agent: AgentContext, program: BackendRun) -> Report:
    """Run turns until the program reports, asks, fails or reaches a limit."""
    resumes, is_afresh = 0, False
    while True:
        ended = await _turn(run, history, agent, program, agent.seconds_left(run))
        if isinstance(ended, StepLost):
            history.turn += 1
            if program.session is None and not _may_start_again(agent):
                return Report(kind="limited", text=history.text, error=_lost(program.backend.name))
            history.warnings += (f"{program.backend.name} was under way when its process died; {_remedy(program)}.",)
            await append_user_message(run, history, f"program:{history.turn}:lost", prompt("interrupted"))
            continue
        report = _report(history, agent, program, ended)
        if report.error is not None and report.error.code == "SESSION_GONE" and not is_afresh:
            is_afresh = True
            history.warnings += (starts_afresh(program.backend.name, report.error.message),)
            continue
        if _can_resume(report, program, resumes):
            resumes += 1
            await append_user_message(run, history, f"program:{history.turn}:retry", prompt("interrupted"))
            continue
        wrong = continuation_sent_back(report.text, can_request=False) if report.kind == "answered" else None
        if wrong is not None:
            failed = await send_back(run, history, report.text, wrong)
            if failed is not None:
                return failed
            continue
        if report.kind == "asked" and await ask_person(run, history, agent, report.text):
            continue
        if _is_late(report):
            # A program only knows the seconds of its turn.
            report = structs.replace(report, error=time_is_nearly_up(agent.seconds))
            if program.session is not None:
                return await _run_final_turn(run, history, agent, program)
        if report.kind == "limited":
            await _note(run, history, agent, program, report.text)
        return report


async def _turn(
    run: RunContext, history: History, agent: AgentContext, program: BackendRun, seconds: float | None
) -> ModelCallEnded | StepLost:
    request = _assignment(history, program, seconds)
    begun = ModelCallBegun(model=request.model, call=f"{run.run}:{history.turn}")
    key = f"program:{history.turn}"
    return await run.step(key, call_backend, agent, program.backend, request, begun=begun, repeatable=False)


def _report(history: History, agent: AgentContext, program: BackendRun, ended: ModelCallEnded) -> Report:
    history.append_reply(ended)
    agent.emit_tokens(history.usage)
    if ended.turn is UNSET:
        is_limit = ended.error is not None and ended.error.type == "budget"
        return Report(kind="limited" if is_limit else "failed", text=history.text, error=ended.error)
    end = json.decode(ended.turn, type=BackendResult)
    program.save_session(end)
    return Report(kind=end.kind, text=history.text if ended.message is not UNSET else "", error=ended.error)


def _is_late(report: Report) -> bool:
    """Whether the time ran out; a silent program is not asked for a final turn."""
    error = report.error
    return error is not None and error.type == "timeout" and error.code != SILENT


def _can_resume(report: Report, program: BackendRun, resumes: int) -> bool:
    is_silent = report.error is not None and report.error.code == SILENT
    return is_silent and program.session is not None and resumes < RESUMES


async def _run_final_turn(run: RunContext, history: History, agent: AgentContext, program: BackendRun) -> Report:
    why = time_is_nearly_up(agent.seconds)
    await _note(run, history, agent, program, history.text)
    await run.record(f"final_turn:{history.turn}", FinalTurnBegun(limit=why.type, reason=why.message))
    await append_user_message(
        run, history, f"handin:{history.turn}:words", prompt("final_turn").format(reason=final_turn_message(why))
    )
    ended = await _turn(run, history, agent, program, agent.final_turn_seconds(run))
    if not isinstance(ended, StepLost) and _is_late(_report(history, agent, program, ended)):
        why = time_is_up(agent.seconds)
    return Report(kind="limited", text=history.text, error=why)


async def _note(run: RunContext, history: History, agent: AgentContext, program: BackendRun, text: str) -> None:
    """Record a program's text as a note, since programs have no scratchpad."""
    if text.strip():
        await run.step(f"program:{history.turn}:note", _write_note, program.note, text)
        history.notes.append(text)
        agent.emit(Progress(event="note", label=agent.label, content=text))


async def _write_note(note: Callable[[str], Awaitable[None]], content: str) -> Noted:
    await note(content)
    return Noted(content=content)


def starts_afresh(backend: str, reason: str) -> str:
    """The warning about a program that could not resume its session."""
    return f"{backend} started a new session with the conversation so far: {reason}"


def _may_start_again(agent: AgentContext) -> bool:
    return not any(not tool.traits.reads_only for tool in agent.tools.definitions())


def _remedy(program: BackendRun) -> str:
    return "it started a new session" if program.session is None else "it resumed its session"


def _assignment(history: History, program: BackendRun, seconds: float | None) -> BackendRequest:
    messages = history.conversation.messages
    last = messages[-1].text if messages and isinstance(messages[-1], UserMessage) else ""
    return structs.replace(
        program.request,
        prompt=earlier_messages(messages),
        resume=program.session,
        message=last if program.session is not None else "",
        seconds=seconds,
    )


def earlier_messages(messages: Iterable[Message]) -> str:
    """A conversation as one prompt for a new session: all text, without tool results."""
    said = [message for message in messages if not isinstance(message, ToolMessage) and message.text.strip()]
    if not said:
        return ""
    first, *rest = said
    later = [f"{'You said' if isinstance(one, AssistantMessage) else 'You were told'}:\n\n{one.text}" for one in rest]
    return "\n\n".join([first.text, *([prompt("earlier_messages"), *later] if later else [])])


def _lost(backend: str) -> Error:
    return Error(
        type="execution",
        code="PROGRAM_LOST",
        message=f"{backend} was interrupted by the death of its process. Its effects are unknown; it was not repeated.",
        recoverable=True,
        recommendation="Check what it changed, then resume it.",
    )


# --- one turn as a step -----------------------------------------------------------------------------------------------


async def call_backend(agent: AgentContext, backend: Backend, request: BackendRequest) -> ModelCallEnded:
    """Run one turn of a program; a failure is the event's error."""
    ledger, wanted = agent.ledger, Amount(requests=1, tokens=sent_tokens(request))
    ledger.note_programs()
    hold = await ledger.reserve(wanted)
    if isinstance(hold, Shortfall):
        error = out_of_budget(hold)
        return ModelCallEnded(model=request.model, backend=backend.name, error=error, budgets=ledger.uses(hold))
    progress = _TurnProgress(agent)
    usage = NO_USAGE
    try:
        end = await backend.run(request, progress.on_event)
        end = structs.replace(end, usage=program_usage(end, request))
        usage = end.usage
    except asyncio.CancelledError as stopped:
        usage = progress.usage
        raise StepCancelled(_stopped(request.model, backend.name, progress)) from stopped
    finally:
        await ledger.commit(hold, amount(usage))
    progress.flush()
    has_words = end.kind != "failed" and bool(end.text.strip())
    return ModelCallEnded(
        model=end.model or request.model,
        backend=backend.name,
        usage=end.usage,
        error=end.error,
        message=raw(AssistantMessage(parts=(Text(text=end.text),))) if has_words else UNSET,
        turn=Raw(json.encode(structs.replace(end, text="" if has_words else end.text, error=None))),
        budgets=ledger.uses(),
    )


def program_usage(end: BackendResult, request: BackendRequest) -> Usage:
    """The usage of a turn: as reported, or our estimate if the report is missing or far too low.

    A report far above our estimate is plausible: a program makes requests that we do not see.
    """
    sent, received = sent_tokens(request), estimated_tokens(len(end.text.encode(errors="replace")))
    usage = end.usage
    if not end.is_metered or end.kind == "failed" or (usage.input + usage.output) * FACTOR >= sent + received:
        return usage
    return Usage(input=sent, output=received, requests=max(1, usage.requests), cost=usage.cost or None, estimated=True)


def sent_tokens(request: BackendRequest) -> int:
    """The approximate tokens sent to a program."""
    is_new = request.resume is None
    said = f"{request.system}{request.prompt}{request.message}" if is_new else request.message
    return estimated_tokens(len(said.encode(errors="replace")))


class _TurnProgress:
    """Shows a program's stream to watchers and keeps its last text."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._shown = agent.redactor.stream()
        self.usage = Usage()
        self._words: deque[str] = deque()
        self._length = 0

    def on_event(self, event: BackendEvent) -> None:
        label, emit = self._agent.label, self._agent.emit
        match event:
            case TextDelta(text=text):
                self._keep(text)
                self._show(self._shown.feed(text))
            case ToolCall(name=name, arguments=arguments):
                self._words.clear()
                self._length = 0
                args = shown_arguments(arguments, self._agent.redactor)
                emit(Progress(event="tool_call", label=label, tool=name, args=args))
            case TokenUsage():
                self.usage += event.usage
            case RetryNotice():
                emit(retry_progress(label, event))

    @property
    def text(self) -> str:
        return "".join(self._words)

    def _keep(self, text: str) -> None:
        self._words.append(text)
        self._length += len(text)
        while self._length > _KEPT and len(self._words) > 1:
            self._length -= len(self._words.popleft())

    def flush(self) -> None:
        self._show(self._shown.flush())

    def _show(self, text: str) -> None:
        if text:
            self._agent.emit(Progress(event="text", label=self._agent.label, content=text))


def _stopped(model: str, backend: str, progress: _TurnProgress) -> ModelCallEnded:
    error = Error(
        type="cancelled",
        code="CANCELLED",
        message=f"{backend} was stopped with all its processes while it worked.",
        recoverable=True,
        recommendation="Resume the run to repeat the turn.",
    )
    text = progress.text
    message = raw(AssistantMessage(parts=(Text(text=text),))) if text.strip() else UNSET
    return ModelCallEnded(model=model, backend=backend, usage=progress.usage, error=error, message=message)
