"""A scripted program with the output format of another agent; run by its own process, never imported by a test."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tests.support.programs.dialects import DIALECTS, FAULTS, SESSION_ID, Dialect, Line, addressee
    from tests.support.programs.json_text import dumps, loads
    from tests.support.programs.misbehaviour import FOR_EVER, how_now, misbehave_first, misbehave_midway, without_usage
    from tests.support.programs.text_files import read_text, write_text
else:
    from dialects import DIALECTS, FAULTS, SESSION_ID, addressee
    from json_text import dumps, loads
    from misbehaviour import FOR_EVER, how_now, misbehave_first, misbehave_midway, without_usage
    from text_files import read_text, write_text


def main() -> None:
    """Play the script that lies beside the executable named first."""
    executable, name, argv = sys.argv[1], sys.argv[2], sys.argv[3:]
    script: Line = loads(read_text(f"{executable}.script.json", ""))
    called = {"argv": argv, "environ": dict(os.environ), "cwd": os.getcwd()}
    if name not in DIALECTS or argv[:1] in (["--acp"], ["acp"]):
        if TYPE_CHECKING:
            from tests.support.programs.fake_agent import play_agent
        else:
            from fake_agent import play_agent

        play_agent(name, script, executable, lambda prompt: _note(executable, {**called, "stdin": prompt}))
        return
    prompt = sys.stdin.read()
    _note(executable, {**called, "stdin": prompt})
    dialect = DIALECTS[name](argv, dict(os.environ))
    FakeProgramRun(dialect, script, f"{executable}.sessions.json", prompt).play()


class FakeProgramRun:
    """One turn of the program."""

    def __init__(self, dialect: Dialect, script: Line, sessions: str, prompt: str) -> None:
        self.dialect = dialect
        self.script = script
        self.prompt = prompt
        self.how = how_now(str(script.get("misbehaviour") or ""), goes_on=bool(dialect.resumes))
        self._file = sessions
        self._sessions: dict[str, Line] = loads(read_text(sessions, "{}"))

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
        write_text(self._file, dumps(self._sessions))
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
        write_text(self._file, dumps(self._sessions))
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
        print(dumps(line), flush=True)


def _done(tool: str, arguments: Line) -> str:
    path = str(arguments.get("path", ""))
    match tool:
        case "Read":
            return read_text(path, "no such file")
        case "Write":
            write_text(path, str(arguments.get("content", "")))
            return "written"
        case _:
            import subprocess

            return subprocess.run(
                ["sh", "-c", arguments["command"]], capture_output=True, text=True, check=False
            ).stdout


def _added(one: Line, other: Line) -> Line:
    return {key: one[key] + other[key] for key in one}


def _note(executable: str, call: dict[str, Any]) -> None:
    write_text(f"{executable}.calls.jsonl", dumps(call) + "\n", "a")
