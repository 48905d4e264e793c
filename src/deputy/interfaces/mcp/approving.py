"""A person's yes, sought where there is one: in the client's own form, else at any terminal, for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from deputy.core.approval_text import screen

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from deputy.interfaces.mcp.call import Call
    from deputy.interfaces.mcp.hub import Hub

KEY = "approval"
FORM_SECONDS = 3600.0
"""How long a person has who was shown a form."""
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Start the subagents", "default": True}},
    "required": ["approve"],
}


def can_elicit(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client says that it can show a person a form."""
    capabilities = context.session.client_capabilities
    ability = None if capabilities is None else capabilities.elicitation
    # One that names only other modes has no forms; one that names none has them.
    return ability is not None and (ability.form is not None or ability.url is None)


def is_modern(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether questions travel in results, and not as requests of the server's own."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def question_in_result(run: str, question: str) -> InputRequiredResult:
    """The question as a result: the client asks, and calls again with the answer and the run."""
    return InputRequiredResult(input_requests={KEY: request(question)}, request_state=run)


def request(question: str) -> ElicitRequest:
    """The question as a form."""
    return ElicitRequest(params=ElicitRequestFormParams(message=question, requested_schema=_FORM))


def is_yes(answer: object) -> bool:
    """Whether an answer approves: it was accepted, and the box is ticked. Whatever else it is, it is a no."""
    return (
        isinstance(answer, ElicitResult) and answer.action == "accept" and (answer.content or {}).get("approve") is True
    )


async def question_of(hub: Hub, run: str) -> tuple[str, str]:
    """What a run itself waits to be approved, whole, and its digest; nothing when it waits for nothing."""
    asking = await (await hub.deputy()).asking(run)
    if asking is None or asking.request is None or asking.run != run:
        return "", ""
    return screen(asking.request, whole=True).text, asking.digest


async def elicit(call: Call, run: str) -> None:
    """Have the client ask its person, and answer the run; a client that cannot after all leaves it to others."""
    session = call.context.session
    question, digest = await question_of(call.hub, run)
    if not question:
        return
    try:
        answer = await session.elicit_form(question, _FORM, related_request_id=call.context.request_id)
    except MCPError:
        return
    except ValidationError:
        # An answer that is none.
        answer = None
    await answer_run(call.hub, run, digest, is_approved=is_yes(answer))


def patience(call: Call) -> float:
    """How long somebody has to approve: longer only while a form of this very call is being shown."""
    is_shown = can_elicit(call.context) and not is_modern(call.context)
    return FORM_SECONDS if is_shown else call.hub.options.approval_seconds


async def give_up(hub: Hub, run: str, seconds: float) -> None:
    """Deny a run that nobody has approved after so long."""
    await asyncio.sleep(seconds)
    await answer_run(hub, run, "", is_approved=False)


async def answer_run(hub: Hub, run: str, digest: str, *, is_approved: bool) -> None:
    """Answer a run if it still waits for exactly this; the first answer counts."""
    await (await hub.deputy()).approve(run, "yes" if is_approved else "no", digest=digest)
