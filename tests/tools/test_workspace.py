import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.every_case import every_case

from deputy.core.request import Grant
from deputy.tools.edit import edit_tool
from deputy.tools.glob import glob_tool
from deputy.tools.grep import grep_tool
from deputy.tools.read import read_tool
from deputy.tools.secret_files import is_withheld
from deputy.tools.tool_text import ToolError
from deputy.tools.workspace import SMALL_FILE_BYTES, Workspace
from deputy.tools.workspace_folder import WorkspaceFolder
from deputy.tools.write import write_tool

CANARY = "CANARY-3141592"

WITHHELD = [
    ".env", ".ENV", ".Env.Local", ".env.production", "prod.env", "sub/.env", ".envrc", ".ssh/config", ".SSH/id_rsa",
    "sub/.ssh/known_hosts", "id_rsa", "ID_RSA", "id_ed25519", "id_ecdsa", "server.pem", "SERVER.PEM", "tls.key",
    "a.p12",
    "a.pfx", "a.kdbx", "a.jks", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials",
    ".aws/credentials", ".gnupg/secring.gpg", ".kube/config", ".docker/config.json", ".git/config", ".GIT/Config",
    ".config/gh/hosts.yml", ".cargo/credentials.toml", "credentials.json", "client_secret_7.json", ".ｅｎｖ",
    # copies, variants, and what editors leave
    ".env~", ".env-prod", ".env_old", ".env.bak", ".env2", ".env copy", ".ENV.Backup", "#.env#", ".#.env", ".env.swp",
    "..env.swp", "copy of .env", "prod.env.old", "id_rsa.bak", "ID_RSA.Old", "id_ed25519-work", "id_rsa (1)",
    ".id_rsa.swp", "server.key.bak", "server.pem~", "tls.key.1", "terraform.tfstate.backup", "terraform.tfstate",
    "terraform.tfstate.1763000000.backup", "prod.tfvars", "prod.auto.tfvars.json", ".git-credentials.bak", ".npmrc.old",
    ".netrc~", ".pypirc.save", ".pgpass-2", ".htpasswd.orig", "credentials.json.bak", "client_secret_7.json.old",
    "service-account-prod.json.bak", ".ssh.bak/config", ".aws.old/credentials", ".SSH.backup/id", "a/.env.local/x",
    ".vault-token", ".mylogin.cnf", "vpn.ovpn", ".yarnrc.yml",
    # what programs keep their logins in, by their own table
    ".codex/auth.json", ".CODEX/Auth.json", ".codex/auth.json.bak", ".claude/.credentials.json", ".claude.json",
    ".claude/.credentials.json~", ".gemini/oauth_creds.json", ".local/share/opencode/auth.json", "opencode/auth.json",
    ".qwen/oauth_creds.json", ".config/cursor/auth.json", ".cursor/cli-config.json", ".copilot/config.json",
    ".config/github-copilot/hosts.json", ".config/deputy/config.toml", ".config/deputy/config.toml.bak",
    "home/me/.codex/auth.json",
]  # fmt: skip

READABLE = [
    ".env.example", ".env.sample", "sample.env", ".env.template", "id_rsa.example", "id_rsa.pub", "example.pem",
    "terraform.tfvars.example", ".npmrc.template", ".codex/auth.example.json", ".codex/auth.json.sample",
    ".environment", "environment.py", "prod.env.js", ".aws-sam/build.toml", ".azure-pipelines/ci.yml", ".dockerignore",
    "keys.py", "monkey", "a.keys", "credentials.py", "auth.json", "src/auth.json", "deputy/config.toml", ".envoy",
    "kubeconfig_test.go", "settings.xml", ".gitignore", "config", "secrets.py", "src/deputy/config/settings_file.py",
]  # fmt: skip

ESCAPES = [
    # up and out
    "..", "../", "../outside/secret.txt", "./../outside/secret.txt", "a/../../outside/secret.txt",
    "a/b/../../../outside",
    "a/..//../outside/secret.txt", "a/b/c/../../../../outside/secret.txt", "....//outside/secret.txt", "a/../a/in.txt",
    "..\\outside\\secret.txt", "%2e%2e/outside/secret.txt", "..%2foutside%2fsecret.txt", "..;/outside/secret.txt",
    "‥/outside/secret.txt", "．．/outside/secret.txt", "{root}/../outside/secret.txt",
    "{root}/a/../../outside/secret.txt",
    # absolute elsewhere
    "{outside}/secret.txt", "//{outside}/secret.txt", "{outside}/./secret.txt", "{root}-sibling/secret.txt",
    "/etc/passwd",
    "///etc/passwd", "/etc/./shadow", "/proc/self/environ", "/proc/self/root{outside}/secret.txt", "/proc/1/environ",
    "/proc/self/cwd/../outside/secret.txt", "/dev/zero", "/dev/stdin", "/dev/fd/0", "/sys/kernel/notes",
    "file://{outside}/secret.txt", "~/.ssh/id_rsa", "~root/.bashrc", "$HOME/.bashrc", "{outside}",
    # symlinks
    "to_file", "to_file_relative", "to_dir/secret.txt", "to_dir_relative/secret.txt", "to_dir", "chain",
    "a/up/secret.txt",
    "loop", "loop/x", "loop_a", "to_parent/outside/secret.txt", "to_here/to_parent/outside/secret.txt",
    "to_slash/etc/passwd",
    "to_proc_root{outside}/secret.txt", "to_proc_cwd", "to_zero", "to_sibling/secret.txt", "dangling",
    "dangling_dir/x",
    "to_env", "to_ssh_dir/config", "a/to_env", "to_fifo", "many_links",
    # what is no file
    "fifo", "socket", "a", ".", "/", "{root}",
    # what is no path
    "", "\0", "a/in.txt\0", "a/in.txt\0.png", "\0/etc/passwd", "x" * 300, "a/" * 2500, "\ud800", "a/in.txt/x",
    "a/\n/in.txt",
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A workspace full of ways out, beside what they lead to."""
    base = tmp_path_factory.mktemp("tree")
    root, outside = base / "root", base / "outside"
    for directory in (root / "a/b/c", outside, base / "root-sibling"):
        directory.mkdir(parents=True)
    for secret in (outside / "secret.txt", outside / "x", base / "root-sibling/secret.txt"):
        secret.write_text(CANARY)
    (root / "a/in.txt").write_text("inside\n")
    (root / "a/in_link").symlink_to("in.txt")
    (root / "a/abs_link").symlink_to(root / "a/in.txt")
    (root / "a/b/up_link").symlink_to("../../a/in.txt")
    (root / "dir_link").symlink_to("a/b")
    for name in WITHHELD:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(CANARY)
    links = {
        "to_file": outside / "secret.txt", "to_file_relative": "../outside/secret.txt", "to_dir": outside,
        "to_dir_relative": "../outside", "chain": "chain2", "chain2": "a/chain3", "a/chain3": "../to_file",
        "a/up": "../../outside",
        "loop": "loop", "loop_a": "loop_b", "loop_b": "loop_a", "to_parent": "..", "to_here": ".", "to_slash": "/",
        "to_proc_root": "/proc/self/root", "to_proc_cwd": "/proc/self/cwd", "to_zero": "/dev/zero",
        "to_sibling": "../root-sibling",
        "dangling": "../outside/nothing", "dangling_dir": "../outside/none", "to_env": ".env", "to_ssh_dir": ".ssh",
        "a/to_env": "../.env", "to_fifo": "fifo", "many_links": "m0",
    }  # fmt: skip
    links |= {f"m{n}": f"m{n + 1}" for n in range(60)} | {"m60": "a/in.txt"}
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
    return root


@pytest.fixture(params=["openat2", "walk"])
def opened(tree, request):
    return Workspace(tree, uses_openat2=request.param == "openat2")


def test_there_are_enough_vectors():
    assert len(ESCAPES) + len(WITHHELD) >= 110


@pytest.mark.rule("workspace")
@pytest.mark.parametrize("uses_openat2", [True, False], ids=["openat2", "walk"])
def test_a_link_to_an_absolute_path_outside_is_no_path_inside(tmp_path, uses_openat2):
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
        (folder / "notes.txt").write_text(folder.name)
    (root / "file").symlink_to(outside / "notes.txt")
    (root / "folder").symlink_to(outside)
    workspace = Workspace(root, uses_openat2=uses_openat2)
    for path in ("file", "folder", "folder/notes.txt"):
        with pytest.raises(ToolError, match="it leads out of the workspace through a symlink"), workspace.place(path):
            pass


@pytest.mark.rule("workspace")
@every_case("vector", ESCAPES + WITHHELD + [f"/{name}" for name in WITHHELD[:5]])
def test_no_path_leads_out_or_to_what_is_withheld(opened, call, vector):
    path = vector.format(root=opened.root, outside=str(Path(opened.root).parent / "outside"))
    before = sorted(file.name for file in (Path(opened.root).parent / "outside").iterdir())
    read = call(read_tool(opened), path=path)
    # A folder is listed, without what is withheld.
    assert read.is_error or (read.text.endswith(" is a directory, not a file.") and read.data == "a/in.txt")
    assert CANARY not in read.text + read.data
    grep = call(grep_tool(opened), pattern="CANARY", path=path, include_ignored=True)
    assert CANARY not in grep.text
    if vector not in ("a", ".", "/", "{root}", "..%2foutside%2fsecret.txt"):
        wrote = call(write_tool(opened), path=path, content=CANARY)
        assert wrote.is_error or is_inside(opened, wrote.changed[0])
    edited = call(edit_tool(opened), path=path, old=CANARY, new="changed")
    assert edited.is_error or is_inside(opened, edited.changed[0])
    assert sorted(file.name for file in (Path(opened.root).parent / "outside").iterdir()) == before
    assert (Path(opened.root).parent / "outside/secret.txt").read_text() == CANARY


def is_inside(workspace, changed):
    """A file that a harmless name made inside the workspace, taken away again."""
    made = Path(workspace.root, changed)
    assert made.resolve().is_relative_to(workspace.root)
    made.unlink()
    return True


@pytest.mark.rule("workspace")
@every_case(
    "path",
    ["a/in.txt", "./a//in.txt", "a/./in.txt", "/a/in.txt", "//a/in.txt", "{root}/a/in.txt", "a/in_link", "a/abs_link",
     "a/b/up_link", "dir_link/up_link", "to_here/a/in.txt", "to_here/to_here/a/in_link"],
)  # fmt: skip
def test_what_stays_inside_is_read_also_through_links(opened, call, path):
    assert call(read_tool(opened), path=path.format(root=opened.root)).text == "     1\tinside"


@pytest.mark.rule("workspace")
@pytest.mark.parametrize("name", READABLE)
def test_what_only_looks_like_it_stays_readable(tmp_path, call, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("harmless needle\n")
    workspace = Workspace(tmp_path)
    assert call(read_tool(workspace), path=name).text == "     1\tharmless needle"
    assert "harmless needle" in call(grep_tool(workspace), pattern="needle", include_ignored=True).text


@pytest.mark.rule("workspace")
@pytest.mark.parametrize(
    "name", ["x" * 200 + ".key" + "1~" * 20_000 + "!", ".key" * 10_000 + "!", ".env" * 10_000, "1" * 99_999]
)
def test_a_name_costs_what_it_is_long(name):
    assert is_withheld([name]) == (name.startswith(".env"))


@pytest.mark.rule("workspace")
def test_no_file_that_is_withheld_comes_before_a_prompt(tree):
    folder = WorkspaceFolder(tree, Grant())
    names = [name for name in WITHHELD if not name.startswith("a/")]
    for at in range(0, len(names), 10):
        output = asyncio.run(folder.before_prompt(names[at : at + 10]))
        assert CANARY not in output.text
        assert len(output.warnings) == len(names[at : at + 10])


@pytest.mark.rule("workspace")
def test_searches_never_name_or_show_what_is_withheld(tree, call):
    workspace = Workspace(tree)
    assert call(grep_tool(workspace), pattern=CANARY, include_ignored=True).text.startswith("No matches. ")
    assert call(grep_tool(workspace), pattern=CANARY, glob=".env", output="files").text.startswith("No matches. ")
    glob = glob_tool(workspace)
    assert call(glob, pattern="*.pem", include_ignored=True).data == "There are:\na/in.txt"
    listed = call(glob_tool(workspace), pattern="*", include_ignored=True).text.splitlines()
    assert "a/in.txt" in listed
    assert not [path for path in listed if is_withheld(path.split("/"))]


@pytest.mark.rule("workspace")
def test_a_grant_of_some_paths_hides_the_others(tmp_path, call):
    for name in ("src/a.py", "docs/b.md", "other/c.py", "src/deep/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("needle\n")
    (tmp_path / "src/out").symlink_to("../other/c.py")
    workspace = Workspace(tmp_path, Grant(paths=("src", "docs/b.md", "missing")))
    assert call(read_tool(workspace), path="src/a.py").text == "     1\tneedle"
    for path in ("other/c.py", "src/out", "docs"):
        refusal = call(read_tool(workspace), path=path)
        assert refusal.is_error
        assert "not among the granted paths" in refusal.text
    assert call(grep_tool(workspace), pattern="needle", output="files").text.split() == [
        "src/a.py", "src/deep/d.py", "docs/b.md",
    ]  # fmt: skip
    assert call(glob_tool(workspace), pattern="*.py").text.split() == ["src/a.py", "src/deep/d.py"]
    assert call(grep_tool(workspace), pattern="needle", path="other").is_error
    assert call(write_tool(workspace), path="other/new", content="").is_error


FLIPS = 20_000
FLIPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    libc.renameat2(-100, b"swap", -100, b"evil", 2)
"""


@pytest.fixture
def flipping(tmp_path):
    """A directory that another process swaps with a symlink to the outside, as fast as it can,
    a bounded number of times."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for directory in (root / "swap", outside):
        directory.mkdir(parents=True)
    (root / "swap/file.txt").write_text("inside\n")
    (outside / "file.txt").write_text(CANARY)
    (root / "evil").symlink_to(outside)

    def flips(count):
        with subprocess.Popen([sys.executable, "-c", FLIPPER, root, str(count)], stdout=subprocess.PIPE) as flipper:
            flipper.stdout.readline()
            while flipper.poll() is None:
                yield
        assert flipper.returncode == 0

    return root, outside, flips


@pytest.mark.rule("workspace")
@pytest.mark.parametrize("uses_openat2", [True, False], ids=["openat2", "walk"])
def test_no_symlink_race_leads_out(flipping, uses_openat2):
    root, _, flips = flipping
    workspace = Workspace(root, uses_openat2=uses_openat2)
    seen = set()
    for _ in flips(FLIPS):
        try:
            with workspace.place("swap/file.txt") as place, place.open_file() as file:
                seen.add(file.read())
        except ToolError as refusal:
            seen.add(type(refusal))
    assert seen == {b"inside\n", ToolError}


@pytest.mark.rule("workspace")
def test_no_symlink_race_lets_a_search_out(flipping, call):
    root, _, flips = flipping
    workspace = Workspace(root)
    found = set()
    for _ in flips(FLIPS * 4):
        found.update(call(grep_tool(workspace), pattern="inside|CANARY", path=path).text for path in (".", "swap"))
    assert not [text for text in found if CANARY in text]


@pytest.mark.rule("workspace")
def test_no_symlink_race_lets_a_write_out(flipping, call):
    root, outside, flips = flipping
    tool = write_tool(Workspace(root))
    for _ in flips(FLIPS * 2):
        call(tool, path="swap/new.txt", content="x")
    assert [file.name for file in outside.iterdir()] == ["file.txt"]


@pytest.mark.rule("guard.subset")
def test_files_are_changed_only_where_that_is_granted(tmp_path: Path) -> None:
    place = Workspace(tmp_path, Grant(writable=("notes",)))
    for path in ("code.py", "notes-too/x", "notes/../code.py"):
        with pytest.raises(ToolError), place.place(path, make_parents=True, for_writing=True):
            pass
    with place.place("notes/a/b.md", make_parents=True, for_writing=True) as found:
        assert found.path == "notes/a/b.md"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes"]


@pytest.mark.rule("workspace")
def test_a_worktree_has_the_work_folder_of_the_main_tree_and_nothing_else_of_it(tmp_path: Path) -> None:
    main, tree, outside = tmp_path / "main", tmp_path / "tree", tmp_path / "outside"
    for folder in (main / "work/1", tree, outside):
        folder.mkdir(parents=True)
    (main / "work/1/plan.md").write_text("the plan")
    (main / "secret.txt").write_text(CANARY)
    (outside / "x").write_text(CANARY)
    (main / "work/1/out").symlink_to(outside)
    (main / "work/1/up").symlink_to("../../secret.txt")
    place = Workspace(tree, Grant(work_folder="work/1"), main=main)
    with place.place("work/1/plan.md") as found, found.open_file() as file:
        assert file.read() == b"the plan"
    for path in ("work/1/out/x", "work/1/up"):
        with pytest.raises(ToolError), place.place(path) as found:
            found.open_file()
    for path in ("secret.txt", "work/2", str(main / "secret.txt")):
        try:
            with place.place(path) as found:
                assert found.status is None
        except ToolError:
            pass


@pytest.mark.rule("workspace")
def test_searches_in_a_worktree_find_what_is_in_the_work_folder_of_the_main_tree(tmp_path: Path, call) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    for folder in (main / "work/1", main / "work/2", tree / "work/1"):
        folder.mkdir(parents=True)
    for path in (
        main / "work/1/plan.md",
        main / "work/2/plan.md",
        main / "a.md",
        tree / "b.md",
        tree / "work/1/old.md",
    ):
        path.write_text("the word\n")
    place = Workspace(tree, Grant(work_folder="work/1"), main=main)
    grep, glob = grep_tool(place), glob_tool(place)
    assert call(grep, pattern="word").text.splitlines() == ["b.md:1:the word", "work/1/plan.md:1:the word"]
    assert call(glob, pattern="**/*.md").text.splitlines() == ["b.md", "work/1/plan.md"]
    for path in ("work", "work/1", "work/1/plan.md"):
        assert call(grep, pattern="word", path=path).text == "work/1/plan.md:1:the word"
    assert call(glob, pattern="*.md", path="work/1").text == "work/1/plan.md"
    assert call(grep, pattern="word", path="work/2").is_error


@pytest.mark.rule("workspace")
def test_no_symlink_race_leads_out_of_what_is_at_hand(flipping):
    root, _, flips = flipping
    workspace = Workspace(root)
    seen = {workspace.read_small("swap/file.txt") for _ in flips(FLIPS)}
    assert seen <= {("swap/file.txt", b"inside\n"), None}


@pytest.mark.parametrize("content", [b"", b"a\n", b"no end", b"\0binary", b"x" * SMALL_FILE_BYTES, b"x" * 70_000])
def test_what_is_at_hand_reads_the_same_as_the_long_way(tmp_path, call, content):
    (tmp_path / "file").write_bytes(content)
    quick, long = (call(read_tool(Workspace(tmp_path, uses_openat2=uses)), path="./file") for uses in (True, False))
    assert quick == long
    at_hand = Workspace(tmp_path).read_small("file")
    assert at_hand in ((None,) if len(content) > SMALL_FILE_BYTES else (None, ("file", content)))


@pytest.mark.parametrize(
    "path", ["a/in_link", "dir_link/up_link", "fifo", "socket", "a", "missing", ".env", "/a/in.txt"]
)
def test_what_is_not_a_plain_file_is_not_at_hand(tree, path):
    assert Workspace(tree).read_small(path) is None


@pytest.mark.rule("workspace")
def test_only_private_paths_below_the_root_are_named(tmp_path):
    private = [tmp_path / ".deputy", tmp_path / "a/b", tmp_path, tmp_path.parent / "other"]
    assert Workspace(tmp_path, private=private).private_parts() == [[".deputy"], ["a", "b"]]


@pytest.mark.parametrize("uses_openat2", [True, False], ids=["openat2", "walk"])
@every_case("path", ["a/in.txt", "a/b/up_link", "dir_link/up_link", "to_dir/secret.txt", "a/b/no/x", "a/in.txt/x", "a"])
def test_no_path_leaves_a_descriptor_open(tree, uses_openat2, path):
    workspace = Workspace(tree, uses_openat2=uses_openat2)
    before = sorted(Path("/proc/self/fd").iterdir())
    workspace.read_small(path)
    with suppress(ToolError), workspace.place(path):
        pass
    assert sorted(Path("/proc/self/fd").iterdir()) == before
