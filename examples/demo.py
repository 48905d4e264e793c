"""`make demo`: three subagents review a small project, live; their process is killed, resumed, a question answered.

The model is scripted: a server on this machine speaks Anthropic's protocol and plays scripts/demo.json. The
rest is real: tools, notes, journal, kill -9, resume, time limit.
"""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from deputy.core.model_script import read_script
from deputy.testing import ProviderServer

ROOT = Path(__file__).resolve().parent.parent
PROJECT, SCRIPT, HOME = ROOT / "examples/bookshop", ROOT / "examples/scripts/demo.json", ROOT / "build/demo"
DEPUTY = Path(sys.executable).with_name("deputy")
KEPT = ("PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL")
ANSWER = "30 days. The README is right."
NAMES = {"home": os.path.relpath(HOME, ROOT), "deputy": os.path.relpath(DEPUTY, ROOT)}
HEARD, LOOK_SECONDS = 12, 1.0
"""How many events of an answer arrive before the silence, and how long the picture stands before the kill."""

TITLE = """
[bold]Three subagents review examples/bookshop, a small project with real mistakes.[/]
Scripted: what the model says, and what the person answers. No key, no network.
Real: the tools, the notes, the journal, kill -9, resume and the time limit.
"""
KILLED = """
[bold red]kill -9 {pid}[/]  The process is gone, in the middle of {again} model calls.
The journal has all that was finished, so another process continues from there:
"""
BLOCKED = """
[bold]money[/] waits for a person, and the time of [bold]tests[/] is over. Answer, and let both go on:
"""
SUMMARY = """
[bold]What happened[/]
  [green]✓[/] security  completed, though its process was killed during an answer
  [green]✓[/] money     completed, after a person had answered its question
  [green]✓[/] tests     partial after 15 s, with what it had; completed when resumed
  {requests} model calls; {again} of them twice, because kill -9 had cut them off.
  ${cost:.2f} at the prices of Claude Sonnet 5.5, had the model been real.

[bold]Look at it[/]
  export DEPUTY_HOME={home}  [dim]# the journal of this demo[/]
  {deputy} ps --all
  {deputy} transcript money
  {deputy} web  [dim]# all of it in the browser[/]

[bold]Try it on your own code[/], in a new terminal
  {deputy} init  [dim]# find a model, test it, write the configuration[/]
  {deputy} ask "Where are passwords checked?"
  {deputy} delegate "Find slow code" "Find dead code"
"""


def main() -> int:
    shutil.rmtree(HOME, ignore_errors=True)
    (HOME / "home").mkdir(parents=True)
    script, slow_model = read_script(SCRIPT.read_bytes(), str(SCRIPT)), SlowModel()
    with ProviderServer(script, faults={"slow": slow_model}, strict=False) as provider:
        try:
            return Demo(provider, slow_model).play()
        except KeyboardInterrupt:
            return 130


class SlowModel:
    """A fault of the model: an answer falls silent, later drips for longer than `tests` has, and at last is fast."""

    def __init__(self) -> None:
        self.pace_seconds: float | None = None
        """The time between two events of an answer; None: it falls silent."""
        self.silent = 0
        """How many answers fell silent."""

    async def __call__(self, exchange: Any, events: list[bytes]) -> None:
        """Answer one request."""
        await exchange.begin()
        if self.pace_seconds is not None:
            for event in events:
                await exchange.send(event)
                await asyncio.sleep(self.pace_seconds)
            await exchange.end()
            return
        for event in events[:HEARD]:
            await exchange.send(event)
            await asyncio.sleep(0.06)
        self.silent += 1
        while await exchange.pause(0.1):
            pass


class Demo:
    """The commands of the demo, over one journal and one scripted provider."""

    def __init__(self, provider: ProviderServer, slow_model: SlowModel) -> None:
        self._provider, self._slow_model = provider, slow_model
        self._events = HOME / "events.jsonl"
        # Your own configuration, keys and proxies are left out.
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {"HOME": str(HOME / "home"), "DEPUTY_HOME": str(HOME), "DEPUTY_MODEL": "sonnet"}
        self._environ = {**kept, **provider.environ, **own}

    def play(self) -> int:
        """Run the commands, then say what they did; 1 if that is not what this demo is about."""
        say(TITLE)
        killed = self._delegate_until_killed()
        again = self._slow_model.silent
        say(KILLED.format(pid=killed, again=again))
        self._slow_model.pace_seconds = 0.15
        self._start("resume", "last").wait()
        say(BLOCKED)
        self._slow_model.pace_seconds = 0.01
        code = self._start("resume", "last", "--answer", ANSWER).wait()
        if code != 0:
            say("The demo did not go as planned. On a very busy machine, try again.")
            return 1
        shown = json.loads(subprocess.check_output([DEPUTY, "show", "last", "--json"], env=self._environ))
        say(SUMMARY.format(requests=len(self._provider.asked), again=again, cost=shown["usage"]["cost"], **NAMES))
        return 0

    def _delegate_until_killed(self) -> int:
        """Start the subagents; kill their process when one waits for a person, the others for the rest of an answer."""
        modes = termios.tcgetattr(sys.stderr) if sys.stderr.isatty() else None
        child = self._start("delegate", "--tasks", "tasks.json", "--yes", unseen=("--events", str(self._events)))
        while child.poll() is None and not self._is_moment():
            time.sleep(0.05)
        if child.poll() is not None:
            sys.exit("The demo ended before its time: see the message above.")
        time.sleep(LOOK_SECONDS)
        child.kill()
        child.wait()
        if modes is not None:
            # The live view had hidden the cursor, and what is typed.
            sys.stderr.write("\n\x1b[?25h")
            sys.stderr.flush()
            termios.tcsetattr(sys.stderr, termios.TCSADRAIN, modes)
        return child.pid

    def _is_moment(self) -> bool:
        """Whether one asks and the others hang; on a slow machine the time of `tests` may be over already."""
        seen = self._events.read_bytes() if self._events.exists() else b""
        return b'"blocked"' in seen and self._slow_model.silent + seen.count(b'"partial"') >= 2

    def _start(self, *arguments: str, unseen: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        say(f"[dim]$[/] [bold cyan]deputy {shlex.join(arguments)}[/]")
        command = [DEPUTY, *arguments, *unseen]
        # Without a keyboard, a question ends a subagent as blocked.
        return subprocess.Popen(command, cwd=PROJECT, env=self._environ, stdin=subprocess.DEVNULL)


def say(text: str) -> None:
    """Print a text with markup; colours only at a terminal."""
    Console(highlight=False, soft_wrap=True).print(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
