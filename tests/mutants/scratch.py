"""A copy of the repository in which one file at a time is changed and tests are run."""

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple

from tests.mutants.planted import ROOT

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")
_PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov")
_SIMULATION = "simulation::"
_SIMULATED = ("src/deputy/engine/", "src/deputy/runtime/")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Change(NamedTuple):
    """A changed file, and the tests that should fail with it."""

    name: str
    file: str
    text: str
    tests: Sequence[str]


class Bounds(NamedTuple):
    """How long one change may be tested."""

    seconds: float
    seeds: int
    """Seeds of the simulation, after the tests."""


class Verdict(NamedTuple):
    """How one change ended."""

    change: Change
    end: Literal["caught", "survived", "error"]
    seconds: float
    by: str
    """The test that failed, or what else happened."""


class Scratch:
    """One copy, with a virtual environment that imports the copy and our packages."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT, folder, ignore=_LEFT_OUT, symlinks=True)
        venv.create(folder / ".venv", with_pip=False, symlinks=True)
        site = next((folder / ".venv/lib").glob("python*/site-packages"))
        packages = sysconfig.get_path("purelib")
        (site / "copy.pth").write_text(f"{folder}/src\nimport site; site.addsitedir({packages!r})\n")
        self._folder = folder
        self._python = str(folder / ".venv/bin/python")

    def run(self, change: Change, bounds: Bounds) -> Verdict:
        """Run the tests of a change and the simulation until one of them fails."""
        began = time.monotonic()
        campaign = [[*_PYTEST, "-x", *change.tests]]
        if bounds.seeds:
            campaign.append(["-m", "tests.mutants.first_violation", str(bounds.seeds)])
        if change.file.startswith(_SIMULATED):
            # Of these files the simulation finds most, and the load of the machine does not change what it finds.
            campaign.reverse()
        code, output = 0, ""
        with self._changed(change.file, change.text):
            for arguments in campaign:
                code, output = self._run(arguments, bounds.seconds - (time.monotonic() - began))
                if code:
                    break
        failed = _FAILED.search(output)
        by = failed[1] if failed else output.strip().splitlines()[-1][:160] if output.strip() else ""
        end = {0: "survived", 1: "caught"}.get(code, "error")
        return Verdict(change, end, time.monotonic() - began, by if end != "survived" else "")  # pyright: ignore

    def failing(self, tests: Iterable[str]) -> set[str]:
        """Which of these tests fail without any change: they prove nothing."""
        names = sorted(name for name in tests if not name.startswith(_SIMULATION))
        code, output = self._run([*_PYTEST, *names], 3600) if names else (0, "")
        return set(_FAILED.findall(output)) if code in (0, 1) else set(names)

    @contextmanager
    def _changed(self, file: str, text: str) -> Iterator[None]:
        path = self._folder / file
        before = path.read_bytes()
        try:
            self._write(path, text.encode())
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        # A compiled module is compared by second and size only.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def _run(self, arguments: Sequence[str], seconds: float) -> tuple[int, str]:
        child = subprocess.Popen(
            [self._python, *arguments],
            cwd=self._folder,
            # Compiled modules are kept: most of the time of a short run is otherwise spent on compiling.
            env={**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "", "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return -1, f"not finished within {seconds:.0f} s"
        return child.returncode, output


def run_all(changes: Iterable[Change], bounds: Bounds, jobs: int, *, shows_all: bool = True) -> list[Verdict]:
    """Test each change in one of a few copies, and print how each ended."""
    changes = list(changes)
    folder = ROOT / "build/mutants"
    scratches: SimpleQueue[Scratch] = SimpleQueue()
    for number in range(jobs):
        scratches.put(Scratch(folder / str(number)))

    def play(change: Change) -> Verdict:
        scratch = scratches.get()
        try:
            return scratch.run(change, bounds)
        finally:
            scratches.put(scratch)

    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(play, change) for change in changes]):
            one = done.result()
            verdicts.append(one)
            if shows_all or one.end != "caught":
                print(f"{one.end:8} {one.seconds:6.1f} s  {one.change.name:36} {one.by}", flush=True)
    wrong = scratches.get().failing({one.by for one in verdicts if one.end == "caught"})
    return [one._replace(end="error", by=f"{one.by} fails without it") if one.by in wrong else one for one in verdicts]
