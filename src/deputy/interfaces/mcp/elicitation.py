"""Approval by the user of an MCP client, as an elicitation form; each answer counts once."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct, json
from pydantic import ValidationError

from deputy.core.errors import DeputyError, UsageError
from deputy.interfaces.questions import PendingApproval, approval_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mcp.server.context import ServerRequestContext

    from deputy.core.approval import Choice
    from deputy.interfaces.mcp.server_state import ProgressNotifier, ServerState
    from deputy.interfaces.mcp.tools import McpCall

MOST_RUNS = 10_000
"""How many runs and questions are remembered."""
PREFIX = "approval:"
_NONCE_BYTES = 32
FORM_SECONDS = 3600.0
"""Time to answer a form that is shown."""
LOOK_SECONDS = 1.0
"""How often a waiting call looks for new questions without an event."""
_RECORD_SECONDS = 10.0
_CHOICE = "choice"
_NOT_HANDED = (
    "This approval does not count: this server did not give this client such a question, or the question was answered "
    "already. Nothing was approved. "
    "A person can answer in a terminal: `deputy approve {run}`."
)


# --- clients ----------------------------------------------------------------------------------------------------------


def can_elicit(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client declares that it can show forms."""
    capabilities = context.session.client_capabilities
    ability = None if capabilities is None else capabilities.elicitation
    # Without any mode named, forms are implied.
    return ability is not None and (ability.form is not None or ability.url is None)


def is_modern(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether questions are sent in results (new protocol versions) instead of server requests."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def client_of(context: ServerRequestContext[Any, Any]) -> str:
    """The identity of the client, as far as the protocol tells: its session id, name and version."""
    headers = getattr(context.request, "headers", None)
    session = None if headers is None or is_modern(context) else headers.get("mcp-session-id")
    params = context.session.client_params
    name = None if params is None else (params.client_info.name, params.client_info.version)
    return json.encode((session, name)).decode()


# --- which client may answer what -------------------------------------------------------------------------------------


class OpenedRun(Struct, frozen=True, kw_only=True):
    """A run that a client opened, and the timeout of its approvals."""

    client: str
    approval_timeout_seconds: float


class ClientQuestion(Struct, frozen=True, kw_only=True):
    """An approval given to a client; the nonce stands for exactly this key and digest."""

    nonce: str
    client: str
    root: str
    """The run that the client opened."""
    asking: PendingApproval

    @property
    def name(self) -> str:
        """The name of the question in the client's answer."""
        return f"{PREFIX}{self.nonce}"


class ClientQuestions:
    """Which client opened which run, and which questions it was given."""

    def __init__(self) -> None:
        self._opened: dict[str, OpenedRun] = {}
        self._handed: dict[str, ClientQuestion] = {}
        self._answered: dict[tuple[str, str, str], None] = {}

    def opened(self, run: str) -> OpenedRun | None:
        """The client that opened a run; None if this server did not open it."""
        return self._opened.get(run)

    def open(self, run: str, client: str, approval_timeout_seconds: float) -> None:
        """Remember the client that opens or resumes a run."""
        self._opened[run] = OpenedRun(client=client, approval_timeout_seconds=approval_timeout_seconds)
        _forget_oldest(self._opened)

    def hand(self, root: str, client: str, asked: Iterable[PendingApproval]) -> tuple[ClientQuestion, ...]:
        """The questions for the client that opened the run, each with a nonce; none for any other client."""
        opened = self._opened.get(root)
        if opened is None or opened.client != client:
            return ()
        return tuple(self._hand(root, client, one) for one in asked if _identity(one) not in self._answered)

    def _hand(self, root: str, client: str, asking: PendingApproval) -> ClientQuestion:
        for question in self._handed.values():
            if (question.root, question.client) == (root, client) and _identity(question.asking) == _identity(asking):
                return question
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        question = self._handed[nonce] = ClientQuestion(nonce=nonce, client=client, root=root, asking=asking)
        _forget_oldest(self._handed)
        return question

    def take(self, name: str, root: str, client: str) -> ClientQuestion | None:
        """Remove and return the question that an answer names; None if this client was not given it."""
        question = self._handed.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        if question is None or (question.root, question.client) != (root, client):
            return None
        del self._handed[question.nonce]
        self._answered[_identity(question.asking)] = None
        _forget_oldest(self._answered)
        return question


def _identity(asking: PendingApproval) -> tuple[str, str, str]:
    return asking.run, asking.key, asking.digest


def _forget_oldest(known: dict[Any, Any]) -> None:
    while len(known) > MOST_RUNS:
        del known[next(iter(known))]


# --- questions --------------------------------------------------------------------------------------------------------


async def handed(
    server_state: ServerState, context: ServerRequestContext[Any, Any], run: str
) -> tuple[ClientQuestion, ...]:
    """The pending approvals of a run and its descendants, for the client that opened it, if it can show forms."""
    if not can_elicit(context):
        return ()
    asked = await (await server_state.deputy()).approvals(run)
    return server_state.questions.hand(run, client_of(context), asked)


def question_in_result(run: str, questions: Sequence[ClientQuestion]) -> InputRequiredResult:
    """The questions as a result; the client asks its user and repeats the call with the answers."""
    requests: dict[str, Any] = {question.name: form(question) for question in questions}
    return InputRequiredResult(input_requests=requests, request_state=run)


def form(question: ClientQuestion) -> ElicitRequest:
    """A question as a form."""
    text, choices = approval_form(question.asking)
    return ElicitRequest(params=ElicitRequestFormParams(message=text, requested_schema=_schema(choices)))


def _schema(choices: Sequence[Choice]) -> dict[str, Any]:
    field = {"type": "string", "title": "Approve exactly this?", "enum": list(choices)}
    return {"type": "object", "properties": {_CHOICE: field}, "required": [_CHOICE]}


# --- answers ----------------------------------------------------------------------------------------------------------


async def take_answers(
    server_state: ServerState, context: ServerRequestContext[Any, Any], run: str, answers: Mapping[str, object]
) -> None:
    """Send a user's answers; an answer to a question that this client was not given is refused."""
    for name, given in answers.items():
        question = server_state.questions.take(name, run, client_of(context)) if can_elicit(context) else None
        if question is None:
            raise DeputyError(_NOT_HANDED.format(run=run))
        await _answer(server_state, question, given)


async def _answer(server_state: ServerState, question: ClientQuestion, given: object) -> None:
    """Answer the question; anything but a clear yes is a no."""
    choice: Choice = "no"
    if isinstance(given, ElicitResult) and given.action == "accept":
        chosen, choices = (given.content or {}).get(_CHOICE), approval_form(question.asking)[1]
        if chosen == "yes" and "yes" in choices:
            choice = "yes"
        elif chosen == "always" and "always" in choices:
            choice = "always"
    asking = question.asking
    # If the call has changed, the run asks again under another key.
    with suppress(UsageError):
        await (await server_state.deputy()).approve(asking.run, choice, digest=asking.digest, key=asking.key)


async def elicit(call: McpCall, questions: Sequence[ClientQuestion]) -> None:
    """Have the client ask its user, question by question; if it cannot, the question stays open for the terminal."""
    for question in questions:
        text, choices = approval_form(question.asking)
        session, request_id = call.context.session, call.context.request_id
        can_ask = True
        try:
            given = await session.elicit_form(text, _schema(choices), related_request_id=request_id)
        except MCPError:
            given, can_ask = None, False
        except ValidationError:
            given = None
        # Taken in any case, so that a failing client is not asked again and again.
        if call.server_state.questions.take(question.name, question.root, question.client) is not None and can_ask:
            await _answer(call.server_state, question, given)


async def elicit_all(call: McpCall, run: str, following: ProgressNotifier) -> None:
    """Have the client ask its user for every approval of a run and its descendants, until cancelled."""
    while True:
        await elicit(call, await next_questions(call, run, following))


async def next_questions(call: McpCall, run: str, following: ProgressNotifier) -> tuple[ClientQuestion, ...]:
    """Wait for the next approvals that the client can answer."""
    while not (questions := await handed(call.server_state, call.context, run)):
        await following.asked(LOOK_SECONDS)
    return questions


def approval_timeout(call: McpCall) -> float:
    """Time to approve: longer while this call shows a form."""
    is_shown = can_elicit(call.context) and not is_modern(call.context)
    return FORM_SECONDS if is_shown else call.server_state.options.approval_seconds


async def withdraw_question(server_state: ServerState, run: str, seconds: float) -> None:
    """Deny the pending approvals of a run after a timeout."""
    deputy = await server_state.deputy()
    asked = [one for one in await deputy.approvals(run) if one.run == run]
    with suppress(TimeoutError):
        async with asyncio.timeout(_RECORD_SECONDS):
            while not asked:
                # The event of a question comes before its record.
                await asyncio.sleep(LOOK_SECONDS / 10)
                asked = [one for one in await deputy.approvals(run) if one.run == run]
    if asked:
        await asyncio.sleep(seconds)
    for one in asked:
        with suppress(UsageError):
            await deputy.approve(run, "no", digest=one.digest, key=one.key)
