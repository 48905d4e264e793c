import io
import os
import sys

import pytest

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import read_source, read_text


def test_a_file_is_read_whole(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfna\xc3\xafve \xff")
    assert read_source(str(file)) == file.read_bytes()
    assert read_text(str(file)) == "naïve �"


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello")))
    assert read_text("-") == "hello"


def test_a_missing_file_is_named_with_the_way_out(tmp_path):
    with pytest.raises(UsageError, match=r"FILE: found '.*nothing.md'; cannot read it: No such file.*- for stdin"):
        read_source(str(tmp_path / "nothing.md"))


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, kind):
    path = tmp_path / kind
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path = "/dev/zero"
    with pytest.raises(UsageError, match="not a regular file"):
        read_source(str(path))


def test_a_file_over_the_bound_is_refused(tmp_path):
    file = tmp_path / "big"
    file.write_bytes(b"x" * 2_000_000)
    with pytest.raises(UsageError, match="larger than the limit of 1 MiB"):
        read_source(str(file), limit_bytes=1_048_576)
    assert len(read_source(str(file), limit_bytes=2_000_000)) == 2_000_000
