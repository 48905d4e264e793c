"""Ask the person at the terminal without blocking the event loop: subagents and Ctrl-C keep working."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from deputy.core.approval import Decision
from deputy.core.approval_text import screen, visible_line
from deputy.core.progress import Progress
from deputy.interfaces.background import background
from deputy.interfaces.cli.typed_line import TypedLine
from deputy.interfaces.text_lines import escaped_invisible, process_redactor
from deputy.interfaces.view.renderers import View

if TYPE_CHECKING:
    from deputy.core.approval import ApprovalRequest, Choice, Question
    from deputy.core.effective_settings import ApprovalPolicy
    from deputy.engine.agent_context import Approval

_HANG_UP_SECONDS = 0.2
_READ_SECONDS = 0.3
"""How long a question is shown before it takes an answer: a key pressed sooner was meant for what was there before."""
PASTE_SECONDS = 0.05
"""A paste is complete after this silence."""
_LOCAL_MODES = 3
BELL = "\a"
_SHORTENED = "Not approved yet: the text above was shortened. This is all of it:\n"
NO_ANSWER = "(The person gave no answer. Decide yourself, and say what you assumed.)"


def can_ask() -> bool:
    """Whether a person can answer: stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_line(prompt: str) -> str | None:
    """The line that a person types, without spaces around it; None at the end of input. For commands without a run."""
    _show(prompt)
    line = sys.stdin.readline()
    return line.strip() if line else None


def wrapped(text: str) -> str:
    """Untrusted text with secrets redacted and invisible characters escaped, wrapped to the terminal."""
    import textwrap

    width = max(20, _columns())
    shown = escaped_invisible(process_redactor().redact(text))
    return "\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in shown.splitlines())


def approval_for(policy: ApprovalPolicy, *, yes: bool) -> Approval:
    """How approvals are decided: --yes wins over the configuration; without a terminal they are refused."""
    if yes or policy == "allow":
        return "granted"
    return "ask" if policy == "ask" and can_ask() else "refuse"


class TerminalPrompt:
    """Asks the person at the terminal, one question at a time."""

    def __init__(self, stop: asyncio.Event, *, shows_all: bool = False) -> None:
        self.view = View()
        """The live view; during a question it goes on above it, until something is typed."""
        self._below = ""
        """What was printed below the table since the question opened."""
        self._stop = stop
        self._shows_all = shows_all
        self._turn = asyncio.Lock()

    async def answer(self, question: Question) -> bool | str | Decision:
        """Ask and return the answer; False on stop or at the end of input."""
        async with self._turn:
            if self._stop.is_set():
                return False
            self.view.pause(self, is_kept=True)
            self._below = ""
            sys.stderr.write(BELL)
            try:
                if question.request is not None:
                    choice = await self._choice(question.request)
                    answer = Decision(choice=choice, digest=question.digest)
                else:
                    said = await self._said(f"\n{wrapped(f'[{question.label}] asks: {question.text}')}\n", "> ")
                    answer = False if said is None else said.strip() or NO_ANSWER
                # The next question is shown below a table in which this one is answered.
                self.view.emit(Progress(event="thinking", label=question.label, session_id=question.session_id))
                return answer
            finally:
                self.view.unpause(self)

    def tell(self, text: str) -> None:
        """Print a line above the live view."""
        from deputy.interfaces.cli.console import warn

        # Not `self`, which may have a question open.
        teller = object()
        self.view.pause(teller)
        warn(text)
        self.view.unpause(teller)

    async def _choice(self, request: ApprovalRequest) -> Choice:
        """Ask for a choice; a yes to a shortened text shows all of it and asks again."""
        whole = self._shows_all
        while True:
            shown = screen(request, width=_columns(), whole=whole)
            said = await self._said(f"\n{shown.text}\n", _choices(request))
            # A line without its newline is not a clear yes.
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
                _show(_SHORTENED)
                self._below += _SHORTENED

    async def _said(self, text: str, prompt: str) -> str | None:
        """The text typed after the question was shown; None on stop or at the end of input."""
        _show(text)
        self._below += f"{text}{prompt}"
        try:
            await self._be_stopped(_READ_SECONDS)
            said = await self._line(prompt)
        except asyncio.CancelledError:
            # The cursor may be behind the prompt.
            _show("\n(Answered elsewhere, or no longer asked.)\n")
            raise
        if said is None or not said.endswith("\n"):
            # A closed terminal ends the input, and sends SIGHUP a moment later.
            await self._be_stopped(_HANG_UP_SECONDS)
        self._below += said or ""
        return None if self._stop.is_set() else said

    async def _be_stopped(self, seconds: float) -> None:
        """Wait, but not after a stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _line(self, prompt: str) -> str | None:
        """Print the prompt and read a line, all lines of a paste, or the rest before the end of input."""
        # The modes of the terminal are set before a key can be meant for this prompt.
        line = TypedLine() if self.view.follow(self._below) else None
        forget_typed()
        _show(prompt)
        loop = asyncio.get_running_loop()
        come: asyncio.Future[str | None] = loop.create_future()
        typed = bytearray()

        def read() -> None:
            piece = _typed()
            is_end = not piece
            if line is not None and piece:
                self.view.unfollow()
                _show(line.feed(piece))
                # A key may leave no text: an arrow, or one that erases.
                typed[:], is_end = line.text.encode(), line.is_over
            else:
                typed.extend(piece)
            if is_end:
                # The cursor is behind the prompt.
                sys.stderr.write("\n")
                end(typed.decode(errors="replace") if typed else None)
            elif typed.endswith(b"\n"):
                push_unfinished_line()
                loop.call_later(PASTE_SECONDS, end_if_whole, len(typed))

        def end_if_whole(length: int) -> None:
            # More input may have come since.
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
        finally:
            loop.remove_reader(sys.stdin.fileno())
            self.view.unfollow()


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


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _typed() -> bytes:
    """Read what was typed; empty at the end of input or when the terminal is gone."""
    try:
        return os.read(sys.stdin.fileno(), 4096)
    except OSError:
        return b""


# --- the keyboard -----------------------------------------------------------------------------------------------------


def forget_typed() -> None:
    """Drop unread input: it was typed before the question and does not answer it."""
    if _is_ours():
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def push_unfinished_line() -> None:
    """Make an unfinished last line readable.

    In canonical mode the terminal holds back a line without a newline; leaving that mode for a moment releases it.
    """
    if not _is_ours():
        return
    number = sys.stdin.fileno()
    # The terminal may be closed at any moment; the reader then sees the end of input.
    with suppress(termios.error):
        modes = termios.tcgetattr(number)
        by_keys = [*modes]
        by_keys[_LOCAL_MODES] &= ~termios.ICANON
        termios.tcsetattr(number, termios.TCSANOW, by_keys)
        termios.tcsetattr(number, termios.TCSANOW, modes)


def _is_ours() -> bool:
    """Whether stdin is our terminal in the foreground; changing its modes from the background stops the process."""
    number = sys.stdin.fileno()
    try:
        return os.isatty(number) and os.tcgetpgrp(number) == os.getpgrp()
    except OSError:
        return False
