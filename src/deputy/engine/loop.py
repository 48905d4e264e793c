"""Model, tools, again, until there is a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, json, structs

from deputy.core.errors import Error
from deputy.core.events import ANSWER, Lost, ModelCallBegun, Said
from deputy.core.messages import UNANSWERED_CALL, is_unanswered
from deputy.core.progress import Progress
from deputy.core.subtask.result import read_report
from deputy.engine.handin import budget_warning, hand_in, pressing
from deputy.engine.prompts import prompt
from deputy.engine.reached import nearly_full, repeats_itself
from deputy.engine.subtasks import answer_in_words
from deputy.engine.talk import ASK, TOLD, said, words_of
from deputy.engine.tool_use import may_act, tool_key, use_tools
from deputy.engine.turn import TurnArgs, TurnView, call_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.core.conversation import AssistantMessage, ToolCall, ToolResult
    from deputy.core.events import ModelCallEnded
    from deputy.engine.desk import Desk
    from deputy.engine.ports import RunContext
    from deputy.engine.talk import Talk

AWAITING = "[AWAITING_HUMAN_INPUT]"
GO_ON_TIMES = 3
WARN_REPEATS = 3
MAX_REPEATS = 8

_LIMITS = frozenset({"timeout", "context_exhausted", "budget"})


class Report(Struct, frozen=True, kw_only=True):
    """How a conversation came to rest: answered, at a limit, at a failure, or at a question."""

    kind: Literal["answered", "limited", "failed", "asked"]
    text: str
    error: Error | None = None


async def converse(run: RunContext, talk: Talk, desk: Desk) -> Report:
    """Let the model work with its tools until it reports, asks, fails or reaches a limit."""
    pieces: list[str] = []
    desk = structs.replace(desk, talk=talk)
    toolset = desk.toolset()
    while True:
        limit = pressing(run, talk, desk)
        if limit is not None:
            return await _limited(run, talk, desk, limit)
        call = f"{run.run}:{talk.turn}"
        view = TurnView(
            label=desk.label,
            model=desk.model,
            conversation=talk.conversation,
            toolset=toolset,
            settings=structs.replace(desk.settings, idempotency_key=call),
            tokens=talk.tokens,
            estimate=talk.estimate,
            purse=desk.purse,
            ceiling=desk.ceiling,
            seconds=desk.seconds_left(run),
            limit=desk.seconds,
            emit=desk.emit,
            redactor=desk.redactor,
        )
        ended = await run.step(
            f"model:{talk.turn}",
            call_model,
            TurnArgs(turn=talk.turn, model=desk.model.name),
            view=view,
            begun=ModelCallBegun(model=desk.model.name, call=call),
        )
        if isinstance(ended, Lost):
            raise TypeError("a model call may be repeated and is never lost")
        message = talk.hear(ended)
        desk.tell_tokens(talk.usage)
        _watch_size(run, talk, desk)
        if message is None:
            return await _failed(run, talk, desk, ended)
        if message.calls:
            report = await _use_tools(run, talk, desk, message)
            if report is not None:
                return report
            continue
        pieces.append(message.text)
        if ended.stop != "length":
            report = await _continued(run, talk, desk, "".join(pieces))
            is_asked = report is not None and report.kind == "asked"
            if report is not None and not (is_asked and await ask_person(run, talk, desk, report.text)):
                return report
            pieces.clear()
            continue
        if len(pieces) > GO_ON_TIMES:
            return Report(kind="limited", text="".join(pieces), error=_cut())
        await say(run, talk, f"continue:{talk.turn}", prompt("go_on"))


async def _continued(run: RunContext, talk: Talk, desk: Desk, text: str) -> Report | None:
    """Carry out the subtasks that an answer asks for in words; a report when it is an end."""
    asked = None if desk.subtasks is None else read_report(text)
    if asked is None:
        return _answered(text)
    key = f"continuation:{talk.turn}"
    answer = await answer_in_words(run, key, asked, desk)
    if isinstance(answer, Error):
        return Report(kind="failed", text=text, error=answer)
    await say(run, talk, f"{key}{TOLD}", answer)
    return None


async def say(run: RunContext, talk: Talk, key: str, text: str) -> None:
    """Say something to the model, on the record; what was said there before stands."""
    talk.say(words_of(await run.record(key, said(text))))


async def ask_person(run: RunContext, talk: Talk, desk: Desk, question: str) -> bool:
    """Put the question of an answer to whoever can be asked, and say what they answer; the clock stands still.

    Where nobody can be asked or nobody answers that is False, and the work ends with the question.
    """
    key = f"question:{talk.turn}"
    if not (desk.can_ask or run.asked(key) is not None):
        return False
    desk.emit(Progress(event="waiting", label=desk.label, content=question))
    body = await run.recv(key, ANSWER, question)
    if is_unanswered(body):
        return False
    answer = json.decode(body)
    talk.say(answer if isinstance(answer, str) else json.encode(answer).decode())
    return True


async def go_on(run: RunContext, talk: Talk) -> bool:
    """Take up the conversation that earlier rounds have left; False when they did not come to say the task."""
    if not any(isinstance(record.event, Said) for record in run.past):
        return False
    if talk.is_answered:
        await say(run, talk, "resumed", prompt("resumed"))
    return True


async def _use_tools(run: RunContext, talk: Talk, desk: Desk, message: AssistantMessage) -> Report | None:
    """Carry the calls out and put their results into the conversation; a report when that ends the work."""
    calls = message.calls
    question = None if desk.can_ask else next(_unanswerable(run, talk, calls), None)
    if question is not None:
        return _asked(question)
    talk.has_acted |= any(may_act(desk, call) for call in calls)
    used = await use_tools(run, desk, talk.turn, calls)
    results = [one.result for one in used]
    times = [talk.repeated(call, result) for call, result in zip(calls, results, strict=True)]
    told = [_warned(result, count) for result, count in zip(results, times, strict=True)]
    talk.get([*told[:-1], _with(told[-1], budget_warning(talk, desk))])
    talk.keep(calls, used)
    for call, result in zip(calls, results, strict=True):
        if call.name == ASK and result.content == UNANSWERED_CALL:
            return _asked(call)
    if max(times) >= MAX_REPEATS:
        return await _limited(run, talk, desk, repeats_itself(max(times)))
    return None


def _asked(call: ToolCall) -> Report:
    return Report(kind="asked", text=str(call.arguments.get("question", "")))


def _unanswerable(run: RunContext, talk: Talk, calls: Sequence[ToolCall]) -> Iterator[ToolCall]:
    """The questions that nobody can be asked; one that was put before is answered by whoever goes on with it."""
    for index, call in enumerate(calls):
        if call.name == ASK and run.asked(f"{tool_key(talk.turn, index)}:{ANSWER}") is None:
            yield call


def _warned(result: ToolResult, times: int) -> ToolResult:
    warning = f"You have had this result {times} times. Do something else, or report what you have."
    return _with(result, warning if times >= WARN_REPEATS else "")


def _with(result: ToolResult, words: str) -> ToolResult:
    return structs.replace(result, content=f"{result.content}\n\n{words}") if words else result


async def _failed(run: RunContext, talk: Talk, desk: Desk, ended: ModelCallEnded) -> Report:
    error = ended.error or _empty(desk.model.name)
    if error.type in _LIMITS:
        return await _limited(run, talk, desk, error, is_full=error.type == "context_exhausted")
    return Report(kind="failed", text=talk.text, error=error)


async def _limited(run: RunContext, talk: Talk, desk: Desk, why: Error, *, is_full: bool = False) -> Report:
    return Report(kind="limited", text=await hand_in(run, talk, desk, why, is_full=is_full), error=why)


def _answered(text: str) -> Report:
    words = text.rstrip()
    if words.endswith(AWAITING):
        return Report(kind="asked", text=words.removesuffix(AWAITING).rstrip())
    return Report(kind="answered", text=text)


def _watch_size(run: RunContext, talk: Talk, desk: Desk) -> None:
    """Warn, once, when the context of a subtask comes to its end."""
    lineage = run.state.lineage
    if desk.window is None or lineage is None or not lineage.subtask_depth:
        return
    warning = nearly_full(talk.tokens, desk.window)
    if warning and not talk.is_nearly_full:
        talk.is_nearly_full = True
        talk.warnings += (warning,)
        desk.emit(Progress(event="warning", label=desk.label, content=warning))


def _cut() -> Error:
    return Error(
        type="output_limit",
        code="OUTPUT_LIMIT",
        message=f"The answer was still cut at the output limit after it was asked {GO_ON_TIMES} times to go on.",
        recoverable=True,
        recommendation="Ask for less at once, or raise max_output_tokens.",
    )


def _empty(model: str) -> Error:
    return Error(
        type="provider",
        code="NO_ANSWER",
        message=f"{model} gave no answer and no reason.",
        recoverable=True,
        recommendation="Try again, or another model.",
    )
