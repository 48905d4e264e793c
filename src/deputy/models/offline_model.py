"""`offline:scout`: a deterministic replacement for a model that searches for the words of its task.

It needs no key and no network. Like any subagent it works with tools: it searches, reads the best places, notes them
and reports them with file and line.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import json, structs

from deputy.core.conversation import (
    AssistantMessage,
    Part,
    Stop,
    Text,
    TextDelta,
    TokenUsage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from deputy.core.errors import UsageError
from deputy.core.fallback import SCOUT, UNCHOSEN_SCOUT
from deputy.engine.prompts import prompt
from deputy.models.offline_search import (
    MOST_HITS,
    SearchFindings,
    SearchHit,
    WordSearch,
    key_words,
    stem,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from deputy.core.conversation import Conversation, GenerationSettings, Message, StreamEvent, Toolset

WHAT_IT_IS = "offline scout: no model was asked"

_BEFORE, _SHOWN = 3, 24
_EXCERPT_BEFORE, _EXCERPT_AFTER = 1, 3
_WIDTH = 66
_CHARACTERS_PER_TOKEN = 4
_BEST, _OTHERS = 3, 3
_FORM_HEADING = "## The form of your answer"
_TASK_HEADING = "## Task\n"
_DATA, _IS_DATA = "[data from ", ": not instructions]"
_FENCE = "```"
_NOT_INCLUDED = "(not included: "
_OWN_LINES = (
    "Task: ", "Work folder: ", "Artifacts so far:", "- .deputy/work/", "## Inputs", "## Expected return",
    "## The request", "## The criteria", "## The work", "```json",
)  # fmt: skip
"""Beginnings of lines that a command, a subtask or an evaluator adds to its task."""


class OfflineModel:
    """The offline scout; its only state is the conversation."""

    name = SCOUT
    context_window: int | None = None

    @classmethod
    def named(cls, name: str) -> OfflineModel:
        """The scout, if it has this name."""
        if name not in (SCOUT, UNCHOSEN_SCOUT):
            raise UsageError("model", name, f"{SCOUT} is the only offline model")
        return cls()

    async def stream(
        self, conversation: Conversation, tools: Toolset, settings: GenerationSettings
    ) -> AsyncGenerator[StreamEvent, None]:
        """The next turn: search, read, note, or report."""
        offered = set[str]() if settings.tool_choice == "none" else {tool.name for tool in tools.items}
        text, calls = _turn(conversation.messages, offered)
        for line in text.splitlines(keepends=True):
            yield TextDelta(line)
        parts: list[Part] = [Text(text=text)] if text else []
        for number, (name, arguments) in enumerate(calls):
            parts.append(ToolCall(id=f"scout_{len(conversation)}_{number}", name=name, arguments=arguments))
        message = AssistantMessage(parts=tuple(parts), origin=SCOUT)
        for call in message.calls:
            yield call
        yield _usage(conversation, message)
        yield Stop(reason="end", message=message)


Calls = list[tuple[str, dict[str, Any]]]


def _turn(messages: Sequence[Message], offered: set[str]) -> tuple[str, Calls]:
    """The next text and calls, by the work since the last user message."""
    task = _task_in(messages)
    words = key_words(_wanted_words(task))
    done = _Done(messages[_begun_at(messages) :])
    if "Grep" in offered and words and not done.searches:
        wanted: Calls = [("Grep", _grep(word)) for word in words]
        if "Glob" in offered:
            wanted += [("Glob", {"pattern": f"*{word}*", "limit": 20}) for word in words[:3]]
        return f"{WHAT_IT_IS}. Searching for {', '.join(words)}.", wanted
    if "Grep" in offered and words and not done.findings.hits and not done.has_broadened:
        return "No results; searching for the beginnings of the words.", [("Grep", _grep(stem(word))) for word in words]
    places = done.findings.ranked()[:_BEST]
    if "Read" in offered and places and not done.pages:
        return "", [("Read", _read(place)) for place in places]
    if "Note" in offered and places and not done.has_noted:
        return "", [("Note", {"content": _note(places)})]
    return _report(task, words, done, places), []


def _grep(word: str) -> dict[str, Any]:
    return {"pattern": word, "literal": True, "ignore_case": True, "limit": MOST_HITS}


def _read(place: SearchHit) -> dict[str, Any]:
    return {"path": place.path, "offset": max(1, place.line - _BEFORE), "limit": _SHOWN}


class _Done:
    """The work since the last user message, and its results."""

    def __init__(self, messages: Sequence[Message]) -> None:
        calls = {call.id: call for m in messages if isinstance(m, AssistantMessage) for call in m.calls}
        results = [one for m in messages if isinstance(m, ToolMessage) for one in m.results]
        self.searches: list[WordSearch] = []
        self.pages: dict[str, str] = {}
        names: list[str] = []
        for result in results:
            call = calls.get(result.call_id)
            if call is None:
                continue
            names.append(call.name)
            text = "" if result.is_error else result.content
            if call.name == "Grep":
                search = WordSearch.read(str(call.arguments.get("pattern", "")), text)
                self.searches.append(structs.replace(search, has_failed=result.is_error))
            elif call.name == "Read" and text:
                self.pages[str(call.arguments.get("path", ""))] = text
        self.findings = SearchFindings(self.searches)
        self.has_noted = "Note" in names
        turns = sum(1 for m in messages if isinstance(m, AssistantMessage) and any(c.name == "Grep" for c in m.calls))
        self.has_broadened = turns > 1


# --- the report -------------------------------------------------------------------------------------------------------


def _note(places: Sequence[SearchHit]) -> str:
    return "Best places:\n" + "\n".join(f"- {place.path}:{place.line} {place.text.strip()}" for place in places)


def _report(task: str, words: Sequence[str], done: _Done, places: Sequence[SearchHit]) -> str:
    if _wants_form(task):
        return _in_form(words, done, places)
    return "\n".join(_report_lines(words, done, places))


def _report_lines(words: Sequence[str], done: _Done, places: Sequence[SearchHit]) -> Iterator[str]:
    if not done.searches:
        yield f"**{WHAT_IT_IS}.** No search and no judgement was made."
        yield ""
        yield _why_not_searched(words)
        return
    yield f"**{WHAT_IT_IS}.** It searched the files for words of the task, and judged nothing."
    yield ""
    yield f"Searched for: {', '.join(search.description for search in done.searches)}."
    if all(search.has_failed for search in done.searches):
        return
    if not places:
        yield "\nNo results. Use other words, or a real model (see `deputy doctor`)."
        return
    for place in places:
        yield f"\n**{place.path}:{place.line}**\n"
        yield _excerpt(place, done.pages.get(place.path, ""))
    shown = {place.path for place in places}
    others = [place for place in done.findings.ranked() if place.path not in shown][:_OTHERS]
    if others:
        yield "\nAlso:\n"
        yield from (f"- {place.path}:{place.line} `{_inline(place.text)}`" for place in others)


def _why_not_searched(words: Sequence[str]) -> str:
    if not words:
        return "The task has no words to search for. Name a function, a topic or a file."
    return f"The Grep tool is missing; it would have searched for {', '.join(words)}."


def _excerpt(place: SearchHit, page: str) -> str:
    """The lines around a place from the Read result; only the line itself if it was not read."""
    numbered = [line.partition("\t") for line in page.splitlines()]
    shown = [
        f"    {number.strip():>4}  {_cut(text)}"
        for number, tab, text in numbered
        if tab and number.strip().isdecimal()
        if -_EXCERPT_BEFORE <= int(number) - place.line <= _EXCERPT_AFTER
    ]
    return "\n".join(shown) or f"    {place.line:>4}  {_cut(place.text)}"


def _inline(text: str) -> str:
    return _cut(" ".join(text.replace("`", "'").split()))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


# --- the return form --------------------------------------------------------------------------------------------------


def _in_form(words: Sequence[str], done: _Done, places: Sequence[SearchHit]) -> str:
    found = ", ".join(f"{place.path}:{place.line}" for place in places) or "nothing"
    searched = ", ".join(search.description for search in done.searches)
    text = f"Searched for {searched}; found {found}." if searched else _why_not_searched(words)
    summary = f"{WHAT_IT_IS}. {text}"
    return json.encode({"status": "completed", "summary": summary[:400], "artifacts": [], "errors": []}).decode()


def _usage(conversation: Conversation, message: AssistantMessage) -> TokenUsage:
    """Estimated usage by characters; no model was called, so the cost is 0."""
    given = len(conversation.system) + sum(_size(one) for one in conversation.messages)
    taken = len(json.encode(message))
    return TokenUsage(
        input_tokens=given // _CHARACTERS_PER_TOKEN,
        output_tokens=taken // _CHARACTERS_PER_TOKEN,
        cost=0.0,
        is_reported=False,
    )


def _size(message: Message) -> int:
    match message:
        case UserMessage(text=text):
            return len(text)
        case ToolMessage(results=results):
            return sum(len(result.content) for result in results)
        case AssistantMessage():
            return len(message.text)


# --- the task ---------------------------------------------------------------------------------------------------------


def _begun_at(messages: Sequence[Message]) -> int:
    """The index of the last user message that is not a prompt of Deputy's own."""
    said = [index for index, one in enumerate(messages) if isinstance(one, UserMessage) and not _is_own(one.text)]
    return said[-1] if said else 0


def _task_in(messages: Sequence[Message]) -> str:
    """The task, or the last message after it; a correction of the form belongs to the same task."""
    said = [one.text for one in messages if isinstance(one, UserMessage) and not _is_own(one.text)]
    if not said:
        return ""
    first = _without_files(said[0])
    return first if _FORM_HEADING in first or len(said) == 1 else said[-1]


def _wanted_words(task: str) -> str:
    """The text to search for: the task section of a prompt, without the instructions on its form."""
    asked = task.partition(_FORM_HEADING)[0]
    for around in _around():
        asked = asked.removeprefix(around)
    return "\n".join(_own_lines(asked.partition(_TASK_HEADING)[2] or asked))


def _wants_form(task: str) -> bool:
    """Whether the answer must have the form of the return contract."""
    return '"status": "completed" | ' in task.partition(_FORM_HEADING)[2]


def _is_own(text: str) -> bool:
    """Whether it is Deputy's own prompt to continue or to finish."""
    asks, hand_in = _asides()
    return text.strip() in asks or text.endswith(hand_in)


@cache
def _asides() -> tuple[frozenset[str], str]:
    hand_in = prompt("final_turn").partition("{reason}")[2]
    return frozenset(prompt(name) for name in ("continue", "resumed", "interrupted")), hand_in


@cache
def _around() -> tuple[str, ...]:
    return tuple(prompt(name).partition("{task}")[0] for name in ("do_it_yourself", "director", "evaluator"))


def _without_files(text: str) -> str:
    lines = text.splitlines(keepends=True)
    start = 0
    while (end := _end_of_file(lines, start)) is not None:
        start = end
    return "".join(lines[start:])


def _end_of_file(lines: Sequence[str], start: int) -> int | None:
    """The line after a context file; None if there is no file at this line."""
    head = [line.strip() for line in lines[start : start + 3]]
    if len(head) < 3 or not head[0].startswith("## ") or head[1]:
        return None
    last = start + 2
    if head[2].startswith(_FENCE) and not head[2].strip("`"):
        last = next((at for at in range(last + 1, len(lines)) if lines[at].strip() == head[2]), len(lines))
    elif not head[2].startswith(_NOT_INCLUDED):
        return None
    return last + 2


def _own_lines(asked: str) -> Iterator[str]:
    """The lines of the task, without embedded data and the lines that a command adds."""
    end = ""
    for line in asked.splitlines():
        if end:
            end = "" if line == end else end
        elif line.startswith(_DATA) and line.endswith(_IS_DATA):
            end = f"[end of data {line.removesuffix(_IS_DATA).rpartition(' ')[2]}]"
        elif not line.startswith((*_OWN_LINES, prompt("delegation_context").partition("{")[0])):
            yield line
