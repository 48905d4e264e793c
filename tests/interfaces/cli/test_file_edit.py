import stat

import pytest

from deputy.core.errors import UsageError
from deputy.interfaces.cli.file_edit import FileEdit, apply_edits, read_user_file


def test_a_new_file_and_its_folders_are_private(tmp_path):
    path = tmp_path / "a/b/settings"
    edit = FileEdit(path=str(path), before=read_user_file(str(path)), after="x\n")
    assert apply_edits([edit], yes=True) == ("written", [])
    assert path.read_text() == "x\n"
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]


def test_a_change_keeps_mode_link_and_a_backup(tmp_path, capsys):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old\n")
    real.chmod(0o640)
    link.symlink_to(real)
    edit = FileEdit(path=str(link), before="old\n", after="new\n")
    result, [backup] = apply_edits([edit], yes=True)
    assert (result, real.read_text(), link.is_symlink()) == ("written", "new\n", True)
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert (tmp_path / backup).read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["link", "real", backup.rpartition("/")[2]])
    assert f"--- {link}\n+++ {link}\n@@ -1 +1 @@\n-old\n+new\n" in capsys.readouterr().err


def test_nothing_is_written_without_a_yes_or_a_change(tmp_path):
    path = tmp_path / "settings"
    path.write_text("old\n")
    edit = FileEdit(path=str(path), before="old\n", after="new\n")
    assert apply_edits([edit], yes=False) == ("declined", [])
    assert apply_edits([edit], yes=True, dry_run=True) == ("shown", [])
    assert apply_edits([FileEdit(path=str(path), before="old\n", after="old\n")], yes=True) == ("unchanged", [])
    assert [place.name for place in tmp_path.iterdir()] == ["settings"]


def test_a_removed_file_is_kept_as_backup(tmp_path):
    path = tmp_path / "settings"
    path.write_text("old\n")
    _, [backup] = apply_edits([FileEdit(path=str(path), before="old\n", after=None)], yes=True)
    assert not path.exists()
    assert (tmp_path / backup).read_text() == "old\n"


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.write_bytes(b"\xff")])
def test_what_cannot_be_read_as_text_is_a_usage_error(tmp_path, make):
    make(tmp_path / "settings")
    with pytest.raises(UsageError):
        read_user_file(str(tmp_path / "settings"))
