"""Run in the real bubblewrap: what a command can see and change, and that it is never run without."""

import asyncio
import os
import shutil
import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.approval import ApprovalPart
from deputy.core.request import Grant
from deputy.core.task import Task
from deputy.engine.ports import ToolContext
from deputy.tools.run import run_tool
from deputy.tools.sandbox import SANDBOXED, Sandbox
from deputy.tools.tool_text import ToolError
from deputy.tools.workspace import Workspace


def why_not() -> str:
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    tried = subprocess.run(["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"bubblewrap cannot run here: {tried.stderr.decode().strip()}"


needs_bwrap = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Place:
    """A home with a project in it."""

    def __init__(self, folder: Path) -> None:
        self.home, self.root = folder / "home", folder / "home/project"
        self.root.mkdir(parents=True)
        (self.home / ".ssh").mkdir()
        (self.home / ".ssh/id_rsa").write_text("SECRET")
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "XDG_RUNTIME_DIR": "/run/user/1"}

    def run(self, command: str, *, path: str = ".", **more):
        workspace = Workspace(more.pop("root", self.root), Grant(tools=frozenset({"Run"})), **more)
        tool = run_tool(workspace, self.environment, is_sandboxed=True)
        return asyncio.run(tool.run({"command": command, "path": path}, ToolContext(call_id="sess_1_abcdef")))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_only_the_workspace_is_there_and_can_be_written(place):
    (place.root / "sub").mkdir()
    done = place.run(f"pwd; echo new > file; ls -A {place.home}; cat {place.home}/.ssh/id_rsa; echo $HOME", path="sub")
    lines = done.text.splitlines()
    assert lines[:2] == [f"{place.root}/sub", "project"]
    assert "No such file" in lines[2]
    assert lines[3:] == ["/tmp/home", "[exit code 0]"]
    assert (place.root / "sub/file").read_text() == "new\n"
    denied = place.run("touch /usr/x /etc/x ../x 2>&1; ls -A /tmp /root /run; cat /etc/shadow")
    assert not (place.home / "x").exists()
    assert "SECRET" not in denied.text
    assert denied.is_error


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_there_is_no_network_and_no_process_of_the_machine(place):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = place.run(
            f"(echo x > /dev/tcp/127.0.0.1/{port}) 2>&1; ls /sys/class/net 2>&1; ls -d /proc/[0-9]* | wc -l"
        )
    assert "refused" in done.text or "unreachable" in done.text
    assert int(done.text.splitlines()[-2]) < 6


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_exit_codes_and_timeouts_are_those_of_the_command(place):
    assert place.run("exit 3").text == "[exit code 3]"
    workspace = Workspace(place.root, Grant(tools=frozenset({"Run"})))
    tool = run_tool(workspace, place.environment, is_sandboxed=True)
    slow = asyncio.run(
        tool.run({"command": "echo begun; (setsid sleep 60 &); sleep 60", "seconds": 1}, ToolContext(call_id="c"))
    )
    assert slow.text == "begun\n[stopped after the timeout of 1 s]"


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_git_can_read_and_its_hooks_cannot_be_written(place):
    git = ["git", "-C", str(place.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    done = place.run("git log --format=%s; mv .git away; echo x > .git/hooks/post-checkout; echo x >> .git/config")
    assert done.text.startswith("first\n")
    assert done.text.count("busy") + done.text.count("Read-only") == 3
    assert not (place.root / ".git/hooks/post-checkout").exists()


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_a_worktree_reads_its_repository_and_sees_nothing_else_of_it(place, tmp_path):
    git = ["git", "-C", str(place.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    (place.root / "other").write_text("SECRET")
    command = f"git log --format=%s; cat {place.root}/other; echo x > {place.root}/.git/x"
    done = place.run(command, root=tmp_path / "tree", main=place.root)
    assert done.text.startswith("first\n")
    assert "SECRET" not in done.text
    assert "Read-only" in done.text


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_git_works_in_the_worktree_of_a_worker(place, submitter, worker, repository):
    snapshot = submitter.send(repository)
    worktrees, found = asyncio.run(worker.opened(snapshot))
    checkout = worker.open(snapshot, "tree")
    command = f"git log --format=%s; echo new > a.txt; git diff --stat; echo x > {worktrees.repository}/config"
    done = place.run(command, root=Path(found.root), main=checkout, repository=worktrees.repository)
    assert done.text.startswith("Workspace\n")
    assert "a.txt | 2 +-" in done.text
    assert "Read-only" in done.text
    assert "fatal" not in done.text


@needs_bwrap
@pytest.mark.rule("run.sandbox")
@pytest.mark.parametrize("target", ["..", "../.ssh", "../../home", "/etc"])
@pytest.mark.parametrize("name", [".git", "tasks"])
def test_a_link_that_a_command_makes_shows_the_next_one_nothing_outside(place, target, name):
    grant = Grant(tools=frozenset({"Run"}), work_folder="tasks")
    tool = run_tool(Workspace(place.root, grant), place.environment, is_sandboxed=True)

    def run(command: str):
        return asyncio.run(tool.run({"command": command}, ToolContext(call_id="sess_1_abcdef")))

    assert not run(f"ln -s {target} {name}").is_error
    after = run(f"cat {name}/.ssh/id_rsa {name}/id_rsa {name}/shadow ../.ssh/id_rsa; touch {name}/made")
    if name == ".git":
        assert "'.git' is a symlink, which the sandbox does not follow; nothing was run" in after.text
    assert "SECRET" not in after.text
    assert not [*place.home.rglob("made")]
    assert not Path("/etc/made").exists()


async def start(command):
    """The output of a command whose sandbox is prepared."""
    run = partial(subprocess.run, command.argv, stdout=-1, stderr=-2, text=True, pass_fds=command.descriptors)
    return (await asyncio.to_thread(run)).stdout


@needs_bwrap
@pytest.mark.rule("run.sandbox")
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_link_made_between_the_check_and_the_mount_shows_nothing_outside(place, tmp_path, kind):
    """Another command of the workspace may run meanwhile."""
    tree, tasks = tmp_path / "tree", place.root / "tasks"
    for git in (place.root / ".git", tree / ".git"):
        git.parent.mkdir(exist_ok=True)
        git.mkdir() if kind == "folder" else git.write_text("gitdir: elsewhere")
    tasks.mkdir()
    (tasks / "mine").touch()
    grant = Grant(tools=frozenset({"Run"}), work_folder="tasks")
    sandbox = Sandbox(Workspace(tree, grant, main=place.root), place.environment)
    look = f"ls -A {tasks}; cat {tasks}/id_rsa {place.root}/.git/id_rsa .git/id_rsa; echo x > {tasks}/made"

    def swap(place_of: Path) -> None:
        place_of.rename(tmp_path / f"was-{place_of.parent.name}-{place_of.name}")
        place_of.symlink_to(place.home / ".ssh", target_is_directory=True)

    async def race(swapped: Path) -> str:
        async with sandbox.command(["/bin/sh", "-c", look], ".", 5) as command:
            swap(swapped)
            return await start(command)

    said = asyncio.run(race(tasks))
    assert said.startswith("mine\n")
    assert [*tmp_path.glob("was-project-tasks/made")]
    tasks.unlink()
    tasks.mkdir()
    said += asyncio.run(race(place.root / ".git"))
    (place.root / ".git").unlink()
    (place.root / ".git").mkdir()
    said += asyncio.run(race(tree / ".git"))
    assert "SECRET" not in said
    assert [*(place.home / ".ssh").iterdir()] == [place.home / ".ssh/id_rsa"]


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_a_command_that_could_create_what_is_protected_runs_alone(place):
    grant = Grant(tools=frozenset({"Run"}))
    one, other = (Sandbox(Workspace(place.root, grant), place.environment) for _ in range(2))

    async def both(seconds: float) -> str:
        commands = one.command(["/bin/echo", "one"], ".", 5), other.command(["/bin/echo", "other"], ".", seconds)
        async with commands[0] as first, commands[1] as second:
            return await start(first) + await start(second)

    with pytest.raises(ToolError, match="Another command works in this workspace"):
        asyncio.run(both(0.01))
    assert place.run("echo alone").text.startswith("alone")
    (place.root / ".git").mkdir()
    assert asyncio.run(both(5)) == "one\nother\n"


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_what_is_hidden_cannot_be_moved_to_where_it_is_seen(place):
    hidden = place.root / "var/state/deputy"
    hidden.mkdir(parents=True)
    (hidden / "journal.db").write_text("SECRET")
    done = place.run("mv var away; mv var/state var/other; echo kept > var/state/file", private=[hidden])
    assert done.text.count("busy") == 2
    assert "SECRET" not in place.run("cat $(find . -type f)", private=[hidden]).text
    assert (place.root / "var/state/file").read_text() == "kept\n"


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_a_command_gets_no_descriptor_of_ours(place):
    (place.root / ".git").mkdir()
    done = place.run("ls /proc/$$/fd; for one in /proc/1/fd/*; do readlink $one; done")
    [*ours, init] = done.text.split("2\n", 1)
    assert ours == ["0\n1\n"]
    assert "/home/" not in init


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_private_places_in_the_workspace_are_hidden(place):
    (place.root / "state").mkdir()
    (place.root / "state/journal.db").write_text("SECRET")
    (place.root / "key").write_text("SECRET")
    done = place.run("ls -A state; cat key", private=[place.root / "state", place.root / "key"])
    assert "SECRET" not in done.text
    assert "journal" not in done.text


@needs_bwrap
@pytest.mark.rule("run.sandbox")
def test_a_workspace_with_the_home_in_it_is_refused(place):
    (place.home / ".config").mkdir()
    for root in (place.home, place.home.parent):
        done = place.run("touch ran", root=root)
        assert "has the home directory in it" in done.text
        assert done.is_error
        assert not (root / "ran").exists()


@pytest.mark.rule("run.sandbox")
@pytest.mark.parametrize("found", ["nothing", "broken"])
def test_without_a_sandbox_that_works_nothing_is_run(place, tmp_path, found):
    folder = tmp_path / "bin"
    folder.mkdir()
    if found == "broken":
        (folder / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        (folder / "bwrap").chmod(0o755)
    place.environment = {**place.environment, "PATH": str(folder)}
    done = place.run("touch ran")
    said = "it is not installed" if found == "nothing" else "(bwrap: No permissions to create new namespace)"
    assert said in done.text
    assert "nothing was run" in done.text
    assert done.is_error
    assert not (place.root / "ran").exists()


@pytest.mark.rule("run.sandbox")
def test_a_person_and_the_model_see_that_commands_are_sandboxed(place):
    workspace = Workspace(place.root, Grant(tools=frozenset({"Run"})))
    tool = run_tool(workspace, place.environment, is_sandboxed=True)
    shown = asyncio.run(tool.preview({"command": "make"}))
    assert ApprovalPart(name="sandbox", text=SANDBOXED) in shown.parts
    assert tool.description.endswith(f"- Commands run in a sandbox ({SANDBOXED}).")
    assert "sandbox" not in run_tool(workspace, place.environment).description


@needs_bwrap
@pytest.mark.rule("run.sandbox")
@pytest.mark.parametrize("is_set", [True, False])
def test_the_setting_of_the_user_decides(house: House, tmp_path, monkeypatch, is_set):
    config = tmp_path / "person/.config/deputy/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[tools.run]\nsandbox = "bwrap"\n' if is_set else "")
    (tmp_path / "outside").write_text("SECRET")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    house.script(talk(turn("", call("Run", command=f"cat {tmp_path}/outside")), turn("Done.")))
    outcome = house.one(Task(label="one", prompt="Look.", tools=("Run",), isolation="none", without_asking=("Run",)))
    [result] = house.results(outcome)
    assert ("SECRET" in result) is not is_set
