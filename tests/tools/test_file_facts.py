import os

from deputy.core.contract import FileFact
from deputy.tools.file_facts import file_facts


def test_a_path_that_leads_out_is_there_and_not_inside_and_one_that_cannot_be_is_not_there(tmp_path):
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder/one").write_text("x")
    (tmp_path / "outside").write_text("four")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    os.utime(tmp_path / "outside", (5, 5))
    folder, link, *absent = file_facts(root, ["folder", "link", "loop", "missing", "nul\0"])
    assert (folder.exists, folder.size, folder.is_inside) == (True, 1, True)
    assert link == FileFact(path="link", exists=True, size=4, modified_at=5.0, is_inside=False)
    assert [fact.exists for fact in absent] == [False, False, False]
