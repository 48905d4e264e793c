"""A program that speaks like another agent's, as scripted, and can misbehave: run as a script, never imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deputy.testing.programs.dialects import DIALECTS, FAULTS, Dialect, Line
else:
    from dialects import DIALECTS, FAULTS, Dialect, Line

FOR_EVER = 600
SLEEPER = ["sleep", str(FOR_EVER)]


def main() -> None:
    """Play the script that lies beside the executable named first."""
    executable, name, argv = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    script: Line = json.loads(executable.with_suffix(".script.json").read_text())
    if argv == ["--version"]:
        print(script.get("version") or DIALECTS[name].version)
        return
    given = sys.stdin.read()
    _note(executable, {"argv": argv, "stdin": given, "environ": dict(os.environ), "cwd": str(Path.cwd())})
    dialect = DIALECTS[name](argv, dict(os.environ))
    Play(dialect, script, executable.with_suffix(".sessions.json")).play()


class Play:
    """One turn of the program."""

    def __init__(self, dialect: Dialect, script: Line, sessions: Path) -> None:
        self.dialect = dialect
        self.script = script
        self.how = str(script.get("misbehaviour") or "")
        self._file = sessions
        self._sessions: dict[str, Line] = json.loads(sessions.read_text()) if sessions.exists() else {}

    def play(self) -> None:
        """All of it, as well or as badly as told."""
        self._misbehave_first()
        state = self._open()
        turns: list[Line] = self.script["turns"][state["answered"] :]
        spent = {"input": 0, "output": 0, "cached": 0}
        text = ""
        for turn in turns:
            time.sleep(turn.get("delay_seconds") or 0)
            if turn.get("faults"):
                self._exit(*self.dialect.fails(FAULTS[turn["faults"][0]]))
            number = state["answered"] = state["answered"] + 1
            spent = _added(spent, turn["usage"])
            text = turn.get("text") or ""
            tell(self.dialect.says(text, number, turn["usage"]))
            self._misbehave_midway()
            for index, call in enumerate(turn.get("calls") or []):
                self._use(f"call_{number}_{index}", call["name"], call.get("arguments") or {})
            is_last = not turn.get("calls")
            tell(self.dialect.takes(turn["usage"], number, is_last))
            if is_last:
                break
        state["total"] = _added(state["total"], spent)
        self._file.write_text(json.dumps(self._sessions))
        tell(self.dialect.ends(text, spent, state["total"]))
        if self.how == "lingers":
            time.sleep(FOR_EVER)

    def _open(self) -> Line:
        wanted = self.dialect.resumes
        if wanted and wanted not in self._sessions:
            self._exit(*self.dialect.unknown_session(wanted))
        self.dialect.session = wanted or f"ses_{len(self._sessions) + 1:04}"
        fresh: Line = {"answered": 0, "total": {"input": 0, "output": 0, "cached": 0}}
        tell(self.dialect.begins())
        return self._sessions.setdefault(self.dialect.session, fresh)

    def _use(self, call: str, tool: str, arguments: Line) -> None:
        tell(self.dialect.calls(call, tool, arguments))
        denied = not self.dialect.allows(tool)
        output = "" if denied else _done(tool, arguments)
        tell(self.dialect.gets(call, tool, arguments, output, denied))

    def _misbehave_first(self) -> None:
        match self.how:
            case "is logged out":
                self._exit(*self.dialect.logged_out())
            case "does not know a flag":
                self._exit([], f"error: unknown option '{self.dialect.argv[0]}'", 1)
            case "says nothing":
                sys.exit(0)
            case "prints garbage":
                print("Welcome!\n<html>\n{not json}\n[1, 2]\n\x00\x1b[2J")
                sys.exit(0)
            case "floods" | "floods and says nothing more":
                _flood(int(self.script["flood_bytes"]))
                if self.how != "floods":
                    sys.exit(0)
            case "prints an endless line":
                os.write(1, b'{"type": "message", "content": "')
                for _ in range(int(self.script["flood_bytes"]) // 65_536):
                    os.write(1, b"x" * 65_536)
                os.write(1, b'"}\n')
            case "asks at the terminal":
                print("Do you trust this folder? [y/n] ", end="", flush=True)
                time.sleep(FOR_EVER)
            case _:
                pass

    def _misbehave_midway(self) -> None:
        match self.how:
            case "crashes":
                sys.stderr.write("thread 'main' panicked at src/main.rs:1\n")
                sys.exit(3)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stops in the middle of a line":
                print('{"type": "result", "res', end="", flush=True)
                sys.exit(0)
            case "hangs":
                time.sleep(FOR_EVER)
            case "hangs and is deaf":
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                time.sleep(FOR_EVER)
            case "leaves children":
                subprocess.Popen(SLEEPER, start_new_session=True)
                subprocess.Popen(["env", "-i", *SLEEPER], start_new_session=True, stdout=subprocess.DEVNULL)
            case "closes its pipes":
                nothing = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(nothing, descriptor)
                time.sleep(FOR_EVER)
            case _:
                pass

    def _exit(self, lines: list[Line], errors: str, code: int) -> None:
        tell(lines)
        sys.stderr.write(f"{errors}\n" if errors else "")
        sys.stdout.flush()
        sys.exit(code)


def tell(lines: list[Line]) -> None:
    """Print lines of JSON, at once."""
    for line in lines:
        print(json.dumps(line), flush=True)


def _done(tool: str, arguments: Line) -> str:
    path = Path(str(arguments.get("path", "")))
    match tool:
        case "Read":
            return path.read_text() if path.exists() else "no such file"
        case "Write":
            path.write_text(str(arguments.get("content", "")))
            return "written"
        case _:
            return subprocess.run(
                ["sh", "-c", arguments["command"]], capture_output=True, text=True, check=False
            ).stdout


def _flood(size: int) -> None:
    sys.stdout.flush()
    chunk = (b"x" * 1023 + b"\n") * 64
    os.write(1, b"first words\n")
    for _ in range(size // len(chunk)):
        os.write(1, chunk)
    os.write(1, b"last words\n")


def _added(one: Line, other: Line) -> Line:
    return {key: one[key] + other[key] for key in one}


def _note(executable: Path, call: dict[str, Any]) -> None:
    with executable.with_suffix(".calls.jsonl").open("a") as file:
        file.write(json.dumps(call) + "\n")


if __name__ == "__main__":
    main()
