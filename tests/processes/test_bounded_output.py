import json
import stat

from hypothesis import given
from hypothesis import strategies as st
from tests.support.every_case import every_case

from deputy.core.redaction import Redactor
from deputy.processes.bounded_output import (
    MOST_PARTS,
    HeadAndTail,
    JsonParts,
    LineReader,
    SpillFile,
    has_too_many_parts,
)

MANY = MOST_PARTS + 1


@given(st.lists(st.binary(max_size=30)), st.integers(1, 20))
def test_lines_are_those_of_the_whole_however_it_is_cut(chunks, limit):
    lines = LineReader(limit)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    *whole, rest = b"".join(chunks).split(b"\n")
    assert found == [line for line in whole if len(line) <= limit]
    assert lines.rest() == (rest if len(rest) <= limit else b"")
    assert lines.too_long == sum(len(line) > limit for line in (*whole, rest))


def test_a_file_takes_output_up_to_its_cap_and_is_its_owners_alone(tmp_path):
    spill = SpillFile(str(tmp_path / "raw"), limit_bytes=10)
    for _ in range(5):
        spill.feed("äb\n".encode())
    spill.close()
    spill.close()
    kept = (tmp_path / "raw").read_bytes()
    assert kept == "äb\näb\nä".encode()[:10]
    assert stat.S_IMODE((tmp_path / "raw").stat().st_mode) == 0o600


def test_secrets_do_not_get_into_the_file(tmp_path):
    spill = SpillFile(str(tmp_path / "raw"), Redactor(["hunter2hunter2"]))
    for piece in (b"key: hunter2", b"hunter2 and ", b"more"):
        spill.feed(piece)
    spill.close()
    assert (tmp_path / "raw").read_text() == "key: [redacted] and more"


def test_a_file_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "no" / "folder", tmp_path / "link"):
        spill = SpillFile(str(path))
        spill.feed(b"x")
        spill.close()
    assert not (tmp_path / "elsewhere").exists()


@every_case("part", ["[]", "{}", "1", '""', r'"\\"', r'"\""'])
def test_a_text_of_very_many_parts_has_too_many(part):
    assert has_too_many_parts(f"[{','.join([part] * MANY)}]".encode())


@every_case("said", [",", "[", '"', "\\", '",', '\\",[', "\\\\,"])
def test_what_stands_in_a_string_is_no_part(said):
    assert not has_too_many_parts(json.dumps({"text": said * MANY, "more": ["\\", said]}).encode())


def counted(text: bytes, size: int) -> int:
    parts = JsonParts()
    return [parts.count(text[start : start + size]) for start in range(0, len(text), size)][-1]


@every_case("size", [1, 2, 3, 7, 1000])
@every_case("said", ["a", ",", '"', "\\", '\\"', '\\\\",[', "\n,{"])
def test_however_it_is_cut_into_pieces_the_same_is_counted(size, said):
    text = json.dumps([{said: [said, 1, said]}] * 5).encode()
    assert counted(text, size) == 1 + 4 + 5 * (1 + 1 + 2)


@every_case("size", [1, 5, 1000])
@every_case("end", [b"\n", b"\r", b"\r\n"])
def test_a_string_that_a_line_leaves_open_hides_nothing_of_the_next(size, end):
    assert counted(b': it"s' + end + b"data: [1,1,1]" + end + b'data: {"a":1}' + end, size) == 4
    assert counted(b': it"s' + end + b'data: ["a, b"]' + end, 1) == 1


@given(st.lists(st.binary(max_size=40)), st.integers(0, 20), st.integers(0, 20))
def test_head_tail_and_count_are_those_of_the_whole(chunks, head, tail):
    kept, whole = HeadAndTail(head, tail), b"".join(chunks)
    assert all(kept.feed(chunk) for chunk in chunks)
    assert kept.total == len(whole)
    if len(whole) <= head + tail:
        assert kept.text == whole.decode("utf-8", "replace")
    else:
        missing = len(whole) - head - tail
        last = whole[len(whole) - tail :].decode("utf-8", "replace")
        assert kept.text == f"{whole[:head].decode('utf-8', 'replace')}\n[… {missing:,} bytes left out …]\n{last}"
