"""Approval by the person of an MCP client: the client is handed the question, and its answer counts once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import json
from pydantic import ValidationError

from deputy.core.approval_text import screen
from deputy.core.errors import DeputyError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp.server.context import ServerRequestContext

    from deputy.core.approval import Choice
    from deputy.interfaces.mcp.progress_notifications import ProgressNotifier
    from deputy.interfaces.mcp.questions import Question
    from deputy.interfaces.mcp.server_state import ServerState
    from deputy.interfaces.mcp.tool_call import McpCall

FORM_SECONDS = 3600.0
"""How long a person has who was shown a form."""
MOST_TEXT = 50_000
"""The longest text of a form; a longer one is shown in part, and cannot be approved by the form."""
LOOK_SECONDS = 1.0
"""How often a call that waits looks for new questions, where no event has told of one."""
_RECORD_SECONDS = 10.0
_CHOICE = "choice"
_NOT_HANDED = (
    "This approval does not count: it must come from a client that declared elicitation, answer a question that this "
    "server handed to it, and name it as the server did, once. Nothing was approved. "
    "A person can answer in a terminal: `deputy approve {run}`."
)


# --- clients ----------------------------------------------------------------------------------------------------------


def can_elicit(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client says that it can show a person a form."""
    capabilities = context.session.client_capabilities
    ability = None if capabilities is None else capabilities.elicitation
    # One that names only other modes has no forms; one that names none has them.
    return ability is not None and (ability.form is not None or ability.url is None)


def is_modern(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether questions travel in results, and not as requests of the server's own."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def client_of(context: ServerRequestContext[Any, Any]) -> str:
    """Which client sends a request, as far as the protocol tells: its session where it has one, and its name."""
    headers = getattr(context.request, "headers", None)
    session = None if headers is None or is_modern(context) else headers.get("mcp-session-id")
    params = context.session.client_params
    name = None if params is None else (params.client_info.name, params.client_info.version)
    return json.encode((session, name)).decode()


# --- questions --------------------------------------------------------------------------------------------------------


async def handed(server_state: ServerState, context: ServerRequestContext[Any, Any], run: str) -> tuple[Question, ...]:
    """The approvals that a run and those below it wait for, handed to the client that opened it, if it can ask."""
    if not can_elicit(context):
        return ()
    asked = await (await server_state.deputy()).approvals(run)
    return server_state.questions.hand(run, client_of(context), asked)


def question_in_result(run: str, questions: Sequence[Question]) -> InputRequiredResult:
    """The questions as a result: the client asks its person, and calls again with the answers."""
    requests: dict[str, Any] = {question.name: form(question) for question in questions}
    return InputRequiredResult(input_requests=requests, request_state=run)


def form(question: Question) -> ElicitRequest:
    """A question as a form."""
    text, choices = _shown(question)
    return ElicitRequest(params=ElicitRequestFormParams(message=text, requested_schema=_schema(choices)))


def _shown(question: Question) -> tuple[str, tuple[Choice, ...]]:
    """The text of a form and its choices: what is not shown whole cannot be approved by it."""
    asking = question.asking
    if asking.request is None:
        return f"{asking.question}\nSee all of it: deputy approve {asking.run} --details", ("no",)
    elsewhere = f"deputy approve {asking.run} --key {asking.key} --digest {asking.digest}"
    whole = screen(asking.request, whole=True).text
    if len(whole) <= MOST_TEXT:
        return f"{whole}\n  In a terminal: {elsewhere}", question.choices
    cut = screen(asking.request)
    rest = (
        f"  Too long for this form: {cut.hidden_bytes:,} bytes are not shown, so it can only be denied here.\n"
        f"  See all of it, and answer: deputy approve {asking.run} --details, then {elsewhere}"
    )
    return f"{cut.text}\n{rest}", ("no",)


def _schema(choices: Sequence[Choice]) -> dict[str, Any]:
    field = {"type": "string", "title": "Approve exactly this?", "enum": list(choices)}
    return {"type": "object", "properties": {_CHOICE: field}, "required": [_CHOICE]}


# --- answers ----------------------------------------------------------------------------------------------------------


async def take_answers(
    server_state: ServerState, context: ServerRequestContext[Any, Any], run: str, answers: Mapping[str, object]
) -> None:
    """Pass on what a person answered; an answer to a question that was not handed to this client is refused."""
    for name, given in answers.items():
        question = server_state.questions.take(name, run, client_of(context)) if can_elicit(context) else None
        if question is None:
            raise DeputyError(_NOT_HANDED.format(run=run))
        await _answer(server_state, question, given)


async def _answer(server_state: ServerState, question: Question, given: object) -> None:
    """Answer exactly what was asked; whatever is not a clear yes is a no."""
    choice: Choice = "no"
    if isinstance(given, ElicitResult) and given.action == "accept":
        chosen, choices = (given.content or {}).get(_CHOICE), _shown(question)[1]
        if chosen == "yes" and "yes" in choices:
            choice = "yes"
        elif chosen == "always" and "always" in choices:
            choice = "always"
    asking = question.asking
    # A call that changed meanwhile is asked again under another key.
    with suppress(UsageError):
        await (await server_state.deputy()).approve(asking.run, choice, digest=asking.digest, key=asking.key)


async def elicit(call: McpCall, questions: Sequence[Question]) -> None:
    """Have the client ask its person, question by question; a client that cannot after all leaves it to others."""
    for question in questions:
        text, choices = _shown(question)
        session, request_id = call.context.session, call.context.request_id
        can_ask = True
        try:
            given = await session.elicit_form(text, _schema(choices), related_request_id=request_id)
        except MCPError:
            given, can_ask = None, False
        except ValidationError:
            # An answer that is none.
            given = None
        # Taken in any case, so that a client that cannot ask is not asked for ever.
        if call.server_state.questions.take(question.name, question.root, question.client) is not None and can_ask:
            await _answer(call.server_state, question, given)


async def elicit_all(call: McpCall, run: str, following: ProgressNotifier) -> None:
    """Have the client ask its person whatever a run and those below it wait to be approved, until cancelled."""
    while True:
        await elicit(call, await next_questions(call, run, following))


async def next_questions(call: McpCall, run: str, following: ProgressNotifier) -> tuple[Question, ...]:
    """The next approvals that the client can answer."""
    while not (questions := await handed(call.server_state, call.context, run)):
        await following.asked(LOOK_SECONDS)
    return questions


def approval_timeout(call: McpCall) -> float:
    """How long a person has to approve: longer only while a form of this very call is being shown."""
    is_shown = can_elicit(call.context) and not is_modern(call.context)
    return FORM_SECONDS if is_shown else call.server_state.options.approval_seconds


async def withdraw_question(server_state: ServerState, run: str, seconds: float) -> None:
    """Deny what a run asks now if it is not answered after so long."""
    deputy = await server_state.deputy()
    asked = [one for one in await deputy.approvals(run) if one.run == run]
    with suppress(TimeoutError):
        async with asyncio.timeout(_RECORD_SECONDS):
            while not asked:
                # An event tells of a question before its record is written.
                await asyncio.sleep(LOOK_SECONDS / 10)
                asked = [one for one in await deputy.approvals(run) if one.run == run]
    if asked:
        await asyncio.sleep(seconds)
    for one in asked:
        with suppress(UsageError):
            await deputy.approve(run, "no", digest=one.digest, key=one.key)
