"""Snapshots of workspaces: which files travel, and what of the repository is touched or run."""

import asyncio
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from tests.support.workspace_machine import Machine, bytes_below, content, git, write

from deputy.core.errors import WorkspaceError
from deputy.journal.postgres.postgres_store import PostgresStore


@pytest.mark.rule("workspace.snapshot")
def test_a_worker_gets_the_files_of_the_working_tree(submitter: Machine, worker: Machine, repository: Path):
    write(
        repository,
        {
            "a.txt": "changed\n",
            "staged.txt": "staged\n",
            "sub/new.txt": "untracked\n",
            "ignored/large": "ignored\n",
            ".env": "TOKEN=1\n",
            "sub/id_rsa": "key\n",
            "run.sh": "#!/bin/sh\n",
            "sub/.env.example": "TOKEN=\n",
        },
    )
    git(repository, "add", "staged.txt")
    (repository / "run.sh").chmod(0o755)
    (repository / "sub/b.txt").unlink()
    (repository / "link").symlink_to("a.txt")
    (repository / "outside").symlink_to("/etc/passwd")
    root = worker.open(submitter.send(repository))
    assert content(root) == {
        ".gitignore": "ignored/\n",
        "a.txt": "changed\n",
        "link": "-> a.txt",
        "outside": "-> /etc/passwd",
        "run.sh": "#!/bin/sh\n",
        "staged.txt": "staged\n",
        "sub/.env.example": "TOKEN=\n",
        "sub/new.txt": "untracked\n",
    }
    assert (root / "run.sh").stat().st_mode & stat.S_IXUSR
    assert not (root / "a.txt").stat().st_mode & stat.S_IXUSR


@pytest.mark.rule("workspace.snapshot")
def test_no_object_in_the_store_holds_a_withheld_file_or_the_history(
    submitter: Machine, worker: Machine, repository: Path
):
    write(repository, {"a.txt": "an old secret\n"})
    git(repository, "commit", "--quiet", "-am", "Old")
    write(repository, {"a.txt": "now\n", ".env": "TOKEN=hidden\n"})
    git(repository, "commit", "--quiet", "-am", "New")
    snapshot = submitter.send(repository)
    worker.open(snapshot)
    mirror = worker.home / "mirrors" / snapshot.repository
    listed = git(mirror, "cat-file", "--batch-all-objects", "--batch")
    assert "now\n" in listed
    assert not [text for text in ("secret key", "TOKEN=hidden", "an old secret", "Begin") if text in listed]


@pytest.mark.rule("workspace.untouched")
def test_a_snapshot_changes_no_byte_of_the_repository(submitter: Machine, repository: Path):
    git(repository, "update-index", "--split-index")
    write(repository, {"a.txt": "changed\n", "new.txt": "new\n"})
    before = bytes_below(repository)
    submitter.send(repository)
    write(repository, {"a.txt": "again\n"})
    before |= {str(repository / "a.txt"): b"again\n"}
    submitter.send(repository)
    assert bytes_below(repository) == before


@pytest.mark.rule("workspace.hostile")
def test_nothing_that_a_repository_names_is_run(
    submitter: Machine, worker: Machine, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mark = tmp_path / "ran"
    evil = f"touch {mark}; cat"
    (repository / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n*.txt filter=users\n")
    included = repository / ".git" / "more"
    included.write_text(f'[filter "evil"]\n\tsmudge = {evil}\n\trequired = true\n[core]\n\tfsmonitor = {evil}\n')
    for key, value in {
        "include.path": str(included),
        "core.hooksPath": str(repository / "hooks"),
        "core.fsmonitor": evil,
        "filter.evil.clean": evil,
        "filter.evil.process": evil,
        "diff.evil.command": evil,
        "core.sshCommand": evil,
        "core.alternateRefsCommand": evil,
        "uploadpack.packObjectsHook": evil,
    }.items():
        git(repository, "config", key, value)
    for hook in ("post-index-change", "post-checkout", "reference-transaction", "pre-auto-gc"):
        write(repository, {f"hooks/{hook}": f"#!/bin/sh\ntouch {mark}\n", f".git/hooks/{hook}": f"#!/bin/sh\n{evil}\n"})
        (repository / "hooks" / hook).chmod(0o755)
        (repository / ".git/hooks" / hook).chmod(0o755)
    # A filter of the user's own settings would store files elsewhere.
    own = tmp_path / "own"
    write(own, {".gitconfig": f'[filter "users"]\n\tclean = {evil}\n\tsmudge = {evil}\n'})
    monkeypatch.setenv("HOME", str(own))
    write(repository, {"a.txt": "changed\n", "new.txt": "new\n"})
    snapshot = submitter.send(repository)
    root = worker.open(snapshot)
    assert ((root / "a.txt").read_text(), (root / "new.txt").read_text()) == ("changed\n", "new\n")
    worker.work(snapshot, {"a.txt": "by the worker\n"})
    assert not mark.exists()


@pytest.mark.rule("workspace.hostile")
def test_settings_that_an_agent_writes_into_a_mirror_are_not_run(
    submitter: Machine, worker: Machine, repository: Path, tmp_path: Path
):
    write(repository, {".gitattributes": "* filter=evil\n"})
    root = worker.open(submitter.send(repository))
    mark = tmp_path / "ran"
    git(root, "config", "filter.evil.smudge", f"touch {mark}; cat")
    git(root, "config", "core.fsmonitor", f"touch {mark}")
    write(repository, {"a.txt": "changed\n"})
    again = worker.open(submitter.send(repository), "another")
    assert ((again / "a.txt").read_text(), mark.exists()) == ("changed\n", False)


@pytest.mark.rule("workspace.snapshot")
def test_odd_states_of_an_index_are_sent_as_the_files_are(submitter: Machine, worker: Machine, repository: Path):
    git(repository, "checkout", "--quiet", "-b", "other")
    write(repository, {"a.txt": "theirs\n", "folder/x": "x\n", "plain": "plain\n"})
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "Theirs")
    git(repository, "checkout", "--quiet", "main")
    write(repository, {"a.txt": "ours\n"})
    git(repository, "commit", "--quiet", "-am", "Ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    # A folder becomes a link, a file a folder, and one file is only promised.
    shutil.rmtree(repository / "folder")
    (repository / "folder").symlink_to("sub")
    (repository / "plain").unlink()
    write(repository, {"plain/inside": "inside\n", "promised": "promised\n"})
    git(repository, "add", "--intent-to-add", "promised")
    found = content(worker.open(submitter.send(repository)))
    assert found["a.txt"].startswith("<<<<<<< HEAD\nours\n")
    assert (found["folder"], found["plain/inside"], found["promised"]) == ("-> sub", "inside\n", "promised\n")
    assert "folder/x" not in found


@pytest.mark.rule("workspace.snapshot")
def test_names_that_are_no_text_and_very_long_paths_are_sent(submitter: Machine, worker: Machine, repository: Path):
    odd = os.fsdecode(b'caf\xe9 \n\t"*?.txt')
    deep = "/".join(["d" * 200] * 15)
    write(repository, {odd: "odd\n", f"{deep}/{'n' * 200}": "deep\n", ":(glob)x": "literal\n", "-rf": "dash\n"})
    found = content(worker.open(submitter.send(repository)))
    assert (found[odd], found[f"{deep}/{'n' * 200}"], found[":(glob)x"]) == ("odd\n", "deep\n", "literal\n")
    assert found["-rf"] == "dash\n"


@pytest.mark.rule("workspace.parts")
def test_submodules_and_nested_repositories_are_named_and_left_out(
    submitter: Machine, worker: Machine, repository: Path, tmp_path: Path
):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    write(other, {"c.txt": "third\n"})
    git(other, "add", "--all")
    git(other, "commit", "--quiet", "-m", "Begin")
    git(repository, "submodule", "--quiet", "add", str(other), "module")
    shutil.copytree(other, repository / "nested")
    mark = tmp_path / "ran"
    git(repository / "module", "config", "core.fsmonitor", f"touch {mark}; false")
    git(repository / "module", "config", "filter.own.clean", f"touch {mark}; cat")
    write(repository, {"module/.gitattributes": "* filter=own\n", "module/c.txt": "THIRD\n"})
    sent = asyncio.run(submitter.workspaces.send(str(repository)))
    assert (sent.left_out, mark.exists()) == (("module", "nested/"), False)
    found = content(worker.open(sent.snapshot))
    assert ".gitmodules" in found
    assert not [name for name in found if name.startswith(("module/", "nested"))]


@pytest.mark.rule("workspace.parts")
def test_files_of_lfs_are_sent_as_pointers(submitter: Machine, worker: Machine, repository: Path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n"
    write(repository, {"large.bin": pointer})
    git(repository, "add", "large.bin")
    write(repository, {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "-m", "Large")
    assert content(worker.open(submitter.send(repository)))["large.bin"] == pointer


@pytest.mark.rule("workspace.plain")
def test_a_folder_without_git_is_sent_and_gets_no_git(submitter: Machine, worker: Machine, tmp_path: Path):
    folder = tmp_path / "plain"
    write(folder, {"a.txt": "first\n", ".env": "TOKEN=1\n", ".gitignore": "build\n", "build/x": "x\n"})
    snapshot = submitter.send(folder)
    assert content(worker.open(snapshot)) == {".gitignore": "build\n", "a.txt": "first\n"}
    assert (snapshot.head, sorted(path.name for path in folder.iterdir())) == (
        "",
        [".env", ".gitignore", "a.txt", "build"],
    )
    branch = worker.work(snapshot, {"a.txt": "changed\n"})
    with pytest.raises(WorkspaceError, match=r"cannot be a branch here: .* `deputy export ID` writes"):
        submitter.bring(branch, snapshot, folder)


@pytest.mark.rule("workspace.plain")
def test_a_repository_without_a_commit_and_one_of_sha256_are_sent(submitter: Machine, worker: Machine, tmp_path: Path):
    fresh, other = tmp_path / "fresh", tmp_path / "other"
    for root, how in ((fresh, "sha1"), (other, "sha256")):
        root.mkdir()
        git(root, "init", "--quiet", f"--object-format={how}")
        write(root, {"a.txt": f"{how}\n"})
        snapshot = submitter.send(root)
        assert len(snapshot.commit) == (40 if how == "sha1" else 64)
        assert content(worker.open(snapshot, how)) == {"a.txt": f"{how}\n"}


@pytest.mark.rule("workspace.snapshot")
def test_a_workspace_below_the_top_and_the_home_in_it(store: PostgresStore, worker: Machine, repository: Path):
    submitter = Machine(repository / "sub" / "home", store)
    write(repository, {"sub/home/journal.db": "records\n"})
    snapshot = submitter.send(repository / "sub")
    root = worker.open(snapshot)
    assert (snapshot.folder, content(root)) == ("sub", {"b.txt": "second\n"})
    assert (root.parent / "a.txt").exists()
