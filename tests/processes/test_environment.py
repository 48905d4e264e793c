import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

import pytest

NOBODY = 65534
PACKAGES = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
SECRET = "swordfish-of-the-deep-sea-42"
PROBE = f"""
import os, sys
secret = {SECRET[::-1]!r}[::-1].encode()
above, pid = [], os.getpid()
while pid > 1:
    pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
    above.append(str(pid))
for pid in filter(str.isdecimal, os.listdir("/proc")):
    if pid == str(os.getpid()):
        continue
    for name in ("cmdline", "environ", "mem"):
        try:
            with open(f"/proc/{{pid}}/{{name}}", "rb") as file:
                if name == "mem" and pid in above[1:3]:
                    print("OPEN", pid, name)
                elif name != "mem" and secret in file.read():
                    print("LEAK", pid, name)
        except OSError as error:
            if pid in above[1:3]:
                print("closed", name)
    try:
        for number in os.listdir(f"/proc/{{pid}}/fd") if pid in above[1:3] else ():
            print("OPEN", pid, "fd", number)
    except OSError:
        print("closed fd")
print("LEAK own" if secret in open("/proc/self/environ", "rb").read() else "probed", len(above))
"""


@pytest.fixture
def place():
    """A folder of an unprivileged user, who can reach this installation."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process as another user")
    folder = Path(tempfile.mkdtemp(prefix="deputy-private-"))
    os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder, _python(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _python(folder: Path) -> str:
    """An interpreter that this user can start, and that can import Deputy."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, system):
        with suppress(OSError, subprocess.CalledProcessError):
            check = [python, "-c", "import deputy, msgspec, click, sqlite3"]
            subprocess.run(check, cwd=folder, env=PACKAGES, check=True, user=NOBODY, extra_groups=(), stderr=DEVNULL)
            return python
    pytest.skip("an unprivileged user cannot start an interpreter that imports Deputy")


def test_a_command_reads_no_key_of_the_deputy_that_runs_it(place):
    folder, python = place
    (folder / "probe.py").write_text(PROBE)
    call = {"name": "Run", "arguments": {"command": f"{python} probe.py > said.txt 2>&1; true"}}
    script = {"conversations": [{"turns": [{"calls": [call]}, {"text": "Done."}]}]}
    (folder / "script.json").write_text(json.dumps(script))
    environment = {
        **PACKAGES,
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "DEPUTY_HOME": str(folder / "home"),
        "ANTHROPIC_API_KEY": SECRET,
        "DEPUTY_MCP_TOKEN": SECRET,
        "MY_DATABASE_URL": SECRET,
    }
    run = subprocess.run(
        [python, "-m", "deputy", "run", "look", "--yes", "--model", f"script:{folder}/script.json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        user=NOBODY,
        extra_groups=(),
    )
    assert run.returncode == 0, run.stderr
    said = (folder / "said.txt").read_text().splitlines()
    assert not [line for line in said if line.startswith(("LEAK", "OPEN", "Traceback"))], said
    # The supervisor and Deputy: the nearest parent is the shell, a program like any other.
    assert [said.count(f"closed {name}") for name in ("environ", "mem", "fd")] == [2, 2, 2], said
    assert said[-1].startswith("probed")
