"""Kill a delegation with SIGKILL in the middle of a model call, then resume it: nothing that was paid is paid again."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from deputy.testing import ProviderServer, ScriptedCall, ScriptedTurn

DEPUTY = [sys.executable, "-m", "deputy"]
TURNS = (
    ScriptedTurn(text="First I look.", calls=(ScriptedCall(name="Read", arguments={"path": "plan.txt"}),)),
    ScriptedTurn(text="I note it.", calls=(ScriptedCall(name="Note", arguments={"content": "The plan is to win."}),)),
    ScriptedTurn(text="Report: the plan is to win (plan.txt:1).", faults=("silent",)),
)


def main() -> None:
    with TemporaryDirectory() as folder, ProviderServer(*TURNS) as provider:
        place = Path(folder)
        (place / "plan.txt").write_text("win\n")
        environ = {**os.environ, **provider.environ, "DEPUTY_HOME": str(place / "home")}

        task = [*DEPUTY, "delegate", "-t", "plan=What is the plan?", "--model", "anthropic:claude-sonnet-5-5", "--yes"]
        child = subprocess.Popen([*task, "--events", "-"], cwd=place, env=environ, stdout=subprocess.PIPE)
        session_id = wait_for_note(child)
        while len(provider.asked) < len(TURNS):
            time.sleep(0.01)  # its third model call is about to be made
        child.kill()
        child.wait()
        print(f"killed after {len(provider.asked)} model calls, the last of them unanswered")

        resume = [*DEPUTY, "resume", session_id, "--yes", "--json"]
        done = subprocess.run(resume, cwd=place, env=environ, capture_output=True, text=True, check=False)
        outcome = json.loads(done.stdout)

    print(outcome["report"])
    assert (done.returncode, outcome["status"]) == (0, "completed"), done.stderr
    assert "the plan is to win" in outcome["report"]
    answered = [asked.answered for asked in provider.asked]
    assert answered == [0, 1, 2, 2], "each finished call was made once, the one in flight again"


def wait_for_note(child: subprocess.Popen[bytes]) -> str:
    session_id = ""
    for line in child.stdout or ():
        event = json.loads(line)
        if event["event"] == "opened":
            session_id = event["session_id"]
        if event["event"] == "note":
            return session_id
    raise AssertionError("it ended before it noted anything")


if __name__ == "__main__":
    main()
