"""Figures of the web page beside their demands: a real server process, a real browser, 1,000 live runs."""

import asyncio
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from playwright.async_api import async_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.browser import AXE, CHROMIUM
from tests.support.busy_journal import BusyJournal
from tests.support.web_client import Mirror

from deputy.core.events import Noted
from deputy.core.progress import Progress
from deputy.interfaces.web.board import Board
from deputy.interfaces.web.web_server import read_assets
from deputy.journal.retention import prune
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore

LIVE, LONG = 1000, 100_000
SECONDS = float(os.environ.get("SECONDS", "20"))
DEPUTY = [sys.executable, "-m", "deputy"]


def row(name: str, figure: str, demand: str) -> None:
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{name:<56}{figure:>18}   {load:>9}   {demand}", flush=True)


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]


class Server:
    """`deputy web` as a process of its own."""

    def __init__(self, home: Path, port: int = 0) -> None:
        self.home = home
        self._process = subprocess.Popen(
            [*DEPUTY, "web", "--json", "--port", str(port)],
            stdout=subprocess.PIPE,
            env={**os.environ, "DEPUTY_HOME": str(home)},
        )
        text = b"".join(iter(self._process.stdout.readline, b"}\n")) + b"}"
        self.url = json.loads(text)["url"]
        self.port = int(self.url.rpartition(":")[2])
        self.token = (home / "web-token").read_text().strip()

    @property
    def cpu(self) -> float:
        """Seconds of CPU so far."""
        # In nanoseconds; the times of the whole process are in steps of 10 ms.
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    @property
    def memory(self) -> float:
        """Megabytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@asynccontextmanager
async def watchers(server: Server, count: int, seconds: float = 3):
    """Readers of the stream, as open pages."""
    headers = {"Authorization": f"Bearer {server.token}"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.get(f"{server.url}/api/board") as answer:
            cursor = (await answer.json())["cursor"]

        async def read() -> None:
            async with session.get(f"{server.url}/api/follow?after={cursor}") as answer:
                async for _ in answer.content.iter_any():
                    pass

        tasks = [asyncio.ensure_future(read()) for _ in range(count)]
        await asyncio.sleep(seconds)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def cpu_of(server: Server, seconds: float) -> float:
    """The part of a core that the server uses."""
    before, began = server.cpu, time.monotonic()
    await asyncio.sleep(seconds)
    return (server.cpu - before) / (time.monotonic() - began)


class Work:
    """A thousand live runs, which do something from time to time."""

    def __init__(self, journal: SqliteJournal) -> None:
        self.busy = BusyJournal(journal)
        self.runs: list = []

    async def fill(self) -> None:
        for number in range(LIVE // 20):
            top, lease = await self.busy.root(f"root {number}")
            self.runs.append((top, lease))
            for at in range(19):
                self.runs.append(await self.busy.child(top, lease, f"agent {number}.{at}"))
        await self.busy.turns(self.runs[0][1], 2)

    async def go_on(self) -> None:
        """200 events a second: what a thousand agents do that wait for models most of the time."""
        number = 0
        while True:
            for _ in range(40):
                # The first run is left to the measurement of the delay.
                run, lease = self.runs[1 + (number * 7) % (len(self.runs) - 1)]
                number += 1
                self.busy.show(run, Progress(event="tool_call", label="x", tool="Read", args=f"src/{number}.py"))
                if number % 4 == 0:
                    self.busy.journal.append_soon(lease, f"bench:{number}", Noted(content=f"note {number}"))
            await asyncio.sleep(0.2)


def asset_figures() -> None:
    files = [asset.body for asset in read_assets().values()]
    row("assets as sent, without comments", f"{sum(map(len, files)) / 1000:.1f} kB", "≤ 120 kB")
    row("the same, each file gzipped", f"{sum(len(gzip.compress(one, 9)) for one in files) / 1000:.1f} kB", "≤ 40 kB")


def look_figure(home: Path) -> None:
    with SqliteQueries.open(home) as queries:
        board = Board(queries, "bench")
        board.look()
        board._tick_at = board._expire_at = float("inf")
        began = time.perf_counter()
        for _ in range(200):
            board.look()
        ours = (time.perf_counter() - began) / 200
        began = time.perf_counter()
        for state in queries.live():
            queries.state(state.run)
            queries.progress(state.run)
        whole = time.perf_counter() - began
    row("look with nothing new ÷ reading every run", f"1/{whole / ours:,.0f}", "≤ 1/100")


async def browser_figures(server: Server, work: Work, long_run: str, listed: float) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        page = await context.new_page()
        foreign: list[str] = []
        page.on("request", lambda one: foreign.append(one.url) if not one.url.startswith(server.url) else None)
        await page.goto(f"{server.url}/#token={server.token}")
        await page.wait_for_selector("[role=treeitem]")
        shown = []
        for _ in range(5):
            began = time.perf_counter()
            await page.goto(server.url)
            await page.wait_for_selector("[role=treeitem]")
            shown.append(time.perf_counter() - began)
        row(
            "rows shown, 1,000 live",
            f"{statistics.median(shown) * 1000:.0f} ms",
            f"≤ 2 × ps --all --json ({listed * 1000:.0f} ms)",
        )
        row("elements on the board", str(await page.evaluate("document.querySelectorAll('*').length")), "≤ 1,500")
        session = await context.new_cdp_session(page)
        # CPU time of the thread, which other programs of the machine do not change.
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})

        async def busy() -> float:
            found = {one["name"]: one["value"] for one in (await session.send("Performance.getMetrics"))["metrics"]}
            return found["TaskDuration"]

        await page.evaluate(NOTE_LONG_TASKS)
        before, began = await busy(), time.monotonic()
        await scroll(page, 3 * SECONDS)
        part = (await busy() - before) / (time.monotonic() - began)
        waited = await page.evaluate("window.longTasks")
        await browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
        await scroll(page, SECONDS)
        tasks = task_times(json.loads(await browser.stop_tracing()))
        row(
            f"long tasks > 50 ms in {3 * SECONDS:.0f} s with scrolling",
            str(waited),
            "0 (the browser's count, by the wall)",
        )
        row(
            f"tasks > 50 ms of CPU time in {SECONDS:.0f} s more",
            str(sum(ms > 50 for ms in tasks)),
            f"0 (without the waits for a core; the longest has {max(tasks):.0f} ms)",
        )
        row("main thread, 1,000 live", f"{part:.1%}", "≤ 15 % (CPU time)")
        await commit_to_dom(page, work)
        heap = await page.evaluate("performance.memory.usedJSHeapSize / 1e6")
        row("memory, page heap", f"{heap:.0f} MB", "≤ 60 MB")
        await page.goto(f"{server.url}/run/{long_run}/transcript#50000")
        await page.wait_for_selector("#record-50000")
        frames = await page.evaluate(JUMPS)
        row("100,000 records, jump-scroll, p99 frame", f"{p99(frames):.1f} ms", "≤ 33 ms")
        row("foreign requests", str(len(foreign)), "0")
        if AXE.is_file():
            await page.goto(server.url)
            await page.wait_for_selector("[role=treeitem]")
            await page.evaluate(AXE.read_text() + "; undefined")
            found = await page.evaluate("axe.run().then(r => r.violations.length)")
            row("axe, the board (all pages: make test-web)", f"{found} violations", "0")
        await page.set_viewport_size({"width": 360, "height": 700})
        row("360 px wide", f"{await page.evaluate('document.documentElement.scrollWidth')} px", "no sideways scroll")
        await browser.close()


async def scroll(page, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await page.mouse.wheel(0, 240)
        await asyncio.sleep(0.25)


JUMPS = """
new Promise(done => {
  const times = []; let last = performance.now(); let at = 0;
  const step = now => {
    times.push(now - last); last = now;
    if (++at > 200) return done(times.slice(2));
    if (at % 4 === 0) scrollTo(0, Math.random() * document.documentElement.scrollHeight);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""


NOTE_LONG_TASKS = """
window.longTasks = 0;
new PerformanceObserver((list) => { window.longTasks += list.getEntries().length; }).observe({type: 'longtask'});
"""
UNTIL_SHOWN = """
text => new Promise(done => {
  const look = () => document.body.textContent.includes(text) ? done() : requestAnimationFrame(look);
  look();
})
"""
UNTIL_LIVE = """
new Promise(done => {
  const look = () => document.querySelector('.connection').className.includes('live') ? done() : setTimeout(look, 10);
  look();
})
"""
SHOWN_ROWS = "import('/assets/store.js').then(m => [...m.store.rows.values()].map(row => [row.id, row.status]))"


def task_times(trace: dict) -> list[float]:
    """The tasks of pages, in ms of CPU time: other programs of the machine do not change them."""
    events = trace["traceEvents"]
    named = [one for one in events if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"]
    mains = {(one["pid"], one["tid"]) for one in named}
    return [one.get("tdur", 0) / 1000 for one in events if one["ph"] == "X" and (one["pid"], one["tid"]) in mains]


async def commit_to_dom(page, work: Work) -> None:
    await page.evaluate("scrollTo(0, 0)")
    run, lease = work.runs[0]
    spent = []
    for number in range(30):
        text = f"marker-{number}"
        work.busy.show(run, Progress(event="tool_call", label="x", tool="Read", args=text))
        await work.busy.journal.append(lease, f"marker:{number}", Noted(content=text))
        began = time.perf_counter()
        await page.evaluate(UNTIL_SHOWN, text)
        spent.append(time.perf_counter() - began)
    row("commit to DOM, p99", f"{p99(spent):.2f} s", "≤ 0.6 s")


async def restart_figure(server: Server, journal: SqliteJournal, work: Work) -> Server:
    """Kill the server five times, with a prune between; then the page must equal the journal."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = await browser.new_page()
        await page.goto(f"{server.url}/#token={server.token}")
        await page.wait_for_selector(".connection.live", state="attached")
        back, whole = [], []
        for number in range(5):
            server.kill()
            run, lease = await work.busy.root(f"born while away {number}")
            if number == 2:
                await work.busy.complete(run, lease)
                prune(SqliteStore(server.home), time.time() + 60)
            started = time.perf_counter()
            server = Server(server.home, server.port)
            began = time.perf_counter()
            await page.evaluate(UNTIL_LIVE)
            back.append(time.perf_counter() - began)
            whole.append(time.perf_counter() - started)
        await asyncio.sleep(1)
        rows = await page.evaluate(SHOWN_ROWS)
        await browser.close()
    with SqliteQueries.open(server.home) as queries:
        fresh = Mirror(json.loads(b"{" + Board(queries, "fresh").whole() + b"}"))
    is_equal = sorted(map(tuple, rows)) == sorted((one[0], one[4]) for one in fresh.rows.values())
    row("5 × kill -9 of the server and a prune: rows = journal", str(is_equal), "True")
    row("back after a kill: page live after the server listens", f"{max(back):.2f} s", "≤ 1 s")
    row("page live after `deputy web` was started again", f"{max(whole):.2f} s", "(its imports and the above)")
    return server


ROUNDS = 12


def work_seconds(home: Path) -> tuple[float, float]:
    """The wall time and the CPU time of a command with real subagents, on a core of its own."""
    script = home.parent / "script.json"
    # Every call is another one: a run that repeats one call is stopped.
    turns = [
        {"text": "words " * 40, "calls": [{"name": "Glob", "arguments": {"pattern": f"*{number}"}}]}
        for number in range(12)
    ]
    said = {"text": "There is one file, and nothing in it."}
    script.write_text(json.dumps({"conversations": [{"turns": [*turns, said], "times": 8}]}))
    tasks = [word for number in range(8) for word in ("-t", f"t{number}=Look.")]
    command = [*DEPUTY, "delegate", *tasks, "--yes", "--json", "--model", f"script:{script}"]
    environ = {**os.environ, "DEPUTY_HOME": str(home)}
    before, began = os.times(), time.perf_counter()
    subprocess.run(
        command, check=True, capture_output=True, env=environ, cwd=home.parent, preexec_fn=lambda: pin(CORES[0])
    )
    wall, after = time.perf_counter() - began, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


CORES = sorted(os.sched_getaffinity(0))


def pin(*cores: int) -> None:
    """Run this process, and those that it starts, on these cores."""
    os.sched_setaffinity(0, cores)


KINDS = ("alone", "read", "shown")


async def watched_figure(folder: Path) -> None:
    """The same work alone, read by a plain client of the stream, and shown in a browser, in turns.

    The work has one core, everything else the other. What a browser draws costs CPU, but not in Deputy, so that only
    the plain client counts.
    """
    home = folder / "work"
    work_seconds(home)
    pin(CORES[-1])
    server = Server(home)
    spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = await browser.new_page()
        for number in range(ROUNDS):
            for at in range(len(KINDS)):
                kind = KINDS[(number + at) % len(KINDS)]
                async with watching(kind, server, page):
                    spent[kind].append(await asyncio.to_thread(work_seconds, home))
        await browser.close()
    server.kill()
    pin(*CORES)
    compare("wall time of the work, read by one client ÷ alone", spent, "read", 0, "≤ 1.03")
    compare("CPU time of the same", spent, "read", 1, "(not in the list)")
    compare("wall time of the work, shown in Chromium ÷ alone", spent, "shown", 0, "(not in the list)")


@asynccontextmanager
async def watching(kind: str, server: Server, page):
    """Watch the runs in one of the ways."""
    if kind == "read":
        async with watchers(server, 1, seconds=0.5):
            yield
    elif kind == "shown":
        await page.goto(f"{server.url}/#token={server.token}")
        await page.wait_for_selector(".connection.live", state="attached")
        yield
        await page.goto("about:blank")
    else:
        yield


def compare(name: str, spent: dict[str, list[tuple[float, float]]], kind: str, column: int, demand: str) -> None:
    watched, alone = ([one[column] for one in spent[of]] for of in (kind, "alone"))
    low, middle, high = statistics.quantiles([one / other for one, other in zip(watched, alone, strict=True)], n=4)
    row(name, f"{middle:.2f}", f"{demand}; half of {ROUNDS} rounds: {low:.2f}–{high:.2f}")


async def main() -> None:
    if not CHROMIUM:
        sys.exit("Chromium is not installed; `make test-web` installs it.")
    asset_figures()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        async with SqliteJournal(home, fsync="off") as journal:
            work = Work(journal)
            await work.fill()
            long_run, lease = await work.busy.root("long")
            for number in range(LONG):
                journal.append_soon(lease, f"long:{number}", Noted(content=f"note {number}"))
            await journal.wait_durable(lease)
            began = time.perf_counter()
            environ = {**os.environ, "DEPUTY_HOME": str(home)}
            await asyncio.to_thread(
                subprocess.run, [*DEPUTY, "ps", "--all", "--json"], capture_output=True, env=environ
            )
            listed = time.perf_counter() - began
            look_figure(home)
            server = Server(home)
            async with watchers(server, 20):
                row("server: 20 idle watchers", f"{await cpu_of(server, 3 * SECONDS):.2%} of a core", "≤ 1 %")
            going = asyncio.ensure_future(work.go_on())
            async with watchers(server, 1):
                one = await cpu_of(server, SECONDS)
            row("server: 1 watcher, 200 events a second", f"{one:.1%} of a core", "≤ 3 %")
            async with watchers(server, 60):
                many = await cpu_of(server, SECONDS)
            row("server: each more", f"{(many - one) / 59:.2%} of a core", "≤ 0.1 %")
            await browser_figures(server, work, long_run, listed)
            row("memory, server", f"{server.memory:.0f} MB", "≤ 80 MB")
            going.cancel()
            await asyncio.wait([going])
            server = await restart_figure(server, journal, work)
            server.kill()
        await watched_figure(Path(folder))


asyncio.run(main())
