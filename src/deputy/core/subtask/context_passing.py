"""Build the prompt of a subtask: its task, and the context that the settings pass on, within a token limit.

The parent makes a `Briefing`; the files are read when the subtask starts, and `compose` joins both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct, json

from deputy.core.conversation import AssistantMessage, Message, ToolMessage, UserMessage
from deputy.core.subtask.context_settings import ContextSettings, PassedContext
from deputy.core.subtask.relevance import chosen
from deputy.core.subtask.subtask_request import SubtaskRequest
from deputy.core.subtask.template import Template, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Fence = Callable[[str, str], str]
    """Marks a text as data: the text, and where it comes from."""

CHARACTERS_PER_TOKEN = 4
RELEVANT_SHARE = 0.25
"""A text is relevant when its score is above this share of the best score."""
WARN_SHARE = 0.8
"""Above this share of the limit there is a warning."""
FRESH_TOKENS = 16_000
"""The limit for files that were found by matching."""
FRESH_FILES = 10


class EarlierResult(Struct, frozen=True, kw_only=True):
    """The result of an earlier subtask of the same parent."""

    type: str
    notes: tuple[str, ...]
    output: str


class PassedFile(Struct, frozen=True, kw_only=True):
    """A file to pass: its path and text, or why it could not be read."""

    path: str
    text: str = ""
    problem: str = ""


class Briefing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of a subtask's prompt, without its files."""

    request: SubtaskRequest
    template: Template
    settings: ContextSettings
    bound: int
    """The approximate token limit of the prompt."""
    conversation: tuple[str, ...] = ()
    messages_left_out: int = 0
    earlier: tuple[EarlierResult, ...] = ()

    @property
    def file_paths(self) -> tuple[str, ...]:
        """The files that the request and the template name."""
        return file_paths(self.request, self.template)


def query_of(request: SubtaskRequest) -> str:
    """The search query for the context of a request."""
    texts = (value for value in request.inputs.values() if isinstance(value, str))
    return " ".join((request.type, request.description, *request.template_hints, *texts))


def file_paths(request: SubtaskRequest, template: Template) -> tuple[str, ...]:
    """The files that a subtask is always given: its request's, then its template's."""
    return tuple(dict.fromkeys((*request.file_paths, *template.file_paths)))


def wants_ranking(request: SubtaskRequest, template: Template, settings: ContextSettings) -> bool:
    """Whether the parent's messages must be ranked; named files are the subset when there are any."""
    return settings.inherit_context == "subset" and not (request.file_paths or template.file_paths)


def brief(
    request: SubtaskRequest,
    template: Template,
    settings: ContextSettings,
    *,
    bound: int,
    conversation: Sequence[str] = (),
    scores: Sequence[float] = (),
    earlier: Sequence[EarlierResult] = (),
) -> Briefing:
    """Choose the messages and earlier results to pass; `scores` has the relevance of each message."""
    room = bound * CHARACTERS_PER_TOKEN - len(task_of(request, template))
    kept = tuple(earlier) if settings.accumulate_data else ()
    room -= sum(len(_shown_result(number, one, settings)) for number, one in enumerate(kept, 1))
    passed: Sequence[str] = ()
    left_out = 0
    match settings.inherit_context:
        case "none":
            pass
        case "full":
            passed = _latest(conversation, bound * CHARACTERS_PER_TOKEN)
            left_out = len(conversation) - len(passed)
        case "subset":
            picked = chosen(scores, [len(text) for text in conversation], max(0, room), share=RELEVANT_SHARE)
            passed = [conversation[index] for index in picked]
        case _:
            assert_never(settings.inherit_context)
    return Briefing(
        request=request,
        template=template,
        settings=settings,
        bound=bound,
        conversation=tuple(passed),
        messages_left_out=left_out,
        earlier=kept,
    )


def compose(
    briefing: Briefing,
    *,
    named: Sequence[PassedFile] = (),
    matching: Sequence[PassedFile] = (),
    fence: Fence = lambda text, source: text,
) -> tuple[str, PassedContext]:
    """The prompt of a subtask within its limit, and what was passed.

    Room goes to the task and the named files first, then to earlier results, the conversation, and matching files.
    """
    settings, bound = briefing.settings, briefing.bound
    room = _Room(bound, fence)
    task = room.always(task_of(briefing.request, briefing.template))
    always = [room.file(file) for file in named]
    results = _results(briefing.earlier, settings, room)
    conversation_text = [room.always(text) for text in _latest(briefing.conversation, room.remaining)]
    left_out = briefing.messages_left_out + len(briefing.conversation) - len(conversation_text)
    fresh = _fresh(matching, room)
    sections = (
        _section("Conversation of the parent task", conversation_text),
        _section("Results of earlier subtasks", results),
        _section("Files", [text for text in (*always, *fresh) if text]),
        task,
    )
    warnings = [*room.warnings, *filter(None, [settings.warning(has_files=bool(briefing.file_paths))])]
    if left_out:
        warnings.append(
            f"{left_out} of {left_out + len(conversation_text)} messages of the parent were omitted to fit the limit."
        )
    if room.used > WARN_SHARE * bound:
        warnings.append(f"The prompt uses about {room.used:,} of {bound:,} tokens.")
    prompt = "\n\n".join(section for section in sections if section)
    passed = PassedContext(
        messages=len(conversation_text),
        messages_left_out=left_out,
        results=len(results),
        files=tuple(room.files),
        tokens=len(prompt) // CHARACTERS_PER_TOKEN,
        warnings=tuple(warnings),
    )
    return prompt, passed


class _Room:
    """The room that is left, and what was put into the prompt."""

    def __init__(self, bound: int, fence: Fence) -> None:
        self._left = bound * CHARACTERS_PER_TOKEN
        self._taken = 0
        self.fence = fence
        self.files: list[str] = []
        self.warnings: list[str] = []

    @property
    def remaining(self) -> int:
        """In characters."""
        return max(0, self._left)

    @property
    def used(self) -> int:
        """In tokens, approximately."""
        return self._taken // CHARACTERS_PER_TOKEN

    def always(self, text: str) -> str:
        self._left -= len(text)
        self._taken += len(text)
        return text

    def file(self, file: PassedFile) -> str:
        if file.problem:
            self.warnings.append(f"{file.path}: {file.problem}")
            return f"### {file.path}\n\n({file.problem})"
        shown = f"### {file.path}\n\n{self.fence(file.text, file.path)}"
        if len(shown) > self.remaining:
            self.warnings.append(f"{file.path}: omitted, because it does not fit")
            return ""
        self.files.append(file.path)
        return self.always(shown)


def task_of(request: SubtaskRequest, template: Template) -> str:
    """The task: the prompt of the template with its inputs, the description and the expected return."""
    prompt, left = filled(template.prompt, request.inputs)
    inputs = {name: request.inputs[name] for name in left}
    expectations = request.return_expectations or template.return_expectations
    parts = (
        _section("Task", [part for part in (prompt, request.description) if part]),
        _section("Inputs", [_json(inputs)]) if inputs else "",
        # A schema is part of the return instruction, as in any delegation.
        _section("Expected return", [expectations]) if isinstance(expectations, str) else "",
    )
    return "\n\n".join(part for part in parts if part)


def _json(value: Any) -> str:
    return f"```json\n{json.format(json.encode(value), indent=2).decode()}\n```"


def _results(earlier: Sequence[EarlierResult], settings: ContextSettings, room: _Room) -> list[str]:
    """Earlier results; the latest ones when not all fit."""
    taken: list[str] = []
    for number, result in reversed(list(enumerate(earlier, 1))):
        shown = _shown_result(number, result, settings, room.fence)
        if len(shown) > room.remaining:
            room.warnings.append(f"{number} earlier results were omitted to fit the limit.")
            break
        taken.append(room.always(shown))
    return taken[::-1]


def _shown_result(
    number: int, result: EarlierResult, settings: ContextSettings, fence: Fence = lambda text, source: text
) -> str:
    is_whole = settings.accumulation_format == "full_output"
    text = result.output if is_whole else "\n".join(f"- {note}" for note in result.notes)
    return f"### {number}. {result.type}\n\n{fence(text, f'subtask {result.type}') if text else '(no notes)'}"


def _fresh(matching: Sequence[PassedFile], room: _Room) -> list[str]:
    """Matching files, best first, as many as fit; a file that does not fit gives no warning."""
    left = min(room.remaining, FRESH_TOKENS * CHARACTERS_PER_TOKEN)
    taken: list[str] = []
    for file in matching[:FRESH_FILES]:
        before = room.remaining
        if not file.problem and len(file.text) + len(file.path) + 200 <= left:
            taken.append(room.file(file))
            left -= before - room.remaining
    return taken


def _latest(texts: Sequence[str], room: int) -> Sequence[str]:
    """The first text, which is the parent's task, and as many of the latest ones as fit."""
    if sum(map(len, texts)) <= room:
        return texts
    if not texts or len(texts[0]) > room:
        return ()
    room -= len(texts[0])
    first = len(texts)
    while first > 1 and len(texts[first - 1]) <= room:
        first -= 1
        room -= len(texts[first])
    return (texts[0], *texts[first:])


def message_text(message: Message) -> str:
    """A message as text for another model."""
    match message:
        case UserMessage(text=text):
            return f"[user]\n{text}"
        case AssistantMessage():
            calls = (f"(calls {call.name} {json.encode(call.arguments).decode()})" for call in message.calls)
            return "\n".join(("[assistant]", *filter(None, (message.text, *calls))))
        case ToolMessage(results=results):
            return "\n".join(f"[result of {result.name}]\n{result.content}" for result in results)
        case _:
            assert_never(message)


def _section(title: str, parts: Iterable[str]) -> str:
    body = "\n\n".join(parts)
    return f"## {title}\n\n{body}" if body else ""
