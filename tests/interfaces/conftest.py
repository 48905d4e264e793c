"""Real processes with a real terminal where a person would have one."""

import fcntl
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
from collections.abc import Callable
from pathlib import Path

import pytest

DEPUTY = (sys.executable, "-m", "deputy")
KEYS = ("ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE", "OPENROUTER", "GROQ", "DEEPSEEK", "MISTRAL", "OLLAMA", "LLAMACPP")


def _hear_all_but(deaf_to: signal.Signals | None = None) -> None:
    """Signals as on a new terminal: whoever runs the tests may be deaf to its closing, and what it starts with it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if deaf_to is not None:
        signal.signal(deaf_to, signal.SIG_IGN)


def _take_terminal() -> None:
    _hear_all_but()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program on a terminal of its own: type, wait for what it shows, end it."""

    def __init__(self, *arguments: str, env: dict[str, str], cwd: Path, columns: int = 80) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._terminal = ours
        self.shown = ""
        self.process = subprocess.Popen(
            [*DEPUTY, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**env, "TERM": "xterm-256color", "COLUMNS": str(columns)},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_take_terminal,
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
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)

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
        """Close it, whoever is at work in it."""
        os.close(self._terminal)

    def end(self, *, seconds: float = 30) -> int:
        """Everything shown until it ended, and its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        code = self.process.wait(max(0.1, deadline - time.monotonic()))
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


class House:
    """A workspace, a home and an environment without keys."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.home = folder / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith((*KEYS, "DEPUTY"))}
        # Nothing listens on port 9: no test may meet a model server of this machine.
        nobody = {"OLLAMA_BASE_URL": "http://127.0.0.1:9/v1", "LLAMACPP_BASE_URL": "http://127.0.0.1:9/v1"}
        self.env = {**kept, **nobody, "DEPUTY_HOME": str(self.home), "DEPUTY_MODEL": "offline:scout"}
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DEPUTY, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.workspace,
            env={**self.env, **env},
            timeout=60,
        )

    def approve(self, run: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Approve what a run waits for, by its digest."""
        import json

        shown = self.run("approve", run, "--json")
        if shown.returncode:
            return shown
        return self.run("approve", run, "--digest", json.loads(shown.stdout)["digest"], *options)

    def start(self, *arguments: str, deaf_to: signal.Signals | None = None, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*DEPUTY, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.workspace,
            env={**self.env, **env},
            preexec_fn=lambda: _hear_all_but(deaf_to),
        )
        self._started.append(process)
        return process

    def terminal(self, *arguments: str, columns: int = 80, **env: str) -> Terminal:
        terminal = Terminal(*arguments, env={**self.env, **env}, cwd=self.workspace, columns=columns)
        self._started.append(terminal.process)
        return terminal

    def script(self, name: str, *conversations: dict) -> str:
        import json

        path = self.workspace.parent / f"{name}.json"
        path.write_text(json.dumps({"conversations": list(conversations)}))
        return f"script:{path}"

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path)
    yield made
    made.close()
