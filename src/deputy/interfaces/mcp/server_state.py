"""State shared by all connections of an MCP server: one Deputy, background work and progress subscriptions."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import Struct

from deputy.core.errors import DeputyError
from deputy.core.request import READ_ONLY_TOOLS
from deputy.engine.ports.observer import Observer
from deputy.interfaces.background import background, cause_of
from deputy.interfaces.mcp.elicitation import ClientQuestions, withdraw_question
from deputy.interfaces.text_lines import one_line
from deputy.interfaces.view.progress_table import ProgressTable, line, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence

    from mcp.server.session import ServerSession

    from deputy.client import Deputy
    from deputy.core.progress import Progress
    from deputy.core.task import DelegateCall

MOST_CALLS = 256
"""How many Delegate calls may run at once; more are refused."""
_MOST_ROOTS = 10_000
_LISTED = 100
_STOP_SECONDS = 3.0
HEARTBEAT_SECONDS = 5.0
"""Some clients time out after a minute without a notification."""
GAP_SECONDS = 0.25
"""Least time between two notifications: clients get lines, not every token."""
_PROGRESS_WIDTH = 240

Approval = Literal["ask", "granted", "refuse"]


class Options(Struct, frozen=True, kw_only=True):
    """The options of a server."""

    workspace: Path = Path()
    home: Path | None = None
    model: str | None = None
    approval: Approval = "ask"
    approval_seconds: float = 120.0
    """Time to approve a call where the client itself cannot ask its user."""
    allow: frozenset[str] = READ_ONLY_TOOLS
    """The tools that tasks may use."""
    observer: Observer | None = None


class ServerState:
    """Holds the Deputy of a server and all work that outlives one request; use it with `async with`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.calls = 0
        self.questions = ClientQuestions()
        self.started: deque[str] = deque(maxlen=_LISTED)
        """The runs that this server started, latest last."""
        self.is_leaving = False
        """Whether the client or the process is leaving: an interrupted call was then not cancelled by its client."""
        self._group = asyncio.TaskGroup()
        self._opened: asyncio.Future[Deputy] | None = None
        self._over = asyncio.Event()
        self._later: set[asyncio.Task[None]] = set()
        self._stopping: set[asyncio.Task[None]] = set()
        self._following: dict[str, list[ProgressNotifier]] = {}
        self._roots: dict[str, str] = {}
        self._unanswered: dict[Any, str] = {}
        self.sends_answers = False
        """Whether the transport reports written answers; else an answer counts as written at once."""

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Interrupt the runs so that they can be resumed."""
        self.is_leaving = True
        for task in self._later:
            task.cancel()
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=_STOP_SECONDS)
        for task in self._stopping:
            task.cancel()
        self._over.set()
        try:
            await self._group.__aexit__(None, None, None)
        except BaseExceptionGroup as raised:
            raise cause_of(raised) from None

    # --- the Deputy ---------------------------------------------------------------------------------------------------

    async def deputy(self) -> Deputy:
        """The Deputy, opened on first use."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._group.create_task(self._keep(self._opened))
        return await asyncio.shield(self._opened)

    async def _keep(self, opened: asyncio.Future[Deputy]) -> None:
        from deputy.client import Deputy
        from deputy.core.guard import Policy

        options = self.options
        try:
            async with (
                Deputy(
                    options.model,
                    workspace=options.workspace,
                    home=options.home,
                    policy=Policy(max_live=MOST_CALLS * 4, max_live_per_provider=MOST_CALLS * 4),
                    allow=options.allow,
                    approval=options.approval,
                    observer=options.observer,
                ) as deputy,
                background(self._route(deputy)),
            ):
                opened.set_result(deputy)
                await self._over.wait()
        except DeputyError as error:
            if opened.done():
                raise
            # The current caller gets the error; the next one tries again.
            self._opened = None
            opened.set_exception(error)

    # --- progress -----------------------------------------------------------------------------------------------------

    @contextmanager
    def follow(self, run: str, following: ProgressNotifier) -> Generator[None]:
        """Pass the events of a run tree to a notifier during the block."""
        self._following.setdefault(run, []).append(following)
        try:
            yield
        finally:
            followers = self._following[run]
            followers.remove(following)
            if not followers:
                del self._following[run]

    async def _route(self, deputy: Deputy) -> None:
        async for progress in deputy.events():
            # A lost event is no error: the results follow anyway.
            with suppress(DeputyError):
                root = await self._root_of(progress.session_id, deputy)
                for following in self._following.get(root, ()):
                    following.emit(progress)
                self._deny_later(progress, root)

    def _deny_later(self, progress: Progress, root: str) -> None:
        """Deny a subagent's question after the timeout of its call."""
        opened = self.questions.opened(root)
        if opened is not None and progress.event == "waiting" and progress.session_id != root:
            self.later(withdraw_question(self, progress.session_id, opened.approval_timeout_seconds))

    async def _root_of(self, run: str, deputy: Deputy) -> str:
        root = self._roots.get(run)
        if root is None:
            lineage = (await deputy.state(run)).lineage
            if len(self._roots) >= _MOST_ROOTS:
                self._roots.clear()
            root = self._roots[run] = run if lineage is None else lineage.root_id
        return root

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def start(self, wanted: DelegateCall, must_ask: bool, approval_timeout_seconds: float) -> str:
        """Start the run of a call; if the caller is cancelled meanwhile, the run is cancelled too."""
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._begin(self._start(wanted, must_ask, approval_timeout_seconds, started), self._stopping)
        try:
            run = await asyncio.shield(started)
        except asyncio.CancelledError:
            if not self.is_leaving:
                self._begin(self._stop_when_started(started), self._stopping)
            raise
        self.started.append(run)
        return run

    async def _start(
        self, wanted: DelegateCall, must_ask: bool, approval_timeout_seconds: float, started: asyncio.Future[str]
    ) -> None:
        try:
            deputy = await self.deputy()
            run = await deputy.start(
                wanted.tasks,
                concurrency=wanted.concurrency,
                must_ask=must_ask,
                approval_timeout_seconds=approval_timeout_seconds,
            )
        except DeputyError as error:
            started.set_exception(error)
        else:
            started.set_result(run)

    async def _stop_when_started(self, started: asyncio.Future[str]) -> None:
        await self._stop(await started)

    # --- background work ----------------------------------------------------------------------------------------------

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background; dropped when the server leaves."""
        self._begin(work, self._later)

    def stop_soon(self, run: str) -> None:
        """Cancel a run tree in the background; the server waits for it when it leaves."""
        self._begin(self._stop(run), self._stopping)

    async def _stop(self, run: str) -> None:
        await (await self.deputy()).cancel(run)

    def _begin(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
        task = self._group.create_task(_unless_it_fails(work))
        among.add(task)
        task.add_done_callback(among.discard)

    def answering(self, request_id: Any, run: str) -> None:
        """Record the delivery of a run's result once the answer to this request is written."""
        if self.sends_answers and request_id is not None:
            self._unanswered[request_id] = run
        else:
            self._deliver(run)

    def answered(self, request_id: Any) -> None:
        """The answer to a request was written."""
        run = self._unanswered.pop(request_id, None)
        if run is not None:
            self._deliver(run)

    def _deliver(self, run: str) -> None:
        async def deliver() -> None:
            await (await self.deputy()).delivered(run)

        if not self._over.is_set():
            self._begin(deliver(), self._stopping)


async def _unless_it_fails(work: Coroutine[Any, Any, None]) -> None:
    """Ignore a DeputyError: it is in the journal, and must not end the other work."""
    with suppress(DeputyError):
        await work


# --- progress notifications -------------------------------------------------------------------------------------------


class ProgressNotifier:
    """The latest line about one run; older lines are dropped, never queued."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._board = ProgressTable(labels)
        self._said = ""
        self._come = asyncio.Event()
        self._asks = asyncio.Event()

    def emit(self, progress: Progress) -> None:
        """Take in an event."""
        if progress.event == "waiting":
            self._asks.set()
        row = self._board.emit(progress, monotonic())
        if row is not None:
            self.notify(text_of(line(row, monotonic())))

    def notify(self, words: str) -> None:
        """Set the next line."""
        self._said = one_line(words, _PROGRESS_WIDTH)
        self._come.set()

    async def asked(self, seconds: float) -> None:
        """Wait until a run asks something, at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asks.wait()
                # The event of a question comes before its record.
                await asyncio.sleep(GAP_SECONDS)
        self._asks.clear()

    async def next(self) -> str:
        """The next line: a new one, or the last one again after a while."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._come.wait()
        except TimeoutError:
            return self._said or "running"
        self._come.clear()
        return self._said


@asynccontextmanager
async def followed(
    server_state: ServerState, session: ServerSession, run: str, labels: Sequence[str]
) -> AsyncGenerator[ProgressNotifier]:
    """Send progress of a run to the client while the block waits."""
    following = ProgressNotifier(labels)
    with server_state.follow(run, following):
        async with background(_emit(session, following)):
            yield following


async def _emit(session: ServerSession, following: ProgressNotifier) -> None:
    count = 0
    while True:
        words = await following.next()
        count += 1
        await session.report_progress(count, message=words)
        await asyncio.sleep(GAP_SECONDS)
