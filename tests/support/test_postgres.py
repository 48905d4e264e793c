"""The server of the tests ends with those that use it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.command_house import until

ROOT = Path(__file__).parents[2]
PROGRAM = "from tests.support.postgres import fresh_database; print(fresh_database(), flush=True); input()"


def test_a_killed_session_leaves_no_server_behind() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DEPUTY_TEST_"))}
    command = [sys.executable, "-c", PROGRAM]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True) as session:
        assert session.stdout is not None
        place = Path(session.stdout.readline().strip().partition("?host=")[2])
        server = int((place / "data" / "postmaster.pid").read_text().split()[0])
        session.kill()
    until(lambda: not place.exists())
    until(lambda: not Path(f"/proc/{server}").exists())
