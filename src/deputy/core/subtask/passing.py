"""What a subtask is told: its task, and of its parent's context what the settings pass on, within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct, json

from deputy.core.conversation import AssistantMessage, Message, ToolMessage, UserMessage
from deputy.core.subtask.relevance import chosen, rank
from deputy.core.subtask.template import filled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from deputy.core.subtask.request import SubtaskRequest
    from deputy.core.subtask.settings import Settings
    from deputy.core.subtask.template import Template

    Rank = Callable[[str, Sequence[str]], list[float]]
    """How relevant each text is to a query."""

CHARACTERS_PER_TOKEN = 4
RELEVANT_SHARE = 0.25
"""A text is relevant when it has more than this share of what the best one has."""
WARN_SHARE = 0.8
"""From this share of the bound on, what is passed is worth a warning."""


class Earlier(Struct, frozen=True, kw_only=True):
    """The result of an earlier subtask of the same parent."""

    type: str
    notes: tuple[str, ...]
    output: str


class File(Struct, frozen=True, kw_only=True):
    """A file that is passed: its path and text, or why it could not be read."""

    path: str
    text: str = ""
    problem: str = ""


class Passed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was passed to a subtask beside its task, and what that cost."""

    messages: int = 0
    messages_left_out: int = 0
    results: int = 0
    files: tuple[str, ...] = ()
    tokens: int = 0
    """About how many, of everything it is told."""
    warnings: tuple[str, ...] = ()


class Material(Struct, frozen=True, kw_only=True):
    """All that could be passed on."""

    conversation: tuple[Message, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    named: tuple[File, ...] = ()
    """Files that the request or its template names: always passed."""
    matching: tuple[File, ...] = ()
    """Files of the workspace that may match, best first: fresh context."""


def query_of(request: SubtaskRequest) -> str:
    """The words by which context is found for a request."""
    texts = (value for value in request.inputs.values() if isinstance(value, str))
    return " ".join((request.type, request.description, *request.template_hints, *texts))


def compose(
    request: SubtaskRequest,
    template: Template,
    settings: Settings,
    material: Material,
    *,
    bound: int,
    rank: Rank = rank,
) -> tuple[str, Passed]:
    """The whole prompt of a subtask, of at most about `bound` tokens, and what was passed in it.

    The task and the named files come first when room is given away; then earlier results, then the conversation,
    then files that match.
    """
    room = _Room(bound)
    task = room.always(_task(request, template))
    named = [room.file(file) for file in material.named]
    results = _results(material.earlier, settings, room) if settings.accumulate_data else []
    talk, left_out = _conversation(request, material, settings, room, rank)
    fresh = [room.file(file) for file in material.matching] if settings.fresh_context == "enabled" else []
    sections = (
        _section("Conversation of the task that asks for this", talk),
        _section("Results of earlier subtasks", results),
        _section("Files", [text for text in (*named, *fresh) if text]),
        task,
    )
    warnings = [*room.warnings, *([settings.warning] if settings.warning else [])]
    if left_out:
        warnings.append(f"{left_out} of {left_out + len(talk)} messages of the parent were left out to fit.")
    if room.used > WARN_SHARE * bound:
        warnings.append(f"About {room.used:,} of {bound:,} tokens of context are used before it begins.")
    prompt = "\n\n".join(section for section in sections if section)
    passed = Passed(
        messages=len(talk),
        messages_left_out=left_out,
        results=len(results),
        files=tuple(room.files),
        tokens=len(prompt) // CHARACTERS_PER_TOKEN,
        warnings=tuple(warnings),
    )
    return prompt, passed


class _Room:
    """What is left of the bound, and what was put into it."""

    def __init__(self, bound: int) -> None:
        self._left = bound * CHARACTERS_PER_TOKEN
        self._taken = 0
        self.files: list[str] = []
        self.warnings: list[str] = []

    @property
    def left(self) -> int:
        """In characters."""
        return max(0, self._left)

    @property
    def used(self) -> int:
        """In tokens, about."""
        return self._taken // CHARACTERS_PER_TOKEN

    def always(self, text: str) -> str:
        self._left -= len(text)
        self._taken += len(text)
        return text

    def file(self, file: File) -> str:
        if file.problem:
            self.warnings.append(f"{file.path}: {file.problem}")
            return f"### {file.path}\n\n({file.problem})"
        shown = f"### {file.path}\n\n{file.text}"
        if len(shown) > self.left:
            self.warnings.append(f"{file.path}: left out, since it does not fit")
            return ""
        self.files.append(file.path)
        return self.always(shown)


def _task(request: SubtaskRequest, template: Template) -> str:
    prompt, left = filled(template.prompt, request.inputs)
    inputs = {name: request.inputs[name] for name in left}
    expectations = request.return_expectations or template.return_expectations
    parts = (
        _section("Task", [part for part in (prompt, request.description) if part]),
        _section("Inputs", [_json(inputs)]) if inputs else "",
        _section("Expected return", [_expected(expectations)]) if expectations else "",
    )
    return "\n\n".join(part for part in parts if part)


def _expected(expectations: str | dict[str, Any]) -> str:
    if isinstance(expectations, str):
        return expectations
    return f"JSON that follows this schema:\n\n{_json(expectations)}"


def _json(value: Any) -> str:
    return f"```json\n{json.format(json.encode(value), indent=2).decode()}\n```"


def _results(earlier: Sequence[Earlier], settings: Settings, room: _Room) -> list[str]:
    """Earlier results, the latest kept when not all fit."""
    taken: list[str] = []
    for number, result in reversed(list(enumerate(earlier, 1))):
        is_whole = settings.accumulation_format == "full_output"
        text = result.output if is_whole else "\n".join(f"- {note}" for note in result.notes)
        shown = f"### {number}. {result.type}\n\n{text or '(no notes)'}"
        if len(shown) > room.left:
            room.warnings.append(f"{number} earlier results were left out to fit.")
            break
        taken.append(room.always(shown))
    return taken[::-1]


def _conversation(
    request: SubtaskRequest, material: Material, settings: Settings, room: _Room, rank: Rank
) -> tuple[list[str], int]:
    """The parent's messages that are passed, and how many were left out for want of room."""
    match settings.inherit_context:
        case "none":
            return [], 0
        case "full":
            texts = [told(message) for message in material.conversation]
            kept = _latest(texts, room.left)
            return [room.always(text) for text in kept], len(texts) - len(kept)
        case "subset":
            # Files that are named are the subset.
            if material.named:
                return [], 0
            texts = [told(message) for message in material.conversation]
            scores = rank(query_of(request), texts)
            picked = chosen(scores, [len(text) for text in texts], room.left, share=RELEVANT_SHARE)
            return [room.always(texts[index]) for index in picked], 0
        case _:
            assert_never(settings.inherit_context)


def _latest(texts: Sequence[str], room: int) -> Sequence[str]:
    """The first one, which is the parent's own task, and as many of the latest as fit beside it."""
    if not texts or len(texts[0]) > room:
        return ()
    room -= len(texts[0])
    first = len(texts)
    while first > 1 and len(texts[first - 1]) <= room:
        first -= 1
        room -= len(texts[first])
    return (texts[0], *texts[first:])


def told(message: Message) -> str:
    """A message as another model reads it."""
    match message:
        case UserMessage(text=text):
            return f"[user]\n{text}"
        case AssistantMessage():
            calls = "".join(f"\n(calls {call.name} {json.encode(call.arguments).decode()})" for call in message.calls)
            return f"[assistant]\n{message.text}{calls}"
        case ToolMessage(results=results):
            return "\n".join(f"[result of {result.name}]\n{result.content}" for result in results)
        case _:
            assert_never(message)


def _section(title: str, parts: Iterable[str]) -> str:
    body = "\n\n".join(parts)
    return f"## {title}\n\n{body}" if body else ""
