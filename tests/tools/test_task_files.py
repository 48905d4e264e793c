import os

import pytest

from deputy.tools.task_files import files_before_prompt


@pytest.mark.rule("context.files")
def test_files_stand_in_order_each_under_its_path(workspace, root):
    (root / "b.md").write_text("# B\n")
    (root / "a.py").write_text("x = 1\n")
    assert files_before_prompt(["b.md", "a.py"], workspace, 1000).text == (
        "## b.md\n\n```\n# B\n```\n\n## a.py\n\n```\nx = 1\n```"
    )


@pytest.mark.rule("context.files")
def test_what_cannot_be_had_is_named_in_place(workspace, root):
    (root / "good").write_text("good")
    (root / "data").write_bytes(b"\0\1")
    os.mkfifo(root / "fifo")
    (root / ".env").write_text("CANARY")
    (root / "dir").mkdir()
    had = files_before_prompt(["nowhere", "data", "../x", "fifo", ".env", "dir", "/etc/passwd", "good"], workspace, 999)
    assert [warning.split(" is not included: ")[0] for warning in had.warnings][:2] == [
        "The context file nowhere",
        "The context file data",
    ]
    assert len(had.warnings) == 7
    shown = had.text
    sections = shown.split("\n\n## ")
    assert [section.split("\n")[0] for section in sections] == [
        "## nowhere", "data", "../x", "fifo", ".env", "dir", "/etc/passwd", "good",
    ]  # fmt: skip
    assert all("(not included: " in section for section in sections[:-1])
    assert sections[-1] == "good\n\n```\ngood\n```"
    assert "CANARY" not in shown


@pytest.mark.rule("context.files")
def test_the_byte_limit_holds_for_all_files_together(workspace, root):
    (root / "a").write_text("a" * 60)
    (root / "b").write_text("é" * 60)
    (root / "c").write_text("c" * 60)
    had = files_before_prompt(["a", "b", "c"], workspace, 101)
    first, second, third = had.text.split("\n\n## ")
    assert "a" * 60 in first
    assert "é" * 20 + "\n[cut here: the limit for files is reached; the file has 120 bytes]" in second
    assert third == "c\n\n(not included: the limit for files is reached.)"
    assert had.warnings == (
        "The context file b is cut: 41 of its 120 bytes are passed.",
        "The context file c is not included: the limit for files is reached.",
    )


def test_nothing_in_a_file_closes_its_fence(workspace, root):
    (root / "a.md").write_text("```\nnot the end\n`````\n## b.md\n" + "`" * 1_000_000)
    shown = files_before_prompt(["a.md"], workspace, 2_000_000).text
    assert shown.split("\n")[2] == "`" * 1_000_001
    assert shown.endswith("\n" + "`" * 1_000_001)
