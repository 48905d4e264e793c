"""Real processes with a real terminal where a person would have one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.support.fork_server import Popen, run
from tests.support.scripts import write_script

from deputy.journal.registry import entry_dict, list_runs
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deputy.core.model_script import ScriptedConversation

T = TypeVar("T")

DEPUTY = (sys.executable, "-m", "deputy")
KEYS = ("ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE", "OPENROUTER", "GROQ", "DEEPSEEK", "MISTRAL")
LOCAL = ("OLLAMA", "LLAMACPP", "LMSTUDIO", "VLLM")


class Terminal:
    """A program on a terminal of its own: type, wait for what it shows, end it."""

    def __init__(self, *arguments: str, env: dict[str, str], cwd: Path, columns: int = 80) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._terminal = ours
        self.shown = ""
        self.process = Popen(
            [*DEPUTY, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**env, "TERM": "xterm-256color", "COLUMNS": str(columns)},
            cwd=cwd,
            terminal=True,
        )
        os.close(theirs)

    def until(self, text: str, *, after: str = "", seconds: float = 30) -> str:
        """Everything shown until this text is there, behind another one where that is said."""
        deadline = time.monotonic() + seconds
        while text not in (self.text.partition(after)[2] if after else self.text):
            if not self._read(deadline):
                raise AssertionError(f"{text!r} was not shown; this was:\n{self.text[-2000:]}")
        return self.shown

    @property
    def text(self) -> str:
        """What was shown, without colours and movements."""
        return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[78])", "", self.shown)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def watched_until(self, is_so: Callable[[], object], *, seconds: float = 30) -> str:
        """Everything shown until something is so."""
        deadline = time.monotonic() + seconds
        while not is_so():
            self._read(min(deadline, time.monotonic() + 0.05))
            assert time.monotonic() < deadline, self.text[-2000:]
        return self.text

    def close(self) -> None:
        """Close it, also with a program at work in it."""
        os.close(self._terminal)

    def end(self, *, seconds: float = 30) -> int:
        """Everything shown until it ended, and its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        try:
            code = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end; this was shown:\n{self.text[-2000:]}") from None
        os.close(self._terminal)
        return code

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
        try:
            piece = os.read(self._terminal, 65536) if ready else b""
        except OSError:
            piece = b""
        self.shown += piece.decode(errors="replace")
        return bool(piece)


class CommandHouse:
    """A workspace, a home and an environment without keys."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.home = folder / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith((*KEYS, *LOCAL, "DEPUTY"))}
        # Nothing listens on port 9: no test may meet a model server of this machine or the network.
        addresses = (*(name.replace("GEMINI", "GOOGLE_GEMINI") for name in KEYS if name != "GOOGLE"), *LOCAL)
        unreachable = {f"{name}_BASE_URL": "http://127.0.0.1:9/v1" for name in addresses}
        self.env = {**kept, **unreachable, "DEPUTY_HOME": str(self.home), "DEPUTY_MODEL": "offline:scout"}
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return run(
            [*DEPUTY, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.workspace,
            env={**self.env, **env},
        )

    def approve(self, run: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Approve what a run waits for, by its digest."""
        shown = self.run("approve", run, "--json")
        if shown.returncode:
            return shown
        return self.run("approve", run, "--digest", json.loads(shown.stdout)["digest"], *options)

    def start(
        self,
        *arguments: str,
        ignores: signal.Signals | None = None,
        stderr: int = subprocess.DEVNULL,
        **env: str,
    ) -> subprocess.Popen[bytes]:
        process = Popen(
            [*DEPUTY, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=self.workspace,
            env={**self.env, **env},
            ignores=ignores,
        )
        self.started.append(process)
        return process

    def terminal(self, *arguments: str, columns: int = 80, **env: str) -> Terminal:
        terminal = Terminal(*arguments, env={**self.env, **env}, cwd=self.workspace, columns=columns)
        self.started.append(terminal.process)
        return terminal

    def script(self, name: str, *conversations: ScriptedConversation | dict[str, Any]) -> str:
        return write_script(self.workspace.parent / f"{name}.json", *conversations)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def entries(house: CommandHouse) -> list[dict[str, Any]]:
    """What `deputy ps --all` shows, callers before callees."""
    reader = SqliteQueries.open_any(house.home)
    if reader is None:
        return []
    with reader:
        return [entry_dict(standing, time.time()) for standing in list_runs(reader, ended=10_000)]


def until(is_so: Callable[[], T], seconds: float = 90) -> T:
    """What something comes to, once it is so."""
    deadline = time.monotonic() + seconds
    while not (value := is_so()):
        assert time.monotonic() < deadline, "it never was so"
        a_moment()
    return value


def a_moment() -> None:
    """Let others do something: nothing tells when another process has."""
    select.select([], [], [], 0.05)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[CommandHouse]:
    made = CommandHouse(tmp_path)
    yield made
    made.close()
