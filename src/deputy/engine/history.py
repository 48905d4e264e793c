"""A subagent's conversation in memory, with what it has used, noted and repeated so far."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, json

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
from deputy.core.subtask.subtask_result import results_in
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
RESULTS_SUFFIX = ":results"
"""How the keys end under which subtasks that were asked for in text are told of."""
FINAL_TURN = "final_turn:"
"""What the keys of a last turn have in them."""


class History:
    """What has been said, and the sums that limits are measured against."""

    def __init__(self, system: str, overhead: int = 0) -> None:
        self.conversation = Conversation(system)
        self.turn = 0
        self.tokens = overhead + len(system) // CHARACTERS_PER_TOKEN
        """How full the context is: what the provider last counted, and an estimate of what came after."""
        self.estimate = self._empty = overhead + estimated_tokens(text_size(system))
        """Our own estimate of how many tokens the next request sends, whatever a provider says."""
        self.window: int | None = None
        """What the model can hold, where its provider said so when it was too much."""
        self.budgets: Sequence[BudgetUse] = ()
        """What was last known to be used of its budgets and of those that it shares with others."""
        self.warnings: tuple[str, ...] = ()
        """What the task should have come with, and did not."""
        self.is_warned = False
        """Whether the model was told that its budget comes to an end."""
        self.is_nearly_full = False
        """Whether watchers were told that its context comes to an end."""
        self.usage: Usage = NO_USAGE
        self.notes: list[str] = []
        self.passed: PassedContext | None = None
        """What of a parent's context the task came with."""
        self.malformed = 0
        """How often it did so in a way that cannot be carried out."""
        self.continuations = 0
        """How often it asked for subtasks."""
        self.earlier: list[EarlierResult] = []
        """What its subtasks came to."""
        self.text = ""
        """The last thing the model said in words."""
        self.repeats: Counter[int] = Counter()
        """How often each call had each result, by a hash of both."""
        self.changed: dict[str, None] = {}
        self.has_acted = False
        """Whether something was begun that could have an effect, so that the work must not be begun again."""

    @property
    def is_answered(self) -> bool:
        """Whether the model spoke last, so that it has nothing to answer."""
        messages = self.conversation.messages
        return bool(messages) and isinstance(messages[-1], AssistantMessage)

    def start_over(self) -> None:
        """Begin the conversation anew; what was used and noted until now stays."""
        system = self.conversation.system
        self.conversation = Conversation(system)
        self.estimate = self._empty

    def append_user_message(
        self, text: str, warnings: tuple[str, ...] = (), passed: PassedContext | None = None
    ) -> None:
        """The caller says something."""
        self.warnings += warnings
        self.passed = passed or self.passed
        self._append(UserMessage(text=text), text_size(text))

    def append_reply(self, ended: ModelCallEnded, *, is_last: bool = False) -> AssistantMessage | None:
        """The model answered, or failed to; what it used counts either way.

        In a last turn it may have been asked with less than all, and what its provider counted is not how full it is.
        """
        self.turn += 1
        self.usage += ended.usage
        self.window = ended.window or self.window
        self.budgets = ended.budgets
        if ended.turn is not UNSET:
            end = json.decode(ended.turn, type=BackendResult)
            self.changed.update(dict.fromkeys(end.changed))
            self.warnings += tuple(warning for warning in end.warnings if warning not in self.warnings)
            self.has_acted |= end.may_have_written
        if ended.message is UNSET:
            return None
        message = json.decode(ended.message, type=AssistantMessage)
        self.text = message.text or self.text
        self._append(message, len(ended.message))
        if ended.usage.input and not is_last:
            self.tokens = ended.usage.input + ended.usage.output
        return message

    def get(self, results: Sequence[ToolResult]) -> None:
        """The tools of a turn gave their results, one for each call and in their order."""
        self._append(ToolMessage(results=tuple(results)), sum(text_size(result.content) for result in results))

    def repeated(self, call: ToolCall, result: ToolResult) -> int:
        """How often this call has now had this result."""
        text = json.encode([call.name, call.arguments, unwrap_untrusted(result.content)], order="deterministic")
        self.repeats[hash(text)] += 1
        return self.repeats[hash(text)]

    def add_usage(self, calls: Sequence[ToolCall], used: Sequence[ToolCallResult]) -> None:
        """Remember what outlives the conversation: notes, and files that were written."""
        for call, (result, changed) in zip(calls, used, strict=True):
            if call.name == NOTE and not result.is_error:
                self.notes.append(str(call.arguments["content"]))
            self.changed.update(dict.fromkeys(changed))

    def learn(self, text: str) -> None:
        """It was told what its subtasks came to, in the form that `engine.subtasks` tells it."""
        self.continuations += 1
        self.earlier += results_in(unwrap_untrusted(text))

    def _append(self, message: Message, size: int) -> None:
        self.conversation.append(message)
        self.tokens += size // CHARACTERS_PER_TOKEN
        self.estimate += estimated_tokens(size)


def remembered(system: str, records: Sequence[Record], overhead: int = 0) -> History:
    """The conversation that earlier rounds of a run have left, whole: every call has a result."""
    history = History(system, overhead)
    pending: dict[str, ToolCall] = {}
    results: dict[str, ToolResult] = {}

    def settle() -> None:
        if pending:
            history.get([results.get(call.id) or _interrupted(call) for call in pending.values()])
            pending.clear()
            results.clear()

    for record in _of_rounds_that_worked(records):
        match record.event:
            case MessageAdded() as event:
                settle()
                history.append_user_message(words_of(event), event.warnings, event.passed)
            case ModelCallEnded() as ended:
                settle()
                message = history.append_reply(ended, is_last=FINAL_TURN in record.key)
                pending.update({call.id: call for call in (() if message is None else message.calls)})
            case ToolCallEnded(message=raw) if raw is not UNSET:
                result = json.decode(raw, type=ToolResult)
                results[result.call_id] = result
                history.changed.update(dict.fromkeys(record.event.changed))
            case QuestionAnswered(topic=topic, body=body) if topic == ANSWER and not (pending or is_unanswered(body)):
                # The answer to a question at the end of an answer; one that was asked with the tool is its result.
                history.append_user_message(_words(body))
            case Noted(content=content):
                history.notes.append(content)
            # In a round that only ended it nothing was said: what it asked may still be answered in a later one.
            case Resumed(message=raw, is_dismissed=False):
                answer = None if raw is UNSET else json.decode(raw, type=str)
                answered = _answering(answer, pending, results)
                settle()
                if answer is not None and not answered:
                    history.append_user_message(answer)
            case _:
                continue
        if (text := _subtask_results(record)) is not None:
            history.learn(text)
    settle()
    history.has_acted |= any(_may_have_acted(record) for record in records)
    return history


def _of_rounds_that_worked(records: Sequence[Record]) -> Iterator[Record]:
    """The records, without the beginnings of earlier rounds that nobody let begin; the last one is at work."""
    last = max((record.event.round for record in records if isinstance(record.event, Resumed)), default=0)
    unsaid = not_begun(records) - {last}
    for record in records:
        if not (isinstance(record.event, Resumed) and record.event.round in unsaid):
            yield record


def _answering(answer: str | None, pending: Mapping[str, ToolCall], results: dict[str, ToolResult]) -> bool:
    """Give an answer to the call that asks for one; whether there was such a call."""
    asked = next((call for call in pending.values() if call.name == ASK and call.id not in results), None)
    if asked is not None and answer is not None:
        results[asked.id] = ToolResult(call_id=asked.id, name=ASK, content=answer)
    return asked is not None


def _may_have_acted(record: Record) -> bool:
    return isinstance(record.event, ToolCallBegun) and not record.event.is_repeatable


def _subtask_results(record: Record) -> str | None:
    """What a record says that subtasks came to; None when it does not."""
    match record.event:
        case MessageAdded() as event if record.key.endswith(RESULTS_SUFFIX):
            return words_of(event)
        case ToolCallEnded(tool=tool, message=raw) if tool == SUBTASK and raw is not UNSET:
            return json.decode(raw, type=ToolResult).content
        case _:
            return None


def user_message(text: str, warnings: tuple[str, ...] = (), passed: PassedContext | None = None) -> MessageAdded:
    """Something the caller says, as the journal keeps it."""
    return MessageAdded(message=raw(UserMessage(text=text)), warnings=warnings, passed=passed)


def words_of(event: MessageAdded) -> str:
    """What the caller said."""
    return json.decode(event.message, type=UserMessage).text


def _words(body: Raw) -> str:
    said = json.decode(body)
    return said if isinstance(said, str) else bytes(body).decode()


def raw(message: Message | ToolResult) -> Raw:
    """A message as the journal keeps it."""
    return Raw(json.encode(message))


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=INTERRUPTED_CALL, is_error=True)
