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
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tests.support.real_workers import DEPUTY, WorkerCrew

from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.testing import ProviderServer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

CHILDREN, TURNS, SLOTS = 40, 10, 24
TURN_SECONDS = 0.5
LOST_SECONDS, AWAY_SECONDS, WITHIN_SECONDS = 20.0, 6.0, 180.0
"""Longer than the 15 s after which a silent worker is lost; how long Postgres is away; the most time of a row."""
CAP = 100
TAKEN_OVER = "SELECT count(*) FROM events WHERE key LIKE 'adopted:%'"
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
        self._provider = provider
        self._random = random.Random(f"{seed} {fault}")

    def run(self) -> Row:
        """Start, do the fault at its moment, wait for the end, and count."""
        crew = self.crew
        crew.use_new_database()
        self._provider.asked.clear()
        for _ in range(2):
            crew.start_worker(SLOTS)
        began = time.monotonic()
        output = crew.folder / f"{self.fault}.json"
        client = self._delegate(output)
        deadline = began + WITHIN_SECONDS
        # After a seventh to a half of all calls.
        moment = self._random.randrange(CHILDREN * TURNS // 7, CHILDREN * TURNS // 2)
        if do := FAULTS[self.fault]:
            _until(lambda: len(self._provider.asked) >= moment or client.poll() is not None, deadline)
            do(self)
        is_over = _until(lambda: client.poll() is not None, deadline)
        seconds = time.monotonic() - began
        return self._judge(client.returncode, output.read_text() if is_over else "", seconds)

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
        calls = Counter((asked.opening, asked.answered) for asked in self._provider.asked)
        repeated = sum(count - 1 for count in calls.values())
        taken_over = self.crew.count(TAKEN_OVER)
        total = len(self._provider.asked)
        said = (self.crew.folder / f"{self.fault}.txt").read_text().strip().replace("\n", " ")[-200:]
        problem = ""
        if code is None:
            problem = f"not over after {WITHIN_SECONDS:.0f} s"
        elif self.fault == "cap":
            problem = "" if total <= CAP else f"more than {CAP} calls"
        elif completed < CHILDREN:
            problem = f"not all completed, exit code {code}: {said}"
        elif repeated > (taken_over if self.fault in TAKING_OVER else 0):
            problem = "repeated more than it may"
        elif code:
            problem = f"exit code {code}: {said}"
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
    "cap": None,
}
"""`cap` is no fault: a budget of 100 requests, over two workers."""
TAKING_OVER = ("kill", "stop", "all")
"""A call may be repeated for each run taken over; under the other faults none."""


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
    print(f"{CHILDREN} subagents × {TURNS} turns on two workers, seed {given.seed}, load {os.getloadavg()[0]:.1f}")
    print(LINE.format("fault", "completed", "calls", "repeated", "taken over", "seconds", "verdict"), flush=True)
    missed = 0
    with (
        ProviderServer(_script(), strict=False) as provider,
        WorkerCrew({**provider.environ, "DEPUTY_MODEL": "sonnet"}) as crew,
    ):
        for number in range(CHILDREN):
            (crew.workspace / f"file_{number:03}.txt").write_text("a line\n" * 20)
        for fault in [given.fault] if given.fault else FAULTS:
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
