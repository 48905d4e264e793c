import os
import stat

import pytest

from deputy.core.request import Grant
from deputy.tools.edit import edit_tool
from deputy.tools.file_change import replace_file
from deputy.tools.tool_text import ToolError
from deputy.tools.workspace import Workspace
from deputy.tools.write import write_tool


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_created_with_the_directories_above_it(workspace, root, call):
    wrote = call(write_tool(workspace), path="a/b/c.txt", content="naïve\n")
    assert wrote.text == "Created a/b/c.txt (7 bytes)."
    assert wrote.changed == ("a/b/c.txt",)
    assert (root / "a/b/c.txt").read_text() == "naïve\n"


def test_a_file_is_replaced_whole_and_keeps_its_mode(workspace, root, call):
    file = root / "script.sh"
    file.write_text("old and longer")
    file.chmod(0o750)
    assert call(write_tool(workspace), path="script.sh", content="new").text == "Replaced script.sh (3 bytes)."
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert names(root) == ["script.sh"]


def test_a_link_inside_is_written_through_and_stays_a_link(workspace, root, call):
    (root / "real.txt").write_text("old")
    (root / "link.txt").symlink_to("real.txt")
    assert call(write_tool(workspace), path="link.txt", content="new").changed == ("real.txt",)
    assert (root / "link.txt").is_symlink()
    assert (root / "real.txt").read_text() == "new"


@pytest.mark.rule("workspace")
@pytest.mark.parametrize(
    "path", [".", "a", "a/", "new/", "fifo", ".git/hooks/pre-commit", ".GIT/config", ".env", "a/../b"]
)
def test_what_must_not_be_written_is_left_alone(workspace, root, call, path):
    (root / "a").mkdir()
    (root / ".git").mkdir()
    os.mkfifo(root / "fifo")
    assert call(write_tool(workspace), path=path, content="x").is_error
    assert [name for name in names(root) if name != "new"] == [".git", "a", "fifo"]
    assert not names(root / ".git")


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(workspace, root):
    (root / "a.txt").write_text("old")
    with workspace.place("a.txt") as place:
        (root / "a.txt").write_text("somebody else's")
        with pytest.raises(ToolError, match="changed by another process"):
            replace_file(place, b"mine")
    with workspace.place("a.txt") as place, pytest.raises(ToolError, match="the limit is"):
        replace_file(place, bytes(11 * 1024 * 1024))
    assert (root / "a.txt").read_text() == "somebody else's"
    assert names(root) == ["a.txt"]


def test_an_edit_replaces_exactly_one_place(workspace, root, call):
    (root / "a.py").write_text("x = 1\ny = 1\n")
    edited = call(edit_tool(workspace), path="a.py", old="y = 1", new="y = 2")
    assert edited.changed == ("a.py",)
    assert (root / "a.py").read_text() == "x = 1\ny = 2\n"


def test_an_edit_that_is_not_clear_changes_nothing(workspace, root, call):
    (root / "a.py").write_text("x = 1\ny = 1\n")
    edit = edit_tool(workspace)
    assert "occurs 2 times in a.py (lines 1, 2)" in call(edit, path="a.py", old="= 1", new="= 2").text
    assert "does not occur in a.py" in call(edit, path="a.py", old="z", new="w").text
    assert "are equal" in call(edit, path="a.py", old="x", new="x").text
    assert "old: " in call(edit, path="a.py", old="", new="x").text
    missing = call(edit, path="nowhere", old="a", new="b")
    assert (missing.text, missing.data) == ("nowhere does not exist.", "The workspace has:\na.py")
    assert (root / "a.py").read_text() == "x = 1\ny = 1\n"
    assert call(edit, path="a.py", old="= 1", new="= 2", replace_all=True).text == "Replaced 2 occurrences in a.py."
    assert (root / "a.py").read_text() == "x = 2\ny = 2\n"


def test_an_edit_keeps_line_ends_and_bytes_that_are_no_text(workspace, root, call):
    (root / "a.txt").write_bytes(b"one\r\ntwo\r\ncaf\xe9\r\n")
    assert not call(edit_tool(workspace), path="a.txt", old="one\ntwo", new="1\n2").is_error
    assert (root / "a.txt").read_bytes() == b"1\r\n2\r\ncaf\xe9\r\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"#!/bin/sh\necho x\ncat 'a\r\nb'\n", "echo x", "echo x\ny", b"#!/bin/sh\necho x\ny\ncat 'a\r\nb'\n"),
        (b"a\nb\nc\r\nd\r\n", "a\nb", "1\n2", b"1\n2\nc\r\nd\r\n"),
        (b"a\nb\nc\r\nd\r\n", "c\nd", "1\n2", b"a\nb\n1\r\n2\r\n"),
        (b"a\r\nb\r\n", "a\r\nb\r\n", "a\nb\n", b"a\nb\n"),
        (b"a\r\nb\r\n", "a", "1\n2", b"1\r\n2\r\nb\r\n"),
    ],
)  # fmt: skip
def test_an_edit_writes_the_line_ends_that_it_was_given_unless_the_file_has_only_others(
    workspace, root, call, before, old, new, after
):
    (root / "a.txt").write_bytes(before)
    assert not call(edit_tool(workspace), path="a.txt", old=old, new=new).is_error
    assert (root / "a.txt").read_bytes() == after


@pytest.mark.rule("workspace")
def test_no_directory_is_made_where_nothing_may_be_written(tmp_path, call):
    for name in ("src", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "src/link").symlink_to("../other")
    tool = write_tool(Workspace(tmp_path, Grant(paths=("src/new/deep", "src/link"))))
    assert call(tool, path="src/link/made/x", content="").is_error
    assert call(tool, path="src/link/.git/hooks/x", content="").is_error
    assert not names(tmp_path / "other")
    assert call(tool, path="src/new/deep/down/x", content="").is_error
    (tmp_path / "src/new/deep").mkdir(parents=True)
    assert not call(tool, path="src/new/deep/down/x", content="").is_error
