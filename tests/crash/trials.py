"""The trials: each takes a history through one mishap and gives the invariants that did not hold behind it."""

from __future__ import annotations

import errno
import random
import shutil
import time
from typing import TYPE_CHECKING

from tests.crash.disk import FATES, lay_out, power_losses
from tests.crash.invariants import NO_TRANSCRIPT
from tests.crash.lab import Ended, Fault, Lab, acks_of, crashes, read_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crash.lab import Operation

FAULTS = {"ENOSPC": (errno.ENOSPC, "CWTLM"), "EIO": (errno.EIO, "CWSTURLM"), "EMFILE": (errno.EMFILE, "O")}


class Bench:
    """A lab and a place to put homes; every trial leaves the place as it was."""

    def __init__(self, lab: Lab, place: Path, variant: str = "") -> None:
        self.lab = lab
        self.variant = variant
        self._place = place
        self._made = 0

    def home(self) -> Path:
        """A home that was never used."""
        self._made += 1
        return self._place / f"home{self._made}"

    def fresh(self) -> Path:
        """An empty home."""
        home = self.home()
        home.mkdir(mode=0o700)
        return home

    def clear(self, home: Path) -> None:
        """Remove a home and what was acknowledged in it."""
        shutil.rmtree(home, ignore_errors=True)
        acks_of(home).unlink(missing_ok=True)

    def length(self, kinds: str = "") -> int:
        """How many operations the whole history takes."""
        home = self.fresh()
        fault = Fault(at=0, mode="", kinds=kinds) if kinds else None
        ended = self.lab.run(home, self.variant, fault)
        assert not ended.raised, ended.trace
        self.clear(home)
        return ended.operations

    def seconds(self) -> float:
        """How long the whole history takes on this machine."""
        begun = time.monotonic()
        self.length()
        return time.monotonic() - begun

    def recording(self) -> tuple[Path, list[Operation]]:
        """The whole history as operations, and the home it was carried out in (which is gone)."""
        home = self.fresh()
        log = home.with_name(f"{home.name}.log")
        ended = self.lab.run(home, self.variant, record=log)
        assert not ended.raised, ended.trace
        operations = read_log(log)
        log.unlink()
        self.clear(home)
        return home, operations

    def crash(self, *faults: Fault) -> list[str]:
        """Die at each of these in turn (the second in the recovery from the first …), then go on to the end."""
        home = self.fresh()
        problems: list[str] = []
        for fault in faults:
            ended = self.lab.run(home, self.variant, fault)
            problems += _misbehaviour(ended, f"{fault}")
            problems += [f"{fault}: {problem}" for problem in self.lab.check(home, self.variant)]
        problems += self._go_on(home, " then ".join(map(str, faults)))
        self.clear(home)
        return problems

    def fail(self, name: str, at: int, *, sticky: bool) -> list[str]:
        """Let operations fail, then go on to the end when the trouble is over."""
        number, kinds = FAULTS[name]
        fault = Fault(at=at, mode="fail", errno=number, sticky=sticky, kinds=kinds)
        home = self.fresh()
        ended = self.lab.run(home, self.variant, fault)
        problems = _misbehaviour(ended, str(fault))
        if ended.raised and "StorageError" not in ended.raised:
            problems.append(f"{fault}: raised no storage error but: {ended.trace}")
        whole = not ended.raised and not ended.status
        found = self.lab.check(home, self.variant, complete=whole)
        if sticky:
            # While the trouble lasts, neither a transcript nor the reason for its lack can be written.
            found = [problem for problem in found if not problem.endswith(NO_TRANSCRIPT)]
        problems += [f"{fault}: {problem}" for problem in found]
        problems += self._go_on(home, str(fault))
        self.clear(home)
        return problems

    def kill(self, seconds: float) -> tuple[list[str], bool]:
        """Kill the process after this long, whatever it is doing; also whether it was still at work then."""
        home = self.fresh()
        ended = self.lab.run(home, self.variant, kill_after=seconds)
        where = f"killed after {seconds * 1000:.2f} ms"
        problems = [f"{where}: {problem}" for problem in self.lab.check(home, self.variant)]
        problems += self._go_on(home, where)
        self.clear(home)
        return problems, ended.was_killed

    def lose_power(
        self, operations: list[Operation], root: Path, fates: tuple[str, ...] = FATES, seed: int = 0
    ) -> Iterator[list[str]]:
        """Lose the power behind every operation, in several ways."""
        for where, files, acks in power_losses(operations, root, fates, seed):
            yield self.from_disk(where, files, acks)

    def from_disk(self, where: str, files: dict[str, bytes], acks: list[str]) -> list[str]:
        """Go on from a disk as the power left it."""
        home = self._laid_out(files, acks)
        problems = [f"{where}: {problem}" for problem in self.lab.check(home, self.variant)]
        problems += self._go_on(home, where)
        self.clear(home)
        return problems

    def left_on(self, where: str, files: dict[str, bytes], acks: list[str]) -> list[str]:
        """Only look at a disk as the power left it."""
        home = self._laid_out(files, acks)
        problems = [f"{where}: {problem}" for problem in self.lab.check(home, self.variant)]
        self.clear(home)
        return problems

    def _laid_out(self, files: dict[str, bytes], acks: list[str]) -> Path:
        home = self.home()
        lay_out(files, home)
        acks_of(home).write_text("".join(f"{ack}\n" for ack in acks))
        return home

    def _go_on(self, home: Path, where: str) -> list[str]:
        ended = self.lab.run(home, self.variant)
        problems = [f"{where}; going on raised: {ended.trace}"] if ended.raised else []
        if ended.status:
            problems.append(f"{where}; going on ended with {ended.status}: {ended.trace}")
        found = self.lab.check(home, self.variant, complete=True)
        return problems + [f"{where}; in the end: {problem}" for problem in found]

    def templates(self) -> list[Path]:
        """Homes to damage: one that is whole, and one whose process died with much of it still in the log."""
        whole, left = self.fresh(), self.fresh()
        operations = self.recording()[1]
        self.lab.run(whole, self.variant)
        self.lab.run(left, self.variant, Fault(at=len(operations) * 2 // 3, mode="before"))
        return [whole, left]

    def damage(self, template: Path, seed: int) -> list[str]:
        """Damage a copy of a finished home; reading it may lose what was hit, and must say so."""
        home = self.home()
        shutil.copytree(template, home)
        shutil.copy(acks_of(template), acks_of(home))
        chance = random.Random(seed)
        path = chance.choice(
            [p for p in sorted(home.rglob("*")) if p.is_file() and p.stat().st_size and "-shm" not in p.name]
        )
        how = chance.choice((_flip, _zero, _cut, _scramble))
        path.write_bytes(how(path.read_bytes(), chance))
        where = f"{path.relative_to(home)} damaged by {how.__name__.strip('_')}, seed {seed}"
        problems = [
            f"{where}: {problem}"
            for problem in self.lab.check(home, self.variant, damaged=f"{path.name} {how.__name__}")
        ]
        self.clear(home)
        return problems


def _misbehaviour(ended: Ended, where: str) -> list[str]:
    if ended.hung:
        return [f"{where}: hung: {ended.trace}"]
    if ended.status and not ended.was_killed:
        return [f"{where}: died of {ended.status}: {ended.trace}"]
    return []


def every_crash(operations: list[Operation]) -> list[Fault]:
    """All deaths of a history that does this."""
    counted = [operation for operation in operations if operation.kind != "A"]
    return [fault for at, operation in enumerate(counted, 1) for fault in crashes(at, is_write=operation.kind == "W")]


def _flip(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def _zero(content: bytes, chance: random.Random) -> bytes:
    page = chance.randrange(len(content) // 4096 + 1) * 4096
    return content[:page] + bytes(len(content[page : page + 4096])) + content[page + 4096 :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _scramble(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    length = min(chance.randint(1, 600), len(content) - at)
    return content[:at] + chance.randbytes(length) + content[at + length :]
