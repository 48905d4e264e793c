"""The message history of one agent, with usage, notes and repeated calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, json, structs

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    ToolMessage,
    ToolResult,
    UserMessage,
    estimated_tokens,
    text_size,
)
from deputy.core.events import (
    ANSWER,
    MessageAdded,
    ModelCallEnded,
    Noted,
    QuestionAnswered,
    Resumed,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.messages import INTERRUPTED_CALL, is_unanswered
from deputy.core.outcome import NO_USAGE, Usage
from deputy.core.state import not_begun
from deputy.core.subtask.subtask_result import SubtasksRequested, read_report, results_in
from deputy.core.text_calls import without_thinking
from deputy.engine.ports.backend import BackendResult
from deputy.engine.untrusted import unwrap_untrusted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deputy.core.conversation import Message, ToolCall
    from deputy.core.events import Record
    from deputy.core.limits import BudgetUse
    from deputy.core.subtask.context_passing import EarlierResult
    from deputy.core.subtask.context_settings import PassedContext
    from deputy.engine.tool_calls import ToolCallResult

CHARACTERS_PER_TOKEN = 4
NOTE, ASK, SUBTASK = "Note", "Ask", "Subtask"
FINAL_TURN = "final_turn:"
"""Part of the keys of a final turn."""


class History:
    """The conversation and the totals that limits are measured against."""

    def __init__(self, system: str, overhead: int = 0) -> None:
        self.conversation = Conversation(system)
        self.turn = 0
        self.tokens = self._empty_tokens = overhead + len(system) // CHARACTERS_PER_TOKEN
        """Context size: the provider's last count plus an estimate of what was added since."""
        self.estimate = self._empty = overhead + estimated_tokens(text_size(system))
        """Our own estimate of the next request's tokens."""
        self.model = ""
        """The model of the last call."""
        self.window: int | None = None
        """The context window that the provider reported in an error."""
        self.budgets: Sequence[BudgetUse] = ()
        """The last recorded use of the run's and its tree's budgets."""
        self.warnings: tuple[str, ...] = ()
        """Warnings for the outcome."""
        self.is_warned = False
        """Whether the budget warning was given."""
        self.is_nearly_full = False
        """Whether the warning about a nearly full context was given."""
        self.usage: Usage = NO_USAGE
        self.notes: list[str] = []
        self.passed: PassedContext | None = None
        self.sent_back = False
        """Whether the last message was sent back, because it is no report."""
        self.must_answer = False
        """Whether the next turn may not call tools, because a small model repeats its call."""
        self.is_nudged = False
        """Whether the model was asked to look at the workspace before it answers."""
        self.salvaged = 0
        """How many calls the model wrote as text and we executed."""
        self.continuations = 0
        self.earlier: list[EarlierResult] = []
        self.text = ""
        """The last text of the model; texts that were cut off one after another are kept together."""
        self._is_cut = False
        self.has_words_of_person = False
        """Whether a person answered or wrote in this conversation, after its first message."""
        self.repeats: Counter[int] = Counter()
        """Count of each call with each result, by hash."""
        self.changed: dict[str, None] = {}
        self.has_acted = False
        """Whether a call with side effects began, so that the work must not be repeated."""

    @property
    def is_answered(self) -> bool:
        """Whether the last message is the model's."""
        messages = self.conversation.messages
        return bool(messages) and isinstance(messages[-1], AssistantMessage)

    @property
    def has_looked(self) -> bool:
        """Whether a tool has returned something else than an error."""
        messages = (message for message in self.conversation.messages if isinstance(message, ToolMessage))
        return any(not result.is_error for message in messages for result in message.results)

    @property
    def has_called(self) -> bool:
        """Whether the model has called a tool in this conversation."""
        return any(isinstance(message, ToolMessage) for message in self.conversation.messages)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The warnings for the outcome, with the count of salvaged calls."""
        calls = "1 tool call was" if self.salvaged == 1 else f"{self.salvaged} tool calls were"
        salvaged = (f"{calls} written as text by the model, and executed (salvaged).",) if self.salvaged else ()
        return (*self.warnings, *salvaged)

    def start_over(self) -> None:
        """Clear the conversation; totals and notes stay."""
        system = self.conversation.system
        self.conversation = Conversation(system)
        self.sent_back = False
        self.has_words_of_person = False
        self.estimate = self._empty
        self.tokens = self._empty_tokens

    def append_user_message(
        self, text: str, warnings: tuple[str, ...] = (), passed: PassedContext | None = None
    ) -> None:
        """Append a user message."""
        self.warnings += warnings
        self.passed = passed or self.passed
        self._append(UserMessage(text=text), text_size(text))

    def append_words_of_person(self, text: str) -> None:
        """Append the answer or the message of a person."""
        self.append_user_message(text)
        self.has_words_of_person = True

    def append_recorded(self, event: MessageAdded) -> None:
        """Append a recorded user message; a new conversation may begin with it."""
        if event.starts_over:
            self.start_over()
        self.append_user_message(words_of(event), event.warnings, event.passed)

    def append_reply(self, ended: ModelCallEnded, *, is_last: bool = False) -> AssistantMessage | None:
        """Append the model's message, which may have been cut off, and count its usage.

        The provider's count of a final turn is ignored, because that turn may have dropped messages.
        """
        self.turn += 1
        self.model = ended.model
        self.usage += ended.usage
        self.window = ended.window or self.window
        # After a request that was too large for the budget, the final turn may have needed less.
        before = {use.resource: use.needed for use in self.budgets}
        self.budgets = tuple(
            structs.replace(use, needed=max(use.needed, before.get(use.resource, 0.0))) for use in ended.budgets
        )
        if ended.turn is not UNSET:
            end = json.decode(ended.turn, type=BackendResult)
            self.changed.update(dict.fromkeys(end.changed))
            self.warnings += tuple(warning for warning in end.warnings if warning not in self.warnings)
            self.has_acted |= end.may_have_written
        if ended.message is UNSET:
            return None
        message = json.decode(ended.message, type=AssistantMessage)
        if text := without_thinking(message.text):
            self.text = f"{self.text}\n\n{text}" if ended.is_cut and self._is_cut else text
            self._is_cut = ended.is_cut
        if ended.salvaged:
            asked = read_report(ended.salvaged)
            self.salvaged += asked is None
            self.warnings += asked.continuation.warnings if isinstance(asked, SubtasksRequested) else ()
        self._append(message, len(ended.message))
        if ended.usage.input and not is_last:
            self.tokens = ended.usage.input + ended.usage.output
        return message

    def get(self, results: Sequence[ToolResult]) -> None:
        """Append the tool results of a turn, in the order of the calls."""
        self._append(ToolMessage(results=tuple(results)), sum(text_size(result.content) for result in results))

    def repeated(self, call: ToolCall, result: ToolResult) -> int:
        """Count and return how often this call had this result."""
        text = json.encode([call.name, call.arguments, unwrap_untrusted(result.content)], order="deterministic")
        self.repeats[hash(text)] += 1
        return self.repeats[hash(text)]

    def add_usage(self, calls: Sequence[ToolCall], used: Sequence[ToolCallResult]) -> None:
        """Keep notes and changed files."""
        for call, one in zip(calls, used, strict=True):
            if call.name == NOTE and not one.result.is_error:
                self.notes.append(str(call.arguments["content"]))
            self.changed.update(dict.fromkeys(one.changed))

    def learn(self, text: str) -> None:
        """Keep the results of subtasks, in the form that `engine.subtasks` writes."""
        self.continuations += 1
        self.earlier += results_in(unwrap_untrusted(text))

    def _append(self, message: Message, size: int) -> None:
        self.conversation.append(message)
        self.tokens += size // CHARACTERS_PER_TOKEN
        self.estimate += estimated_tokens(size)


def remembered(system: str, records: Sequence[Record], overhead: int = 0) -> History:
    """Rebuild the history from the records of earlier rounds; every call gets a result."""
    history = History(system, overhead)
    pending: dict[str, ToolCall] = {}
    results: dict[str, ToolResult] = {}

    def settle() -> None:
        if pending:
            history.get([results.get(call.id) or _interrupted(call) for call in pending.values()])
            pending.clear()
            results.clear()

    for record in of_rounds_that_worked(records):
        match record.event:
            case MessageAdded() as event:
                settle()
                history.append_recorded(event)
            case ModelCallEnded() as ended:
                settle()
                message = history.append_reply(ended, is_last=FINAL_TURN in record.key)
                pending.update({call.id: call for call in (() if message is None else message.calls)})
            case ToolCallEnded(message=raw) if raw is not UNSET:
                result = json.decode(raw, type=ToolResult)
                results[result.call_id] = result
                history.changed.update(dict.fromkeys(record.event.changed))
            case QuestionAnswered(topic=topic, body=body) if topic == ANSWER and not (pending or is_unanswered(body)):
                # The answer to a question in the text; the answer to the Ask tool is that call's result.
                history.append_words_of_person(_words(body))
            case Noted(content=content):
                history.notes.append(content)
            # A dismissing round adds no message; its question may be answered in a later round.
            case Resumed(message=raw, is_dismissed=False):
                answer = None if raw is UNSET else json.decode(raw, type=str)
                answered = _answering(answer, pending, results)
                settle()
                if answer is not None and not answered:
                    history.append_words_of_person(answer)
            case _:
                continue
        if (text := _subtask_results(record)) is not None:
            history.learn(text)
    settle()
    history.has_acted |= any(_may_have_acted(record) for record in records)
    _forget_replaced_caps(history, records)
    return history


def _forget_replaced_caps(history: History, records: Sequence[Record]) -> None:
    resumed = next((one.event for one in reversed(records) if isinstance(one.event, Resumed)), None)
    if resumed is not None and resumed.changes.budget.capped:
        # The use was recorded beside the caps that this round replaces; its first call records the new ones.
        history.budgets = ()


def of_rounds_that_worked(records: Sequence[Record]) -> Iterator[Record]:
    """The records, without the Resumed events of denied earlier rounds."""
    last = max((record.event.round for record in records if isinstance(record.event, Resumed)), default=0)
    unsaid = not_begun(records) - {last}
    for record in records:
        if not (isinstance(record.event, Resumed) and record.event.round in unsaid):
            yield record


def _answering(answer: str | None, pending: Mapping[str, ToolCall], results: dict[str, ToolResult]) -> bool:
    """Use an answer as the result of the pending Ask call; whether there was one."""
    asked = next((call for call in pending.values() if call.name == ASK and call.id not in results), None)
    if asked is not None and answer is not None:
        results[asked.id] = ToolResult(call_id=asked.id, name=ASK, content=answer)
    return asked is not None


def _may_have_acted(record: Record) -> bool:
    return isinstance(record.event, ToolCallBegun) and not record.event.is_repeatable


def _subtask_results(record: Record) -> str | None:
    match record.event:
        case ToolCallEnded(tool=tool, message=raw) if tool == SUBTASK and raw is not UNSET:
            return json.decode(raw, type=ToolResult).content
        case _:
            return None


def user_message(text: str, warnings: tuple[str, ...] = (), passed: PassedContext | None = None) -> MessageAdded:
    """A user message as an event."""
    return MessageAdded(message=raw(UserMessage(text=text)), warnings=warnings, passed=passed)


def first_message_of(text: str) -> MessageAdded:
    """A user message with which a new conversation begins, as an event."""
    return MessageAdded(message=raw(UserMessage(text=text)), starts_over=True)


def words_of(event: MessageAdded) -> str:
    """The text of a user message event."""
    return json.decode(event.message, type=UserMessage).text


def _words(body: Raw) -> str:
    said = json.decode(body)
    return said if isinstance(said, str) else bytes(body).decode()


def raw(message: Message | ToolResult) -> Raw:
    """A message as stored JSON."""
    return Raw(json.encode(message))


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=INTERRUPTED_CALL, is_error=True)
