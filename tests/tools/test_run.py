import asyncio
import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from deputy.core.request import Grant
from deputy.engine.ports import ToolContext
from deputy.processes.environment import scrubbed
from deputy.processes.orphans import environment_tag, kill_orphans
from deputy.tools.run import run_tool
from deputy.tools.workspace import Workspace

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/tmp",
    "ANTHROPIC_API_KEY": "CANARY",
    "OPENAI_API_KEY": "CANARY",
    "GITHUB_TOKEN": "CANARY",
    "AWS_SECRET_ACCESS_KEY": "CANARY",
    "DATABASE_URL": "postgres://u:CANARY@h",
    "SSH_AUTH_SOCK": "CANARY",
    "LD_PRELOAD": "CANARY",
    "LC_ALL": "C.UTF-8",
}


@pytest.fixture
def run(workspace):
    return run_tool(workspace, ENVIRONMENT)


def test_output_and_exit_code_come_back(root, run, call):
    (root / "sub").mkdir()
    done = call(run, command="echo out; echo err >&2; pwd", path="sub")
    assert done.text == f"out\nerr\n{root}/sub\n[exit code 0]"
    assert not done.is_error
    failed = call(run, command="exit 3")
    assert (failed.text, failed.is_error) == ("[exit code 3]", True)
    assert call(run, command="kill -9 $$").text == "[ended by the signal SIGKILL]"
    assert call(run, command="kill -40 $$").text == "[ended by the signal 40]"


def test_keys_and_tokens_are_not_passed_on(run, call):
    seen = call(run, command="env").text
    assert "CANARY" not in seen
    assert "LC_ALL=C.UTF-8" in seen
    assert "TERM=dumb" in seen
    assert "CANARY" not in str(scrubbed(ENVIRONMENT))


def test_there_is_no_input_and_no_terminal(run, call):
    assert call(run, command="cat; tty; ps -o sid= -p $$ | tr -d ' '; echo $$").text.splitlines()[0] == "not a tty"


def test_of_long_output_head_tail_and_count_are_kept_in_bounded_memory(run, call):
    command = (
        f"echo first; {sys.executable} -c \"import os\nfor _ in range(4096): os.write(1, b'x' * 65536)\"; echo last"
    )
    tracemalloc.start()
    text = call(run, command=command).text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text.startswith("first\nxxx")
    assert text.endswith("xlast\n[exit code 0]")
    assert f"[… {4096 * 65536 + 11 - 50_000:,} bytes left out …]" in text
    assert peak < 5_000_000


def test_a_command_that_takes_too_long_ends_with_what_it_said(run, call):
    stopped = call(run, command="echo before; trap '' TERM; sleep 600", seconds=1)
    assert stopped.text == "before\n[stopped after the timeout of 1 s]"
    assert stopped.is_error
    assert "more than the limit of 120" in call(run, command="true", seconds=121).text


SHAPES = {
    "in the background": "sleep 600 &",
    "in a group of its own": "setsid sleep 600 &",
    "forked twice": "(setsid sh -c 'sleep 600 & sleep 601' &)",
    "deaf to signals": "nohup sh -c 'trap \"\" TERM HUP INT; sleep 600; sleep 601' &",
    "holding the output": "setsid sh -c 'exec sleep 600' & disown",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_that_a_command_started_outlives_it(run, call, root, shape):
    done = call(run, command=f"{SHAPES[shape]}\necho hi")
    assert done.text.splitlines()[-1] == "[exit code 0]"
    assert not tagged()


def test_a_cancelled_command_leaves_no_process(run, root):
    os.mkfifo(root / "started")

    async def cancel_while_it_runs():
        command = "setsid sleep 600 & (setsid sleep 601 &); echo > started; sleep 602"
        call = asyncio.ensure_future(run.run({"command": command}, ToolContext(call_id=f"call-{os.getpid()}")))
        await asyncio.to_thread((root / "started").read_text)
        assert tagged()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel_while_it_runs())
    assert not tagged()


def tagged():
    """The processes that carry the mark of a call."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if f"DEPUTY_CALL=call-{os.getpid()}:".encode() in (process / "environ").read_bytes():
                    found.append(process.name)
    return found


def test_bad_calls_run_nothing(root, run, call, workspace):
    assert call(run, command="touch ran\0").is_error
    assert call(run, command="touch ran", path="..").is_error
    assert call(run, command="touch ran", path="nowhere").is_error
    assert call(run, command="").is_error
    assert call(run, command="touch ran", shell="zsh").is_error
    narrowed = run_tool(Workspace(root, Grant(paths=("src",))), ENVIRONMENT)
    assert "needs the whole workspace" in call(narrowed, command="touch ran").text
    assert not list(root.iterdir())


def test_a_folder_that_does_not_exist_is_answered_with_what_does(root, run, call):
    (root / "src").mkdir()
    (root / "src" / "a.py").write_text("")
    missing = call(run, command="touch ran", path="source")
    assert missing.text == "'source' does not exist; nothing was run. Give a directory as `path`."
    assert (missing.is_error, missing.data) == (True, "The workspace has:\nsrc/a.py")
    assert not (root / "ran").exists()


def test_a_command_runs_only_in_the_directory_that_was_approved(root, run):
    (root / "d").mkdir()
    approved = asyncio.run(run.preview({"command": "touch ran", "path": "d"}))
    (root / "d").rename(root / "old")
    (root / "d").mkdir()
    context = ToolContext(call_id="call-1", base=approved.base)
    refused = asyncio.run(run.run({"command": "touch ran", "path": "d"}, context))
    assert "another directory than the approved one; nothing was run" in refused.text
    (root / "d").rmdir()
    (root / "old").rename(root / "d")
    assert not asyncio.run(run.run({"command": "touch ran", "path": "d"}, context)).is_error
    assert [path.relative_to(root).as_posix() for path in root.rglob("ran")] == ["d/ran"]


def test_an_id_that_a_model_made_up_cannot_break_the_tag(workspace):
    context = ToolContext(call_id="\0=\ud800é\n/../x" + "y" * 10_000)
    done = asyncio.run(run_tool(workspace, ENVIRONMENT).run({"command": "echo $DEPUTY_CALL"}, context))
    assert done.text.startswith("xyyy")


def test_what_a_dead_process_left_running_is_found_by_its_call(tmp_path):
    environment = {"PATH": os.environ["PATH"], "DEPUTY_CALL": f"{environment_tag('left')}0123456789abcdef"}
    program = ["sh", "-c", "echo up; read never"]
    with subprocess.Popen(program, env=environment, start_new_session=True, stdin=PIPE, stdout=PIPE) as left:
        assert left.stdout.readline() == b"up\n"
        kill_orphans(environment_tag("other"))
        assert left.poll() is None
        kill_orphans(environment_tag("another"), environment_tag("left"))
        assert left.wait() == -9
