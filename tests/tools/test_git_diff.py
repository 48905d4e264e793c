"""The diff of a run's worktree or branch: files, counts, patches; nothing that is withheld, nothing without bounds."""

import os
import subprocess

import pytest

from deputy.core.errors import DeputyError
from deputy.tools import git_diff
from deputy.tools.git_diff import changed_files, find_place, patch_of


@pytest.fixture
def place(tmp_path):
    """A repository with a branch that changes, adds and removes files; checked out is main."""

    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q", "-b", "main")
    (tmp_path / "a.py").write_text("one\ntwo\n")
    (tmp_path / "gone.py").write_text("x\n")
    git("add", ".")
    git("commit", "-qm", "first")
    base = git("rev-parse", "HEAD")
    git("checkout", "-qb", "work")
    (tmp_path / "a.py").write_text("one\n2\n")
    (tmp_path / "gone.py").unlink()
    (tmp_path / ".env").write_text("TOKEN=value\n")
    (tmp_path / "with space\tand tab.py").write_text("new\n")
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)))
    git("add", "-A", "-f")
    git("commit", "-qm", "second")
    git("checkout", "-q", "main")
    return find_place("", str(tmp_path), base, "work")


def test_every_changed_file_is_listed_with_its_counts(place):
    found = {file.path: (file.added, file.removed) for file in changed_files(place, os.environ).files}
    assert found["a.py"] == (1, 1)
    assert found["gone.py"] == (0, 1)
    assert found["picture.bin"] == (None, None)
    assert found["with space\tand tab.py"] == (1, 0)


def test_a_file_that_usually_holds_secrets_is_named_and_never_shown(place):
    (file,) = [one for one in changed_files(place, os.environ).files if one.path == ".env"]
    assert file.is_withheld
    assert patch_of(place, os.environ, ".env").patch == ""
    assert "value" not in patch_of(place, os.environ, ".").patch


def test_the_patch_of_one_file_has_no_other(place):
    assert "-two\n+2" in patch_of(place, os.environ, "a.py").patch
    assert "gone" not in patch_of(place, os.environ, "a.py").patch
    assert patch_of(place, os.environ, "*.py").patch == ""


def test_a_long_patch_is_cut_and_says_so(place, monkeypatch):
    monkeypatch.setattr(git_diff, "MOST_PATCH", 20)
    found = patch_of(place, os.environ, "a.py")
    assert (len(found.patch), found.is_cut) == (20, True)


def test_a_worktree_that_still_exists_shows_what_is_not_committed(place, tmp_path):
    (tmp_path / "a.py").write_text("one\nthree\n")
    here = find_place(str(tmp_path), "/nowhere", place.base, "work")
    assert here.is_worktree
    assert "+three" in patch_of(here, os.environ, "a.py").patch


def test_a_branch_that_is_gone_is_an_error_with_a_reason(place):
    gone = find_place("", place.folder, place.base, "no-such-branch")
    with pytest.raises(DeputyError, match="git failed"):
        changed_files(gone, os.environ)
