"""`make kill-cluster`: two workers carry out 40 subagents of 10 turns under faults; judged by counting at the provider.

The provider knows of each model call whose it is and which turn, so it sees a repeated one, whatever the journal says.
A fault comes after a number of calls that the seed gives.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from tests.support.real_workers import DEPUTY, WorkerCrew
from tests.support.worker_network import WorkerNetwork, enter_namespaces, lacking

from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.testing import ProviderServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHILDREN, TURNS, SLOTS = 40, 10, 24
TURN_SECONDS = 0.5
LOST_SECONDS, AWAY_SECONDS, WITHIN_SECONDS = 20.0, 6.0, 180.0
"""Longer than the 15 s after which a silent worker is lost; how long Postgres is away; the most time of a row."""
LONG_SECONDS = 90.0
"""Longer than the 60 s for which everything waits for Postgres."""
CAP = 100
SMALL = "16m"
"""The disk of a worker that gets full."""
TAKEN_OVER = "SELECT count(*) FROM events WHERE key LIKE 'adopted:%'"
PLACED_AGAIN = "SELECT count(*) FROM leases JOIN runs USING (run) WHERE parent IS NOT NULL AND placed > 1"
LIVE = "SELECT count(*) FROM runs WHERE is_live"
COMPLETED = 'SELECT count(*) FROM runs WHERE parent IS NOT NULL AND instr(state, \'"status":"completed"\'::bytea)'
LINE = "{:<9} {:>9} {:>6} {:>9} {:>11} {:>8}  {}"


class Row(NamedTuple):
    """What happened under one fault."""

    fault: str
    completed: int
    calls: int
    repeated: int
    taken_over: int
    seconds: float
    problem: str


class Trial:
    """One delegation under one fault."""

    def __init__(self, crew: WorkerCrew, provider: ProviderServer, fault: str, seed: int) -> None:
        self.crew = crew
        self.fault = fault
        self.provider = provider
        self.client: subprocess.Popen[bytes] | None = None
        self.network: WorkerNetwork | None = None
        self.home = crew.folder / "small"
        self._random = random.Random(f"{seed} {fault}")

    def run(self) -> Row:
        """Start, do the fault at its moment, wait for the end, and count."""
        crew = self.crew
        crew.use_new_database()
        self.provider.asked.clear()
        crew.start_worker(SLOTS)
        SECOND.get(self.fault, _usual)(self)
        began = time.monotonic()
        output = crew.folder / f"{self.fault}.json"
        client = self.client = self._delegate(output)
        deadline = began + WITHIN_SECONDS + (LONG_SECONDS if self.fault == "pg-long" else 0)
        # After a seventh to a half of all calls.
        moment = self._random.randrange(CHILDREN * TURNS // 7, CHILDREN * TURNS // 2)
        if do := FAULTS[self.fault]:
            _until(lambda: len(self.provider.asked) >= moment or client.poll() is not None, deadline)
            do(self)
        if self.fault in CLIENT_LOST:
            is_over = _until(lambda: client.poll() is not None and not crew.count(LIVE), deadline)
        else:
            is_over = _until(lambda: client.poll() is not None, deadline)
        seconds = time.monotonic() - began
        row = self._judge(client.returncode if is_over else None, output.read_text() if is_over else "", seconds)
        if self.network is not None:
            self.network.remove()
        if self.fault == "disk":
            crew.end_workers()
            subprocess.run(["umount", "--lazy", str(self.home)], check=True)
        return row

    def victim(self) -> subprocess.Popen[bytes]:
        """One of the two workers."""
        return self._random.choice(self.crew.workers)

    def _delegate(self, output: Path) -> subprocess.Popen[bytes]:
        tasks = [{"label": f"t{number}", "prompt": _prompt(number)} for number in range(CHILDREN)]
        (self.crew.folder / "tasks.json").write_text(json.dumps({"concurrency": CHILDREN, "tasks": tasks}))
        more = () if self.fault != "cap" else ("--budget", f"requests={CAP}")
        arguments = ("delegate", "--tasks", str(self.crew.folder / "tasks.json"), "--yes", "--json", *more)
        with output.open("wb") as out, output.with_suffix(".txt").open("wb") as messages:
            return self.crew.start(*DEPUTY, *arguments, stdout=out, stderr=messages)

    def _judge(self, code: int | None, result: str, seconds: float) -> Row:
        results = json.loads(result or "{}").get("results", [])
        completed = sum(one["outcome"] == "completed" for one in results)
        if self.fault in CLIENT_LOST:
            completed, code = self.crew.count(COMPLETED), None if code is None else 0
        calls = Counter((asked.opening, asked.answered) for asked in self.provider.asked)
        repeated = sum(count - 1 for count in calls.values())
        taken_over = self.crew.count(PLACED_AGAIN if self.fault == "pg-long" else TAKEN_OVER)
        total = len(self.provider.asked)
        said = (self.crew.folder / f"{self.fault}.txt").read_text().strip().replace("\n", " ")
        problem = ""
        if code is None:
            problem = f"not over after {WITHIN_SECONDS:.0f} s"
        elif self.fault == "cap":
            problem = "" if total <= CAP else f"more than {CAP} calls"
        elif completed < CHILDREN:
            problem = f"not all completed, exit code {code}: {said[-200:]}"
        elif repeated > (taken_over if self.fault in TAKING_OVER else 0):
            problem = "repeated more than it may"
        elif code:
            problem = f"exit code {code}: {said[-200:]}"
        return Row(self.fault, completed, total, repeated, taken_over, seconds, problem)


# --- the faults ---


def _kill(trial: Trial) -> None:
    victim = trial.victim()
    victim.kill()
    victim.wait()


def _stop(trial: Trial) -> None:
    victim = trial.victim()
    os.kill(victim.pid, signal.SIGSTOP)
    time.sleep(LOST_SECONDS)
    os.kill(victim.pid, signal.SIGCONT)


def _restart_postgres(trial: Trial) -> None:
    trial.crew.server.stop("immediate")
    trial.crew.server.start()


def _take_postgres_away(trial: Trial) -> None:
    trial.crew.server.stop("immediate")
    time.sleep(AWAY_SECONDS)
    trial.crew.server.start()


def _drain(trial: Trial) -> None:
    victim = trial.victim()
    victim.terminate()
    victim.wait()


def _deploy(trial: Trial) -> None:
    """Replace the workers one after another; the new one is ready before the old one leaves."""
    for old in tuple(trial.crew.workers):
        trial.crew.start_worker(SLOTS)
        old.terminate()
        old.wait()


def _take_postgres_away_for_long(trial: Trial) -> None:
    trial.crew.server.stop("immediate")
    time.sleep(LONG_SECONDS)
    trial.crew.server.start()


def _kill_client(trial: Trial) -> None:
    assert trial.client is not None
    trial.client.kill()
    trial.client.wait()


def _cut(trial: Trial) -> None:
    assert trial.network is not None
    trial.network.cut()
    time.sleep(LOST_SECONDS)
    trial.network.heal()


def _fill_disk(trial: Trial) -> None:
    with suppress(OSError), (trial.home / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(65_536))


def _usual(trial: Trial) -> subprocess.Popen[bytes]:
    return trial.crew.start_worker(SLOTS)


def _behind_links(trial: Trial) -> subprocess.Popen[bytes]:
    """A worker that reaches the store and the provider over links of its own."""
    crew, provider = trial.crew, trial.provider
    address = urlsplit(provider.url)
    assert address.port is not None
    trial.network = network = WorkerNetwork(crew, address.port)
    theirs = {name: value.replace("127.0.0.1", network.other) for name, value in provider.environ.items()}
    store = f"postgres://postgres@{network.database}{urlsplit(crew.url).path}"
    return crew.start_worker(SLOTS, within=network.command, **theirs, DEPUTY_STORE=store)


def _on_small_disk(trial: Trial) -> subprocess.Popen[bytes]:
    """A worker whose home is a disk of its own."""
    trial.home.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "none", str(trial.home)], check=True)
    return trial.crew.start_worker(SLOTS, DEPUTY_HOME=str(trial.home / "home"))


def _kill_all(trial: Trial) -> None:
    trial.crew.end_workers()
    for _ in range(2):
        # The slots of workers that were just killed still count, so the number must be the same.
        trial.crew.start_worker(SLOTS)


FAULTS: dict[str, Callable[[Trial], None] | None] = {
    "kill": _kill,
    "stop": _stop,
    "pg": _restart_postgres,
    "pg-away": _take_postgres_away,
    "term": _drain,
    "all": _kill_all,
    "client": _kill_client,
    "deploy": _deploy,
    "pg-long": _take_postgres_away_for_long,
    "partition": _cut,
    "disk": _fill_disk,
    "cap": None,
}
"""`cap` is no fault: a budget of 100 requests, over two workers."""
SECOND: dict[str, Callable[[Trial], subprocess.Popen[bytes]]] = {"partition": _behind_links, "disk": _on_small_disk}
"""How the second worker is started, where that matters."""
TAKING_OVER = ("kill", "stop", "all", "partition", "pg-long")
"""A call may be repeated for each run taken over; under the other faults none."""
CLIENT_LOST = ("client", "pg-long")
"""The client has no result: the store is asked."""


def _prompt(number: int) -> str:
    return f"Look at file {number:03}."


def _script() -> ModelScript:
    def turns(number: int) -> tuple[ScriptedTurn, ...]:
        read = ScriptedCall(name="Read", arguments={"path": f"file_{number:03}.txt"})
        # Equal calls in a row would be stopped as a loop.
        reads = [ScriptedCall(name="Read", arguments={**read.arguments, "offset": 1 + turn}) for turn in range(TURNS)]
        return tuple(
            ScriptedTurn(text="next" if turn < TURNS - 1 else "done", delay_seconds=TURN_SECONDS,
                         calls=(reads[turn],) if turn < TURNS - 1 else ())
            for turn in range(TURNS)
        )  # fmt: skip

    # A turn may be requested again: that is counted, not refused.
    return ModelScript(
        conversations=tuple(
            ScriptedConversation(when=_prompt(number), turns=turns(number), times=1000) for number in range(CHILDREN)
        )
    )


def _until(is_so: Callable[[], bool], deadline: float) -> bool:
    """Wait until something is so; False if it is not in time."""
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def main() -> int:
    """Print a row per fault; 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=["", *FAULTS], default="", help="all faults by default")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chosen = [given.fault] if given.fault else [*FAULTS]
    if any(fault in SECOND for fault in chosen) and not lacking():
        enter_namespaces("tests.cluster.kill_campaign")
    print(f"{CHILDREN} subagents × {TURNS} turns on two workers, seed {given.seed}, load {os.getloadavg()[0]:.1f}")
    print(LINE.format("fault", "completed", "calls", "repeated", "taken over", "seconds", "verdict"), flush=True)
    missed = 0
    with (
        ProviderServer(_script(), strict=False) as provider,
        WorkerCrew({**provider.environ, "DEPUTY_MODEL": "sonnet"}) as crew,
    ):
        for number in range(CHILDREN):
            (crew.workspace / f"file_{number:03}.txt").write_text("a line\n" * 20)
        for fault in chosen:
            if fault in SECOND and (why := lacking()):
                print(LINE.format(fault, "", "", "", "", "", why), flush=True)
                continue
            row = Trial(crew, provider, fault, given.seed).run()
            figures = (f"{row.completed}/{CHILDREN}", row.calls, row.repeated, row.taken_over, f"{row.seconds:.1f}")
            print(LINE.format(fault, *figures, row.problem or "ok"), flush=True)
            missed += bool(row.problem)
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
