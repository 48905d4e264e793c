"""`make demo-cluster`: thirty subagents on three workers and one Postgres; a worker is killed, the others go on.

The model is scripted: a server on this machine speaks Anthropic's protocol, and its answers are made below. The rest is
real: Postgres, three processes of `deputy worker`, the queue, the tools, kill -9, and the count of what was repeated.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from deputy.core.conversation import TokenUsage
from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.testing import ProviderServer
from deputy.testing.postgres_server import OwnServer

PROJECT = Path(__file__).resolve().parent / "bookshop"
DEPUTY = Path(sys.executable).with_name("deputy")
KEPT = ("PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL")
WORKERS, SECONDS = 3, 110.0
"""How many workers there are, and after how long the demo gives up."""
LINES = 7
"""How much of a long list is shown."""
FILES = ("bookshop/accounts.py", "bookshop/orders.py", "bookshop/payments.py", "bookshop/search.py", "README.md")
QUESTIONS = {
    "security": "what could an attacker use?",
    "errors": "which errors does it not handle?",
    "money": "can a customer lose money?",
    "names": "which names mislead?",
    "tests": "what has no test?",
    "docs": "what does the README not say?",
}
PATTERNS = {"security": "SELECT|md5|random", "errors": "raise|except", "money": "amount|refund", "names": "def ",
            "tests": "def test_", "docs": "^#"}  # fmt: skip

TITLE = """
[bold]Thirty subagents review a small project, on three workers and one Postgres.[/]
Scripted: what the model says. No key, no network but this machine.
Real: Postgres, the workers, the queue, the tools, kill -9, and the counts.
"""
KILLED = """
[bold red]kill -9 {pid}[/]  A worker is gone, with {held} runs in the middle of their work.
After 15 s without a heartbeat, the two others take its runs over:
"""
SUMMARY = """
[bold]What happened[/]
  {tick} {completed} of {all} subagents completed, in {seconds:.0f} s
  {tick} {taken} runs of the killed worker were taken over by the others
  {again_tick} {calls} model calls; {again} of them twice (at most one per run taken over)

[bold]With your own Postgres[/]: docs/cluster.md
  export DEPUTY_STORE=postgres://… DEPUTY_DISPATCH=dbos
  deputy store migrate && deputy worker  [dim]# on each machine[/]
"""


def main() -> int:
    """Play the demo; what it starts is ended by its id, however it ends."""
    signal.signal(signal.SIGTERM, _interrupt)
    with ExitStack() as stack:
        try:
            return ClusterDemo(stack).play()
        except KeyboardInterrupt:
            say("\nStopped. Postgres and the workers are ended.")
            return 130
        finally:
            # A second Ctrl-C must not leave a process behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            stack.close()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def script() -> ModelScript:
    """What the model says to each subagent. A turn may be requested again: by the worker that takes over."""
    return ModelScript(conversations=tuple(_conversation(file, about) for file, about in reviews()))


def reviews() -> Iterator[tuple[str, str]]:
    """The files, each with everything that is asked of it."""
    return ((file, about) for about in QUESTIONS for file in FILES)


def prompt(file: str, about: str) -> str:
    """The task of a subagent."""
    return f"Review {file}: {QUESTIONS[about]}"


def _conversation(file: str, about: str) -> ScriptedConversation:
    steps = [
        ("First, what there is.", "Glob", {"pattern": "**/*.py"}),
        ("I read it.", "Read", {"path": file}),
        ("The README may say more.", "Read", {"path": "README.md"}),
        ("What is like it?", "Grep", {"pattern": PATTERNS[about]}),
        ("Is it tested?", "Grep", {"pattern": Path(file).stem, "path": "tests"}),
        ("I keep that.", "Note", {"content": f"{file}: looked for {about}"}),
        ("Once more, closely.", "Read", {"path": file, "offset": 2}),
    ]
    # Not all take the same time.
    delay = 1.2 + 0.1 * (len(file) + len(about)) % 0.7
    turns = [
        ScriptedTurn(
            text=text,
            calls=(ScriptedCall(name=tool, arguments=arguments),),
            delay_seconds=delay,
            usage=TokenUsage(input_tokens=3000 + 400 * number, output_tokens=90),
        )
        for number, (text, tool, arguments) in enumerate(steps)
    ]
    turns.append(ScriptedTurn(text=f"I looked at {file} for: {about}.", delay_seconds=delay))
    return ScriptedConversation(when=prompt(file, about), turns=tuple(turns), times=9)


class ClusterDemo:
    """Postgres, workers and one delegation of thirty tasks."""

    def __init__(self, stack: ExitStack) -> None:
        # Outside of the clone: a worker sees the project as it would see yours. Postgres must be able to enter.
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deputy-demo-")))
        self._folder.chmod(0o755)
        self._stack = stack
        self._provider = stack.enter_context(ProviderServer(script(), strict=False))
        self._workers: list[subprocess.Popen[bytes]] = []
        self._project = Path(shutil.copytree(PROJECT, self._folder / "bookshop"))
        self._url = ""
        self._environ: dict[str, str] = {}
        self._began = 0.0
        self._width = min(Console().width, 100) if sys.stdout.isatty() else 80

    def play(self) -> int:
        """Run the commands, then say what happened; 1 if that is not what this demo is about."""
        say(TITLE)
        self._start_postgres()
        for _ in range(WORKERS):
            self._start_worker()
        for worker in self._workers:
            self._until_ready(worker)
        say(f"{WORKERS} workers are ready.\n")
        self._began = time.monotonic()
        client = self._delegate()
        self._watch(client, until=self._is_moment)
        if client.poll() is not None:
            sys.exit(f"The delegation ended before its time: {(self._folder / 'messages.txt').read_text()}")
        self._show_state()
        held, victim = self._busiest()
        victim.kill()
        victim.wait()
        say(KILLED.format(pid=victim.pid, held=held))
        self._watch(client, until=lambda: client.poll() is not None)
        seconds = time.monotonic() - self._began
        self._show_state()
        return self._summarize(client, seconds)

    # --- processes ---

    def _start_postgres(self) -> None:
        server = OwnServer(self._folder / "pg")
        server.place.mkdir(mode=0o755)
        self._stack.callback(_stop, server)
        say(f"[dim]Postgres starts in {server.place} (2 s).[/]")
        self._url = server.start()
        # Your own configuration, keys and proxies are left out.
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        home = self._folder / "home"
        (home / ".config/deputy").mkdir(parents=True)
        (home / ".config/deputy/config.toml").write_text("[limits]\nconcurrency = 30\n")
        own = {
            "HOME": str(home),
            "DEPUTY_HOME": str(home / ".deputy"),
            "DEPUTY_MODEL": "sonnet",
            "COLUMNS": str(self._width),
        }
        store = {"DEPUTY_STORE": self._url, "DEPUTY_DISPATCH": "dbos"}
        self._environ = {**kept, **self._provider.environ, **own, **store}
        say("[dim]$[/] [bold cyan]deputy store migrate[/]")
        subprocess.run([DEPUTY, "store", "migrate"], env=self._environ, stdout=subprocess.DEVNULL, check=True)

    def _start_worker(self) -> None:
        number = len(self._workers) + 1
        worker = self._start("worker", home=f"worker-{number}")
        self._workers.append(worker)
        say(f"[dim]$[/] [bold cyan]deputy worker[/]  [dim]# process {worker.pid}[/]")

    def _until_ready(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stderr is not None
        line = worker.stderr.readline().decode()
        if "worker ready" not in line:
            sys.exit(f"The worker did not start: {line}{worker.stderr.read().decode()}")

    def _delegate(self) -> subprocess.Popen[bytes]:
        tasks = [
            {"label": f"{about}-{Path(file).stem.lower()}", "prompt": prompt(file, about)} for file, about in reviews()
        ]
        (self._folder / "tasks.json").write_text(json.dumps({"concurrency": len(tasks), "tasks": tasks}))
        arguments = ("delegate", "--tasks", str(self._folder / "tasks.json"), "--yes", "--json")
        say("[dim]$[/] [bold cyan]deputy delegate --tasks tasks.json --yes[/]  [dim]# 30 tasks[/]")
        return self._start(*arguments, output=self._folder / "result.json")

    def _start(self, *arguments: str, home: str = "", output: Path | None = None) -> subprocess.Popen[bytes]:
        environ = {**self._environ, **({"DEPUTY_HOME": str(self._folder / home)} if home else {})}
        with (output or Path(os.devnull)).open("wb") as out, (self._folder / "messages.txt").open("wb") as messages:
            process = subprocess.Popen(
                [DEPUTY, *arguments],
                cwd=self._project,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE if home else messages,
                # Ctrl-C is for the demo, which ends them all.
                start_new_session=True,
            )
        self._stack.callback(_end, process)
        return process

    def _show_state(self) -> None:
        """Show the workers and the runs, both as they are now."""
        for output in [self._begin("workers"), self._begin("ps")]:
            output()

    def _begin(self, *arguments: str) -> Callable[[], None]:
        """Start a command; what is returned shows its output."""
        command = [DEPUTY, *arguments]
        process = subprocess.Popen(
            command, cwd=self._project, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

        def show() -> None:
            lines = process.communicate()[0].decode().splitlines()
            say(f"[dim]$[/] [bold cyan]deputy {shlex.join(arguments)}[/]")
            for line in lines[:LINES]:
                # Of a long line, what fits.
                Console(highlight=False, markup=False, width=self._width).print(line, no_wrap=True, overflow="ellipsis")
            if len(lines) > LINES:
                say(f"[dim]… and {len(lines) - LINES} more lines[/]")
            say("")

        return show

    # --- what the store says ---

    @contextmanager
    def _queries(self) -> Iterator[PostgresQueries]:
        with PostgresQueries.open(StoreAddress(self._url)) as queries:
            yield queries

    def _held(self) -> dict[int, int]:
        """How many runs each worker holds, by its process."""
        with self._queries() as queries:
            return {int(one.owner.split("/")[2]): one.held for one in queries.workers()}

    def _busiest(self) -> tuple[int, subprocess.Popen[bytes]]:
        """The worker with most runs, and how many these are."""
        held = self._held()
        found = max(self._workers, key=lambda worker: held.get(worker.pid, 0))
        return held.get(found.pid, 0), found

    def _is_moment(self) -> bool:
        """Whether all workers are in the middle of runs."""
        held = self._held()
        return len(self._provider.asked) >= 48 and all(held.get(worker.pid, 0) for worker in self._workers)

    def _count(self, query: str) -> int:
        session = PostgresSession(StoreAddress(self._url))
        try:
            return session.fetch(query)[0][0]
        finally:
            session.close()

    def _ended(self) -> int:
        return self._count("SELECT count(*) FROM runs WHERE parent IS NOT NULL AND NOT is_live")

    # --- what is seen ---

    def _watch(self, client: subprocess.Popen[bytes], until: Callable[[], bool]) -> None:
        """Show the workers and the progress, live at a terminal and else as lines, until something is so."""
        is_live = sys.stdout.isatty()
        said = time.monotonic()
        with ExitStack() as stack:
            live = stack.enter_context(Live(console=Console(highlight=False), auto_refresh=False)) if is_live else None
            while True:
                is_over = until() or client.poll() is not None
                if time.monotonic() - self._began > SECONDS:
                    sys.exit("The demo takes too long: this machine is very busy. Try again later.")
                if live is not None:
                    live.update(self._picture(), refresh=True)
                elif is_over or time.monotonic() - said >= 4:
                    said = time.monotonic()
                    say(self._line())
                if is_over:
                    break
                time.sleep(0.25)
        say("")

    def _picture(self) -> Text:
        held, lines = self._held(), list[str]()
        for worker in self._workers:
            runs = held.get(worker.pid, 0)
            state = "[red]killed[/]" if worker.poll() is not None else f"[green]{'■' * runs}[/] {runs} runs"
            lines.append(f"  worker {worker.pid:<8} {state}")
        return Text.from_markup("\n".join([*lines, f"  {self._line().partition(';')[0]}"]))

    def _line(self) -> str:
        at_work = ", ".join(
            "killed" if worker.poll() is not None else str(self._held().get(worker.pid, 0)) for worker in self._workers
        )
        seconds = time.monotonic() - self._began
        done, calls = self._ended(), len(self._provider.asked)
        return f"{seconds:3.0f} s  {done:2} of 30 ended, {calls} model calls; runs of the workers: {at_work}"

    def _summarize(self, client: subprocess.Popen[bytes], seconds: float) -> int:
        calls = Counter((asked.opening, asked.answered) for asked in self._provider.asked)
        again = sum(count - 1 for count in calls.values())
        taken = self._count("SELECT count(DISTINCT run) FROM events WHERE key LIKE 'adopted:%'")
        results = json.loads((self._folder / "result.json").read_text() or "{}").get("results", [])
        completed = sum(result["outcome"] == "completed" for result in results)
        is_well = client.returncode == 0 and completed == len(FILES) * len(QUESTIONS)
        ticks = {is_so: "[green]✓[/]" if is_so else "[red]✗[/]" for is_so in (True, False)}
        say(
            SUMMARY.format(
                tick=ticks[is_well],
                again_tick=ticks[again <= taken],
                completed=completed,
                all=len(FILES) * len(QUESTIONS),
                seconds=seconds,
                taken=taken,
                calls=len(self._provider.asked),
                again=again,
            )
        )
        return 0 if is_well and again <= taken else 1


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _stop(server: OwnServer) -> None:
    # It may not have started.
    with suppress(RuntimeError):
        server.stop("immediate")


def say(text: str) -> None:
    """Print a text with markup; colours only at a terminal."""
    Console(highlight=False, soft_wrap=True).print(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
