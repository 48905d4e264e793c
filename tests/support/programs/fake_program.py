"""A scripted program with the output format of another agent; run as a script, never imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.programs.dialects import DIALECTS, FAULTS, SESSION_ID, Dialect, Line, addressee
    from tests.support.programs.fake_agent import play_agent
    from tests.support.programs.misbehaviour import FOR_EVER, how_now, misbehave_first, misbehave_midway, without_usage
else:
    from dialects import DIALECTS, FAULTS, SESSION_ID, Dialect, Line, addressee
    from fake_agent import play_agent
    from misbehaviour import FOR_EVER, how_now, misbehave_first, misbehave_midway, without_usage


def main() -> None:
    """Play the script that lies beside the executable named first."""
    executable, name, argv = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    script: Line = json.loads(executable.with_suffix(".script.json").read_text())
    called = {"argv": argv, "environ": dict(os.environ), "cwd": str(Path.cwd())}
    if name not in DIALECTS or argv[:1] in (["--acp"], ["acp"]):
        play_agent(name, script, executable, lambda prompt: _note(executable, {**called, "stdin": prompt}))
        return
    prompt = sys.stdin.read()
    _note(executable, {**called, "stdin": prompt})
    dialect = DIALECTS[name](argv, dict(os.environ))
    FakeProgramRun(dialect, script, executable.with_suffix(".sessions.json"), prompt).play()


class FakeProgramRun:
    """One turn of the program."""

    def __init__(self, dialect: Dialect, script: Line, sessions: Path, prompt: str) -> None:
        self.dialect = dialect
        self.script = script
        self.prompt = prompt
        self.how = how_now(str(script.get("misbehaviour") or ""), goes_on=bool(dialect.resumes))
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
            text = str(turn.get("text") or "").replace(SESSION_ID, state["addressee"])
            self._tell(self.dialect.says(text, number, turn["usage"]))
            misbehave_midway(self.how)
            for index, call in enumerate(turn.get("calls") or []):
                self._use(f"call_{number}_{index}", call["name"], call.get("arguments") or {})
            is_last = not turn.get("calls")
            self._tell(self.dialect.takes(turn["usage"], number, is_last))
            if is_last:
                break
        state["total"] = _added(state["total"], spent)
        self._file.write_text(json.dumps(self._sessions))
        self._tell(self.dialect.ends(text, spent, state["total"]))
        if self.how == "lingers":
            time.sleep(FOR_EVER)

    def _open(self) -> Line:
        wanted = self.dialect.resumes
        if wanted and wanted not in self._sessions:
            self._exit(*self.dialect.unknown_session(wanted))
        self.dialect.session = wanted or f"ses_{len(self._sessions) + 1:04}"
        total = {"input": 0, "output": 0, "cached": 0}
        fresh: Line = {"answered": 0, "total": total, "addressee": addressee(self.prompt)}
        state = self._sessions.setdefault(self.dialect.session, fresh)
        self._file.write_text(json.dumps(self._sessions))
        self._tell(self.dialect.begins())
        return state

    def _use(self, call: str, tool: str, arguments: Line) -> None:
        self._tell(self.dialect.calls(call, tool, arguments))
        denied = not self.dialect.allows(tool)
        output = "" if denied else _done(tool, arguments)
        self._tell(self.dialect.gets(call, tool, arguments, output, denied))

    def _misbehave_first(self) -> None:
        match self.how:
            case "is logged out":
                self._exit(*self.dialect.logged_out())
            case "does not know a flag":
                self._exit([], f"error: unknown option '{self.dialect.argv[0]}'", 1)
            case how:
                misbehave_first(how, int(self.script["flood_bytes"]))

    def _exit(self, lines: list[Line], errors: str, code: int) -> None:
        self._tell(lines)
        sys.stderr.write(f"{errors}\n" if errors else "")
        sys.stdout.flush()
        sys.exit(code)

    def _tell(self, lines: list[Line]) -> None:
        tell(without_usage(lines) if self.how == "reports no usage" else lines)


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


def _added(one: Line, other: Line) -> Line:
    return {key: one[key] + other[key] for key in one}


def _note(executable: Path, call: dict[str, Any]) -> None:
    with executable.with_suffix(".calls.jsonl").open("a") as file:
        file.write(json.dumps(call) + "\n")


if __name__ == "__main__":
    main()
