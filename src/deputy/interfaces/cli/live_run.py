"""An open Deputy for commands that start or continue runs, with live view, events, questions and Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from deputy.client import Deputy
from deputy.config import load_effective_settings
from deputy.core.approval_text import headline
from deputy.core.outcome import how_to_answer
from deputy.interfaces.cli.console import CANCELLED, exit_code, log_observer, warn
from deputy.interfaces.cli.runner import resumable, until_done
from deputy.interfaces.cli.terminal_prompt import TerminalPrompt, approval_for, can_ask
from deputy.interfaces.view.event_lines import Subscribers, open_events
from deputy.interfaces.view.renderers import ParentView, open_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence

    from deputy.core.approval import Question
    from deputy.core.effective_settings import EffectiveSettings
    from deputy.core.outcome import Outcome
    from deputy.engine.agent_context import Approval
    from deputy.interfaces.cli.console import Console, RunOptions
    from deputy.interfaces.view.event_lines import EventLines
    from deputy.interfaces.view.renderers import View

_T = TypeVar("_T")
_ANSWERED_SECONDS = 0.3
"""How long an answer that was given before a resume may take to be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRun:
    """An open Deputy with what connects it to the terminal."""

    deputy: Deputy
    console: Console
    options: RunOptions
    settings: EffectiveSettings
    approval: Approval
    stop: asyncio.Event
    terminal: TerminalPrompt
    subscribers: Subscribers
    lines: EventLines | None
    has_log: bool
    """Whether log lines go to standard error, which a live table would tear."""

    @property
    def has_events_on_stdout(self) -> bool:
        """Whether standard output has events, so that the result is the last of them."""
        return self.options.events == "-"

    @property
    def is_quiet(self) -> bool:
        """Whether only a program reads the output."""
        return self.console.as_json or self.has_events_on_stdout

    @property
    def result_lines(self) -> EventLines | None:
        """The event lines, when they take the result too."""
        return self.lines if self.has_events_on_stdout else None

    def opened(self, session_id: str, **fields: Any) -> None:
        """Write the `opened` event."""
        if self.lines is not None:
            self.lines.write("opened", {"session_id": session_id, **fields})

    @asynccontextmanager
    async def view(self, labels: Sequence[str] = (), *, is_quiet: bool | None = None) -> AsyncGenerator[View]:
        """Show the progress of subagents."""
        is_quiet = self.is_quiet if is_quiet is None else is_quiet
        async with open_view(labels, is_quiet=is_quiet, is_live=not self.has_log) as view:
            self.terminal.view = view
            self.subscribers.subscribe(view)
            try:
                yield view
            finally:
                self.subscribers.unsubscribe(view)

    @asynccontextmanager
    async def parent_view(self, labels: Sequence[str] = ()) -> AsyncGenerator[ParentView]:
        """Show the text of a parent agent, and the progress of its subagents."""
        async with open_view(labels, is_quiet=self.is_quiet, is_live=not self.has_log) as view:
            is_streaming = sys.stdout.isatty() and not self.is_quiet and not self.has_log
            parent = ParentView(view, is_streaming=is_streaming, is_quiet=self.is_quiet)
            self.terminal.view = parent
            self.subscribers.subscribe(parent)
            yield parent
        parent.finish()

    async def wait(self, session_id: str, work: Awaitable[_T]) -> _T | None:
        """Wait for a run; on Ctrl-C cancel it. None when it does not stop in time."""
        with resumable(session_id):
            return await until_done(work, self.stop, lambda: self.deputy.cancel(session_id))

    def exit_code(self, outcomes: Sequence[Outcome]) -> int:
        """The exit code of these outcomes, or of Ctrl-C."""
        return CANCELLED if self.stop.is_set() else exit_code(outcomes)


@asynccontextmanager
async def _page_beside(console: Console, *, is_wanted: bool) -> AsyncGenerator[None]:
    """Serve the web page while the command runs, if that is wanted."""
    if not is_wanted:
        yield
        return
    from deputy.interfaces.cli.commands.web_page import open_browser
    from deputy.interfaces.nesting import refuse_below_run
    from deputy.interfaces.web.web_server import WebOptions, serving
    from deputy.journal.home import home_path, make_home

    refuse_below_run("--web")
    async with serving(WebOptions(home=make_home(home_path()))) as page:
        warn(f"the page: {page.url_with_token}")
        if not console.as_json:
            open_browser(page.url_with_token)
        yield


async def _show_waiting(question: Question) -> bool:
    """Print what waits and how to answer it, where no person can be asked; cancelled when it is answered elsewhere."""
    await asyncio.sleep(_ANSWERED_SECONDS)
    run = question.session_id
    if question.request is None:
        warn(f"[{question.label}] asks: {question.text} {how_to_answer(run)}")
    else:
        warn(f"[{question.label}] waits for approval: {headline(question.request)}. To answer: deputy approve {run}")
    return await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def open_live_run(
    console: Console, options: RunOptions, stop: asyncio.Event, *, waits: bool = False
) -> AsyncGenerator[LiveRun]:
    """Open a Deputy for a command; with `waits` and no terminal, approvals wait instead of being refused."""
    settings = load_effective_settings(str(options.workspace))
    approval = approval_for(settings.approval, yes=options.yes)
    if (waits or options.web) and approval == "refuse" and settings.approval == "ask":
        approval = "ask"
    async with _page_beside(console, is_wanted=options.web), open_events(options.events) as lines:
        subscribers, terminal, observer = Subscribers(lines), TerminalPrompt(stop), log_observer()
        async with Deputy(
            options.model,
            workspace=options.workspace or ".",
            budget=options.budget,
            watch=subscribers.emit,
            observer=observer,
            approval=approval,
            answer=terminal.answer if can_ask() else None,
            private=[] if options.events in (None, "-") else [options.events],
            rules=settings,
            fallback=False if options.no_fallback else None,
            inline=False if options.no_inline else None,
            here=options.here,
            worker=options.worker,
        ) as deputy:
            if not can_ask():
                await deputy.pass_questions(_show_waiting)
            deputy.placed.tell = terminal.tell
            yield LiveRun(
                deputy=deputy,
                console=console,
                options=options,
                settings=settings,
                approval=approval,
                stop=stop,
                terminal=terminal,
                subscribers=subscribers,
                lines=lines,
                has_log=observer is not None,
            )
        for problem in dict.fromkeys(deputy.notify_problems):
            warn(f"warning: {problem}")
