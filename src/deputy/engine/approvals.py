"""Ask for approvals: record the request, wait for the answer, and compare the digest before the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.approval import ApprovalRequest
from deputy.core.approval_text import headline
from deputy.core.progress import Progress
from deputy.core.state import prefix

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deputy.engine.agent_context import Approval
    from deputy.engine.history import History
    from deputy.engine.ports import Folder, RunContext
    from deputy.engine.ports.durable import ApprovalVerdict


def policy_for(run: RunContext, key: str, approval: Approval, *, begun: str, ended: tuple[str, ...]) -> Approval:
    """Decide an approval: the recorded decision on replay, else the current policy.

    `begun` is the first record of an approved call, `ended` are the records of a finished one.
    """
    if run.recorded_question(key) is not None:
        return "ask"
    if run.has_record(begun):
        return "granted"
    return "refuse" if any(map(run.has_record, ended)) else approval


async def ask_person(
    run: RunContext,
    key: str,
    wanted: ApprovalRequest | Callable[[], Awaitable[ApprovalRequest]],
    *,
    begun: str,
    emit: Callable[[Progress], None],
    approval: Approval,
    folder: Folder | None = None,
    approval_timeout_seconds: float | None = None,
) -> ApprovalVerdict:
    """Record a request, wait for a person's answer to exactly this request, and compare before acting.

    A callable `wanted` builds the request from the current files; if it changes after the answer, the new request is
    asked. Once `begun` is recorded, the recorded approval stands.
    """

    async def request_for(key: str) -> ApprovalRequest:
        request = wanted if isinstance(wanted, ApprovalRequest) else await wanted()
        names = run.lineage.names
        key = f"{prefix(run.state.round)}{key}"
        request = structs.replace(request, key=key, session_id=run.run, path=names, label=label)
        if folder is None:
            return request
        name, identity = folder.approval_id()
        return structs.replace(request, folder=name, folder_id=identity)

    label = run.state.label or run.state.command
    number = 1
    while True:
        name = key if number == 1 else f"{key}.{number}"
        asked = run.recorded_question(name)
        request = None if asked is None else asked.request
        if request is None:
            request = await request_for(name)
        digest = request.digest if asked is None else asked.digest
        emit(Progress(event="waiting", label=label, content=headline(request)))
        verdict = await run.ask(name, request, approval_timeout_seconds=approval_timeout_seconds)
        if not verdict.is_yes or run.has_record(begun):
            return verdict
        if run.recorded_question(f"{key}.{number + 1}") is None:
            # The remaining budget changes while a person decides; all else must match.
            now = structs.replace(await request_for(name), cost=request.cost)
            if approval == "granted" or now.digest == digest:
                return verdict
        number += 1


def warn_not_granted(history: History | None, tool: str, *, is_command: bool) -> None:
    """Add a warning about a tool that an agent called and does not have, once per tool, with what grants it."""
    remedy = "" if is_command else f"; --allow {tool}, or the `tools` of the task, grants it"
    warning = f"{tool} was refused: it is not among the tools of the task{remedy}."
    if history is not None and warning not in history.warnings:
        history.warnings += (warning,)


_UNASKED = " was refused: it needs approval, and no person could be asked."
_MOST_WARNINGS = 20


def warn_refused(history: History | None, what: str) -> None:
    """Add a warning about a call that was refused without asking, once per call."""
    warning = f"{what}{_UNASKED}"
    if history is None or warning in history.warnings:
        return
    if sum(map(is_refused_unasked, history.warnings)) < _MOST_WARNINGS:
        history.warnings += (warning,)


def is_refused_unasked(warning: str) -> bool:
    """Whether a warning is about a call that was refused without asking."""
    return warning.endswith(_UNASKED)
