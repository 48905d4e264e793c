"""Records for the page: one line each, and their content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw, UnsetType, json

from deputy.core import events
from deputy.core.messages import messages_in
from deputy.core.outcome import used_text
from deputy.core.progress import shown_head
from deputy.engine.ports.queries import DamagedRecord
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deputy.core.errors import Error
    from deputy.core.events import Event, Record

LINE_LENGTH = 240
_READ_AHEAD = 4


def record_head(record: Record) -> list[Any]:
    """A record as the page lists it: seq, time, kind, bytes and one line."""
    return [record.seq, record.at, record.event.kind, len(events.encode(record.event)), record_line(record.event)]


def record_rows(records: Iterable[Record | DamagedRecord], *, with_bodies: bool) -> Iterator[list[Any]]:
    """The heads of records, with their content if it is wanted; a damaged one has the kind `damaged`."""
    seq = 0
    for record in records:
        if isinstance(record, DamagedRecord):
            seq += 1
            yield [seq, 0, "damaged", 0, f"{record.where}: {record.what}", *([None] if with_bodies else [])]
            continue
        seq = record.seq
        body = [Raw(events.encode(record.event))] if with_bodies else []
        yield [*record_head(record), *body]


def record_line(event: Event) -> str:
    """What a record says, on one line, without secrets."""
    return shown_head(_line(event), LINE_LENGTH, process_redactor())


def _line(event: Event) -> str:  # noqa: C901  one case per kind
    match event:
        case events.RunOpened(prompt=prompt, command=command):
            return prompt or command
        case events.Requested(request=request):
            return request.prompt
        case events.Admitted(grant=grant):
            return f"may use {', '.join(sorted(grant.tools))}"
        case events.Started(backend=backend, model=model):
            return f"{model} on {backend}" if backend else model
        case events.MessageAdded(message=message):
            return _said(message, "user")
        case events.ModelCallBegun(model=model):
            return model
        case events.ModelCallEnded():
            return _answered(event)
        case events.ToolCallBegun(tool=tool, arguments=arguments):
            return f"{tool} {_json_text(arguments)}"
        case events.ToolCallEnded(tool=tool, message=message, error=error):
            return f"{tool}: {_failed(error) or _said(message, 'tool')}"
        case events.StepBegun(step=step) | events.StepLost(step=step):
            return step
        case events.StepEnded(step=step, result=result, error=error):
            return f"{step}: {_failed(error) or _json_text(result)}"
        case events.Noted(content=content):
            return content
        case events.Retried(what=what, attempt=attempt, reason=reason):
            return f"{what}: attempt {attempt}: {reason}"
        case events.FellBack(fallback=fallback):
            return f"{fallback.left} → {fallback.taken}: {fallback.reason}"
        case events.FinalTurnBegun(limit=limit, reason=reason):
            return f"{limit}: {reason}" if reason else limit
        case events.Validated(problems=problems, warnings=warnings) if problems or warnings:
            return "; ".join((*problems, *warnings))
        case events.Repaired(attempt=attempt, problems=problems):
            return f"attempt {attempt}: {'; '.join(problems)}"
        case events.Spawned(child=child) | events.Joined(child=child):
            return child
        case events.QuestionAsked(topic=topic, question=question):
            return f"{topic}: {question}"
        case events.QuestionAnswered(topic=topic, body=body):
            return f"{topic}: {_json_text(body)}"
        case events.CancelRequested(reason=reason):
            return reason
        case events.Returned(outcome=outcome) | events.AdmissionRefused(outcome=outcome):
            return f"{outcome.status}: {outcome.summary}"
        case events.Resumed(round=number, message=message):
            return f"round {number + 1}: {'' if message is UNSET else _said(message, 'user')}"
        case events.Delivered(to=to):
            return f"to {to}"
        case events.Adopted(owner=owner):
            return f"by {owner}"
        case _:
            return ""


def _answered(event: events.ModelCallEnded) -> str:
    text = _failed(event.error) or ("" if event.message is UNSET else _said(event.message, "assistant"))
    return f"{text}  ({used_text(event.usage)})"


def _said(message: Raw | UnsetType, role: str) -> str:
    """The text of a message, or the calls in it."""
    if message is UNSET:
        return ""
    said: list[str] = []
    for one in messages_in(message, role):
        calls = () if one.tool_calls is UNSET else one.tool_calls
        said += [_cut(one.content), *(f"→ {call.name} {_cut(_text_of(call.arguments))}" for call in calls)]
    return " ".join(part for part in said if part)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.encode(value).decode()


def _json_text(body: Raw | UnsetType) -> str:
    if body is UNSET:
        return ""
    data = bytes(body)
    if len(data) > LINE_LENGTH * _READ_AHEAD:
        return _cut(data[: LINE_LENGTH * _READ_AHEAD * 4].decode(errors="replace"))
    value: Any = json.decode(data)
    if isinstance(value, dict):
        return " ".join(f"{name}={_text_of(held)}" for name, held in cast("dict[str, Any]", value).items())
    return _text_of(value)


def _failed(error: Error | None) -> str:
    return "" if error is None else f"{error.type}: {error.message}"


def _cut(text: str) -> str:
    """More of a text than the line shows, so that a secret at its end is recognised."""
    return text[: LINE_LENGTH * _READ_AHEAD + 1]
