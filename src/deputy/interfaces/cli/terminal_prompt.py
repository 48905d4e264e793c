"""Asking the person at the terminal, on the loop: a question never keeps subagents or Ctrl-C waiting."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from deputy.core.approval import Decision
from deputy.core.approval_text import screen, visible_line
from deputy.interfaces.background import background
from deputy.interfaces.cli.keyboard import PASTE_SECONDS, forget_typed, push_unfinished_line
from deputy.interfaces.text_lines import escaped_invisible
from deputy.interfaces.view.renderers import NoView

if TYPE_CHECKING:
    from deputy.core.approval import ApprovalRequest, Choice
    from deputy.core.effective_settings import ApprovalPolicy
    from deputy.engine.agent_context import Approval
    from deputy.interfaces.questions import Question
    from deputy.interfaces.view.renderers import View

_HANG_UP_SECONDS = 0.2
NO_ANSWER = "(The person gave no answer: go on as seems best, and say what you assumed.)"


def can_ask() -> bool:
    """Whether there is a person: both what is asked and what is answered go through a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def wrapped(text: str) -> str:
    """Text of others made harmless and broken between words, so that it reads well on this terminal."""
    import textwrap

    width = max(20, _columns())
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="  ") for line in escaped_invisible(text).splitlines()
    )


def approval_for(policy: ApprovalPolicy, *, yes: bool) -> Approval:
    """What happens to calls that need a yes: the flag wins over the configuration, and nobody is asked in a pipe."""
    if yes or policy == "allow":
        return "granted"
    return "ask" if policy == "ask" and can_ask() else "refuse"


class TerminalPrompt:
    """The person at the terminal, asked one question at a time."""

    def __init__(self, stop: asyncio.Event, *, shows_all: bool = False) -> None:
        self.view: View = NoView()
        """What gives the terminal up while a question is asked."""
        self._stop = stop
        self._shows_all = shows_all
        self._turn = asyncio.Lock()

    async def answer(self, question: Question) -> bool | str | Decision:
        """Ask, and give what is answered; the word to stop is no answer, and neither is the end of input."""
        async with self._turn:
            if self._stop.is_set():
                return False
            self.view.pause(self)
            try:
                if question.request is not None:
                    choice = await self._choice(question.request)
                    return Decision(choice=choice, digest=question.digest)
                said = await self._said(f"\n{wrapped(f'[{question.label}] asks: {question.text}')}\n> ")
            finally:
                self.view.unpause(self)
        return False if said is None else said.strip() or NO_ANSWER

    async def _choice(self, request: ApprovalRequest) -> Choice:
        """What a person chooses; a yes to a text that was cut shows the rest, and asks again."""
        whole = self._shows_all
        while True:
            shown = screen(request, width=_columns(), whole=whole)
            said = await self._said(f"\n{shown.text}\n{_choices(request)}")
            # A line that nobody finished is no clear yes.
            choice = None if said is None or not said.endswith("\n") else _WORDS.get(said.strip().lower())
            if choice == "always" and not request.can_always:
                choice = None
            if choice == "details":
                whole = True
            elif choice is None or choice == "no":
                return "no"
            elif not shown.is_cut:
                return choice
            else:
                whole = True
                sys.stderr.write("Not answered yet: the text was cut. This is all of it:\n")

    async def _said(self, prompt: str) -> str | None:
        """What is typed; None when there is nobody any more who could answer."""
        said = await self._line(prompt)
        if said is None or not said.endswith("\n"):
            await self._be_stopped()
        return None if self._stop.is_set() else said

    async def _be_stopped(self) -> None:
        """Wait for the word to stop that a closed terminal gives together with the end of its input."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HANG_UP_SECONDS):
                await self._stop.wait()

    async def _line(self, prompt: str) -> str | None:
        """What is typed after it is asked: a line, all lines of what is pasted, or what there was when input ended."""
        forget_typed()
        sys.stderr.write(prompt)
        sys.stderr.flush()
        loop = asyncio.get_running_loop()
        come: asyncio.Future[str | None] = loop.create_future()
        typed = bytearray()

        def read() -> None:
            piece = _typed()
            typed.extend(piece)
            if not piece:
                # The cursor stands behind what was asked.
                sys.stderr.write("\n")
                end(typed.decode(errors="replace") if typed else None)
            elif piece.endswith(b"\n"):
                push_unfinished_line()
                loop.call_later(PASTE_SECONDS, end_if_whole, len(typed))

        def end_if_whole(length: int) -> None:
            # More may have come since, of which the last line ends later.
            if length == len(typed):
                end(typed.decode(errors="replace"))

        def end(said: str | None) -> None:
            if not come.done():
                come.set_result(said)

        async def give_up() -> None:
            await self._stop.wait()
            end(None)

        loop.add_reader(sys.stdin.fileno(), read)
        try:
            async with background(give_up()):
                return await come
        except asyncio.CancelledError:
            # The cursor stands behind what was asked.
            sys.stderr.write("\n(It is not asked any more.)\n")
            raise
        finally:
            loop.remove_reader(sys.stdin.fileno())


_WORDS: dict[str, Choice | Literal["details"]] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
    "d": "details",
    "details": "details",
}


def _choices(request: ApprovalRequest) -> str:
    if request.can_always:
        return f"y: yes, n: no, a: always {visible_line(request.tool)} in this run, d: details\nGo ahead? [y/N/a/d] "
    return "y: yes, n: no, d: details\nGo ahead? [y/N/d] "


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _typed() -> bytes:
    """What was typed; nothing when the input ended or its terminal is gone."""
    try:
        return os.read(sys.stdin.fileno(), 4096)
    except OSError:
        return b""
