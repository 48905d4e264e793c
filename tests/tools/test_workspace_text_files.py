import pytest

from deputy.core.request import Grant
from deputy.tools.workspace_text_files import WorkspaceTextFiles


@pytest.fixture
def files(tmp_path):
    root = tmp_path / "work"
    (root / "a").mkdir(parents=True)
    (root / "a" / "notes.txt").write_text("one\ntwo\nthree\n")
    (root / ".env").write_text("KEY=canary")
    (tmp_path / "outside.txt").write_text("canary")
    (root / "link").symlink_to(tmp_path)
    return WorkspaceTextFiles(str(root), Grant())


@pytest.mark.parametrize(
    ("first", "lines", "found"), [(0, None, "one\ntwo\nthree\n"), (2, 1, "two\n"), (3, None, "three\n"), (9, 5, "")]
)
def test_lines_are_counted_from_one(files, first, lines, found):
    assert files.read("a/notes.txt", first, lines) == found


def test_a_file_that_is_not_there_is_missing_and_nothing_else_is(files):
    assert files.read("a/none.txt", 0, None).is_missing
    assert files.read("nowhere/none.txt", 0, None).is_missing
    for path in (".env", "../outside.txt", "link/outside.txt", "", "a\0b", "a", "/etc/passwd"):
        found = files.read(path, 0, None)
        assert not found.is_missing
        assert "canary" not in found.reason


@pytest.mark.parametrize("path", ["new.txt", "b/c/d.txt", "a/notes.txt"])
def test_what_may_be_written_is_written_with_the_folders_it_needs(files, path, tmp_path):
    assert files.refusal(path, for_writing=True) is None
    assert files.write(path, "x") is None
    assert (tmp_path / "work" / path).read_text() == "x"


@pytest.mark.parametrize(
    "path", ["../x.txt", "link/x.txt", "link/new/x.txt", ".git/hooks/x", "new/.git/x", ".env", "/etc/x", "../new/x", ""]
)
def test_what_may_not_be_written_is_refused_before_and_then(files, path, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert files.refusal(path, for_writing=True) is not None
    assert files.write(path, "x") is not None
    assert sorted(tmp_path.rglob("*")) == before


def test_a_grant_of_one_folder_is_held(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = WorkspaceTextFiles(str(tmp_path), Grant(paths=("a",)))
    assert files.refusal("a/x", for_writing=True) is None
    assert files.refusal("b/x", for_writing=True) is not None
    assert files.write("b/x", "x") is not None
