"""What counts as a part of a message, and what does not."""

import json

import pytest

from deputy.tools.mcp_parts import MOST_PARTS, has_too_many_parts

MANY = MOST_PARTS + 1


@pytest.mark.parametrize("part", ["[]", "{}", "1", '""', r'"\\"', r'"\""'])
def test_a_text_of_very_many_parts_has_too_many(part):
    assert has_too_many_parts(f"[{','.join([part] * MANY)}]".encode())


@pytest.mark.parametrize("said", [",", "[", '"', "\\", '",', '\\",[', "\\\\,"])
def test_what_stands_in_a_string_is_no_part(said):
    assert not has_too_many_parts(json.dumps({"text": said * MANY, "more": ["\\", said]}).encode())
