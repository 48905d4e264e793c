"""Deputy over MCP: a client of `deputy mcp` that calls Delegate. The client is the caller; there is no parent model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from gauntlet.subjects import deputy_settings

TITLE = "Deputy (MCP)"
DEPUTY = str(Path(sys.executable).parent / "deputy")
LACKS = {
    "seconds": "a client's call has the time limits of its tasks",
    "requests": "a client's call has the budgets of its tasks",
    "spawns": "a client's call has at most 8 tasks",
    "nesting": "subagents of a client's call cannot delegate",
    "own_tool": "own tools are functions of a program",
    "program_fan_out": "a client's call has at most 8 tasks",
}
BATCH = 8
dialect = deputy_settings.dialect


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    env = {**deputy_settings.prepare(plan), "PYTHONPATH": plan["root"]}
    return [sys.executable, "-m", "gauntlet.subjects.deputy_mcp", plan["path"]], env


class Client:
    """An MCP client over pipes, of the revision that most programs have."""

    def __init__(self, *options: str) -> None:
        argv = [DEPUTY, "mcp", "--model", deputy_settings.MODEL, *options]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._next = 0
        info = {"clientInfo": {"name": "gauntlet", "version": "1"}, "capabilities": {"elicitation": {}}}
        self.receive({self.send("initialize", {"protocolVersion": "2025-06-18", **info})})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, method: str, params: dict[str, Any]) -> int:
        """Send a request; return its id."""
        self._next += 1
        self._write({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        return self._next

    def receive(self, waiting: set[int]) -> dict[int, dict[str, Any]]:
        """Read until these requests are answered; a form is printed and answered with yes."""
        answers: dict[int, dict[str, Any]] = {}
        for line in _pipe(self._process.stdout):
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                print(message["params"]["message"], flush=True)
                fields = message["params"]["requestedSchema"]["properties"]
                content = {name: field.get("enum", [True])[0] for name, field in fields.items()}
                result = {"action": "accept", "content": content}
                self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})
            elif message.get("id") in waiting and "method" not in message:
                answers[message["id"]] = message
                if len(answers) == len(waiting):
                    break
        return answers

    def call(self, name: str, *arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Call a tool, at once for each of the arguments; return the results."""
        ids = [self.send("tools/call", {"name": name, "arguments": one}) for one in arguments]
        answers = self.receive(set(ids))
        return [answers[one].get("result", answers[one]) for one in ids if one in answers]

    def close(self) -> None:
        """Close the pipe, which ends the server."""
        _pipe(self._process.stdin).close()
        self._process.wait()

    def _write(self, message: dict[str, Any]) -> None:
        pipe = _pipe(self._process.stdin)
        pipe.write(json.dumps(message).encode() + b"\n")
        pipe.flush()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def main(plan: dict[str, Any]) -> None:
    """Run the trial, and print what the client gets."""
    options = [] if "approval" in plan["needs"] else ["--yes"]
    options += ["--allow", "Run"] if "shell" in plan["needs"] else []
    client = Client(*options)
    tasks = deputy_settings.tasks(plan)
    noted = Path(plan["state"]) / "session"
    if plan["is_resumed"]:
        client.call("DelegateResume", {"session_id": noted.read_text()})
        results = client.call("DelegateResult", {"session_id": noted.read_text(), "wait": 60})
    elif "resume" in plan["needs"]:
        [started] = client.call("DelegateStart", {"tasks": tasks, "concurrency": 4})
        session = started["structuredContent"]["session_id"]
        noted.write_text(session)
        results = client.call("DelegateResult", {"session_id": session, "wait": 60})
    else:
        groups = [tasks[start : start + BATCH] for start in range(0, len(tasks), BATCH)]
        results = client.call("Delegate", *({"tasks": group, "concurrency": 4} for group in groups))
    for result in results:
        print(*(part.get("text", "") for part in result.get("content", [result])), sep="\n", flush=True)
    client.close()


if __name__ == "__main__":
    main(deputy_settings.read_plan(sys.argv[1]))
