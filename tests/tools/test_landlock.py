import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from deputy.tools.landlock import spawn_confined


@pytest.mark.rule("workspace")
def test_a_confined_program_reads_beneath_its_directory_and_changes_nothing(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.write_text("CANARY")
    (inside / "a.txt").write_text("inside")
    (inside / "link").symlink_to(outside)

    def run(*arguments):
        program = os.path.realpath("/bin/" + arguments[0])
        spawn = partial(
            subprocess.Popen[bytes],
            [program, *arguments[1:]],
            cwd=inside,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        root = os.open(inside, os.O_RDONLY)
        try:
            with spawn_confined(spawn, program=program, beneath=root) as child:
                return child.wait(), child.stdout.read()
        finally:
            os.close(root)

    assert run("cat", "a.txt") == (0, b"inside")
    for arguments in (("cat", "link"), ("cat", "../outside"), ("cat", "/etc/passwd"), ("ls", "/etc"), ("touch", "new")):
        code, said = run(*arguments)
        assert code != 0
        assert b"CANARY" not in said
        assert b"root:" not in said
    assert not (inside / "new").exists()
    assert Path("/etc/passwd").read_text()


def test_a_program_that_is_not_there_is_an_error(tmp_path):
    root = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(FileNotFoundError):
        spawn_confined(partial(subprocess.Popen[bytes], ["/nowhere/rg"]), program="/nowhere/rg", beneath=root)
    os.close(root)
