"""Trials of a program that writes files: run it, kill it or fail it at any operation, and see what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MAX_WAIT_SECONDS = 60
"""A trial that takes longer hangs; a machine that has much else to do takes long too."""
TORN = (1, 50, 99)


class CompilerMissingError(Exception):
    """There is nothing here to build the shim with."""


def build_shim(into: Path) -> Path:
    """The shim as a shared library."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise CompilerMissingError("no C compiler (cc) was found; the crash tests need one to build tests/crash/shim.c")
    library = into / "shim.so"
    source = HERE / "shim.c"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-lpthread"]
    subprocess.run(command, check=True)
    return library


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens at which operation."""

    at: int
    mode: str
    """before, torn, after or fail."""
    torn: int = 0
    errno: int = 0
    sticky: bool = False
    kinds: str = ""

    def environment(self) -> dict[str, str]:
        found = {"SHIM_AT": str(self.at), "SHIM_MODE": self.mode, "SHIM_TORN": str(self.torn)}
        found |= {"SHIM_ERRNO": str(self.errno), "SHIM_STICKY": str(int(self.sticky))}
        return found | ({"SHIM_KINDS": self.kinds} if self.kinds else {})

    def __str__(self) -> str:
        how = f"torn at {self.torn} %" if self.mode == "torn" else self.mode
        if self.mode == "fail":
            how = f"{os.strerror(self.errno)} {'ever after' if self.sticky else 'once'}"
        return f"operation {self.at}{f' of {self.kinds}' if self.kinds else ''}: {how}"


def crashes(at: int, *, is_write: bool) -> list[Fault]:
    """All the ways to die at one operation; only a write has a middle."""
    torn = [Fault(at=at, mode="torn", torn=share) for share in TORN if is_write]
    return [Fault(at=at, mode="before"), *torn, Fault(at=at, mode="after")]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a trial ended."""

    status: int
    answer: Any = None
    raised: tuple[str, ...] = ()
    trace: str = ""
    operations: int = 0

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL

    @property
    def hung(self) -> bool:
        return self.trace.startswith("Timeout")


class Lab:
    """A warm process that runs trials of one subject: a module with `run(home, variant, tell)` and `check(…)`.

    On a disk whose syncs take a while, more goes on between the operations.
    """

    def __init__(self, shim: Path, subject: str, sync_ms: int = 0) -> None:
        self._subject = subject
        self._sync_ms = sync_ms
        environment = os.environ | {"LD_PRELOAD": str(shim)}
        command = [sys.executable, str(HERE / "zygote.py"), subject]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the subject could not be imported"

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(
        self,
        home: Path,
        variant: str = "",
        fault: Fault | None = None,
        record: Path | None = None,
        kill_after: float | None = None,
    ) -> Ended:
        """Carry the history out, or on from where it was left, and perhaps kill it on the way."""
        environment = {"SHIM_ROOT": str(home), "SHIM_SYNC_MS": str(self._sync_ms)} | (
            {} if fault is None else fault.environment()
        )
        if record is not None:
            environment["SHIM_LOG"] = str(record)
        return self._order("run", [str(home), variant], environment, acks_of(home), kill_after)

    def check(self, home: Path, variant: str = "", *, complete: bool = False, damaged: str = "") -> list[str]:
        """The invariants that do not hold for what was left. `damaged` names the file that was hit, and how."""
        acks = acks_of(home)
        lines = acks.read_text().splitlines() if acks.exists() else []
        ended = self._order("check", [str(home), variant, lines, complete, damaged], {}, Path(os.devnull))
        if ended.status or ended.raised:
            return [f"checking ended with {ended.status}: {ended.trace}"]
        return ended.answer

    def _order(
        self,
        call: str,
        arguments: list[Any],
        environment: dict[str, str],
        acks: Path,
        kill_after: float | None = None,
    ) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"call": f"{self._subject}.{call}", "arguments": arguments, "environment": environment}
        self._process.stdin.write(
            json.dumps(order | {"acks": str(acks), "seconds": MAX_WAIT_SECONDS, "kill_after": kill_after}) + "\n"
        )
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        output = answer["told"]
        return Ended(
            status=answer["status"],
            answer=output.get("answer"),
            raised=tuple(output.get("raised", ())),
            trace=output.get("trace", ""),
            operations=output.get("operations", 0),
        )


def acks_of(home: Path) -> Path:
    """Where a trial in this home writes what it was promised: beside it, out of the shim's sight."""
    return home.with_name(f"{home.name}.acks")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing that a program did to its files."""

    kind: str
    path: str = ""
    other: str = ""
    offset: int = 0
    data: bytes = field(default=b"", repr=False)


def read_log(log: Path) -> list[Operation]:
    """What the shim recorded."""
    raw, at, found = log.read_bytes(), 0, []
    header = struct.Struct("IIIIq")
    while at < len(raw):
        kind, first, second, size, offset = header.unpack_from(raw, at)
        path, other, data = at + header.size, at + header.size + first, at + header.size + first + second
        at = data + size
        found.append(
            Operation(
                kind=chr(kind),
                path=raw[path:other].decode(),
                other=raw[other:data].decode(),
                offset=offset,
                data=raw[data:at],
            )
        )
    return found
