"""Another agent's program in the flow: one turn is one step, and its own session is what the next one goes on with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json, structs

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
from deputy.core.events import FinalTurnBegun, ModelCallBegun, ModelCallEnded, Noted, StepLost
from deputy.core.fallback import RESUMES, SILENT
from deputy.core.limits import FINAL_TURN_SECONDS, Amount, final_turn_message
from deputy.core.outcome import NO_USAGE, Usage
from deputy.core.progress import Progress, shown_head
from deputy.core.redaction import Redactor
from deputy.engine.budget import BudgetLedger, amount
from deputy.engine.history import raw
from deputy.engine.loop import Report, append_user_message, ask_person
from deputy.engine.ports import Backend, BackendRequest, BackendResult, BackendSession
from deputy.engine.prompts import prompt
from deputy.engine.step_cancelled import StepCancelled
from deputy.engine.turn import out_of_budget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.conversation import Message
    from deputy.core.events import Record
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import BackendEvent, RunContext

_SHOWN = 120
_KEPT = 200_000
"""So many letters of what a program says are kept while it works."""


class BackendRun:
    """A program at work on one delegation: what it is asked with, and the conversation that it has of its own."""

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
        """The model that it said it used."""
        self.note = note

    def save_session(self, end: BackendResult) -> None:
        """Remember what the next turn goes on with."""
        self.session = end.own_session if end.is_resumable else None
        self.model = end.model or self.model


def last_session(records: Iterable[Record], backend: str) -> BackendSession | None:
    """The session that earlier rounds left with a program, when nobody else spoke since."""
    last = None
    for record in records:
        if isinstance(record.event, ModelCallEnded):
            last = record.event
    if last is None or last.backend != backend or last.turn is UNSET:
        return None
    end = json.decode(last.turn, type=BackendResult)
    return end.own_session if end.is_resumable else None


async def run_backend_loop(run: RunContext, history: History, agent: AgentContext, program: BackendRun) -> Report:
    """Let a program work until it reports, asks, fails or reaches a limit."""
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
        if report.kind == "asked" and await ask_person(run, history, agent, report.text):
            continue
        late = _lateness(report)
        if late is not None and program.session is not None:
            return await _run_final_turn(run, history, agent, program, late)
        if report.kind == "limited":
            await _note(run, history, agent, program, report.text)
        return report


async def _turn(
    run: RunContext, history: History, agent: AgentContext, program: BackendRun, seconds: float | None
) -> ModelCallEnded | StepLost:
    model = program.request.model
    return await run.step(
        f"program:{history.turn}",
        call_backend,
        CallArgs(backend=program.backend.name, model=model),
        view=CallView(
            label=agent.label,
            backend=program.backend,
            request=_assignment(history, program, seconds),
            ledger=agent.ledger,
            emit=agent.emit,
            redactor=agent.redactor,
        ),
        begun=ModelCallBegun(model=model, call=f"{run.run}:{history.turn}"),
        repeatable=False,
    )


def _report(history: History, agent: AgentContext, program: BackendRun, ended: ModelCallEnded) -> Report:
    history.append_reply(ended)
    agent.emit_tokens(history.usage)
    if ended.turn is UNSET:
        is_limit = ended.error is not None and ended.error.type == "budget"
        return Report(kind="limited" if is_limit else "failed", text=history.text, error=ended.error)
    end = json.decode(ended.turn, type=BackendResult)
    program.save_session(end)
    return Report(kind=end.kind, text=history.text if ended.message is not UNSET else "", error=ended.error)


def _lateness(report: Report) -> Error | None:
    """The time limit that was reached; one that is silent has time left, and is not asked for more words."""
    error = report.error
    return error if error is not None and error.type == "timeout" and error.code != SILENT else None


def _can_resume(report: Report, program: BackendRun, resumes: int) -> bool:
    """Whether one that fell silent is asked again in its own session."""
    is_silent = report.error is not None and report.error.code == SILENT
    return is_silent and program.session is not None and resumes < RESUMES


async def _run_final_turn(
    run: RunContext, history: History, agent: AgentContext, program: BackendRun, why: Error
) -> Report:
    """The last turn, in its own session, within what is left of the time."""
    await _note(run, history, agent, program, history.text)
    await run.record(f"final_turn:{history.turn}", FinalTurnBegun(limit=why.type, reason=why.message))
    await append_user_message(
        run, history, f"handin:{history.turn}:words", prompt("final_turn").format(reason=final_turn_message(why))
    )
    deadline = agent.deadline(run)
    left = FINAL_TURN_SECONDS if deadline is None else max(0.001, min(FINAL_TURN_SECONDS, deadline - agent.clock()))
    ended = await _turn(run, history, agent, program, left)
    if not isinstance(ended, StepLost):
        _report(history, agent, program, ended)
    return Report(kind="limited", text=history.text, error=why)


async def _note(run: RunContext, history: History, agent: AgentContext, program: BackendRun, text: str) -> None:
    """What a program said until a limit is its note: it has no scratchpad of ours."""
    if text.strip():
        await run.step(f"program:{history.turn}:note", _write_note, NoteArgs(content=text), view=program.note)
        history.notes.append(text)
        agent.emit(Progress(event="note", label=agent.label, content=text))


class NoteArgs(Struct, frozen=True, kw_only=True):
    """What is noted."""

    content: str


async def _write_note(args: NoteArgs, note: Callable[[str], Awaitable[None]]) -> Noted:
    await note(args.content)
    return Noted(content=args.content)


def starts_afresh(backend: str, reason: str) -> str:
    """What is said of a program that cannot go on in a session of its own."""
    return f"{backend} started afresh with what is known: {reason}"


def _may_start_again(agent: AgentContext) -> bool:
    return not any(not tool.traits.reads_only for tool in agent.tools.definitions())


def _remedy(program: BackendRun) -> str:
    return "it started afresh with what is known" if program.session is None else "it goes on in its own session"


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
    """A conversation as one prompt, for one that has not been part of it: what was said, without the tools."""
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
        message=f"{backend} was under way when its process died. What it did is unknown, and it was not begun again.",
        recoverable=True,
        recommendation="Look at what it changed, then resume it.",
    )


# --- one turn as a step -----------------------------------------------------------------------------------------------


class CallArgs(Struct, frozen=True, kw_only=True):
    """What a program's turn is made of that is small."""

    backend: str
    model: str


class CallView(Struct, frozen=True, kw_only=True):
    """What a program's turn needs that is only in memory."""

    label: str
    backend: Backend
    request: BackendRequest
    ledger: BudgetLedger
    emit: Callable[[Progress], None]
    redactor: Redactor


async def call_backend(args: CallArgs, view: CallView) -> ModelCallEnded:
    """Have a program carry out one turn; a failure is the event's error."""
    wanted = Amount(requests=1, tokens=sent_tokens(view.request))
    view.ledger.note_programs()
    await view.ledger.refresh()
    shortfall = view.ledger.reserve(wanted)
    if shortfall is not None:
        error = out_of_budget(shortfall)
        return ModelCallEnded(model=args.model, backend=args.backend, error=error, budgets=view.ledger.uses())
    text = _TurnProgress(view)
    usage = NO_USAGE
    try:
        end = await view.backend.run(view.request, text.on_event)
        end = structs.replace(end, usage=program_usage(end, view.request))
        usage = end.usage
    except asyncio.CancelledError as stopped:
        usage = text.usage
        raise StepCancelled(_stopped(args, text)) from stopped
    finally:
        view.ledger.commit(wanted, amount(usage))
    text.flush()
    return ended_of(args, end, view)


def program_usage(end: BackendResult, request: BackendRequest) -> Usage:
    """What a turn of a program is charged: its report, unless that is missing or far below what we saw pass.

    A program makes requests that we do not see, so that a report may be far above our estimate.
    """
    sent, received = sent_tokens(request), estimated_tokens(len(end.text.encode(errors="replace")))
    usage = end.usage
    if end.kind == "failed" or (usage.input + usage.output) * FACTOR >= sent + received:
        return usage
    return Usage(input=sent, output=received, requests=max(1, usage.requests), cost=usage.cost or None, estimated=True)


def sent_tokens(request: BackendRequest) -> int:
    """About how many tokens a program is sent by us."""
    is_new = request.resume is None
    said = f"{request.system}{request.prompt}{request.message}" if is_new else request.message
    return estimated_tokens(len(said.encode(errors="replace")))


def ended_of(args: CallArgs, end: BackendResult, view: CallView) -> ModelCallEnded:
    """The turn as the journal keeps it: its words as a message, all else beside."""
    has_words = end.kind != "failed" and bool(end.text.strip())
    return ModelCallEnded(
        model=end.model or args.model,
        backend=args.backend,
        usage=end.usage,
        error=end.error,
        message=raw(AssistantMessage(parts=(Text(text=end.text),))) if has_words else UNSET,
        turn=Raw(json.encode(structs.replace(end, text="" if has_words else end.text, error=None))),
        budgets=view.ledger.uses(),
    )


class _TurnProgress:
    """What a program tells while it works, for whoever watches."""

    def __init__(self, view: CallView) -> None:
        self._view = view
        self._shown = view.redactor.stream()
        self.usage = Usage()
        self._words: deque[str] = deque()
        self._length = 0

    def on_event(self, event: BackendEvent) -> None:
        label, emit = self._view.label, self._view.emit
        match event:
            case TextDelta(text=text):
                self._keep(text)
                self._show(self._shown.feed(text))
            case ToolCall(name=name, arguments=arguments):
                self._words.clear()
                self._length = 0
                texts = [value for value in arguments.values() if isinstance(value, str)]
                args = shown_head(texts[0] if texts else "", _SHOWN, self._view.redactor)
                emit(Progress(event="tool_call", label=label, tool=name, args=args))
            case TokenUsage():
                self.usage += event.usage
            case RetryNotice(message=message):
                emit(Progress(event="retry", label=label, reason=message))

    @property
    def text(self) -> str:
        """The last that it said."""
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
            self._view.emit(Progress(event="text", label=self._view.label, content=text))


def _stopped(args: CallArgs, text: _TurnProgress) -> ModelCallEnded:
    error = Error(
        type="cancelled",
        code="CANCELLED",
        message=f"{args.backend} was stopped while it was at work, with all that it had started.",
        recoverable=True,
        recommendation="Resume the run: it is asked again.",
    )
    message = raw(AssistantMessage(parts=(Text(text=text.text),))) if text.text.strip() else UNSET
    return ModelCallEnded(model=args.model, backend=args.backend, usage=text.usage, error=error, message=message)
