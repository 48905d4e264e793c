import asyncio
import os
import time

import pytest

from deputy.core.request import Grant
from deputy.tools.workspace_folder import WorkspaceFolder


def facts(root, *paths, grant=None):
    return asyncio.run(WorkspaceFolder(root, grant or Grant()).facts(paths))


@pytest.mark.rule("contract.evidence")
def test_a_file_is_found_by_its_path_from_the_root_and_by_its_absolute_one(root):
    (root / "a.md").write_text("text")
    by_name, by_place = facts(root, "a.md", str(root / "a.md"))
    assert (by_name.exists, by_name.size, by_name.is_file) == (True, 4, True)
    assert (by_place.exists, by_place.size) == (True, 4)


@pytest.mark.rule("contract.evidence")
def test_whatever_cannot_be_looked_at_is_not_there_and_never_an_exception(root, tmp_path):
    (root / "closed").mkdir()
    (root / "closed" / "x").write_text("x")
    (tmp_path / "outside").write_text("x")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to(root / "loop")
    (root / ".env").write_text("secret")
    for path in ("nowhere", "a\0b", "", "x" * 10_000, "../outside", str(tmp_path / "outside"), "out", "loop", ".env"):
        (fact,) = facts(root, path)
        assert not (fact.exists and fact.is_inside), path


@pytest.mark.rule("contract.evidence")
def test_a_link_out_of_the_workspace_is_distinguished_from_nothing(root, tmp_path):
    (tmp_path / "outside").write_text("x")
    (root / "out").symlink_to(tmp_path / "outside")
    (fact,) = facts(root, "out")
    assert (fact.exists, fact.is_inside) == (True, False)


@pytest.mark.rule("contract.evidence")
def test_a_directory_is_worth_what_its_files_are(root):
    (root / "full").mkdir()
    (root / "full" / "x").write_text("x")
    os.utime(root / "full" / "x", (1, 1))
    (root / "empty" / "deep").mkdir(parents=True)
    (root / "empty" / "deep" / "x").write_text("")
    full, empty = facts(root, "full", "empty")
    assert (full.size, full.is_file, full.modified_at, empty.size) == (1, False, 1, 0)


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (".", True),
        ("./", True),
        (".git", True),
        (".git/HEAD", True),
        (".deputy/", True),
        (".deputy/tasks.json", True),
        ("sub/.deputy/tasks.lock", True),
        (".deputy/work", False),
        ("tasks.json", False),
    ],
)
def test_what_git_and_deputy_keep_is_distinguished_from_work(root, path, kept):
    for place in (".git/HEAD", ".deputy/tasks.json", ".deputy/work/x", "sub/.deputy/tasks.lock", "tasks.json"):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text("x")
    (fact,) = facts(root, path)
    assert (fact.exists, fact.is_inside, fact.is_kept) == (True, True, kept)


@pytest.mark.rule("guard.subset")
def test_a_path_that_is_not_granted_is_not_looked_at(root):
    (root / "a.md").write_text("text")
    (fact,) = facts(root, "a.md", grant=Grant(paths=("docs",)))
    assert not fact.exists


@pytest.mark.rule("time.partial")
def test_what_changed_in_a_folder_since_a_moment_is_listed(root):
    work = root / "work"
    (work / "deep").mkdir(parents=True)
    (work / ".git").mkdir()
    now = time.time()
    for path, age in (("old.md", 100), ("new.md", 0), ("deep/new.md", 0), (".env", 0), (".git/x", 0)):
        (work / path).write_text("x")
        os.utime(work / path, (now - age, now - age))
    found = asyncio.run(WorkspaceFolder(root, Grant()).changed_in("work", now - 50))
    assert found == ["work/new.md", "work/deep/new.md"]
    assert asyncio.run(WorkspaceFolder(root, Grant()).changed_in("../elsewhere", 0)) == []
