"""Another agent's program in the flow: one turn is one step, and its own session is what the next one goes on with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json, structs

from deputy.core.conversation import (
    AssistantMessage,
    Retried,
    Text,
    TextDelta,
    ToolCall,
    ToolMessage,
    Used,
    UserMessage,
)
from deputy.core.errors import Error
from deputy.core.events import HandedIn, Lost, ModelCallBegun, ModelCallEnded, Noted
from deputy.core.ladder import RESUMES, SILENT
from deputy.core.limits import HANDIN_SECONDS, Amount
from deputy.core.outcome import NO_USAGE, Usage
from deputy.core.progress import Progress, shown_head
from deputy.core.redaction import Redactor
from deputy.core.usage_estimate import FACTOR, estimated_tokens
from deputy.engine.interrupted import Interrupted
from deputy.engine.loop import Report, ask_person, say
from deputy.engine.ports import Assignment, Backend, BackendEnd, OwnSession
from deputy.engine.prompts import prompt
from deputy.engine.purse import Purse, amount
from deputy.engine.reached import told_to_hand_in
from deputy.engine.talk import raw
from deputy.engine.turn import out_of_budget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.conversation import Message
    from deputy.core.events import Record
    from deputy.engine.desk import Desk
    from deputy.engine.ports import BackendEvent, RunContext
    from deputy.engine.talk import Talk

_SHOWN = 120
_KEPT = 200_000
"""So many letters of what a program says are kept while it works."""


class Program:
    """A program at work on one delegation: what it is asked with, and the conversation that it has of its own."""

    def __init__(
        self,
        backend: Backend,
        assignment: Assignment,
        note: Callable[[str], Awaitable[None]],
        session: OwnSession | None = None,
    ) -> None:
        self.backend = backend
        self.assignment = assignment
        self.session = session
        self.model = ""
        """The model that it said it used."""
        self.note = note

    def keep(self, end: BackendEnd) -> None:
        """Remember what the next turn goes on with."""
        self.session = end.own_session if end.is_resumable else None
        self.model = end.model or self.model


def session_left(records: Iterable[Record], backend: str) -> OwnSession | None:
    """The session that earlier rounds left with a program, when nobody else spoke since."""
    last = None
    for record in records:
        if isinstance(record.event, ModelCallEnded):
            last = record.event
    if last is None or last.backend != backend or last.turn is UNSET:
        return None
    end = json.decode(last.turn, type=BackendEnd)
    return end.own_session if end.is_resumable else None


async def converse_with(run: RunContext, talk: Talk, desk: Desk, program: Program) -> Report:
    """Let a program work until it reports, asks, fails or reaches a limit."""
    resumes, is_afresh = 0, False
    while True:
        ended = await _turn(run, talk, desk, program, desk.seconds_left(run))
        if isinstance(ended, Lost):
            talk.turn += 1
            if program.session is None and not _may_start_again(desk):
                return Report(kind="limited", text=talk.text, error=_lost(program.backend.name))
            talk.warnings += (f"{program.backend.name} was under way when its process died; {_way_on(program)}.",)
            await say(run, talk, f"program:{talk.turn}:lost", prompt("interrupted"))
            continue
        report = _report(talk, desk, program, ended)
        if report.error is not None and report.error.code == "SESSION_GONE" and not is_afresh:
            is_afresh = True
            talk.warnings += (starts_afresh(program.backend.name, report.error.message),)
            continue
        if _can_go_on(report, program, resumes):
            resumes += 1
            await say(run, talk, f"program:{talk.turn}:retry", prompt("interrupted"))
            continue
        if report.kind == "asked" and await ask_person(run, talk, desk, report.text):
            continue
        late = _lateness(report)
        if late is not None and program.session is not None:
            return await _hand_in(run, talk, desk, program, late)
        if report.kind == "limited":
            await _note(run, talk, desk, program, report.text)
        return report


async def _turn(
    run: RunContext, talk: Talk, desk: Desk, program: Program, seconds: float | None
) -> ModelCallEnded | Lost:
    model = program.assignment.model
    return await run.step(
        f"program:{talk.turn}",
        call_backend,
        CallArgs(backend=program.backend.name, model=model),
        view=CallView(
            label=desk.label,
            backend=program.backend,
            assignment=_assignment(talk, program, seconds),
            purse=desk.purse,
            emit=desk.emit,
            redactor=desk.redactor,
        ),
        begun=ModelCallBegun(model=model, call=f"{run.run}:{talk.turn}"),
        repeatable=False,
    )


def _report(talk: Talk, desk: Desk, program: Program, ended: ModelCallEnded) -> Report:
    talk.hear(ended)
    desk.tell_tokens(talk.usage)
    if ended.turn is UNSET:
        is_limit = ended.error is not None and ended.error.type == "budget"
        return Report(kind="limited" if is_limit else "failed", text=talk.text, error=ended.error)
    end = json.decode(ended.turn, type=BackendEnd)
    program.keep(end)
    return Report(kind=end.kind, text=talk.text if ended.message is not UNSET else "", error=ended.error)


def _lateness(report: Report) -> Error | None:
    """The time limit that was reached; one that is silent has time left, and is not asked for more words."""
    error = report.error
    return error if error is not None and error.type == "timeout" and error.code != SILENT else None


def _can_go_on(report: Report, program: Program, resumes: int) -> bool:
    """Whether one that fell silent is asked again in its own session."""
    is_silent = report.error is not None and report.error.code == SILENT
    return is_silent and program.session is not None and resumes < RESUMES


async def _hand_in(run: RunContext, talk: Talk, desk: Desk, program: Program, why: Error) -> Report:
    """The last turn, in its own session, within what is left of the time."""
    await _note(run, talk, desk, program, talk.text)
    await run.record(f"final_turn:{talk.turn}", HandedIn(limit=why.type, reason=why.message))
    await say(run, talk, f"handin:{talk.turn}:words", prompt("handin").format(reason=told_to_hand_in(why)))
    deadline = desk.deadline(run)
    left = HANDIN_SECONDS if deadline is None else max(0.001, min(HANDIN_SECONDS, deadline - desk.clock()))
    ended = await _turn(run, talk, desk, program, left)
    if not isinstance(ended, Lost):
        _report(talk, desk, program, ended)
    return Report(kind="limited", text=talk.text, error=why)


async def _note(run: RunContext, talk: Talk, desk: Desk, program: Program, text: str) -> None:
    """What a program said until a limit is its note: it has no scratchpad of ours."""
    if text.strip():
        await run.step(f"program:{talk.turn}:note", _write_note, NoteArgs(content=text), view=program.note)
        talk.notes.append(text)
        desk.emit(Progress(event="note", label=desk.label, content=text))


class NoteArgs(Struct, frozen=True, kw_only=True):
    """What is noted."""

    content: str


async def _write_note(args: NoteArgs, note: Callable[[str], Awaitable[None]]) -> Noted:
    await note(args.content)
    return Noted(content=args.content)


def starts_afresh(backend: str, reason: str) -> str:
    """What is said of a program that cannot go on in a session of its own."""
    return f"{backend} started afresh with what is known: {reason}"


def _may_start_again(desk: Desk) -> bool:
    return not any(not tool.traits.reads_only for tool in desk.tools.definitions())


def _way_on(program: Program) -> str:
    return "it started afresh with what is known" if program.session is None else "it goes on in its own session"


def _assignment(talk: Talk, program: Program, seconds: float | None) -> Assignment:
    messages = talk.conversation.messages
    last = messages[-1].text if messages and isinstance(messages[-1], UserMessage) else ""
    return structs.replace(
        program.assignment,
        prompt=known(messages),
        resume=program.session,
        message=last if program.session is not None else "",
        seconds=seconds,
    )


def known(messages: Iterable[Message]) -> str:
    """A conversation as one prompt, for one that has not been part of it: what was said, without the tools."""
    said = [message for message in messages if not isinstance(message, ToolMessage) and message.text.strip()]
    if not said:
        return ""
    first, *rest = said
    later = [f"{'You said' if isinstance(one, AssistantMessage) else 'You were told'}:\n\n{one.text}" for one in rest]
    return "\n\n".join([first.text, *([prompt("known"), *later] if later else [])])


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
    assignment: Assignment
    purse: Purse
    emit: Callable[[Progress], None]
    redactor: Redactor


async def call_backend(args: CallArgs, view: CallView) -> ModelCallEnded:
    """Have a program carry out one turn; a failure is the event's error."""
    wanted = Amount(requests=1, tokens=sent_tokens(view.assignment))
    view.purse.note_programs()
    await view.purse.refresh()
    shortfall = view.purse.reserve(wanted)
    if shortfall is not None:
        error = out_of_budget(shortfall)
        return ModelCallEnded(model=args.model, backend=args.backend, error=error, budgets=view.purse.uses())
    told = _Told(view)
    usage = NO_USAGE
    try:
        end = await view.backend.run(view.assignment, told.hear)
        end = structs.replace(end, usage=program_usage(end, view.assignment))
        usage = end.usage
    except asyncio.CancelledError as stopped:
        usage = told.usage
        raise Interrupted(_stopped(args, told)) from stopped
    finally:
        view.purse.commit(wanted, amount(usage))
    told.flush()
    return ended_of(args, end, view)


def program_usage(end: BackendEnd, assignment: Assignment) -> Usage:
    """What a turn of a program is charged: its report, unless that is missing or far below what we saw pass.

    A program makes requests that we do not see, so that a report may be far above our estimate.
    """
    sent, received = sent_tokens(assignment), estimated_tokens(len(end.text.encode(errors="replace")))
    usage = end.usage
    if end.kind == "failed" or (usage.input + usage.output) * FACTOR >= sent + received:
        return usage
    return Usage(input=sent, output=received, requests=max(1, usage.requests), cost=usage.cost or None, estimated=True)


def sent_tokens(assignment: Assignment) -> int:
    """About how many tokens a program is sent by us."""
    is_new = assignment.resume is None
    said = f"{assignment.system}{assignment.prompt}{assignment.message}" if is_new else assignment.message
    return estimated_tokens(len(said.encode(errors="replace")))


def ended_of(args: CallArgs, end: BackendEnd, view: CallView) -> ModelCallEnded:
    """The turn as the journal keeps it: its words as a message, all else beside."""
    has_words = end.kind != "failed" and bool(end.text.strip())
    return ModelCallEnded(
        model=end.model or args.model,
        backend=args.backend,
        usage=end.usage,
        error=end.error,
        message=raw(AssistantMessage(parts=(Text(text=end.text),))) if has_words else UNSET,
        turn=Raw(json.encode(structs.replace(end, text="" if has_words else end.text, error=None))),
        budgets=view.purse.uses(),
    )


class _Told:
    """What a program tells while it works, for whoever watches."""

    def __init__(self, view: CallView) -> None:
        self._view = view
        self._shown = view.redactor.stream()
        self.usage = Usage()
        self._words: deque[str] = deque()
        self._length = 0

    def hear(self, event: BackendEvent) -> None:
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
            case Used():
                self.usage += event.usage
            case Retried(message=message):
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


def _stopped(args: CallArgs, told: _Told) -> ModelCallEnded:
    error = Error(
        type="cancelled",
        code="CANCELLED",
        message=f"{args.backend} was stopped while it was at work, with all that it had started.",
        recoverable=True,
        recommendation="Resume the run: it is asked again.",
    )
    message = raw(AssistantMessage(parts=(Text(text=told.text),))) if told.text.strip() else UNSET
    return ModelCallEnded(model=args.model, backend=args.backend, usage=told.usage, error=error, message=message)
