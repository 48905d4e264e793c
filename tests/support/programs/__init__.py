"""Fake programs of other agents, as real executables: scripted, recorded, and able to misbehave."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, json
from tests.support.programs.dialects import VERSIONS

from deputy.core.model_script import ScriptedTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS: Final = (
    "claude", "codex", "cursor-agent", "gemini", "opencode", "claude-agent-acp", "codex-acp", "copilot", "qwen",
)  # fmt: skip
"""The last four speak the Agent Client Protocol; `gemini --acp` and `opencode acp` do, too."""
# Imported, the program is compiled once for all; as a script it would be compiled at every start.
_PLAY: Final = f"import sys; sys.path[0] = {str(Path(__file__).parent)!r}; from fake_program import main; main()"


class Called(Struct, frozen=True, kw_only=True):
    """How a program was called."""

    argv: tuple[str, ...]
    stdin: str
    environ: dict[str, str]
    cwd: str


class FakePrograms:
    """A folder of such programs, for the front of a PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def play(
        self,
        name: str,
        turns: Sequence[ScriptedTurn],
        *,
        misbehaviour: str = "",
        version: str = "",
        flood_bytes: int = 0,
    ) -> None:
        """Set the script and the misbehaviour of a program; forget its recorded calls."""
        script: dict[str, Any] = {
            "turns": [_turn(turn) for turn in turns],
            "misbehaviour": misbehaviour,
            "flood_bytes": flood_bytes,
        }
        (self.folder / f"{name}.script.json").write_bytes(json.encode(script))
        (self.folder / f"{name}.version").write_text(f"{version or VERSIONS[name]}\n")
        for kept in ("calls.jsonl", "sessions.json"):
            (self.folder / f"{name}.{kept}").unlink(missing_ok=True)

    def lists(self, name: str, text: str) -> None:
        """Set what a program prints when it is asked for its models; without it, the command fails."""
        (self.folder / f"{name}.models").write_text(text)

    def calls(self, name: str) -> list[Called]:
        """How a program was called since, in order."""
        file = self.folder / f"{name}.calls.jsonl"
        return [json.decode(line, type=Called) for line in file.read_bytes().splitlines()] if file.exists() else []


def install_fake_programs(folder: Path, names: Sequence[str] = PROGRAMS) -> FakePrograms:
    """Put executables of these names into a folder; until they are told otherwise, they answer `Done.`"""
    folder.mkdir(parents=True, exist_ok=True)
    programs = FakePrograms(folder)
    for name in names:
        executable = folder / name
        words = [sys.executable, "-E", "-S", "-c", _PLAY, str(executable), name]
        # Every turn asks for the version first; a shell says it in a twentieth of the time that Python takes to start.
        version = f"{shlex.quote(str(executable))}.version"
        told = f'[ "$*" = --version ] && read -r version < {version} && echo "$version" && exit'
        listed = (
            f'case "$*" in models|"debug models"|"help config") exec cat {shlex.quote(str(executable))}.models;; esac'
        )
        executable.write_text(f'#!/bin/sh\n{told}\n{listed}\nexec {shlex.join(words)} "$@"\n')
        executable.chmod(0o755)
        programs.play(name, (ScriptedTurn(text="Done."),))
    return programs


def _turn(turn: ScriptedTurn) -> dict[str, Any]:
    used = turn.usage
    return {
        "text": turn.text,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in turn.calls],
        "usage": {"input": used.input_tokens, "output": used.output_tokens, "cached": used.cached_tokens},
        "delay_seconds": turn.delay_seconds,
        "faults": list(turn.faults),
    }
