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


HIDING = {
    "namespace without its own /proc": "unshare -Urpf {ask}",
    "empty /proc": "unshare -Urm sh -c 'mount -t tmpfs x /proc && {ask}'",
    "copied /proc": "unshare -Urm sh -c 'mkdir -p p/self && cp /proc/1/stat p/self && mount --bind p /proc && {ask}'",
}


@pytest.mark.rule("lineage.env")
@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
def test_a_process_that_hides_its_parents_is_refused(hiding, tmp_path):
    if "ok" not in said("unshare -Urpf echo ok"):
        pytest.skip("this machine forbids user namespaces")
    program = tmp_path / "ask.py"
    program.write_text(ASK)
    asked = f"env -i {sys.executable} {program}"
    shown = said(f"cd {tmp_path} && {hiding.format(ask=asked)} 2>&1")
    assert "AncestryUnknown: Deputy cannot read its parent processes" in shown
