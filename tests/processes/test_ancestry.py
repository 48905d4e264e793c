import asyncio
import os
import shlex
import sys

import pytest

from deputy.processes.ancestry import Supervisor, below_run
from deputy.processes.supervise import Command, supervise

ASK = "from deputy.processes.ancestry import below_run as b; s = b(); print(s and (s.run, s.home, s.pid > 0))"
ASKING = shlex.join([sys.executable, "-c", ASK])
RUN, OUTER = "sess_1763000000_abcdef", "sess_1763000000_ghijkl"


def said(text: str, *, owner: str = RUN) -> str:
    async def play() -> bytes:
        environment = {"PATH": os.environ["PATH"], "DEPUTY_HOME": "/a/home"}
        command = Command(argv=("/bin/bash", "-c", text), cwd="/tmp", environment=environment, owner=owner)
        async with supervise(command) as child:
            return await child.stdout.read()

    return asyncio.run(play()).decode().strip()


@pytest.mark.rule("lineage.env")
@pytest.mark.parametrize(
    "text",
    [
        ASKING,
        f"env -i {ASKING}",
        f"DEPUTY_HOME=/elsewhere DEPUTY_CALL=other:1 {ASKING}",
        # Orphaned, in a session of its own: the supervisor is its parent then.
        f"mkfifo $PPID.pipe; (env -i setsid {ASKING} >$PPID.pipe 2>&1 &); cat $PPID.pipe; rm $PPID.pipe",
        f"exec -a '(x) S 1 1' bash -c {shlex.quote(f'env -i {ASKING}; true')}",
    ],
    ids=["child", "no environment", "other environment", "orphan", "odd name"],
)
def test_a_process_below_a_supervisor_knows_its_run_whatever_it_clears(text):
    assert said(text) == f"('{RUN}', '/a/home', True)"


@pytest.mark.rule("lineage.env")
def test_the_nearest_supervisor_counts():
    inner = (
        "import asyncio, sys; from deputy.processes.supervise import Command, supervise\n"
        "async def play():\n"
        f"    command = Command(argv=(sys.executable, '-c', {ASK!r}), cwd='/', environment={{}}, owner={RUN!r})\n"
        "    async with supervise(command) as child:\n"
        "        print((await child.stdout.read()).decode())\n"
        "asyncio.run(play())"
    )
    assert said(shlex.join([sys.executable, "-c", inner]), owner=OUTER) == f"('{RUN}', '', True)"


@pytest.mark.rule("lineage.env")
def test_a_program_of_no_single_run_has_a_supervisor_without_a_run():
    assert said(ASKING, owner="mcp") == "('', '/a/home', True)"


@pytest.mark.rule("lineage.env")
def test_the_environment_says_it_where_no_parent_does():
    environment = {"DEPUTY_CALL": f"{RUN}:0011", "DEPUTY_HOME": "/a/home"}
    assert below_run(environment) == Supervisor(run=RUN, home="/a/home")
    assert below_run({"DEPUTY_HOME": "/a/home"}) is None
