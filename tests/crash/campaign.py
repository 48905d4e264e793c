"""All the trials on the real journal, or as many as asked for, with progress; ends with 1 when an invariant broke.

usage: python -m tests.crash.campaign [--trials N] [--only SECTION,…] [--seed N] [--place DIR]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.disk import FATES, power_losses
from tests.crash.lab import CompilerMissingError, Lab, build_shim
from tests.crash.trials import FAULTS, Bench, every_crash

if TYPE_CHECKING:
    Trial = Callable[[Bench], list[str]]

WORKERS = 2
SYNC_MS = {"history": 0, "loop": 2}
SHOWN = 3


class Campaign:
    """Trials of every kind, shared out among a few warm processes."""

    def __init__(self, shim: Path, place: Path, subject: str, variant: str, seed: int) -> None:
        self._shim, self._place, self._subject, self._variant = shim, place, subject, variant
        self.seed = seed
        self._local = threading.local()
        self._labs: list[Lab] = []
        self._lock = threading.Lock()
        self.bench = self._bench()

    def _bench(self) -> Bench:
        """The bench of this thread."""
        if not hasattr(self._local, "bench"):
            with self._lock:
                lab = Lab(self._shim, self._subject, SYNC_MS[self._subject])
                self._labs.append(lab)
            place = Path(tempfile.mkdtemp(dir=self._place))
            self._local.bench = Bench(lab, place, self._variant)
        return self._local.bench

    def run(self, name: str, trials: list[Trial], limit: int) -> int:
        """Carry out so many of these trials, drawn at random; gives how many broke an invariant."""
        chosen = trials if not limit or limit >= len(trials) else random.Random(self.seed).sample(trials, limit)
        begun, broken = time.monotonic(), 0
        with ThreadPoolExecutor(WORKERS) as pool:
            for number, problems in enumerate(pool.map(lambda trial: trial(self._bench()), chosen), 1):
                broken += bool(problems)
                if problems:
                    say(f"  BROKEN {problems[0] if broken <= SHOWN else problems[0].splitlines()[0]}")
                if number % 250 == 0:
                    say(f"  {name}: {number} of {len(chosen)}, {broken} broken")
        taken = time.monotonic() - begun
        say(f"{name}: {len(chosen)} of {len(trials)} trials, {broken} broken, {taken:.0f} s")
        return broken

    def close(self) -> None:
        """Let the warm processes go."""
        for lab in self._labs:
            lab.__exit__()


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def crash_trials(campaign: Campaign) -> list[Trial]:
    """A crash before, in the middle of and after every operation."""
    operations = campaign.bench.recording()[1]
    return [lambda bench, fault=fault: bench.crash(fault) for fault in every_crash(operations)]


def recovery_trials(campaign: Campaign) -> list[Trial]:
    """For every operation a crash there, and another one somewhere in what recovers from it."""
    chance = random.Random(campaign.seed)
    faults = every_crash(campaign.bench.recording()[1])
    seconds = [chance.choice(faults[: len(faults) // 3]) for _ in faults]
    pairs = list(zip(faults, seconds, strict=True))
    return [lambda bench, pair=pair: bench.crash(*pair) for pair in pairs]


def power_trials(campaign: Campaign, seeds: int = 3) -> list[Trial]:
    """The power lost behind every operation, what was not synced dropped, emptied, shuffled or torn."""
    root, operations = campaign.bench.recording()
    losses = [
        loss
        for seed in range(seeds)
        for loss in power_losses(operations, root, FATES if not seed else FATES[2:], campaign.seed + seed)
    ]
    return [lambda bench, loss=loss: bench.from_disk(*loss) for loss in losses]


def fault_trials(campaign: Campaign) -> list[Trial]:
    """Every operation fails, once and ever after."""
    return [
        lambda bench, name=name, at=at, sticky=sticky: bench.fail(name, at, sticky=sticky)
        for name, (_, kinds) in FAULTS.items()
        for at in range(1, campaign.bench.length(kinds) + 1)
        for sticky in (False, True)
    ]


def kill_trials(campaign: Campaign, count: int = 1000) -> list[Trial]:
    """kill -9 at random moments."""
    longest = campaign.bench.seconds()
    chance = random.Random(campaign.seed)
    moments = [chance.uniform(0, longest) for _ in range(count)]
    return [lambda bench, moment=moment: bench.kill(moment)[0] for moment in moments]


def damage_trials(campaign: Campaign, count: int = 1000) -> list[Trial]:
    """Bits flipped, pages zeroed, files cut and scrambled, in homes that are whole or were left by a crash."""
    templates = campaign.bench.templates()
    return [
        lambda bench, seed=seed: bench.damage(templates[seed % len(templates)], campaign.seed + seed)
        for seed in range(count)
    ]


Section = Callable[[Campaign], "list[Trial]"]
SECTIONS: dict[str, tuple[str, Section]] = {
    "crash": ("history", crash_trials),
    "recovery": ("history", recovery_trials),
    "power": ("history", power_trials),
    "fault": ("history", fault_trials),
    "kill": ("history", kill_trials),
    "damage": ("history", damage_trials),
    "loop": ("loop", crash_trials),
    "loop-recovery": ("loop", recovery_trials),
    "loop-power": ("loop", power_trials),
    "loop-fault": ("loop", fault_trials),
}
"""What each section tries, and on what: a history through the durable seam, or the whole product."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=0, help="of each section; 0 for all there are")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    parser.add_argument("--variant", default="ok")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.place, prefix="deputy-crash-") as place:
        try:
            shim = build_shim(Path(place))
        except CompilerMissingError as error:
            say(str(error))
            return 2
        broken = 0
        for name in options.only.split(","):
            subject, trials_of = SECTIONS[name]
            campaign = Campaign(shim, Path(place), subject, options.variant, options.seed)
            try:
                broken += campaign.run(name, trials_of(campaign), options.trials)
            finally:
                campaign.close()
    say(f"in all: {broken} broken")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
