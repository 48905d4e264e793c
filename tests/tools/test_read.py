import os
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.tools.read import _ReadArguments, _shown, _shown_whole, read_tool
from deputy.tools.workspace import Workspace


def test_lines_are_numbered_from_one(workspace, root, call):
    (root / "a.txt").write_text("one\ntwo\n\nfour")
    assert call(read_tool(workspace), path="a.txt").text == "     1\tone\n     2\ttwo\n     3\t\n     4\tfour"


def test_a_range_of_lines_says_what_follows(workspace, root, call):
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    shown = call(read_tool(workspace), path="a.txt", offset=10, limit=3).text.splitlines()
    assert shown[0] == "    10\tline 10"
    assert shown[2] == "    12\tline 12"
    assert shown[3] == "[lines 10–12 of a.txt; 4,988 lines follow: continue with offset=13]"
    whole = call(read_tool(workspace), path="a.txt").text.splitlines()
    assert len(whole) == 2001
    assert whole[-1] == "[lines 1–2000 of a.txt; 3,000 lines follow: continue with offset=2001]"
    (root / "mega").write_text("x" * 1023 + "\n" + "y" * (1024 * 1024 - 1024))
    assert call(read_tool(workspace), path="mega", offset=9).text == "mega has 2 lines; line 9 is past its end."
    last = call(read_tool(workspace), path="a.txt", offset=5000).text
    assert last == "  5000\tline 5000"


def test_an_offset_past_the_end_tells_how_long_the_file_is(workspace, root, call):
    (root / "a.txt").write_text("one\ntwo")
    assert call(read_tool(workspace), path="a.txt", offset=3).text == "a.txt has 2 lines; line 3 is past its end."
    assert call(read_tool(workspace), path="a.txt", offset=9).text == "a.txt has 2 lines; line 9 is past its end."
    (root / "empty").write_text("")
    assert call(read_tool(workspace), path="empty").text == "empty is empty."


def test_output_stays_within_its_bytes_and_says_where_to_go_on(workspace, root, call):
    (root / "a.txt").write_text("é" * 50 + "\n" + ("x" * 99 + "\n") * 1000)
    shown = call(read_tool(workspace), path="a.txt", output_bytes=1000).text
    assert len(shown.encode()) < 1300
    assert "continue with offset=" in shown


def test_a_line_without_end_is_cut(workspace, root, call):
    (root / "min.js").write_text("x" * 3_000_000 + "\nafter\n")
    first, second = call(read_tool(workspace), path="min.js").text.splitlines()
    assert first == f"     1\t{'x' * 4000} [… 2,996,001 more bytes]"
    assert second == "     2\tafter"


@pytest.mark.rule("workspace")
def test_binary_and_huge_files_are_described(workspace, root, call):
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0" * 100)
    assert (
        call(read_tool(workspace), path="image.png").text
        == "image.png is a binary file of 1,100 bytes; Read shows only text."
    )
    with (root / "huge.log").open("wb") as file:
        file.write(b"first\nsecond\n")
        file.truncate(300 * 1024 * 1024)
    (root / "big.log").write_text("a line of a log\n" * 1_000_000)
    described = call(read_tool(workspace), path="big.log")
    assert described.text.startswith("big.log has 16,000,000 bytes, too many to show whole: search it with Grep")
    part = call(read_tool(workspace), path="big.log", offset=999_999).text
    assert part == "999999\ta line of a log\n1000000\ta line of a log"
    assert call(read_tool(workspace), path="huge.log").text.startswith("huge.log is a binary file")


def test_other_encodings_are_read_and_bad_bytes_replaced(workspace, root, call):
    (root / "utf16").write_bytes("naïve\nzwei\n".encode("utf-16"))
    (root / "bom").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (root / "latin").write_bytes(b"caf\xe9\n")
    assert call(read_tool(workspace), path="utf16").text == "     1\tnaïve\n     2\tzwei"
    assert call(read_tool(workspace), path="bom").text == "     1\tone\n     2\ttwo"
    assert call(read_tool(workspace), path="latin").text == "     1\tcaf�"


@pytest.mark.rule("workspace")
def test_what_is_no_file_is_named_and_never_waited_for(workspace, root, call):
    os.mkfifo(root / "fifo")
    (root / "directory").mkdir()
    for path, kind in (("fifo", "a FIFO"), ("directory", "a directory")):
        assert call(read_tool(workspace), path=path).text.startswith(f"{path} is {kind}, not a file")
    for device in ("zero", "null", "tty", "random"):
        read = call(read_tool(Workspace("/dev")), path=device)
        assert (read.text, read.is_error) == (f"{device} is a character device, not a file.", True)


def test_every_bad_argument_is_named_and_nothing_is_read(workspace, call):
    read = call(read_tool(workspace), offset=[], limit="x", colour="red", encoding=None)
    assert read.is_error
    assert read.is_our_own
    for field in ("path: missing", "offset: ", "limit: "):
        assert f"- {field}" in read.text
    assert read.text.endswith("['colour', 'encoding': unknown, ignored; the fields are path, offset, limit]")


def test_harmless_mistakes_of_a_model_are_corrected(root, workspace, call):
    (root / "a.txt").write_text("one\ntwo\n")
    whole = call(read_tool(workspace), path="a.txt").text
    assert call(read_tool(workspace), path="a.txt", offset=0, limit=10**6).text == whole
    assert call(read_tool(workspace), path="a.txt", offset="1", limit=None).text == whole
    assert call(read_tool(workspace), path="a.txt", limit=-5).text.startswith("     1\tone\n")
    noted = call(read_tool(workspace), path="a.txt", start=1)
    assert (noted.text.startswith(whole), noted.is_error) == (True, False)
    assert "['start': unknown, ignored; the fields are path, offset, limit]" in noted.text


def test_a_path_that_does_not_exist_is_answered_with_those_that_do(root, workspace, call):
    (root / "docs").mkdir()
    (root / "docs" / "guide.md").write_text("x")
    (root / "a.txt").write_text("x")
    read = read_tool(workspace)
    by_name = call(read, path="guide.md")
    assert (by_name.text, by_name.data) == ("guide.md does not exist.", "There is:\ndocs/guide.md")
    assert call(read, path="docs/more.md").data == "docs has:\ndocs/guide.md"
    assert call(read, path="src/deep/more.md").data == "The workspace has:\na.txt\ndocs/guide.md"
    folder = call(read, path="docs")
    assert (folder.text, folder.data) == ("docs is a directory, not a file.", "docs/guide.md")
    assert (folder.is_our_own, folder.is_error) == (True, False)


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\t", b"\0", b"\xc3\xa9", b"\xff", b"\xe2\x82", b"\xef\xbb\xbf"])),
    st.integers(1, 5),
    st.sampled_from([1, 2, 2000]),
    st.sampled_from([20, 100, 100_000]),
)
def test_a_small_file_is_shown_at_once_as_it_would_be_line_by_line(pieces, offset, limit, output_bytes):
    content, asked = b"".join(pieces), _ReadArguments(path="f", offset=offset, limit=limit)
    at_once = _shown_whole(content, asked, output_bytes)
    assert at_once in (None, _shown(BytesIO(content), "f", len(content), asked, output_bytes).text)


def test_a_plain_small_file_is_shown_at_once():
    asked = _ReadArguments(path="f", offset=2)
    assert _shown_whole(b"one\ntwo\nthree\n", asked, 1000) == "     2\ttwo\n     3\tthree"
