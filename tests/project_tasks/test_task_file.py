import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from deputy.core.errors import StorageCorrupt, StorageDenied, StorageFull, StorageTooNew, UsageError
from deputy.project_tasks.task_file import LIMIT_BYTES, TaskFile


def test_tasks_are_numbered_kept_and_found(tmp_path: Path) -> None:
    tasks = TaskFile(tmp_path)
    assert tasks.tasks() == ()
    first = tasks.add("  First\n task ", text="t", language="python", at="now")
    second = tasks.add("Second", at="now")
    assert (first.number, first.title, second.number) == (1, "First task", 2)
    assert TaskFile(tmp_path).tasks() == (first, second)
    assert tasks.find(2) == second
    with pytest.raises(UsageError, match="has no task of this number"):
        tasks.find(3)


def test_the_file_is_readable_and_one_field_stands_on_a_line(tmp_path: Path) -> None:
    tasks = TaskFile(tmp_path)
    tasks.add("First", at="now")
    lines = tasks.path.read_text().splitlines()
    assert '      "title": "First",' in lines
    assert '      "number": 1,' in lines


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    tasks = TaskFile(tmp_path)
    tasks.add("First", at="now")
    before = tasks.path.read_bytes()

    def fail(task: object) -> None:
        raise UsageError("x", "y", "z")

    with pytest.raises(UsageError):
        tasks.change(1, fail)  # pyright: ignore
    assert tasks.path.read_bytes() == before


def test_a_file_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    tasks = TaskFile(tmp_path)
    tasks.add("First", at="now")
    with pytest.raises(StorageFull, match="larger than 16 MiB"):
        tasks.add("Second", text="x" * LIMIT_BYTES, at="now")
    assert [task.title for task in tasks.tasks()] == ["First"]


ADD = """
import sys
from pathlib import Path
from deputy.project_tasks.task_file import TaskFile
for number in range(20):
    TaskFile(Path(sys.argv[1])).add(f"{sys.argv[2]} {number}", at="now")
"""


def test_several_processes_lose_none_of_each_others_tasks(tmp_path: Path) -> None:
    adding = [subprocess.Popen([sys.executable, "-c", ADD, str(tmp_path), str(name)]) for name in range(4)]
    assert [process.wait(60) for process in adding] == [0] * 4
    tasks = TaskFile(tmp_path).tasks()
    assert [task.number for task in tasks] == list(range(1, 81))
    assert len({task.title for task in tasks}) == 80


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"{", StorageCorrupt, "cannot be read"),
        (b'{"version": 99, "tasks": []}', StorageTooNew, "version is 99"),
        (b'{"tasks": [\n<<<<<<< HEAD\n]}', StorageCorrupt, "conflict on line 2"),
        (b'{"tasks": [{"number": 1, "title": "a"}, {"number": 1, "title": "b"}]}', StorageCorrupt, "number 1"),
        (b'{"tasks": [{"number": 0, "title": "a"}]}', StorageCorrupt, "number 0"),
        (b'{"tasks": [{"number": 1, "title": "a", "status": "done"}]}', StorageCorrupt, "status"),
        (b"[" * 100_000, StorageCorrupt, "cannot be read"),
        (b'{"tasks": [], "more": 1}', StorageCorrupt, "more"),
    ],
)
def test_a_file_that_is_not_right_is_refused_with_path_and_reason(
    tmp_path: Path, content: bytes, error: type[Exception], words: str
) -> None:
    tasks = TaskFile(tmp_path)
    tasks.path.parent.mkdir()
    tasks.path.write_bytes(content)
    with pytest.raises(error, match=words) as caught:
        tasks.tasks()
    assert str(tasks.path) in str(caught.value)
    with pytest.raises(error):
        tasks.add("x", at="now")
    assert tasks.path.read_bytes() == content


def test_links_and_pipes_in_its_place_are_refused(tmp_path: Path) -> None:
    tasks = TaskFile(tmp_path)
    tasks.path.parent.mkdir()
    os.mkfifo(tasks.path)
    with pytest.raises(StorageDenied):
        tasks.tasks()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / ".deputy").symlink_to(elsewhere)
    with pytest.raises(StorageDenied, match="symbolic link"):
        TaskFile(other).add("x", at="now")
    assert list(elsewhere.iterdir()) == []


def test_a_removed_task_is_gone(tmp_path: Path) -> None:
    tasks = TaskFile(tmp_path)
    tasks.add_all([("a", "", ""), ("b", "", "")], at="now")
    tasks.remove(1)
    assert [task.number for task in tasks.tasks()] == [2]
    assert tasks.add("c", at="now").number == 3
    tasks.change(2, lambda task: structs.replace(task, text="new"))
    assert msgspec.json.decode(tasks.path.read_bytes())["tasks"][0]["text"] == "new"


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    tasks = TaskFile(tmp_path)
    tasks.add_all([("a", "", ""), ("b", "", "")], at="now")
    assert "next" not in msgspec.json.decode(tasks.path.read_bytes())
    tasks.remove(2)
    tasks.remove(1)
    tasks = TaskFile(tmp_path)
    assert tasks.add("c", at="now").number == 3
    assert "next" not in msgspec.json.decode(tasks.path.read_bytes())
    tasks.remove(3)
    assert [task.number for task in tasks.add_all([("d", "", ""), ("e", "", "")], at="now")] == [4, 5]


def test_the_work_folder_is_made_and_no_link_leads_out_of_the_project(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    tasks = TaskFile(project)
    for _ in range(2):
        tasks.make_folder(".deputy/work/001_one")
    assert (project / ".deputy/work/001_one").is_dir()
    (project / ".deputy/link").symlink_to(outside)
    with pytest.raises(StorageDenied, match="symbolic link"):
        tasks.make_folder(".deputy/link/001_one")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["tasks.json", "tasks.lock"])
def test_a_link_in_place_of_a_file_is_named_and_refused(tmp_path: Path, name: str) -> None:
    tasks = TaskFile(tmp_path)
    tasks.add("x", at="now")
    (tmp_path / ".deputy" / name).rename(tmp_path / "elsewhere")
    (tmp_path / ".deputy" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageDenied, match=f"{name}: it is a symbolic link. Replace it by a regular file"):
        tasks.add("y", at="now")
