"""The commands of the tutorial, run one after another in a terminal emulator, and their screens."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from scripts.pictures import play

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"Save this as `([\w.]+)`:\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^(?:> |Go ahead\? \[y/N/d\] )(.+)$")
VARYING = (
    (re.compile(r"sess_\d+_[a-z0-9]{6}"), "ID"),
    (re.compile(r"^[a-z0-9]{4,6} +(?=completed )"), "ID "),
    (re.compile(r"\b\d+(\.\d+)?[smh]\b"), "0s"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z"), "TIME"),
    (re.compile(r" +"), " "),
)


class Step(NamedTuple):
    """A command of the tutorial, and the lines that it is said to print."""

    command: str
    lines: list[str]

    @property
    def typed(self) -> list[str]:
        """The answers that a person gives."""
        return [found[1] for line in self.lines if (found := TYPED.match(line))]


def steps(text: str) -> list[Step]:
    """The commands of all console blocks, in order."""
    found: list[Step] = []
    for block in CONSOLE.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            else:
                found[-1].lines.append(line)
    return found


class Reader:
    """A reader who types every command of the tutorial, in a copy of the repository's examples."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(ROOT / "examples", folder / "examples")
        self._folder = folder
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environ = {"HOME": str(folder), "PATH": path, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        self._before = f"cd {folder}"

    def save_files(self, text: str, folder: str) -> None:
        """Save the files that the tutorial shows."""
        for name, code in FILE.findall(text):
            (self._folder / folder / name).write_text(code, "utf-8")

    def run(self, step: Step) -> list[str]:
        """Type a command, and the answers that it asks for; returns the lines of the screen."""
        if step.command.startswith(("cd ", "export ")):
            self._before += f" && {step.command}"
            return []
        *_, screen = play(["/bin/bash", "-c", f"{self._before} && {step.command}"], self._environ, step.typed)
        return "\n".join(line.rstrip() for line in screen.display).rstrip().splitlines()


def difference(step: Step, shown: list[str]) -> str:
    """Compare a screen with the tutorial; empty if they agree."""
    if matches([_plain(line) for line in step.lines], [_plain(line) for line in shown]):
        return ""
    return "\n".join((f"$ {step.command}", "--- the tutorial says", *step.lines, "--- really", *shown))


def matches(wanted: list[str], shown: list[str]) -> bool:
    """Whether the lines are the same; a wanted line `…` stands for any lines."""
    if not wanted or not shown:
        return not shown and all(line == "…" for line in wanted)
    if wanted[0] == "…":
        return any(matches(wanted[1:], shown[skipped:]) for skipped in range(len(shown) + 1))
    return wanted[0] == shown[0] and matches(wanted[1:], shown[1:])


def _plain(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, replacement in VARYING:
        line = pattern.sub(replacement, line)
    return line.rstrip()
