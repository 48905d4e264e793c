"""A forked process is what an executed one is: its output, its exit code, its terminal, and how signals end it."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.fork_server import Popen, forked_deputy, run

if TYPE_CHECKING:
    from pathlib import Path

DEPUTY = (sys.executable, "-m", "deputy")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["ps", "--all", "--json"], 0),
        (["show", "sess_1_aaaaaa"], 3),
        (["no-such"], 2),
        (["detect", "-"], 3),
    ],
)
def test_a_forked_process_prints_and_ends_as_an_executed_one(arguments: list[str], code: int, tmp_path: Path):
    env = {**os.environ, "DEPUTY_HOME": str(tmp_path / "home"), "COLUMNS": "80"}
    command = [*DEPUTY, *arguments]
    executed = subprocess.run(command, input=b"no request", capture_output=True, cwd=tmp_path, env=env, check=False)
    assert executed.returncode == code, executed.stderr
    for start in (DEPUTY, forked_deputy()):
        forked = run([*start, *arguments], input=b"no request", capture_output=True, cwd=tmp_path, env=env)
        assert (forked.returncode, forked.stdout, forked.stderr) == (code, executed.stdout, executed.stderr)


def test_a_process_can_be_interrupted_also_where_the_tests_ignore_it(tmp_path: Path):
    """A shell starts a job with `&` in a script so."""
    script = tmp_path / "handler.py"
    script.write_text("import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for command in ([sys.executable, str(script)], [sys.executable, "-I", str(script)]):
            assert run(command, capture_output=True, cwd=tmp_path).stdout == b"True\n"
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_forked_process_is_killed_and_has_no_stream_of_another(tmp_path: Path):
    env = {**os.environ, "DEPUTY_HOME": str(tmp_path / "home")}
    first, second = (Popen([*DEPUTY, "mcp"], stdin=-1, stdout=-1, stderr=-1, cwd=tmp_path, env=env) for _ in range(2))
    with first, second:
        assert first.poll() is None
        first.kill()
        assert (first.wait(60), second.poll()) == (-signal.SIGKILL, None)
        # Its input ends here and with that the process, so no other process has kept it open.
        assert (second.communicate(timeout=60)[0], second.returncode) == (b"", 0)


def test_what_starts_a_forked_process_passes_signals_on_and_ends_with_it(tmp_path: Path):
    env = {**os.environ, "DEPUTY_HOME": str(tmp_path / "home")}
    command = [*forked_deputy(), "mcp", "--http", "0", "--json"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"{\n"
        process.terminate()
        assert process.wait(60) == 0
        # At the end of the output no process has it open.
        assert process.stdout.read().endswith(b"}\n")


def test_a_forked_process_takes_its_terminal(tmp_path: Path):
    ours, theirs = pty.openpty()
    env = {**os.environ, "DEPUTY_HOME": str(tmp_path / "home")}
    command = [*DEPUTY, "run", "x", "--model", "offline:scout"]
    with Popen(command, terminal=True, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=env) as process:
        os.close(theirs)
        while os.getsid(process.pid) != process.pid or os.tcgetpgrp(ours) != process.pid:
            os.sched_yield()
        os.close(ours)
        assert process.wait(60) in (-signal.SIGHUP, 130, 128 + signal.SIGHUP)


@pytest.mark.parametrize("sent", [b"", b"\1\0\0\0"])
def test_the_server_outlives_a_process_that_was_killed_while_it_asked(sent: bytes, tmp_path: Path):
    address = forked_deputy()[-1]
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(f"\0{address}")
        asking.sendall(sent)
    assert run([*DEPUTY, "--version"], capture_output=True, cwd=tmp_path).returncode == 0
