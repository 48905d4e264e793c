"""What counts as a part of a message, and what does not."""

import json

import pytest

from deputy.tools.json_parts import MOST_PARTS, JsonParts, has_too_many_parts

MANY = MOST_PARTS + 1


@pytest.mark.parametrize("part", ["[]", "{}", "1", '""', r'"\\"', r'"\""'])
def test_a_text_of_very_many_parts_has_too_many(part):
    assert has_too_many_parts(f"[{','.join([part] * MANY)}]".encode())


@pytest.mark.parametrize("said", [",", "[", '"', "\\", '",', '\\",[', "\\\\,"])
def test_what_stands_in_a_string_is_no_part(said):
    assert not has_too_many_parts(json.dumps({"text": said * MANY, "more": ["\\", said]}).encode())


def counted(text: bytes, size: int) -> int:
    parts = JsonParts()
    return [parts.count(text[start : start + size]) for start in range(0, len(text), size)][-1]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("said", ["a", ",", '"', "\\", '\\"', '\\\\",[', "\n,{"])
def test_however_it_is_cut_into_pieces_the_same_is_counted(size, said):
    text = json.dumps([{said: [said, 1, said]}] * 5).encode()
    assert counted(text, size) == 1 + 4 + 5 * (1 + 1 + 2)


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_string_that_a_line_leaves_open_hides_nothing_of_the_next(size, end):
    assert counted(b': it"s' + end + b"data: [1,1,1]" + end + b'data: {"a":1}' + end, size) == 4
    assert counted(b': it"s' + end + b'data: ["a, b"]' + end, 1) == 1
