"""One session of an ACP client: a run of a parent agent, with its own Deputy in the folder of the session."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.backends.acp import jsonrpc
from deputy.backends.cli.program import Fields, part, parts, text_of
from deputy.client import Deputy
from deputy.core.approval import Decision
from deputy.core.errors import DeputyError, UnknownRun, UsageError
from deputy.core.events import APPROVAL
from deputy.core.limits import Budget
from deputy.core.outcome import Blocked
from deputy.engine.call import RUN
from deputy.engine.ports.observer import Observer
from deputy.interfaces.acp.session_updates import KINDS, SessionUpdates, message, text_block
from deputy.interfaces.background import background, first_of
from deputy.interfaces.questions import PendingApproval, approval_form
from deputy.processes.outgoing import outgoing_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deputy.core.approval import Choice, Question
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.engine.agent_context import Approval

LOOK_SECONDS = 0.25
"""How often records are read without an event, and the least time between two updates about subagents."""
_UNREAD = 10_000
_OPTIONS: Mapping[Choice, tuple[str, str]] = {
    "yes": ("allow_once", "Approve exactly this"),
    "always": ("allow_always", "Always this tool in this run"),
    "no": ("reject_once", "Deny"),
}
"""By choice: the kind and the name of its permission option."""


class AcpOptions(Struct, frozen=True, kw_only=True):
    """The options of all sessions."""

    model: str | None = None
    budget: Budget | None = None
    timeout: float | None = None
    tools: tuple[str, ...] | None = None
    agent: str | None = None
    yes: bool = False
    observer: Observer | None = None


class TurnFailed(DeputyError):
    """A turn that failed: the client gets an error, not an answer."""


class AcpSession:
    """A session that is open; `keep` holds its Deputy."""

    def __init__(
        self, folder: str, servers: Mapping[str, Mapping[str, Any]], options: AcpOptions, connection: jsonrpc.Connection
    ) -> None:
        self.id = ""
        self.turn: int | str | None = None
        """The id of the request whose turn is running."""
        self.over = asyncio.Event()
        """Set to close the session."""
        self._folder = folder
        self._servers = servers
        self._options = options
        self._connection = connection
        self._cancelled = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_closed = asyncio.Event()
        self._news = asyncio.Event()
        self._unread: deque[Progress] = deque(maxlen=_UNREAD)
        self._updates = SessionUpdates("", Path(folder))
        self._sending = asyncio.Lock()
        self._tables_due = 0.0
        self._deputy: Deputy | None = None

    async def keep(self, opened: asyncio.Future[AcpSession], load: str, *, is_replayed: bool) -> None:
        """Open the Deputy and the session, and hold both until `over`; `load` names an earlier session."""
        from deputy.config import load_effective_settings

        try:
            settings = load_effective_settings(self._folder)
            is_granted = self._options.yes or settings.approval == "allow"
            approval: Approval = "granted" if is_granted else "refuse" if settings.approval == "refuse" else "ask"
            async with Deputy(
                self._options.model,
                workspace=self._folder,
                budget=self._options.budget,
                mcp_servers=dict(self._servers),
                watch=self._watch,
                answer=self._answer,
                observer=self._options.observer,
                approval=approval,
                rules=settings,
            ) as deputy:
                self._deputy = deputy
                await self._open(deputy, load, is_replayed=is_replayed)
                # A client that has left waits for nothing.
                if not opened.cancelled():
                    opened.set_result(self)
                await self.over.wait()
        except DeputyError as error:
            if opened.cancelled():
                return
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            self._deputy = None
            self._is_closed.set()

    async def _open(self, deputy: Deputy, load: str, *, is_replayed: bool) -> None:
        if not load:
            # Without a model, the client gets the error before its user writes a prompt.
            await deputy.models.default()
            self.id = await deputy.new_session_id()
            self._updates = SessionUpdates(self.id, Path(self._folder))
            return
        state = await deputy.state(load)
        if state.command != RUN or state.parent is not None:
            raise UsageError("sessionId", load, "it is no session of an agent; `deputy show` shows this run")
        if state.workspace != self._folder:
            raise UsageError("cwd", self._folder, f"the session works in {state.workspace}")
        self.id = load
        self._updates = SessionUpdates(load, Path(self._folder))
        for record in await deputy.records(load):
            updates = self._updates.on_record(record, is_replay=True)
            await self._send(updates if is_replayed else list(updates)[:0])
        await self._send(list(self._updates.close())[: None if is_replayed else 0])

    # --- a turn -------------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel the turn that is running."""
        self._cancelled.set()

    async def close(self) -> None:
        """Cancel the turn that is running, and close the session after its end."""
        self.cancel()
        await self._is_idle.wait()
        self.over.set()
        await self._is_closed.wait()

    async def prompt(self, number: str | int, blocks: object) -> Fields:
        """Run the turn of a request: the first starts the run, each later one resumes it."""
        text, deputy = prompt_text(blocks), self._deputy
        if self.turn is not None:
            raise UsageError("sessionId", self.id, "a turn is running in this session; cancel it, or wait for its end")
        if deputy is None:
            raise UsageError("sessionId", self.id, "the session is closed; open it again with session/load")
        self._cancelled.clear()
        self._is_idle.clear()
        self.turn = number
        try:
            return await self._run_turn(deputy, text)
        finally:
            self.turn = None
            self._is_idle.set()

    async def _run_turn(self, deputy: Deputy, text: str) -> Fields:
        await self._begin(deputy, text)
        async with background(self._follow(deputy)), background(self._stop_when_cancelled(deputy)):
            outcome = await deputy.outcome(self.id)
        await self._pass_on(deputy)
        shown = self._updates.shown
        await self._send(self._updates.close())
        await deputy.delivered(self.id)
        return await self._ended(outcome, shown)

    async def _begin(self, deputy: Deputy, text: str) -> None:
        self._unread.clear()
        try:
            state = await deputy.state(self.id)
        except UnknownRun:
            options = self._options
            await deputy.start(
                text, session_id=self.id, agent=options.agent, tools=options.tools, timeout=options.timeout
            )
            return
        if state.is_live:
            # The process of its last turn was interrupted. What it had finished stays in the conversation.
            await deputy.ensure_not_running(self.id)
            await deputy.cancel(self.id)
            await deputy.outcome(self.id)
            await deputy.wait_until_finished(self.id)
        await self._skip_records(deputy)
        await deputy.resume_run(self.id, text)

    async def _ended(self, outcome: Outcome, shown: str) -> Fields:
        """The answer to a prompt; a failed turn is an error."""
        meta = {"deputy": {"sessionId": self.id, "status": outcome.status}}
        if self._cancelled.is_set() or outcome.status == "cancelled":
            return {"stopReason": "cancelled", "_meta": meta}
        why = " ".join(f"{error.message} {error.recommendation}".strip() for error in outcome.errors[:1])
        if outcome.status in ("failed", "rejected"):
            raise TurnFailed(outgoing_text(why or f"The turn ended as {outcome.status}."))
        if isinstance(outcome, Blocked):
            why = outcome.question
        if outcome.status != "completed" and why not in shown:
            await self._send([message(outgoing_text(f"\n\n{why}" if shown else why))])
        elif not shown and outcome.report:
            await self._send([message(outgoing_text(outcome.report))])
        stop = "end_turn"
        if outcome.status == "partial":
            is_full = any(error.type == "context_exhausted" for error in outcome.errors)
            stop = "max_tokens" if is_full else "max_turn_requests"
        return {"stopReason": stop, "_meta": meta}

    async def _stop_when_cancelled(self, deputy: Deputy) -> None:
        await self._cancelled.wait()
        await deputy.cancel(self.id)

    # --- updates ------------------------------------------------------------------------------------------------------

    def _watch(self, progress: Progress) -> None:
        self._unread.append(progress)
        self._news.set()

    async def _follow(self, deputy: Deputy) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            await self._pass_on(deputy)

    async def _pass_on(self, deputy: Deputy) -> None:
        """Send what is new: records first, since an event may come before the records that it follows."""
        async with self._sending:
            for record in await deputy.records(self.id, self._updates.seq):
                await self._send(self._updates.on_record(record))
            while self._unread:
                await self._send(self._updates.on_progress(self._unread.popleft(), monotonic()))
            # Subagents send many events; a client needs few of them.
            if self._tables_due <= (now := monotonic()):
                self._tables_due = now + LOOK_SECONDS
                await self._send(self._updates.tables(now))

    async def _skip_records(self, deputy: Deputy) -> None:
        """Read the records of a turn that ended elsewhere, without updates."""
        for record in await deputy.records(self.id, self._updates.seq):
            list(self._updates.on_record(record))
        list(self._updates.close())

    async def _send(self, updates: Iterable[Fields]) -> None:
        for update in updates:
            await self._connection.send(jsonrpc.request("session/update", {"sessionId": self.id, "update": update}))

    # --- questions ----------------------------------------------------------------------------------------------------

    async def _answer(self, question: Question) -> Decision | bool:
        """Have the client ask its user for an approval.

        A question in words ends the turn; the next prompt is its answer.
        """
        request = question.request
        if question.topic != APPROVAL or request is None or self._deputy is None:
            return False
        # The client must know the call before it is asked about it.
        await self._pass_on(self._deputy)
        asking = PendingApproval(question.session_id, request.key, question.digest, request.title, request)
        text, choices = approval_form(asking)
        is_own = question.session_id == self.id
        key = request.key.partition(":approval")[0] if is_own else f"{question.session_id}/{request.key}"
        call = {
            "toolCallId": key,
            "title": request.title if is_own else f"[{question.label}] {request.title}",
            "kind": KINDS.get(request.tool, "other"),
            "status": "pending",
            "content": [{"type": "content", "content": text_block(text)}],
        }
        options = [
            {"optionId": choice, "kind": kind, "name": name}
            for choice, (kind, name) in _OPTIONS.items()
            if choice in choices
        ]
        meta = {"deputy": {"sessionId": asking.run, "key": asking.key, "digest": asking.digest}}
        asked = {"sessionId": self.id, "toolCall": call, "options": options, "_meta": meta}
        asking_client = self._connection.ask("session/request_permission", asked, withdraws=True)
        replied = await first_of(asking_client, self._cancelled.wait())
        if not isinstance(replied, jsonrpc.RpcResult | jsonrpc.RpcError):
            # A client that has left denies nothing: the question stays open for a terminal. A cancelled run ends here.
            await asyncio.Event().wait()
        chosen = part(replied.result, "outcome").get("optionId") if isinstance(replied, jsonrpc.RpcResult) else None
        choice: Choice = "no"
        for one in choices:
            choice = one if one == chosen else choice
        if not is_own:
            status = "failed" if choice == "no" else "completed"
            await self._send([{"sessionUpdate": "tool_call_update", "toolCallId": key, "status": status}])
        return Decision(choice=choice, digest=question.digest)


def prompt_text(blocks: object) -> str:
    """The prompt as text: texts, links, and embedded texts with their addresses."""
    texts: list[str] = []
    for block in parts(blocks):
        match block.get("type"):
            case "text":
                texts.append(text_of(block.get("text")))
            case "resource_link":
                texts.append(f"[{text_of(block.get('name')) or 'file'}]({_place(block.get('uri'))})")
            case "resource" if isinstance(part(block, "resource").get("text"), str):
                resource = part(block, "resource")
                texts.append(f"{_place(resource.get('uri'))}:\n\n{text_of(resource.get('text'))}")
            case kind:
                raise UsageError("prompt", str(kind)[:100], "send text, resource links, or resources with a text")
    text = "\n\n".join(texts)
    if not text.strip():
        raise UsageError("prompt", text[:100], "send a text that is not empty")
    return text


def _place(uri: object) -> str:
    """A file as its path, which tools can read; any other address unchanged."""
    from urllib.parse import unquote

    place = text_of(uri)
    return unquote(place.removeprefix("file://")) if place.startswith("file:///") else place
