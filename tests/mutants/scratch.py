"""A copy of the repository in which one file at a time is changed and tests are run."""

import os
import re
import select
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

from msgspec import json
from tests.mutants.planted import ROOT

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")
# The warm Python has imported the plugins before pytest could rewrite their assertions.
_PLAIN = ("-p", "no:cacheprovider", "-p", "no:cov", "-W", "ignore::pytest.PytestAssertRewriteWarning")
_PYTEST = ("-m", "pytest", *_PLAIN)
_SIMULATION = "simulation::"
_SIMULATED = ("src/deputy/engine/", "src/deputy/runtime/")
_FEW_SEEDS = 30
_LATE = -1000
# 2: the changed module cannot be imported.
_FAILURES = (1, 2)
_ENDS = {0: "survived", **dict.fromkeys(_FAILURES, "caught"), _LATE: "late"}
_FAILED = re.compile(r"^(?:FAILED|ERROR) ((?:tests/|simulation::).+?)(?: - .*)?$", re.MULTILINE)


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
    end: Literal["caught", "survived", "late", "unproven", "error"]
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
        self._compiled = folder.with_name(f"{folder.name}-compiled")
        self._output = folder.with_name(f"{folder.name}-output")
        self._python = subprocess.Popen(
            [folder / ".venv/bin/python", "-m", "tests.mutants.warm_python"],
            cwd=folder,
            # Compiled modules are kept: most of the time of a short run is otherwise spent on compiling.
            env={
                **os.environ,
                "PYTHONPATH": "",
                "PYTHONDONTWRITEBYTECODE": "",
                "PYTHONPYCACHEPREFIX": str(self._compiled),
                "COLUMNS": "200",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        """End the Python of this copy."""
        self._python.communicate()

    def run(self, change: Change, bounds: Bounds) -> Verdict:
        """Run the tests of a change and the simulation until one of them fails."""
        began = time.monotonic()
        # Of the engine and the runtime the simulation finds most within a few seeds.
        few = min(bounds.seeds, _FEW_SEEDS) if change.file.startswith(_SIMULATED) else 0
        campaign = [_seeds(0, few), [*_PYTEST, "-x", *change.tests], _seeds(few, bounds.seeds)]
        code, output = 0, ""
        with self._changed(change.file, change.text):
            for arguments in filter(None, campaign):
                code, output = self._run(arguments, bounds.seconds - (time.monotonic() - began))
                if code:
                    break
            failed = _FAILED.search(output)
            by, end = failed[1] if failed else _last_line(output), _ENDS.get(code, "error")
            if end == "caught" and failed:
                # A test may also fail because of the load: it has to fail twice.
                code, output = self._run(_alone(by), bounds.seconds)
                if code not in _FAILURES:
                    end, by = "unproven", f"{by} failed, but then: {_last_line(output)} (exit code {code})"
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
        for compiled in (self._compiled / path.parent.relative_to("/")).glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def _run(self, arguments: Sequence[str], seconds: float) -> tuple[int, str]:
        asked, answers = self._python.stdin, self._python.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.encode([str(self._output), *arguments]) + b"\n")
        child = int(answers.readline())
        is_late = not select.select([answers], [], [], max(1.0, seconds))[0]
        if is_late:
            os.killpg(child, signal.SIGKILL)
        code = int(answers.readline())
        if is_late:
            return _LATE, f"not finished within {seconds:.0f} s"
        return code, self._output.read_text(errors="replace")


def _seeds(first: int, end: int) -> list[str]:
    return ["-m", "tests.mutants.first_violation", str(first), str(end)] if first < end else []


def _last_line(output: str) -> str:
    return output.strip().splitlines()[-1][:160] if output.strip() else ""


def _alone(test: str) -> list[str]:
    """The arguments that run one test, or one seed of the simulation."""
    if not test.startswith(_SIMULATION):
        return [*_PYTEST, test]
    seed = int(test.removeprefix(f"{_SIMULATION}seed-"))
    return _seeds(seed, seed + 1)


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
    last = scratches.get()
    wrong = last.failing({one.by for one in verdicts if one.end == "caught"})
    last.close()
    while not scratches.empty():
        scratches.get().close()
    return [
        one._replace(end="unproven", by=f"{one.by} fails without it") if one.by in wrong else one for one in verdicts
    ]
