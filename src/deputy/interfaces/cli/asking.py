"""Asking the person at the terminal, on the loop: a question never keeps subagents or Ctrl-C waiting."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from deputy.interfaces.beside import beside
from deputy.interfaces.cli.keyboard import PASTE_SECONDS, forget_typed, push_unfinished_line
from deputy.interfaces.plain import plain
from deputy.interfaces.view.painters import Silence

if TYPE_CHECKING:
    from deputy.core.rules import ApprovalPolicy
    from deputy.engine.desk import Approval
    from deputy.interfaces.answering import Question
    from deputy.interfaces.view.painters import View

_YES = ("y", "yes")
NO_ANSWER = "(The person gave no answer: go on as seems best, and say what you assumed.)"


def can_ask() -> bool:
    """Whether there is a person: both what is asked and what is answered go through a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_yes(answer: str) -> bool:
    """Whether an answer approves; anything but a clear yes does not."""
    return answer.strip().lower() in _YES


def wrapped(text: str) -> str:
    """Text of others made harmless and broken between words, so that it reads well on this terminal."""
    import shutil
    import textwrap

    width = max(20, shutil.get_terminal_size().columns)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in plain(text).splitlines())


def approval_for(policy: ApprovalPolicy, *, yes: bool) -> Approval:
    """What happens to calls that need a yes: the flag wins over the configuration, and nobody is asked in a pipe."""
    if yes or policy == "allow":
        return "granted"
    return "ask" if policy == "ask" and can_ask() else "refuse"


class Person:
    """The person at the terminal, asked one question at a time."""

    def __init__(self, stop: asyncio.Event) -> None:
        self.view: View = Silence()
        """What gives the terminal up while a question is asked."""
        self._stop = stop
        self._turn = asyncio.Lock()

    async def answer(self, question: Question) -> bool | str:
        """Ask, and give what is answered; asked to stop, nothing is approved."""
        async with self._turn:
            if self._stop.is_set():
                return False if question.topic == "approval" else ""
            self.view.pause()
            try:
                if question.topic == "approval":
                    return is_yes(await self._line(f"\n{wrapped(question.text)}\nGo ahead? [y/N] "))
                said = (await self._line(f"\n{wrapped(f'[{question.label}] asks: {question.text}')}\n> ")).strip()
                return said or NO_ANSWER
            finally:
                self.view.go_on()

    async def _line(self, prompt: str) -> str:
        """What is typed after it is asked: a line, or all the lines of what is pasted."""
        forget_typed()
        os.write(sys.stderr.fileno(), prompt.encode())
        loop = asyncio.get_running_loop()
        come: asyncio.Future[str] = loop.create_future()
        typed = bytearray()

        def read() -> None:
            piece = os.read(sys.stdin.fileno(), 4096)
            typed.extend(piece)
            if not piece:
                whole()
            elif piece.endswith(b"\n"):
                push_unfinished_line()
                loop.call_later(PASTE_SECONDS, whole, len(typed))

        def whole(length: int | None = None) -> None:
            # More may have come since, of which the last line ends later.
            if length in (None, len(typed)) and not come.done():
                come.set_result(typed.decode(errors="replace"))

        async def give_up() -> None:
            await self._stop.wait()
            if not come.done():
                come.set_result("")

        loop.add_reader(sys.stdin.fileno(), read)
        try:
            async with beside(give_up()):
                return await come
        finally:
            loop.remove_reader(sys.stdin.fileno())
