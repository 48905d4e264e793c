"""`make test-acpx`: acpx, a client of the Agent Client Protocol from the npm registry, drives `deputy acp`."""

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.mcp_suite.node import install
from tests.support.scripts import call, talk, turn, write_script

ACPX = "acpx@0.19.1"
TASKS = [{"label": "one", "prompt": "read the first"}, {"label": "two", "prompt": "read the second"}]
SCRIPT = (
    talk(
        turn("Two subagents.", call("Delegate", tasks=TASKS)),
        turn("I write.", call("Write", path="out.txt", content="written\n")),
        turn("All done."),
        when="Compare",
    ),
    talk(turn("The first answer."), turn("The second answer."), when="Remember"),
    talk(turn("never said", delay_seconds=120), when="Wait"),
    talk(turn("first report"), when="the first"),
    talk(turn("second report"), when="the second"),
)

_STARTS = 10
_OF_ACPX = ("queue owner failed to start", "Queue owner is shutting down")


class Client:
    """acpx in a folder of its own."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        model = write_script(folder / "script.json", *SCRIPT)
        self._env = {**env, "HOME": str(folder), "DEPUTY_HOME": str(folder / "home"), "DEPUTY_MODEL": model}

    def command(self, *arguments: str, permissions: str = "--approve-all") -> list[str]:
        agent = f"{sys.executable} -m deputy acp"
        return ["acpx", "--cwd", str(self.workspace), "--ttl", "1", permissions, "--agent", agent, *arguments]

    def run(self, *arguments: str, permissions: str = "--approve-all") -> str:
        shown = ""
        # On a busy machine acpx loses a process of its own, which must start within 6 s; the agent got nothing then.
        for _ in range(_STARTS):
            done = subprocess.run(
                self.command(*arguments, permissions=permissions),
                env=self._env,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            shown = f"{done.stdout}{done.stderr}\nexit code {done.returncode}"
            if not any(problem in shown for problem in _OF_ACPX):
                break
        return shown

    @contextmanager
    def start(self, *arguments: str):
        command = self.command("--format", "json", *arguments)
        process = subprocess.Popen(command, env=self._env, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def deputy(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "deputy", *arguments]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, check=False).stdout

    def runs(self) -> list[dict]:
        return json.loads(self.deputy("ps", "--all", "--json"))["delegations"]


def approved(client: Client) -> None:
    """Permissions are asked; plan, tool calls and subagents are shown; the approved write happens."""
    shown = client.run("exec", "Compare the files")
    for words in ("[plan]", "one: read the first", "Delegate [2 subagents]", "second report", "All done.", "end_turn"):
        assert words in shown, (words, shown)
    assert client.workspace.joinpath("out.txt").read_text() == "written\n"


def denied(client: Client) -> None:
    """Denied permissions start no subagent and write no file."""
    shown = client.run("exec", "Compare the files", permissions="--deny-all")
    assert "All done." in shown, shown
    assert "second report" not in shown
    assert not client.workspace.joinpath("out.txt").exists()
    assert len(client.runs()) == 1


def resumed(client: Client) -> None:
    """A session goes on in a new process of the agent."""
    client.run("sessions", "new")
    first = client.run("prompt", "Remember this")
    assert "The first answer." in first, first
    second = client.run("prompt", "And now?")
    assert "The second answer." in second, second
    [run] = client.runs()
    assert run["session_id"] in client.run("sessions", "list")
    assert "And now?" in client.deputy("transcript", run["session_id"])


def cancelled(client: Client) -> None:
    """Ctrl-C in the client cancels the run."""
    import signal

    with client.start("exec", "Wait for it") as process:
        for line in process.stdout:
            if '"session/prompt"' in line:
                break
        while not client.runs():
            pass
        process.send_signal(signal.SIGINT)
        process.wait(60)
    [run] = client.runs()
    assert run["status"] in ("cancelled", "interrupted"), run


def main() -> int:
    env = install(ACPX)
    for case in (approved, denied, resumed, cancelled):
        with tempfile.TemporaryDirectory() as folder:
            case(Client(env, Path(folder)))
            print(f"{ACPX} {case.__name__}: {case.__doc__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
