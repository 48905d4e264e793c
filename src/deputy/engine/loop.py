"""The native loop: model call, tool calls, again, until there is a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, json, structs

from deputy.core.contract import Return
from deputy.core.conversation import UserMessage
from deputy.core.errors import Error, new_error
from deputy.core.events import ANSWER, MessageAdded, ModelCallBegun, Resumed, Returned
from deputy.core.limits import nearly_full, nothing_read, prompt_too_long, repeats_itself
from deputy.core.messages import UNANSWERED_CALL
from deputy.core.outcome import is_exhausted, shortened
from deputy.core.progress import Progress
from deputy.core.results import results_markdown
from deputy.core.task import DELEGATE
from deputy.core.text_calls import without_thinking
from deputy.engine.fanout import ended_before
from deputy.engine.final_turn import budget_warning, reached_limit, run_final_turn
from deputy.engine.history import ASK, first_message_of, user_message, words_of
from deputy.engine.prompts import prompt
from deputy.engine.salvage import SentBack, answer_now, look_first, sent_back
from deputy.engine.tool_calls import may_act, tool_key, use_tools
from deputy.engine.turn import TurnInput, call_model
from deputy.engine.untrusted import wrap_untrusted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.core.conversation import AssistantMessage, ToolCall, ToolResult
    from deputy.core.events import ModelCallEnded
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import RunContext

AWAITING = "[AWAITING_HUMAN_INPUT]"
EMPTY = "EMPTY_REPLY"
CONTINUE_TIMES = 3
WARN_REPEATS = 3
MAX_REPEATS = 8

_LIMITS = frozenset({"timeout", "context_exhausted", "budget", "repetition"})


class Report(Struct, frozen=True, kw_only=True):
    """How a loop ended: answered, at a limit, failed, with a question, or with a return that breaks the contract."""

    kind: Literal["answered", "limited", "failed", "asked", "invalid"]
    text: str
    error: Error | None = None
    returned: Return | None = None
    """The checked return, if the contract asks for one."""
    corrections: tuple[str, ...] = ()
    """Deviations from the contract that were accepted."""


async def run_loop(run: RunContext, history: History, agent: AgentContext) -> Report:
    """Run turns until the model reports, asks, fails or reaches a limit."""
    pieces: list[str] = []
    agent = structs.replace(agent, history=history)
    toolset = agent.toolset()
    while True:
        limit = reached_limit(run, history, agent)
        if limit is not None:
            return await _limited(run, history, agent, limit, is_first=not history.turn)
        call = f"{run.run}:{history.turn}"
        turn = TurnInput(
            agent=agent,
            conversation=history.conversation,
            toolset=toolset,
            settings=structs.replace(
                agent.settings,
                idempotency_key=call,
                tool_choice="none" if history.must_answer else agent.settings.tool_choice,
            ),
            tokens=history.tokens,
            estimate=history.estimate,
            seconds=agent.seconds_left(run),
        )
        begun = ModelCallBegun(model=agent.model.name, call=call, tools=() if history.turn else agent.held)
        ended = await run.step(f"model:{history.turn}", call_model, turn, begun=begun)
        message = history.append_reply(ended)
        could_call, history.must_answer = not history.must_answer, False
        agent.emit_tokens(history.usage)
        _watch_size(run, history, agent)
        if message is None or ended.error is not None:
            report = await _failed(run, history, agent, ended)
            if report is not None:
                return report
            continue
        if message.calls:
            history.sent_back = False
            report = await _use_tools(run, history, agent, message)
            if report is not None:
                return report
            continue
        pieces.append(message.text)
        if ended.stop != "length":
            report = await _judged(run, history, agent, without_thinking("".join(pieces)), could_call)
            is_asked = report is not None and report.kind == "asked"
            if report is not None and not (is_asked and await ask_person(run, history, agent, report.text)):
                return report
            pieces.clear()
            continue
        if len(pieces) > CONTINUE_TIMES:
            return Report(kind="limited", text="".join(pieces), error=_cut())
        history.must_answer = not could_call
        await append_user_message(run, history, f"continue:{history.turn}", prompt("continue"))


async def _judged(run: RunContext, history: History, agent: AgentContext, text: str, could_call: bool) -> Report | None:
    """The answer as a report; None if it is no report and was sent back, once."""
    if not text:
        error = new_error(EMPTY, f"{agent.model.name} ended its turn without an answer.")
        return await send_back(run, history, text, SentBack(text=prompt("empty_turn"), error=error))
    wrong = sent_back(text, agent, could_call=could_call)
    if wrong is not None:
        history.must_answer = wrong.must_answer
        return await send_back(run, history, text, wrong)
    report = _answered(text)
    if report.kind != "answered" or history.has_looked or not agent.must_look:
        return report
    if not history.is_nudged:
        history.is_nudged = True
        await _look_first(run, history, agent)
        return None
    error = nothing_read(agent.model.name)
    if agent.is_compact:
        return Report(kind="limited", text=text, error=error)
    history.warnings += (f"{error.message} {error.recommendation}",)
    return report


async def _look_first(run: RunContext, history: History, agent: AgentContext) -> None:
    """Ask for a look at the workspace; a small model starts over, because it repeats its first answer if it sees it."""
    key, words = f"look_first:{history.turn}", look_first(agent)
    match history.conversation.messages:
        case [UserMessage(text=task), *_] if agent.is_compact and not (
            history.has_called or history.has_words_of_person
        ):
            await start_over(run, history, key, f"{task}\n\n{words}")
        case _:
            await append_user_message(run, history, key, words)


async def send_back(run: RunContext, history: History, text: str, wrong: SentBack) -> Report | None:
    """Tell the model why its message is no report; the second time in a row it is a failure."""
    if history.sent_back:
        return Report(kind="failed", text=text, error=wrong.error)
    history.sent_back = True
    await append_user_message(run, history, f"sent_back:{history.turn}", wrong.text)
    return None


async def append_user_message(run: RunContext, history: History, key: str, text: str) -> None:
    """Record a user message and append it; on replay the recorded text is used."""
    history.append_user_message(words_of(await run.record(key, user_message(text))))


async def ask_person(run: RunContext, history: History, agent: AgentContext, question: str) -> bool:
    """Ask a person the question at the end of an answer, and append the reply; the time limit is paused.

    False if no person can be asked or no answer comes: then the run ends with the question.
    """
    key = f"question:{history.turn}"
    if not (agent.can_ask or run.recorded_question(key) is not None):
        return False
    agent.emit(Progress(event="waiting", label=agent.label, content=question))
    answer = await run.ask(key, question)
    if answer is not None:
        history.append_words_of_person(answer)
    return answer is not None


async def continue_history(run: RunContext, history: History, agent: AgentContext) -> bool:
    """Continue the conversation of earlier rounds; False if none of them has sent the task yet."""
    task = next((one.event for one in run.history if isinstance(one.event, MessageAdded)), None)
    if task is None:
        return False
    last = next((one.event.outcome for one in reversed(run.history) if isinstance(one.event, Returned)), None)
    if last is not None and is_exhausted(last):
        text = _after_exhaustion(words_of(task), history, last.report, run)
        await start_over(run, history, "new_conversation", text)
    elif history.is_answered:
        await append_user_message(run, history, "resumed", prompt("resumed"))
    elif results := await ended_before(run):
        data = wrap_untrusted(results_markdown(results), DELEGATE, agent.random_string)
        await append_user_message(run, history, "ended_before", prompt("ended_before").format(results=data))
    return True


async def start_over(run: RunContext, history: History, key: str, text: str) -> None:
    """Begin a new conversation with this message; totals and notes stay."""
    history.append_recorded(await run.record(key, first_message_of(text)))


def _after_exhaustion(task: str, history: History, report: str, run: RunContext) -> str:
    """The task with what the full conversation has left: the notes, the report, and the message of the resume."""
    said = next((one.event.message for one in reversed(run.history) if isinstance(one.event, Resumed)), UNSET)
    parts = (
        task,
        prompt("new_conversation"),
        "Notes:\n\n" + "\n\n".join(history.notes) if history.notes else "",
        f"Report so far:\n\n{report}" if report else "",
        f"Message for you now:\n\n{json.decode(said, type=str)}" if said is not UNSET else "",
    )
    return "\n\n".join(filter(None, parts))


async def _use_tools(
    run: RunContext, history: History, agent: AgentContext, message: AssistantMessage
) -> Report | None:
    """Run the tool calls and append their results; a report if the loop ends here."""
    calls = message.calls
    question = None if agent.can_ask else next(_unanswerable(run, history, calls), None)
    if question is not None:
        return _asked(question)
    history.has_acted |= any(may_act(agent, call) for call in calls)
    used = await use_tools(run, agent, history.turn, calls)
    results = [one.result for one in used]
    times = [history.repeated(call, result) for call, result in zip(calls, results, strict=True)]
    text = [_warned(result, count) for result, count in zip(results, times, strict=True)]
    last = _with(text[-1], budget_warning(history, agent))
    if agent.is_compact:
        # A small model repeats its call, or the words of a warning, unless the task is near.
        history.must_answer = max(times) > 1
        next_step = prompt("compact_next").format(task=shortened(agent.task))
        last = _with(results[-1], answer_now(agent) if history.must_answer else next_step)
    history.get([*text[:-1], last])
    history.add_usage(calls, used)
    for call, result in zip(calls, results, strict=True):
        if call.name == ASK and result.content == UNANSWERED_CALL:
            return _asked(call)
    if max(times) >= MAX_REPEATS:
        return await _limited(run, history, agent, repeats_itself(max(times)))
    return None


def _asked(call: ToolCall) -> Report:
    return Report(kind="asked", text=str(call.arguments.get("question", "")))


def _unanswerable(run: RunContext, history: History, calls: Sequence[ToolCall]) -> Iterator[ToolCall]:
    """Ask calls without a person to ask; a question that was recorded before still gets its answer."""
    for index, call in enumerate(calls):
        if call.name == ASK and run.recorded_question(f"{tool_key(history.turn, index)}:{ANSWER}") is None:
            yield call


def _warned(result: ToolResult, times: int) -> ToolResult:
    warning = f"You have received this result {times} times. Do something else, or report what you have."
    return _with(result, warning if times >= WARN_REPEATS else "")


def _with(result: ToolResult, words: str) -> ToolResult:
    return structs.replace(result, content=f"{result.content}\n\n{words}") if words else result


async def _failed(run: RunContext, history: History, agent: AgentContext, ended: ModelCallEnded) -> Report | None:
    """The report of a failed turn; None if the turn was empty, and the model is asked to continue."""
    error = ended.error or _empty(agent.model.name)
    if error.code == EMPTY:
        return await send_back(run, history, history.text, SentBack(text=prompt("empty_turn"), error=error))
    if error.type in _LIMITS:
        is_full = error.type == "context_exhausted"
        return await _limited(run, history, agent, error, is_full=is_full, is_first=history.turn == 1)
    return Report(kind="failed", text=history.text, error=error)


async def _limited(
    run: RunContext,
    history: History,
    agent: AgentContext,
    why: Error,
    *,
    is_full: bool = False,
    is_first: bool = False,
) -> Report:
    if is_first and why.type == "context_exhausted":
        # Nothing was found, and nothing can be dropped.
        window = history.window or agent.window
        words = " ".join(f"{why.message.rstrip('.')}.".split()) if is_full else ""
        return Report(kind="failed", text="", error=prompt_too_long(agent.model.name, history.tokens, window, words))
    text, error = await run_final_turn(run, history, agent, why, is_full=is_full)
    return Report(kind="limited", text=text, error=error)


def _answered(text: str) -> Report:
    words = text.rstrip()
    if words.endswith(AWAITING):
        return Report(kind="asked", text=words.removesuffix(AWAITING).rstrip())
    return Report(kind="answered", text=text)


def _watch_size(run: RunContext, history: History, agent: AgentContext) -> None:
    """Warn once when the context of a subtask is nearly full."""
    if agent.window is None or not run.lineage.subtask_depth:
        return
    warning = nearly_full(history.tokens, agent.window)
    if warning and not history.is_nearly_full:
        history.is_nearly_full = True
        history.warnings += (warning,)
        agent.emit(Progress(event="warning", label=agent.label, content=warning))


def _cut() -> Error:
    return Error(
        type="output_limit",
        code="OUTPUT_LIMIT",
        message=f"The answer still exceeded the output limit after {CONTINUE_TIMES} requests to continue it.",
        recoverable=True,
        recommendation="Ask for less at once, or raise max_output_tokens.",
    )


def _empty(model: str) -> Error:
    return Error(
        type="provider",
        code="NO_ANSWER",
        message=f"{model} returned neither an answer nor an error.",
        recoverable=True,
        recommendation="Try again, or another model.",
    )
