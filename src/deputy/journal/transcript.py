"""Transcripts of subagents, made from their records; and their scratchpads."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import UNSET, Raw, Struct, json

from deputy.core.errors import StorageError
from deputy.core.events import (
    ANSWER,
    Event,
    MessageAdded,
    ModelCallEnded,
    Noted,
    QuestionAnswered,
    Requested,
    Resumed,
    RunOpened,
    StepLost,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.messages import INTERRUPTED_CALL, LOST_CALL, Message, MessageCall, is_unanswered, messages_in
from deputy.core.outcome import Usage, used_text
from deputy.core.request import timestamp
from deputy.core.state import BEGUN, State, apply, not_begun
from deputy.core.visible_text import visible_json
from deputy.engine.ports.queries import DamagedRecord
from deputy.journal import home
from deputy.processes.outgoing import outgoing_json, outgoing_text, process_redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from deputy.core.events import Record
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.queries import Queries

FOLDER = "subagent"
_ASK = "Ask"
"""The tool whose result is a person's answer."""
_LABEL_LENGTH = 32
_ID_LENGTH = 64
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

Ending: TypeAlias = Literal[
    "success", "context_exhausted", "timeout", "budget", "cancelled", "blocked", "error", "in_progress"
]


class Transcript(Struct, frozen=True, kw_only=True):
    """A conversation, complete or so far."""

    session_id: str
    label: str
    started_at: str | None
    ended_at: str | None
    outcome: Ending
    messages: tuple[Message, ...]
    notes: tuple[str, ...]
    usage: Usage
    damaged: tuple[str, ...] = ()
    """Records that could not be read and are left out."""


def transcribe(records: Iterable[Record | DamagedRecord], final_state: State | None = None) -> Transcript | None:
    """The transcript of these records; None when they are of no run."""
    state = State() if final_state is None else final_state
    records = list(records)
    text = _Conversation(not_begun(record for record in records if not isinstance(record, DamagedRecord)))
    damaged: list[str] = []
    for record in records:
        if isinstance(record, DamagedRecord):
            damaged.append(f"{record.where}: {record.what}")
            continue
        if final_state is None:
            state = apply(state, record)
        text.on_event(record)
    if not state.seq:
        return None
    how = ending(state)
    if how not in ("in_progress", "blocked"):
        text.flush_pending()
    return Transcript(
        session_id=state.run,
        label=state.label or state.agent,
        started_at=timestamp(state.began_at) if state.requested_at else None,
        ended_at=None if state.ended_at is None else timestamp(state.ended_at),
        outcome=how,
        messages=tuple(text.whole()),
        notes=tuple(text.notes),
        usage=state.usage,
        damaged=tuple(damaged),
    )


def ending(state: State) -> Ending:
    """The status of a run in a transcript's words."""
    match state.status:
        case "completed":
            return "success"
        case "cancelled" | "blocked":
            return state.status
        case "partial" if state.reason in ("timeout", "budget", "context_exhausted"):
            return cast("Ending", state.reason)
        case "partial" | "failed" | "rejected":
            return "error"
        case _:
            return "in_progress"


class _Conversation:
    """Builds the messages of a conversation from records; every tool call gets a result."""

    def __init__(self, unsaid: frozenset[int]) -> None:
        self._unsaid = unsaid
        """Rounds that never started: their opening message is left out."""
        self.notes: list[str] = []
        self._opening: list[Message] = []
        self._messages: list[Message] = []
        self._under_way: dict[str, str] = {}
        """Tool calls that began, by record key."""
        self._pending: dict[str, str] = {}
        """The tools of calls without a result, by call id."""
        self._order: dict[str, int] = {}
        """The position of each call in the last turn."""

    def on_event(self, record: Record) -> None:
        """Add a record."""
        said = tuple(_said(record.event))
        match record.event:
            case Noted(content=content):
                self.notes.append(content)
            case ToolCallBegun(call=call):
                self._under_way[record.key.removesuffix(BEGUN)] = call
            case StepLost() if record.key in self._under_way:
                self._add(_result(self._under_way[record.key], LOST_CALL))
            case RunOpened() | Requested():
                self._opening.extend(said)
                return
            case Resumed(is_dismissed=True):
                return
            case QuestionAnswered(topic=topic) if topic != ANSWER or self._pending:
                # An approval is no message; the answer to a tool call is its result.
                return
            case Resumed(round=number) if number in self._unsaid:
                return
            case Resumed():
                asked = next((call for call, tool in self._pending.items() if tool == _ASK), None)
                if asked is not None and said:
                    self._add(_result(asked, said[0].content))
                    said = ()
                self.flush_pending()
            case MessageAdded() | ModelCallEnded():
                self.flush_pending()
            case _:
                pass
        for message in said:
            self._add(message)

    def flush_pending(self) -> None:
        """Close the calls that will get no result."""
        for call in tuple(self._pending):
            self._add(_result(call, INTERRUPTED_CALL))

    def whole(self) -> list[Message]:
        """All messages; the requested task comes first, unless the first recorded message is the prompt."""
        is_said = bool(self._messages) and self._messages[0].role == "user"
        return self._messages if is_said else self._opening + self._messages

    def _add(self, message: Message) -> None:
        place = len(self._messages)
        if message.tool_calls is not UNSET:
            self._pending.update((call.id, call.name) for call in message.tool_calls)
            self._order = {call.id: number for number, call in enumerate(message.tool_calls)}
        if message.tool_call_id is not UNSET:
            self._pending.pop(message.tool_call_id, None)
            # Parallel calls end in any order; the model gets their results in the order of the calls.
            number = self._turn_of(message)
            while place and self._turn_of(self._messages[place - 1]) > number:
                place -= 1
        self._messages.insert(place, message)

    def _turn_of(self, message: Message) -> int:
        """The position of the call in the last turn that a message is the result of; else -1."""
        return -1 if message.tool_call_id is UNSET else self._order.get(message.tool_call_id, -1)


def _result(call: str, content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id=call)


# --- messages ---------------------------------------------------------------------------------------------------------


def _said(event: Event) -> Iterator[Message]:
    match event:
        case Requested():
            yield Message(role="user", content=event.request.prompt)
        case RunOpened() if event.prompt:
            yield Message(role="user", content=event.prompt)
        case MessageAdded():
            yield from messages_in(event.message, "user")
        case ModelCallEnded():
            yield from _used(event)
            if event.message is not UNSET:
                yield from messages_in(event.message, "assistant")
        case ToolCallEnded(message=Raw() as message):
            yield from messages_in(message, "tool", event.call)
        case QuestionAnswered(topic=topic, body=body) if not (topic == ANSWER and is_unanswered(body)):
            yield from messages_in(event.body, "user")
        case Resumed(message=Raw() as message):
            yield from messages_in(message, "user")
        case _:
            return


def _used(ended: ModelCallEnded) -> Iterator[Message]:
    """The tool calls of a program's turn, each with the start of its result."""
    text: Any = {} if ended.turn is UNSET else json.decode(ended.turn)
    for index, use in enumerate(text.get("tools_used", ())):
        call = f"{use['name']}-{index}"
        arguments = use.get("arguments", "")
        yield Message(
            role="assistant", content="", tool_calls=(MessageCall(id=call, name=use["name"], arguments=arguments),)
        )
        yield Message(role="tool", content=use.get("result", ""), tool_call_id=call)


# --- for people -------------------------------------------------------------------------------------------------------


def markdown(transcript: Transcript) -> str:
    """The transcript as Markdown. It is redacted by field: quoted JSON in text would hide some secrets."""
    transcript = json.decode(outgoing_json(transcript), type=Transcript)
    usage = transcript.usage
    lines = [
        f"# {transcript.label or transcript.session_id}",
        "",
        f"- session: {transcript.session_id}",
        f"- outcome: {transcript.outcome}",
        f"- started: {transcript.started_at or '-'}",
        f"- ended: {transcript.ended_at or '-'}",
        f"- usage: {used_text(usage)} requests={usage.requests:,}",
    ]
    if transcript.damaged:
        lines += ["", "> **Damaged records were left out:**", *(f"> - {what}" for what in transcript.damaged)]
    for message in transcript.messages:
        lines += ["", f"## {message.role}{_of(message)}", ""]
        if message.content:
            lines.append(_fenced(message.content) if message.role == "tool" else message.content)
        for call in () if message.tool_calls is UNSET else message.tool_calls:
            lines += ["", f"**{call.name}** `{call.id}`", "", _fenced(visible_json(call.arguments).decode(), "json")]
    if transcript.notes:
        lines += ["", "## notes", "", *(f"- {note}" for note in transcript.notes)]
    return "\n".join(lines) + "\n"


def _of(message: Message) -> str:
    return "" if message.tool_call_id is UNSET else f" `{message.tool_call_id}`"


def _fenced(text: str, language: str = "") -> str:
    """Text in a code fence longer than any run of backticks in it."""
    import re

    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{text}\n{fence}"


# --- files ------------------------------------------------------------------------------------------------------------


def transcript_path(folder: Path, label: str, run: str, redactor: Redactor | None = None) -> Path:
    """The path of a subagent's transcript; label and id are made safe."""
    return folder.joinpath(FOLDER, f"{shown_label(label, redactor)}-{safe_id(run)}.transcript.json")


def scratchpad_path(folder: Path, label: str, run: str, redactor: Redactor | None = None) -> Path:
    """The path of a subagent's notes."""
    return folder.joinpath(FOLDER, f"subagent-{shown_label(label, redactor)}-{safe_id(run)}.scratch.md")


def write_transcript(folder: Path, transcript: Transcript) -> None:
    """Write a transcript file."""
    write_file(*file_of(folder, transcript, process_redactor()))


def file_of(folder: Path, transcript: Transcript, redactor: Redactor) -> tuple[Path, bytes]:
    """The path and the content of a transcript file."""
    path = transcript_path(folder, transcript.label, transcript.session_id, redactor)
    return path, outgoing_json(transcript, indent=2, redactor=redactor)


def write_file(path: Path, content: bytes) -> None:
    """Write a transcript file whose content is known."""
    home.make_directory(path.parent)
    home.write_whole(path, content)


def of_ended(queries: Queries, run: str) -> Transcript | None:
    """The transcript of an ended subagent; None for a rejected run or a root run."""
    state = queries.state(run)
    if state is None or state.status == "rejected" or state.lineage is None or state.lineage.is_top:
        return None
    return transcribe(queries.records(run), state)


def begin_scratchpads(paths: Sequence[Path]) -> list[BaseException | None]:
    """Make empty scratchpads, unless they exist; the answer to each is nothing, or its error."""
    return [_begin_scratchpad(path) for path in paths]


def _begin_scratchpad(path: Path) -> StorageError | None:
    try:
        home.make_directory(path.parent)
        try:
            os.close(home.open_own(path, os.O_APPEND))
        except OSError as error:
            home.explain(path, error)
    except StorageError as error:
        return error
    return None


def add_note(path: Path, content: str) -> None:
    """Append a note to a scratchpad, without secrets and terminal escapes."""
    home.make_directory(path.parent)
    home.append_to(path, f"{outgoing_text(content).rstrip()}\n\n".encode(errors="replace"))


def files_of(folder: Path, run: str) -> list[Path]:
    """The files of a run, unfinished drafts included."""
    name = safe_id(run)
    there = folder / FOLDER
    return [path for end in (".transcript.json*", ".scratch.md") for path in there.glob(f"*-{name}{end}")]


def shown_label(label: str, redactor: Redactor | None = None) -> str:
    """A label as part of a file's name, without secrets."""
    return safe_label((redactor or process_redactor()).redact(label))


def safe_label(label: str) -> str:
    """A label as part of a file's name."""
    return "".join(letter if letter in _SAFE else "-" for letter in label[:_LABEL_LENGTH]).strip("-") or "task"


def safe_id(run: str) -> str:
    """An id as part of a file's name: itself when it can be, else a hash of it."""
    if run and len(run) <= _ID_LENGTH and _SAFE.issuperset(run):
        return run
    return blake2b(run.encode(errors="surrogatepass"), digest_size=12).hexdigest()
